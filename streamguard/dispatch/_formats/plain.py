"""Plain text of any program: a line is `text`."""

import codecs
from collections.abc import Iterator

from .._data.lines import LineSplitter
from .._data.turn_events import Event, Kind
from .base import Patterns, closing_error

_LONGEST_LINE = 1024 * 1024


class PlainLines:
    """Yields text line by line; `\\r` ends a line too. An unfinished line is yielded at once, in pieces (deltas).

    ignore: lines that are not output (heartbeats): they become `status`.
    final:  the line that ends the run; a run without it is incomplete.
    split:  whether to cut text into lines if there is no *ignore* and no *final*.

    With *ignore* or *final*, a line must be complete (or 1 MiB long) before it is yielded.
    """

    name = "lines"

    def __init__(self, ignore: Patterns, final: Patterns, *, split: bool = True) -> None:
        self._ignore, self._final = ignore, final
        self._split = split
        self._whole = bool(ignore or final)
        self._splitter = LineSplitter(_LONGEST_LINE, carriage_returns=True)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._half = False
        self._done = False
        self._cut: Kind | None = None
        """The kind of a line that ended in `\\r`, while a `\\n` may still follow."""

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the lines and pieces in *data*."""
        if not (self._split or self._whole):
            yield from self._line(data, whole=False)
            return
        if self._cut is not None and data.startswith(b"\n"):
            yield Event(kind=self._cut, text="\n", delta=True)
            data = data[1:]
        self._cut = None
        for line in self._splitter.feed(data):
            yield from self._line(line, whole=True)
        if not self._whole:
            yield from self._line(self._splitter.rest(), whole=False)
        elif line := self._splitter.returned():  # do not wait for a `\n`: it may come only with the next line
            events = [*self._line(line, whole=True)]
            self._cut = events[0].kind if events else None
            yield from events

    def close(self, exit_code: int | None) -> Iterator[Event]:
        """Yield the unfinished line, and the end."""
        yield from self._line(self._splitter.rest(), whole=True, last=True)
        if self._done or exit_code is None:
            return
        if exit_code != 0:
            yield from closing_error(exit_code, None)
        elif self._final:
            yield Event.failure("the program ended without a line that matches final=", "incomplete")
            yield Event.done("incomplete")
        else:
            yield Event.done()

    def _line(self, data: bytes, *, whole: bool, last: bool = False) -> Iterator[Event]:
        text = self._decoder.decode(data, last)
        if not text or self._done:
            return
        if self._ignore.match(text.rstrip("\r\n")):
            yield Event(kind=Kind.STATUS, text=text)
            return
        yield Event(kind=Kind.TEXT, text=text, delta=self._half or not whole)
        self._half = not whole
        if self._final.match(text.rstrip("\r\n")):
            self._done = True
            yield Event.done()
