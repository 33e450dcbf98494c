"""Take everything that already arrived of a chunked body in one step.

`raw.read1` hands over one HTTP chunk per call, at about 6 µs each, and gateways send one event per chunk. Here the
bytes that wait in the buffer of the body's file are parsed as a whole, about ten times cheaper, and http.client is left
in the state it would have reached itself. It goes on from there whenever there is something to wait for or to complain
about.
"""

import http.client
import io
from typing import Any

import urllib3
from urllib3.util.response import is_response_to_head

__all__ = ["BUFFER_BYTES", "ChunkWindow", "split_chunks"]

BUFFER_BYTES = 32768
"""The buffer of a body that comes through our adapter, and so the most that a window shows."""


def split_chunks(window: bytes, left: int | None) -> tuple[bytes, int, int | None]:
    """Take the payload out of a *window* of a chunked body; return (payload, bytes used, new *left*).

    *left* is what http.client calls `chunk_left`: None before a size line, 0 before the line end that closes a chunk,
    else the bytes of the chunk still to come. The parser stops before whatever is not for it: a size line that is not
    complete, not a number, or not above zero (RFC 9112, section 7.1).
    """
    payload = []
    used = 0
    while True:
        if not left:
            line = used if left is None else used + 2
            end = window.find(b"\n", line)
            size = _size(window[line:end]) if end >= 0 else 0
            if size <= 0:
                break
            used, left = end + 1, size
        piece = window[used : used + left]
        if not piece:
            break
        payload.append(piece)
        used += len(piece)
        left -= len(piece)
    return b"".join(payload), used, left


def _size(line: bytes) -> int:
    """Return the size that *line* announces, read as http.client reads it, or 0 if it is none."""
    try:
        return int(line, 16)
    except ValueError:
        pass
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        return 0


class ChunkWindow:
    """Look into the buffer of a chunked body that needs no decoding."""

    __slots__ = ("_body",)

    def __init__(self, body: http.client.HTTPResponse) -> None:
        self._body: Any = body

    @classmethod
    def of(cls, raw: object) -> "ChunkWindow | None":
        """Return a window on *raw*, or None where `raw.read1` has to do: not chunked, encoded, already read from."""
        if not isinstance(raw, urllib3.HTTPResponse) or raw.chunk_left is not None:
            return None
        if raw.headers.get("content-encoding", "identity").lower() != "identity":
            return None
        body: Any = raw._fp
        if not isinstance(body, http.client.HTTPResponse) or not isinstance(body.fp, io.BufferedReader):
            return None
        if is_response_to_head(body) or not raw.chunked or body.chunk_left is not None:
            return None
        return cls(body)

    def take(self) -> bytes:
        """Return the payload that is in the buffer; if that is empty, wait for one receive, and no longer.

        Returns b"" when the window holds no payload: the caller then waits in `raw.read1`.
        """
        body = self._body
        # Of a long chunk `read1` takes more in one receive than the buffer holds.
        if body.fp is None or (body.chunk_left or 0) > io.DEFAULT_BUFFER_SIZE:
            return b""
        payload, used, left = split_chunks(body.fp.peek(1), body.chunk_left)
        if used:
            body.fp.read(used)
            body.chunk_left = left
        return payload
