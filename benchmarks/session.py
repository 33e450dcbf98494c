"""CPU per call on a warm connection: `Session.get(timeout=5)` against `requests.Session.get(timeout=5)`, side by side.

The server runs in a process of its own. "a pool's thread" is requests' call handed to a waiting thread of
`concurrent.futures`: what a bound that also covers name resolution and the wait for a pool has to cost at the least.
"""

import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any

import requests

from streamguard import Session

from .arena import SPAWN, take_turns
from .numbers import ratio, spread
from .table import Table, times

__all__ = ["REFERENCE", "measure", "tables"]

REFERENCE = "requests.Session"
_BODY = b'{"allowed": true, "pad": "%s"}' % (b"x" * 200)
_RESPONSE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
)


def _answer(connection: socket.socket) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    received = b""
    while data := connection.recv(65536):
        received += data
        if received.endswith(b"\r\n\r\n"):
            connection.sendall(_RESPONSE)
            received = b""


def _serve(ready: Connection) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    ready.send(listener.getsockname()[1])
    while True:
        threading.Thread(target=_answer, args=(listener.accept()[0],), daemon=True).start()


@contextmanager
def keep_alive_server() -> Iterator[str]:
    """Run a server of small JSON answers in a process of its own; give its URL."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}/"
    finally:
        process.kill()
        process.join()


def contenders(url: str, stack: ExitStack) -> dict[str, Callable[[], object]]:
    """Return one call of each, on sessions of their own that read no environment."""
    plain, ours = stack.enter_context(requests.Session()), stack.enter_context(Session())
    plain.trust_env = ours.trust_env = False
    pool = stack.enter_context(ThreadPoolExecutor(1))
    return {
        REFERENCE: lambda: plain.get(url, timeout=5),
        "a pool's thread": lambda: pool.submit(plain.get, url, timeout=5).result(5),
        "Session, no total": lambda: ours.get(url, timeout=(5, 5)),
        "Session": lambda: ours.get(url, timeout=5),
    }


def measure(*, quick: bool) -> dict[str, Any]:
    """Return CPU microseconds per call of each contender, round by round."""
    count, rounds = (200, 3) if quick else (1000, 9)
    with keep_alive_server() as url, ExitStack() as stack:
        return {"count": count, "rounds": rounds, "cpu": take_turns(contenders(url, stack), count, rounds)}


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Return the one table."""
    cpu = result["cpu"]
    rows = [(name, times(ratio(costs, cpu[REFERENCE])), f"{spread(costs)['median']:.0f}") for name, costs in cpu.items()]
    return [Table("one GET on a warm connection", ("", "× requests", "CPU, µs"), tuple(rows))]
