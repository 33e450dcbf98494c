"""The interface of a format, and the base of all formats of JSON lines."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from ..._text import counted
from .._data.lines import LineSplitter
from .._data.turn_events import Event, Kind, bounded

LONGEST_LINE = 16 * 1024 * 1024
"""Bytes: a longer line is not an event, and becomes `unknown`."""


class Format(Protocol):
    """Turns the output of a program into events. It has state: use one for each run."""

    name: str

    def feed(self, data: bytes) -> Iterable[Event]:
        """Return the events that these bytes of standard output complete. After a `done` it returns nothing."""
        ...

    def close(self, exit_code: int | None) -> Iterable[Event]:
        """Return the events of the unfinished line at the end, and `done` if there was none.

        exit_code: negative for a signal, as in `subprocess`; None if we stopped the program, or if it is unknown: then no
                   `done` is added.
        """
        ...


class Patterns:
    """A list of regular expressions for lines."""

    def __init__(self, patterns: Iterable["re.Pattern[str]"] = ()) -> None:
        self._patterns = [*patterns]

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def match(self, line: str) -> bool:
        """Return whether one of them is found in *line*."""
        return any(pattern.search(line) for pattern in self._patterns)


Reader = Callable[[dict[str, Any]], Iterable[Event]]


class JsonLines:
    """Reads one JSON object per line. A subclass has a reader for each type of object.

    A line that is not JSON, or of an unknown type, becomes an `unknown` event.
    """

    name = ""
    result_line = ""
    """The name of the line that ends a run; empty if the program's exit ends it."""
    exit_codes: Mapping[int, str] = {}
    """The meaning of the program's own exit codes."""

    def __init__(self, ignore: Patterns) -> None:
        self._ignore = ignore
        self._splitter = LineSplitter(LONGEST_LINE)
        self._noise = 0
        self._spoke = False
        self._done = False
        self._wrote = False
        self._new_paragraph = False
        self._complaint = ""

    def feed(self, data: bytes) -> Iterator[Event]:
        """Yield the events of the lines that *data* completes."""
        for line in self._splitter.feed(data):
            yield from self._line(line)

    def close(self, exit_code: int | None) -> Iterator[Event]:
        """Yield the events of the unfinished line, and the end if no line reported it."""
        yield from self._line(self._splitter.rest())
        if not self._done and exit_code is not None:
            yield from self._ending(exit_code)

    def _readers(self) -> Mapping[str, Reader]:
        """Return the reader for each `type`."""
        raise NotImplementedError

    def _line(self, data: bytes) -> Iterator[Event]:
        line = data.decode("utf-8", "replace").lstrip("\ufeff").strip()
        if not line or self._done:
            return
        for event in self._parse(line):
            self._done = self._done or event.kind is Kind.DONE
            yield event

    def _parse(self, line: str) -> Iterator[Event]:
        if self._ignore.match(line):
            yield Event(kind=Kind.STATUS, text=bounded(line))
            return
        message = _object(line)
        if message is None:
            self._noise += 1
            yield Event(kind=Kind.UNKNOWN, text=bounded(line))
            return
        self._spoke = True
        kind = str(message.get("type"))
        try:
            yield from self._readers()[kind](message)
        except Exception:  # an unknown type or unexpected contents of one line must not end the run
            yield Event(kind=Kind.UNKNOWN, text=kind, raw=bounded(line))

    def _ending(self, exit_code: int) -> Iterator[Event]:
        code = self.exit_codes.get(exit_code)
        if exit_code == 0 and (self.result_line == "" or self._complaint) and self._spoke:
            if self._complaint:
                yield Event.failure(self._complaint, "provider_error")
            yield Event.done("provider_error" if self._complaint else None)
        elif exit_code == 0:
            code = "incomplete" if self._spoke or not self._noise else "not_json"
            missing = f"the program ended without {self.result_line or 'a single event'}"
            yield Event.failure("; ".join(filter(None, (missing, self._not_json()))), code)
            yield Event.done(code)
        else:
            yield from closing_error(exit_code, code, "; ".join(filter(None, (self._complaint, self._not_json()))))

    def _not_json(self) -> str:
        if self._spoke or not self._noise:
            return ""
        lines = counted(self._noise, "line")
        return f"read {lines}, none of them JSON of format={self.name}: add the program's flag for JSON lines"

    def _words(self, text: str, *, delta: bool = False, kind: Kind = Kind.TEXT) -> Event:
        """Return an event with words of the answer; a new block of text after others starts a paragraph."""
        if kind is Kind.TEXT and text:
            text = f"\n\n{text}" if self._new_paragraph and self._wrote else text
            self._wrote, self._new_paragraph = True, False
        return Event(kind=kind, text=text, delta=delta)

    def _status(self, message: dict[str, Any]) -> list[Event]:
        return [Event(kind=Kind.STATUS, text=words(message.get("subtype")) or words(message.get("type")))]

    def _failed(self, text: str, code: str = "provider_error") -> list[Event]:
        return [Event.failure(text or code, code), Event.done(code)]


def closing_error(exit_code: int, code: str | None, complaint: str = "") -> Iterator[Event]:
    """Yield the last two events of a program that failed by its exit code (negative: a signal)."""
    how = f"was killed by signal {-exit_code}" if exit_code < 0 else f"ended with exit code {exit_code}"
    meaning = f" ({code})" if code else ""
    code = code or (f"signal_{-exit_code}" if exit_code < 0 else f"exit_{exit_code}")
    yield Event.failure(f"the program {how}{meaning}{complaint and f': {complaint}'}", code)
    yield Event.done(code)


def mapping(value: object) -> dict[str, Any]:
    """Return *value* if it is a JSON object, else an empty object."""
    return value if isinstance(value, dict) else {}


def complaint(error: object) -> str:
    """Return the text of an error: itself if it is text, else its message."""
    return error if isinstance(error, str) else words(mapping(error).get("message"))


def words(value: object, *, levels: int = 8) -> str:
    """Return the text in *value*: a string, the `text` of an object, the texts of a list; else an empty string.

    Programs use three of the eight *levels*. The limit protects the interpreter's stack.
    """
    if isinstance(value, str):
        return value
    if levels and isinstance(value, list):
        return "".join(words(element, levels=levels - 1) for element in value)
    return words(value.get("text"), levels=levels - 1) if levels and isinstance(value, dict) else ""


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
