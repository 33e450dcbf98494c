"""Take everything that already arrived of a chunked body in one step.

`raw.read1` returns one HTTP chunk per call, at about 6 µs each, and gateways send one event per chunk. Here all bytes in
the buffer of the body's file are parsed at once, about ten times cheaper, and http.client is left in the state it would
have reached itself. It continues from there whenever there is something to wait for, or an error to raise.
"""

import http.client
import io
from typing import Any

import urllib3
from urllib3.util.response import is_response_to_head

BUFFER_BYTES = 32768
"""The buffer of a body that comes through our adapter: the maximum size of a window."""


def split_chunks(window: bytes, left: int | None) -> tuple[bytes, int, int | None]:
    """Take the payload out of a *window* of a chunked body; return (payload, bytes used, new *left*).

    *left* is `chunk_left` of http.client: None before a size line, 0 before the line end that closes a chunk, else the
    number of bytes missing from the chunk. The parser stops before a size line that is incomplete, not a number, or not
    above zero (RFC 9112, section 7.1): those are left to http.client.
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
    """Return the chunk size in *line*, parsed as http.client parses it; 0 if it is invalid."""
    try:
        return int(line, 16)
    except ValueError:
        pass
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        return 0


class ChunkWindow:
    """A view of the buffer of a chunked body without a content encoding."""

    __slots__ = ("_body",)

    def __init__(self, body: http.client.HTTPResponse) -> None:
        self._body: Any = body

    @classmethod
    def of(cls, raw: object) -> "ChunkWindow | None":
        """Return a window on *raw*, or None if only `raw.read1` can read it: not chunked, encoded, or partly read."""
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
        """Return the payload in the buffer; if the buffer is empty, wait for one receive.

        Returns b"" if the window holds no payload: the caller then waits in `raw.read1`.
        """
        body = self._body
        # `read1` receives more of a long chunk at once than the buffer holds.
        if body.fp is None or (body.chunk_left or 0) > io.DEFAULT_BUFFER_SIZE:
            return b""
        payload, used, left = split_chunks(body.fp.peek(1), body.chunk_left)
        if used:
            body.fp.read(used)
            body.chunk_left = left
        return payload
