"""A server in a process of its own that sends prepared bytes: fast, so that the client is what is measured."""

import json
import multiprocessing
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

EVENT_BYTES = 265


def chat_event(number: int, size: int = EVENT_BYTES) -> bytes:
    """Return one chat event of exactly *size* bytes."""
    chunk = {
        "id": "chatcmpl-0123456789abcdef",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "bench",
        "choices": [{"index": 0, "delta": {"content": f"{number:08d} "}, "finish_reason": None}],
        "pad": "",
    }
    bare = len(b"data: \n\n") + len(json.dumps(chunk))
    chunk["pad"] = "x" * (size - bare)
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


_LAST = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


def _body(framing: str, events: list[bytes]) -> list[bytes]:
    if framing == "close":
        return [b"".join(events[n : n + 1000]) for n in range(0, len(events), 1000)]
    framed = [b"%x\r\n%s\r\n" % (len(event), event) for event in events]
    return [b"".join(framed[n : n + 1000]) for n in range(0, len(framed), 1000)] + [b"0\r\n\r\n"]


def _serve(ready: Connection, count: int, rate: float | None) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    ready.send(listener.getsockname()[1])
    events = [chat_event(number) for number in range(count)] + [_LAST]
    bodies = {framing: _body(framing, events) for framing in ("chunked", "close")}
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_answer, args=(connection, bodies, count, rate), daemon=True).start()


def _answer(connection: socket.socket, bodies: dict[str, list[bytes]], count: int, rate: float | None) -> None:
    with connection:
        framing = "close" if _target(connection).startswith(b"/close") else "chunked"
        extra = b"Transfer-Encoding: chunked\r\n" if framing == "chunked" else b""
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + extra)
        connection.sendall(b"Connection: close\r\n\r\n")
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if rate is None:
                for piece in bodies[framing]:
                    connection.sendall(piece)
            else:
                _send_paced(connection, count, rate)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        except OSError:
            return


def _target(connection: socket.socket) -> bytes:
    """Read a request, its body included, and return its target."""
    head, body = b"", b""
    while b"\r\n\r\n" not in head:
        head += connection.recv(65536)
    head, _, body = head.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *([0-9]+)", head)
    while length and len(body) < int(length[1]):
        body += connection.recv(65536)
    return head.split(b" ")[1]


def _send_paced(connection: socket.socket, count: int, rate: float) -> None:
    """Send events at *rate* a second; each carries the time at which it was sent."""
    start = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, start + number / rate - time.monotonic()))
        sent = json.dumps({"choices": [{"index": 0, "delta": {"content": "x"}}], "sent": time.monotonic()}).encode()
        event = b"data: " + sent + b"\n\n"
        connection.sendall(b"%x\r\n%s\r\n" % (len(event), event))
    connection.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(_LAST), _LAST))


@contextmanager
def running_server(count: int, rate: float | None = None) -> Iterator[str]:
    """Run the server in a process of its own; give its base URL."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(there, count, rate), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.terminate()
        process.join()
