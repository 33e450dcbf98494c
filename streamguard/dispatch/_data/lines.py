"""Bytes to lines, in linear time; and the end of a long text, in bounded memory."""

import re
from collections import deque
from collections.abc import Iterator

_NEWLINE = re.compile(rb"[^\n]*+\n")
_ANY_END = re.compile(rb"[^\r\n]*+(?:\n|\r\n|\r(?!\Z))")


class LineSplitter:
    """Collects bytes and yields lines with their line ends.

    longest:          bytes after which an unfinished line is yielded as a line.
    carriage_returns: whether a `\\r` ends a line too, as in progress displays. A `\\r` at the end of the data is held until
                      the next data shows whether a `\\n` follows.
    """

    def __init__(self, longest: int, *, carriage_returns: bool = False) -> None:
        self._longest = longest
        self._line = _ANY_END if carriage_returns else _NEWLINE
        self._ends = (b"\n", b"\r") if carriage_returns else (b"\n",)
        self._pending: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Yield the lines that *data* completes."""
        held = bool(self._pending) and self._pending[-1].endswith(b"\r")
        self._keep(data)
        if held or any(end in data for end in self._ends):
            whole = self._take()
            position = 0
            while match := self._line.match(whole, position):
                position = match.end()
                yield match[0]
            self._keep(whole[position:])
        if self._size > self._longest:
            yield self._take()

    def returned(self) -> bytes:
        """Take the line that is complete but for a `\\n` that may follow its `\\r`; return nothing if there is none."""
        return self._take() if b"\r" in self._ends and self._pending and self._pending[-1].endswith(b"\r") else b""

    def rest(self) -> bytes:
        """Take the unfinished line."""
        return self._take()

    def _keep(self, data: bytes) -> None:
        if data:
            self._pending.append(data)
            self._size += len(data)

    def _take(self) -> bytes:
        whole = b"".join(self._pending)
        self._pending.clear()
        self._size = 0
        return whole


class Tail:
    """Keeps the last *limit* bytes of the data that is added."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self.total = 0
        """Bytes added in all."""

    def add(self, data: bytes) -> None:
        """Add *data*, and drop the excess from the front."""
        self.total += len(data)
        self._pieces.append(data)
        self._size += len(data)
        while self._size - len(self._pieces[0]) >= self._limit:
            self._size -= len(self._pieces.popleft())
        if len(self._pieces) > 1024:
            self._pieces = deque([b"".join(self._pieces)])

    def text(self, limit: int | None = None) -> str:
        """Return the end as text, at most *limit* bytes of it; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self._pieces)[-(limit or self._limit) :].decode("utf-8", "replace")
