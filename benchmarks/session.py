"""CPU per call on a warm connection: `Session.get(timeout=5)` against `requests.Session.get(timeout=5)`, side by side.

The server runs in a process of its own. CPU time of this whole process is counted, all threads; the contenders take turns,
so that a machine that slows down slows all of them. "a pool's thread" is requests' call handed to a waiting thread of
`concurrent.futures`: what a bound that also covers name resolution and the wait for a pool has to cost at the least.
"""

import argparse
import multiprocessing
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection

import requests

from streamguard import Session

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
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}/"
    finally:
        process.terminate()
        process.join()


def contenders(url: str, stack: ExitStack) -> dict[str, Callable[[], object]]:
    """Return one call of each, on sessions of their own that read no environment."""
    plain, ours = stack.enter_context(requests.Session()), stack.enter_context(Session())
    plain.trust_env = ours.trust_env = False
    pool = stack.enter_context(ThreadPoolExecutor(1))
    return {
        "requests.Session": lambda: plain.get(url, timeout=5),
        "a pool's thread": lambda: pool.submit(plain.get, url, timeout=5).result(5),
        "Session, no total": lambda: ours.get(url, timeout=(5, 5)),
        "Session": lambda: ours.get(url, timeout=5),
    }


def measure(calls: dict[str, Callable[[], object]], count: int, rounds: int) -> dict[str, list[float]]:
    """Return CPU microseconds per call of each contender, round by round."""
    cost: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            begun = time.process_time()
            for _ in range(count):
                call()
            cost[name].append((time.process_time() - begun) / count * 1e6)
    return cost


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    with keep_alive_server() as url, ExitStack() as stack:
        cost = measure(contenders(url, stack), options.count, options.rounds)
    reference = statistics.median(cost["requests.Session"])
    print(f"CPU µs per GET on a warm connection, {options.rounds} rounds of {options.count}")
    for name, values in cost.items():
        median = statistics.median(values)
        print(f"  {name:<20} {median:6.0f}  ({min(values):.0f} to {max(values):.0f})  {median / reference:5.2f} x requests")


if __name__ == "__main__":
    main()
