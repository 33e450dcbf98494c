"""Record stores of each kind, and a gate between a store and its server that can be shut."""

import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from streamguard.dispatch._records.records import RecordStore

KINDS = ("memory", "sqlite", "postgresql")
Store = Callable[..., RecordStore]


@pytest.fixture(params=KINDS)
def records_url(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """The URL of empty records, of each kind in turn."""
    if request.param == "memory":
        return None
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/records.db"
    found: str = request.getfixturevalue("postgresql")
    return found


@pytest.fixture(params=KINDS[1:])
def shared_records(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of empty records that several processes may use, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/records.db"
    found: str = request.getfixturevalue("postgresql")
    return found


@pytest.fixture
def open_store() -> Iterator[Store]:
    """Return a factory with `RecordStore`'s arguments; what it opens is closed after the test."""
    with ExitStack() as stack:

        def make(url: str | None, **options: float) -> RecordStore:
            store = RecordStore(url, **options)
            stack.callback(store.close)
            return store

        yield make


class Line:
    """A TCP line to *port* that can be cut, or go silent without an end."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.silent = threading.Event()
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            if select.select([self._listener], [], [], 0.02)[0]:
                thread = threading.Thread(target=self._carry, args=(self._listener.accept()[0],), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _carry(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._target)) as server:
            other = {client: server, server: client}
            while not self._over.is_set():
                for sock in select.select([client, server], [], [], 0.02)[0]:
                    if self.silent.is_set():
                        self._over.wait(0.02)
                        continue
                    data = sock.recv(65536)
                    if not data:
                        return
                    other[sock].sendall(data)
