"""A server in a process of its own that sends prepared bytes: fast, so that the client is what is measured.

`/chunked/1000` and `/close/1000` (with any path below them) answer with a stream of 1000 events.
"""

import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection

from .arena import SPAWN

__all__ = ["EVENT_BYTES", "Load", "read_target", "running_server"]

EVENT_BYTES = 265
BIG_BYTES = 5_000_000
DATA_LINES = 100_000
_PIECE_EVENTS = 1000
_HTTP_CHUNK_BYTES = 16384
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"

_ID = "chatcmpl-0123456789abcdef"
_CHAT_END = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'


@dataclass(frozen=True, slots=True)
class Load:
    """What a server sends."""

    kind: str = "chat"
    """`chat`: chunks of an OpenAI-compatible API; `named`: events of the Anthropic Messages API, with `event:` lines;
    `big`: one chat chunk of 5 MB; `lines`: one chat chunk in 100,000 data lines."""
    count: int = 1
    """The most events that it can be asked for."""
    rate: float | None = None
    """Events per second, each with the time at which it was sent; None: as fast as it goes."""


@dataclass(frozen=True, slots=True)
class Events:
    """A stream's events: those before and after the ones that are counted."""

    begin: bytes
    counted: list[bytes]
    end: bytes


def _padded(lead: bytes, chunk: dict[str, object], size: int) -> bytes:
    """Return the event of *chunk*, filled up to exactly *size* bytes."""
    bare = len(lead) + len(b"data: \n\n") + len(json.dumps({**chunk, "pad": ""}))
    return lead + b"data: " + json.dumps({**chunk, "pad": "x" * (size - bare)}).encode() + b"\n\n"


def chat_event(number: int, size: int = EVENT_BYTES) -> bytes:
    """Return one chat chunk as an event of exactly *size* bytes."""
    choice = {"index": 0, "delta": {"content": f"{number:08d} "}, "finish_reason": None}
    head = {"id": _ID, "object": "chat.completion.chunk", "created": 1700000000, "model": "bench"}
    return _padded(b"", {**head, "choices": [choice]}, size)


def named_event(number: int) -> bytes:
    """Return one text delta of a Messages stream, of the same size, its `event:` line included."""
    delta = {"type": "text_delta", "text": f"{number:08d} "}
    return _padded(
        b"event: content_block_delta\n", {"type": "content_block_delta", "index": 0, "delta": delta}, EVENT_BYTES
    )


def lined_event(lines: int) -> bytes:
    """Return one chat chunk whose JSON is spread over *lines* data lines."""
    head = b'data: {"id": "%s", "object": "chat.completion.chunk", "created": 1, "model": "bench",\n' % _ID.encode()
    choice = b'data: "choices": [{"index": 0, "delta": {"content": "x"}, "finish_reason": null}], "pad": [0\n'
    return head + choice + b"data: ,0\n" * (lines - 3) + b"data: ]}\n\n"


def _named(kind: str, **fields: object) -> bytes:
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n".encode()


def _events(load: Load) -> Events:
    if load.kind == "named":
        return Events(_messages_begin(), [named_event(number) for number in range(load.count)], _messages_end())
    if load.kind == "big":
        return Events(b"", [chat_event(0, BIG_BYTES)], _CHAT_END)
    if load.kind == "lines":
        return Events(b"", [lined_event(DATA_LINES)], _CHAT_END)
    return Events(b"", [chat_event(number) for number in range(load.count)], _CHAT_END)


def _messages_begin() -> bytes:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "bench", "content": [], "usage": usage}
    block = {"type": "text", "text": ""}
    return _named("message_start", message=message) + _named("content_block_start", index=0, content_block=block)


def _messages_end() -> bytes:
    delta = _named("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 1})
    return _named("content_block_stop", index=0) + delta + _named("message_stop")


def _chunked(data: bytes) -> bytes:
    sizes = range(0, len(data), _HTTP_CHUNK_BYTES)
    pieces = (data[start : start + _HTTP_CHUNK_BYTES] for start in sizes)
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


def _body(events: Events, framing: str, count: int) -> Iterator[bytes]:
    """Yield the body of a response with *count* events, a thousand of them at a time; each is an HTTP chunk."""
    frame = _chunked if framing == "chunked" else bytes
    yield frame(events.begin)
    for start in range(0, count, _PIECE_EVENTS):
        yield b"".join(map(frame, events.counted[start : min(start + _PIECE_EVENTS, count)]))
    yield frame(events.end) + (b"0\r\n\r\n" if framing == "chunked" else b"")


class _Server:
    def __init__(self, load: Load) -> None:
        self._load = load
        self._events = _events(load) if load.rate is None else Events(b"", [], _CHAT_END)
        self._bodies: dict[tuple[str, int], list[bytes]] = {}

    def answer(self, connection: socket.socket) -> None:
        with connection:
            try:
                self._answer(connection)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
            except OSError:
                return

    def _answer(self, connection: socket.socket) -> None:
        framing, count = read_target(connection).split("/")[1:3]
        extra = b"Transfer-Encoding: chunked\r\n\r\n" if framing == "chunked" else b"\r\n"
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(_HEAD + extra)
        if self._load.rate is not None:
            _send_paced(connection, int(count), self._load.rate)
            return
        for piece in self._prepared(framing, int(count)):
            connection.sendall(piece)

    def _prepared(self, framing: str, count: int) -> list[bytes]:
        key = (framing, count)
        if key not in self._bodies:
            self._bodies[key] = list(_body(self._events, framing, count))
        return self._bodies[key]


def read_target(connection: socket.socket) -> str:
    """Read a request, its body included, and return its target."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += _more(connection)
    head, _, body = received.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *([0-9]+)", head)
    while length and len(body) < int(length[1]):
        body += _more(connection)
    return head.split(b" ")[1].decode()


def _more(connection: socket.socket) -> bytes:
    data = connection.recv(65536)
    if not data:
        raise ConnectionError("the client has left")
    return data


def _send_paced(connection: socket.socket, count: int, rate: float) -> None:
    """Send events at *rate* a second; each carries the time at which it was sent."""
    start = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, start + number / rate - time.monotonic()))
        chunk = {"id": _ID, "object": "chat.completion.chunk", "created": 1, "model": "bench"}
        chunk |= {"choices": [{"index": 0, "delta": {"content": repr(time.monotonic())}}]}
        connection.sendall(_chunked(b"data: " + json.dumps(chunk).encode() + b"\n\n"))
    connection.sendall(_chunked(_CHAT_END) + b"0\r\n\r\n")


def _serve(ready: Connection, load: Load) -> None:
    server = _Server(load)
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    ready.send(listener.getsockname()[1])
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=server.answer, args=(connection,), daemon=True).start()


@contextmanager
def running_server(load: Load) -> Iterator[str]:
    """Run the server in a process of its own; give its base URL."""
    here, there = SPAWN.Pipe()
    process = SPAWN.Process(target=_serve, args=(there, load), daemon=True)
    process.start()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        process.kill()
        process.join()
