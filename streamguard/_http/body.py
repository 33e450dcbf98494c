"""Read the body of a response promptly: every byte that has arrived is yielded before the next wait."""

import contextlib
import http.client
import socket
from collections.abc import Iterator
from typing import Any

import requests
import urllib3
from urllib3.exceptions import HTTPError, IncompleteRead, InvalidChunkLength, ProtocolError

from .._core.clock import monotonic
from .chunked import BUFFER_BYTES, ChunkWindow
from .gunzip import unpack_gzip

# ValueError: a file that was closed meanwhile.
_FAULTS = (HTTPError, http.client.HTTPException, requests.RequestException, OSError, ValueError)


def read_blocks(response: requests.Response, size: int = 65536) -> Iterator[bytes]:
    """Yield the decoded body of *response* in blocks of at most *size* bytes, each as soon as it arrived.

    Prompt on every framing and content encoding that urllib3 knows. When the transport fails (a reset, broken
    chunking, a body shorter than its Content-Length), everything that arrived before is yielded first; then the original
    error of urllib3, http.client, socket or ssl is raised.

    Limits: urllib3 before 2.6 bounds a block of compressed data before it is unpacked, not after. A raw response
    without `read1` (some test doubles) is read byte by byte.
    """
    raw: Any = response.raw
    if getattr(response, "_content_consumed", False) or not hasattr(raw, "read1"):
        yield from response.iter_content(size if getattr(response, "_content_consumed", False) else 1)
    elif isinstance(raw, urllib3.BaseHTTPResponse):
        yield from _read_urllib3(raw, size)
    else:
        yield from _read_other(raw, size)


def _read_urllib3(raw: Any, size: int) -> Iterator[bytes]:
    unpack_gzip(raw)
    window = ChunkWindow.of(raw) if size >= BUFFER_BYTES else None
    while True:
        block = window.take() if window is not None else b""
        block = block or _read1(raw, size)
        if not block:
            break
        yield block
    _require_whole(raw)


def _read1(raw: Any, size: int) -> bytes:
    try:
        return raw.read1(size, decode_content=True)  # type: ignore[no-any-return]
    except OverflowError as exc:
        # http.client accepts a negative chunk size, and asks for that many bytes.
        raise InvalidChunkLength(raw, b"") from exc


def _read_other(raw: Any, size: int) -> Iterator[bytes]:
    try:
        while block := raw.read1(size):
            yield block
    except OverflowError as exc:  # the same, without urllib3
        raise http.client.HTTPException("the size of a chunk is negative") from exc


def _require_whole(raw: Any) -> None:
    """Raise what urllib3 raises for a short body, also if its own check is turned off."""
    missing = getattr(raw, "length_remaining", None)
    if missing and raw.headers.get("content-encoding", "identity").lower() == "identity":
        error = IncompleteRead(raw.tell(), missing)
        raise ProtocolError(f"Connection broken: {error!r}", error) from error


def read_at_most(response: requests.Response, limit_bytes: int, seconds: float) -> bytes:
    """Return up to *limit_bytes* of the body, as much as arrives within *seconds*; meant for error messages.

    A transport error is not raised: what arrived before it is returned. Close the response afterwards.

    Limits: each receive gets only the time that is left, so a slow body cannot exceed *seconds*. Inside TLS in TLS (an
    HTTPS origin through an HTTPS proxy) *seconds* bounds the silence between two receives instead.
    """
    parts: list[bytes] = []
    room = limit_bytes
    with contextlib.suppress(*_FAULTS), _time_limit(response, seconds):
        blocks = read_blocks(response)
        while room > 0 and (block := next(blocks, b"")):
            parts.append(block[:room])
            room -= len(block)
    return b"".join(parts)


def drain(response: requests.Response, seconds: float = 0.05, limit_bytes: int = 65536) -> bool:
    """Discard the rest of the body, so that its connection can be used again; return True if the body ended.

    Returns False after *seconds* or *limit_bytes*, or when the transport fails: close the response then.
    """
    with contextlib.suppress(*_FAULTS), _time_limit(response, seconds):
        for block in read_blocks(response):
            limit_bytes -= len(block)
            if limit_bytes < 0:
                return False
        return True
    return False


@contextlib.contextmanager
def _time_limit(response: requests.Response, seconds: float) -> Iterator[None]:
    """Let each receive of *response* wait only for what is left of *seconds*."""
    file: Any = response.raw
    for name in ("_fp", "fp", "raw"):
        file = getattr(file, name, None)
    if not isinstance(file, socket.SocketIO):
        yield
        return
    stand_in = _ImpatientSocket(file._sock, monotonic() + seconds)  # type: ignore[attr-defined]
    file._sock = stand_in  # type: ignore[attr-defined]
    try:
        yield
    finally:
        if file._sock is stand_in:  # type: ignore[attr-defined]
            file._sock = stand_in.restored()  # type: ignore[attr-defined]


class _ImpatientSocket:
    """Replaces the socket of a body's file, and sets its timeout for each receive.

    A timeout that is set once on the socket restarts with every byte of a slow header or chunk size.
    """

    def __init__(self, sock: Any, until: float) -> None:
        self._sock = sock
        self._until = until
        self._timeout = sock.gettimeout()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sock, name)

    def recv_into(self, buffer: Any) -> int:
        left = self._until - monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        self._sock.settimeout(left)
        received: int = self._sock.recv_into(buffer)
        return received

    def restored(self) -> Any:
        """Return the real socket, with the timeout it had."""
        with contextlib.suppress(OSError):
            self._sock.settimeout(self._timeout)
        return self._sock

    def _decref_socketios(self) -> None:
        # The file closes itself at the end of the body, just before the connection goes back to its pool. After that the
        # socket may belong to the next call.
        self.restored()._decref_socketios()
