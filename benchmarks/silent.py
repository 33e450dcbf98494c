"""A server in a process of its own that answers with headers and one event, says nothing more, and notes who leaves when.

It watches all connections in one thread, so that a thousand of them that leave at once are noted without delay.
"""

import json
import os
import re
import resource
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

import requests

from streamguard._core.clock import monotonic
from streamguard.testing import tls as certificates

from .arena import SPAWN

__all__ = ["SilentServer", "raise_descriptor_limit", "silent_server"]

_EVENT = b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n'
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_ANSWER = _HEAD + b"%x\r\n%s\r\n" % (len(_EVENT), _EVENT)
_NUMBER = re.compile(rb"GET /([0-9]+) ")


@dataclass(frozen=True, slots=True)
class SilentServer:
    """Where it listens, and a way to ask what it saw."""

    url: str
    """A request for `url/7` is request number 7."""
    authority: str | None
    """The file to give as `verify=`, with TLS."""

    @property
    def verify(self) -> str | bool:
        """What a client gives as `verify=`."""
        return self.authority or True

    def left(self) -> dict[int, float]:
        """Return when the client of each request had left, since this was asked last."""
        found = requests.get(f"{self.url}/left", verify=self.verify, timeout=10).json()
        return {int(number): at for number, at in found.items()}


class _Watch:
    def __init__(self, context: ssl.SSLContext | None) -> None:
        self._context = context
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._poll = select.poll()
        self._open: dict[int, socket.socket] = {}
        self._numbers: dict[int, int] = {}
        self._left: dict[int, float] = {}
        self._poll.register(self._listener.fileno(), select.POLLIN)
        self.port = self._listener.getsockname()[1]

    def run(self) -> None:
        """Serve until the process is ended."""
        while True:
            for descriptor, _ in self._poll.poll():
                if descriptor == self._listener.fileno():
                    self._admit()
                else:
                    self._serve(descriptor)

    def _admit(self) -> None:
        connection, _ = self._listener.accept()
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._context is not None:
            connection = self._context.wrap_socket(connection, server_side=True)
        self._open[connection.fileno()] = connection
        self._poll.register(connection.fileno(), select.POLLIN)

    def _serve(self, descriptor: int) -> None:
        connection = self._open[descriptor]
        try:
            request = connection.recv(65536)
        except OSError:
            request = b""
        if not request:
            self._dismiss(descriptor)
        elif found := _NUMBER.match(request):
            self._numbers[descriptor] = int(found[1])
            connection.sendall(_ANSWER)
        else:
            connection.sendall(self._departures())

    def _departures(self) -> bytes:
        body = json.dumps(self._left).encode()
        self._left = {}
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)

    def _dismiss(self, descriptor: int) -> None:
        now = monotonic()
        if (number := self._numbers.pop(descriptor, None)) is not None:
            self._left[number] = now
        self._poll.unregister(descriptor)
        self._open.pop(descriptor).close()


def raise_descriptor_limit() -> None:
    """Let this process open as many files as the system grants it."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _serve(ready: Connection, secure: bool) -> None:
    raise_descriptor_limit()
    watch = _Watch(certificates.server_context() if secure else None)
    ready.send((watch.port, certificates.write_authority() if secure else None))
    watch.run()


@contextmanager
def silent_server(*, tls: bool = False) -> Iterator[SilentServer]:
    """Run the server in a process of its own."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=_serve, args=(there, tls), daemon=True)
    process.start()
    port, authority = here.recv()
    try:
        yield SilentServer(f"{'https' if tls else 'http'}://127.0.0.1:{port}", authority)
    finally:
        process.kill()
        process.join()
        if authority:
            os.unlink(authority)
