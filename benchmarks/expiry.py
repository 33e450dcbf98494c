"""When a limit is used up: how late the consumer hears of it, when the thread is gone, and when the server sees the close.

The first table cuts single streams on every framing, plain and TLS, with the scripted gateway as the witness. The second
lets many streams wait at once, on a silent server in its own process, and measures how late each expiry comes.
"""

import argparse
import multiprocessing
import resource
import select
import socket
import statistics
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

from streamguard import StreamInactivityTimeoutError, guarded_stream
from streamguard.testing import Gateway

from .latency import percentile

FRAMINGS = ("chunked", "length", "close", "http10")


def cut_once(gateway: Gateway, number: int, idle: float) -> tuple[float, float, float]:
    """Let one stream expire; return seconds after the expiry: consumer, thread gone, server saw the close."""
    verify = str(gateway.ca) if gateway.url.startswith("https") else True
    before = set(threading.enumerate())
    stream = guarded_stream("GET", gateway.url, idle=idle, retry=None, verify=verify)
    next(stream)
    waited_from = time.monotonic()
    try:
        next(stream)
    except StreamInactivityTimeoutError:
        consumer = time.monotonic() - waited_from - idle
    while [t for t in threading.enumerate() if t not in before and t.name.startswith("streamguard-reader")]:
        time.sleep(0.0002)
    gone = time.monotonic() - waited_from - idle
    left = gateway.wait_left(number).at - waited_from - idle
    return consumer, gone, left


def cut_table(rounds: int) -> None:
    """Print the medians for every framing, plain and TLS."""
    print(f"ms after the expiry, median of {rounds} (worst): consumer has control, thread gone, server saw the close")
    for tls in (False, True):
        for framing in FRAMINGS:
            length = 1_000_000 if framing == "length" else None
            with Gateway("chat hello\nstall", tls=tls, framing=framing, length=length) as gateway:
                rows = [cut_once(gateway, number, 0.1) for number in range(1, rounds + 1)]
            cells = [f"{statistics.median(c) * 1e3:7.2f} ({max(c) * 1e3:6.2f})" for c in zip(*rows, strict=True)]
            print(f"  {'https' if tls else 'http':<6}{framing:<8}{'  '.join(cells)}")


def _silent_server(ready: Connection) -> None:
    """Accept, answer with headers and one event, and say nothing more."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
    ready.send(listener.getsockname()[1])
    poll, open_ones = select.poll(), {}
    poll.register(listener, select.POLLIN)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    event = b'data: {"choices": [{"index": 0, "delta": {"content": "x"}}]}\n\n'
    while True:
        for descriptor, _ in poll.poll():
            if descriptor == listener.fileno():
                connection, _ = listener.accept()
                open_ones[connection.fileno()] = connection
                poll.register(connection, select.POLLIN)
            elif request := open_ones[descriptor].recv(65536):
                if request.endswith(b"\r\n\r\n"):
                    open_ones[descriptor].sendall(head + b"%x\r\n%s\r\n" % (len(event), event))
            else:
                poll.unregister(descriptor)
                open_ones.pop(descriptor).close()


def crowd(url: str, count: int, spread: float) -> tuple[list[float], float]:
    """Let *count* streams wait and expire over *spread* seconds; return overshoots, and KiB of memory per stream."""
    before = _resident()
    overshoots: list[float] = []
    ready, go = threading.Barrier(count + 1), threading.Event()

    def wait(limit: float) -> None:
        stream = guarded_stream("GET", url, idle=limit, retry=None)
        next(stream)
        ready.wait()
        go.wait()
        begun = time.monotonic()
        try:
            next(stream)
        except StreamInactivityTimeoutError:
            overshoots.append(time.monotonic() - begun - limit)

    threads = [threading.Thread(target=wait, args=(3 + spread * n / count,)) for n in range(count)]
    for thread in threads:
        thread.start()
    ready.wait()
    memory = (_resident() - before) / count
    go.set()
    for thread in threads:
        thread.join()
    return sorted(overshoots), memory


def _resident() -> float:
    """Return the resident memory of this process in KiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    cut_table(options.rounds)
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=_silent_server, args=(there,), daemon=True)
    server.start()
    url = f"http://127.0.0.1:{here.recv()}/"
    print("overshoot in ms")
    for label, count, spread in (
        ("1", 1, 0.0),
        ("1000 over 8 s", 1000, 8.0),
        ("200 at once", 200, 0.0),
        ("1000 at once", 1000, 0.0),
    ):
        late, memory = crowd(url, count, spread)
        row = "".join(f"  p{share:g} {percentile(late, share / 100) * 1e3:8.2f}" for share in (50, 99, 100))
        print(f"  {label:<14}{row}   {memory:6.0f} KiB per stream, its consumer's thread included")
    server.terminate()


if __name__ == "__main__":
    main()
