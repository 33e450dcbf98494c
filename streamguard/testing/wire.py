"""Framing, content encoding and header blocks of a response, and the head of a request. Pure."""

import gzip
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

from requests.structures import CaseInsensitiveDict

from ..errors import UsageError

FRAMINGS = ("chunked", "length", "close", "http10")
"""Transfer-Encoding: chunked; Content-Length; neither, with Connection: close; HTTP/1.0."""

ENCODINGS = (None, "gzip", "gzip-members", "gzip-buffered", "deflate")
"""Identity; a gzip stream flushed after each piece; a gzip member for each piece; a gzip stream that is flushed only at
its end; a zlib stream flushed after each piece."""

_GZIP_WINDOW = 31
_ZLIB_WINDOW = 15


@dataclass(frozen=True, slots=True)
class Framing:
    """How the end of a body is marked: one of FRAMINGS, "raw" (hand-written) or "none" (no body)."""

    name: str
    length: int | None = None

    @property
    def version(self) -> str:
        """Return the protocol version of the status line."""
        return "HTTP/1.0" if self.name == "http10" else "HTTP/1.1"

    @property
    def closes(self) -> bool:
        """Return whether only the end of the connection ends the body."""
        return self.name in ("close", "http10", "raw")

    def headers(self) -> dict[str, str]:
        """Return the headers that announce the framing (RFC 9112, section 6)."""
        if self.name == "chunked":
            return {"Transfer-Encoding": "chunked"}
        return {"Content-Length": str(self.length)} if self.name == "length" else {}

    def frame(self, piece: bytes) -> bytes:
        """Return *piece* as it is sent. An empty piece is not sent, since an empty chunk ends the body."""
        if self.name == "chunked" and piece:
            return b"%x\r\n%b\r\n" % (len(piece), piece)
        return b"" if self.name == "none" else piece

    def end(self) -> bytes:
        """Return the bytes that end the body."""
        return b"0\r\n\r\n" if self.name == "chunked" else b""


class Encoder:
    """Encodes a body piece by piece, in one of ENCODINGS. Raises UsageError for any other."""

    def __init__(self, encoding: str | None) -> None:
        if encoding not in ENCODINGS:
            raise UsageError(f"encoding= must be one of {', '.join(map(repr, ENCODINGS))}, got {encoding!r}")
        self._encoding = encoding
        self._compress = zlib.compressobj(wbits=_ZLIB_WINDOW if encoding == "deflate" else _GZIP_WINDOW)

    @property
    def headers(self) -> dict[str, str]:
        """Return the header that announces the encoding."""
        return {"Content-Encoding": self._encoding.partition("-")[0]} if self._encoding else {}

    def piece(self, data: bytes) -> bytes:
        """Return what a client can decode at once of *data*, possibly nothing."""
        if self._encoding is None:
            return data
        if self._encoding == "gzip-members":
            return gzip.compress(data, mtime=0)
        encoded = self._compress.compress(data)
        return encoded if self._encoding == "gzip-buffered" else encoded + self._compress.flush(zlib.Z_SYNC_FLUSH)

    def end(self) -> bytes:
        """Return the rest of the data, and the end of the encoding."""
        return b"" if self._encoding in (None, "gzip-members") else self._compress.flush()


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request's first line and headers."""

    method: str
    target: str
    version: str
    headers: CaseInsensitiveDict[str]

    @property
    def keep_alive(self) -> bool:
        """Return whether the client may send another request on the connection (RFC 9112, section 9.3)."""
        wish = self.headers.get("connection", "").lower()
        return "keep-alive" in wish if self.version == "HTTP/1.0" else "close" not in wish


def parse_head(block: bytes) -> RequestHead:
    """Parse the header block of a request. Raises ValueError if it is invalid."""
    first, *lines = block.decode("latin-1").rstrip("\r\n").split("\r\n")
    method, target, version = first.split(" ")
    headers: CaseInsensitiveDict[str] = CaseInsensitiveDict()
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon:
            raise ValueError(f"not a header: {line[:80]!r}")
        headers[name] = f"{headers[name]}, {value.strip()}" if name in headers else value.strip()
    return RequestHead(method, target, version, headers)


def merge_headers(defaults: dict[str, str], own: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the *defaults* that *own* does not replace, then *own*. Headers with an empty value are left out."""
    own = tuple(own)
    named = {name.lower() for name, _ in own}
    kept = ((name, value) for name, value in defaults.items() if name.lower() not in named)
    return [(name, value) for name, value in (*kept, *own) if value]


def head_block(version: str, status: int, reason: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """Return a response's header block."""
    lines = (f"{version} {status} {reason}", *(f"{name}: {value}" for name, value in headers))
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1", "replace")
