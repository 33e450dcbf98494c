"""What hostile bytes are fed to that are still on the wire: the body's framing, and whole responses over TCP."""

import functools
import http.client
import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import requests
import urllib3

from streamguard import (
    DeadlineExceededError,
    InStreamError,
    Session,
    StreamguardError,
    TransportTimeoutError,
    UsageError,
    guarded_stream,
)
from streamguard._http import read_blocks

from ..helpers import wait_until
from ..http.servers import ENCODINGS, FRAMINGS, head
from ..stream.helpers import has_reader
from .decoding import pieces_of

__all__ = ["TARGETS", "body", "response"]

SECONDS = 10.0
"""The server always ends the connection at once: a client that takes longer waits for bytes that never arrive."""

DECODES = ("chat", "events", "json", "bytes", "responses", "anthropic")
LONGEST_MESSAGE = 3000


def body(data: bytes) -> None:
    """Behind a good head, whatever follows: the same bytes, and the same error, as from urllib3 alone."""
    framing, encoding = FRAMINGS[data[0] % 4 if data else 0], ENCODINGS[data[1] % 5 if len(data) > 1 else 0]
    if len(data) > 2 and data[2] % 2:
        encoding = "identity"
    stream = head(framing, encoding, length=len(data)) + data[3:]
    assert _read(stream, read_blocks) == _read(stream, _plain_blocks)


def _read(stream: bytes, blocks_of: Callable[[requests.Response], Iterator[bytes]]) -> tuple[bytes, type | None]:
    """Return what comes out of a connection that delivers *stream* and ends, and the class of the error after it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(SECONDS)
        theirs.sendall(stream)
        theirs.shutdown(socket.SHUT_WR)
        response, read = _response_on(ours), b""
        try:
            for block in blocks_of(response):
                assert block
                read += block
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
            return read, _prompt(error)
        finally:
            response.close()
        return read, None


def _prompt(error: Exception) -> type[Exception]:
    assert not isinstance(error, TimeoutError | urllib3.exceptions.TimeoutError)
    return type(error)


def _response_on(sock: socket.socket) -> requests.Response:
    inner = http.client.HTTPResponse(sock, method="GET")
    inner.begin()
    response = requests.Response()
    response.raw = urllib3.HTTPResponse(
        body=inner,
        headers=inner.msg.items(),  # type: ignore[arg-type]
        status=200,
        preload_content=False,
        original_response=inner,
        request_method="GET",
    )
    return response


def _plain_blocks(response: requests.Response) -> Iterator[bytes]:
    raw: Any = response.raw
    try:
        while block := raw.read1(65536, decode_content=True):
            yield block
    except OverflowError as error:  # where urllib3 has no name for it, ours is the one for a bad chunk size
        raise urllib3.exceptions.InvalidChunkLength(raw, b"") from error


class Echo:
    """A server that answers each request with given bytes, in pieces, and hangs up."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            sock, _ = self._listener.accept()
            with sock:
                self._answer(sock)

    def _answer(self, sock: socket.socket) -> None:
        request = b""
        try:
            while b"\r\n\r\n" not in request:
                request += sock.recv(65536)
            for piece in self.pieces:
                sock.sendall(piece)
            sock.shutdown(socket.SHUT_WR)
            sock.settimeout(SECONDS)
            while sock.recv(65536):  # else what it has not read yet would make an RST of our close
                pass
        except OSError:
            return


@functools.cache
def echo() -> Echo:
    """Return the one server of this process."""
    return Echo()


def response(data: bytes) -> None:
    """Whatever a server sends, from its first byte on: an end or an error of ours, at once, of bounded length."""
    server = echo()
    kind, server.pieces = (data[0] if data else 0), _as_response(data[1:])
    if kind % 8 == 7:
        _check_session(server.url)
    else:
        _check_stream(server.url, DECODES[kind % 8 % 6], strict=kind < 128)


def _as_response(data: bytes) -> list[bytes]:
    """Cut the bytes into pieces; if they do not begin with a status line, put a good head before them."""
    pieces = pieces_of(data)[:200]
    return pieces if b"HTTP" in data[:12] else [head("chunked"), *pieces]


def _check_stream(url: str, decode: Any, *, strict: bool) -> None:
    stream: Any = guarded_stream(
        "GET", url, decode=decode, strict=strict, retry=None, total=SECONDS, idle=SECONDS, allow_redirects=False
    )
    chunks, error = 0, None
    try:
        for _ in stream:
            chunks += 1
    except StreamguardError as raised:
        error = raised
    report = stream.report
    assert (report.chunks, list(stream)) == (chunks, [])
    wait_until(lambda: not has_reader(stream))
    if error is None:
        assert report.outcome == "completed" or (report.outcome == "incomplete" and not strict)
        assert report.outcome != "completed" or chunks or decode in ("events", "json", "bytes")
    else:
        _check_error(error)


def _check_kind(error: Exception) -> None:
    assert not isinstance(error, UsageError | DeadlineExceededError | TransportTimeoutError), repr(error)


def _check_error(error: StreamguardError) -> None:
    _check_kind(error)
    assert isinstance(error, InStreamError) or len(str(error)) < LONGEST_MESSAGE
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again)) == (type(error), str(error))


def _check_session(url: str) -> None:
    with Session(timeout=SECONDS) as session:
        try:
            session.get_json(url, allow_redirects=False)
        except (StreamguardError, requests.RequestException) as error:
            _check_kind(error)


TARGETS: dict[str, Callable[[bytes], None]] = {function.__name__: function for function in (body, response)}
