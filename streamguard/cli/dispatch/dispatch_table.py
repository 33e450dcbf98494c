"""The display of a dispatch: one row for each member."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from ..._core import monotonic
from ..._text import counted, one_line
from ...dispatch import DispatchOutcome, Event, Kind, MemberEvent
from ...dispatch._data.status import ExecutionStatus, ResponseStatus

_TAIL = 200
_LAST_WORDS = 60
_TITLES = ("member", "state", "what, or why", "silent", "time", "last words")
_STYLES = {"completed": "green", "failed": "bold red", "cancelled": "yellow", "interrupted": "yellow"}


@dataclass(slots=True)
class _Row:
    state: str = "waiting"
    reason: str = ""
    text: str = ""
    doing: str = ""
    began: float | None = None
    last: float | None = None
    ended: float | None = None

    def note(self, event: Event, now: float) -> None:
        if self.began is None:
            self.began = self.last = now
            self.state = "running"
        if event.is_output:
            self.last = now
            self.doing = f"{event.kind} {event.tool or ''}".strip()
        if event.kind is Kind.TEXT:
            self.text = (self.text + event.text)[-_TAIL:]
        if event.kind is Kind.DONE:
            self.state, self.reason = event.data["status"], event.data["reason"]
            self.ended = now

    def cells(self, now: float) -> tuple[str, str, str, str, str]:
        running = self.state == "running" and self.last is not None
        silence = f"{now - self.last:.0f} s" if running and self.last is not None else ""
        time = f"{(self.ended or now) - self.began:.1f} s" if self.began is not None else ""
        return self.state, self.reason if self.ended else self.doing, silence, time, self.text


@dataclass(frozen=True, slots=True)
class _LastWords:
    """The end of a text, as much of it as its column has room for."""

    text: str

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(10, len(self.text)), min(_LAST_WORDS, len(self.text)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Text]:
        yield Text(_end_of(self.text, options.max_width), no_wrap=True)


def _end_of(text: str, width: int) -> str:
    return text if len(text) <= width else f"...{text[len(text) - max(0, width - 3) :]}"


class DispatchTable:
    """The rows, kept up to date by `note()`; `render()` is called by the display."""

    def __init__(self, members: Iterable[str]) -> None:
        self._rows = {member: _Row() for member in members}

    def note(self, event: MemberEvent) -> None:
        """Update the row of the member that sent *event*."""
        self._rows[event.member].note(event.event, monotonic())

    def render(self) -> Table:
        """Return the table as of now, for a terminal."""
        table = Table(*_TITLES)
        for member, state, why, silence, time, words in self._cells():
            table.add_row(
                Text(member), Text(state, style=_STYLES.get(state, "")), Text(why), silence, time, _LastWords(words)
            )
        return table

    def plain(self) -> str:
        """Return the table as of now, as lines of plain text."""
        rows = [_TITLES, *((*cells, _end_of(words, _LAST_WORDS)) for *cells, words in self._cells())]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
        return "".join(f"{line}\n" for line in lines)

    def _cells(self) -> Iterator[tuple[str, ...]]:
        now = monotonic()
        for member, row in self._rows.items():
            yield tuple(one_line(cell) for cell in (member, *row.cells(now)))


def failure_lines(outcome: DispatchOutcome) -> Iterator[str]:
    """Yield a line for each turn that did not complete: the member, the reason, and the message."""
    for turn in outcome.turns:
        if turn.status is not ResponseStatus.COMPLETED:
            yield one_line(f"streamguard: {turn.member}: {turn.reason}" + (f": {turn.message}" if turn.message else ""))


def last_line(outcome: DispatchOutcome) -> str:
    """Return one line with the outcome of the dispatch. If it is a timeout for the exit code, that is its first reason."""
    reasons = ", ".join(_reasons(outcome))
    words = f"{outcome.status}: {reasons}" if reasons != outcome.status else reasons
    lost = f"; not recorded: {', '.join(outcome.lost_records)}" if outcome.lost_records else ""
    number = counted(len(outcome.turns), "turn")
    return one_line(f"streamguard: {words}; {number}, {outcome.duration:.1f} s, id {outcome.execution_id}{lost}")


def _reasons(outcome: DispatchOutcome) -> Iterable[str]:
    if outcome.status is not ExecutionStatus.FAILED:
        return [outcome.reason]
    failed = [turn for turn in outcome.turns if turn.status is ResponseStatus.FAILED]
    return dict.fromkeys(turn.reason for turn in sorted(failed, key=lambda turn: not turn.timed_out)) or [outcome.reason]
