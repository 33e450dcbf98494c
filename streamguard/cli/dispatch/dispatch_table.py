"""What a person sees of a dispatch: one row for each member."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from ..._core import monotonic
from ..._text import printable, storable
from ...dispatch import DispatchOutcome, Event, Kind, MemberEvent

_TAIL = 200
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

    def cells(self, now: float) -> tuple[str | Text, ...]:
        running = self.state == "running" and self.last is not None
        silence = f"{now - self.last:.0f} s" if running and self.last is not None else ""
        time = f"{(self.ended or now) - self.began:.1f} s" if self.began is not None else ""
        state = Text(self.state, style=_STYLES.get(self.state, ""))
        words = _plain(self.text)[-60:]
        words.no_wrap = True
        return state, _plain(self.reason if self.ended else self.doing), silence, time, words


def _plain(words: str) -> Text:
    """Return a member's text on one line, as text and not as markup."""
    return Text(printable(" ".join(storable(words).split())))


class DispatchTable:
    """The rows, kept up to date by `note()`; `render()` is called by the display."""

    def __init__(self, members: Iterable[str]) -> None:
        self._rows = {member: _Row() for member in members}

    def note(self, event: MemberEvent) -> None:
        """Update the row of the member that sent *event*."""
        self._rows[event.member].note(event.event, monotonic())

    def render(self) -> Table:
        """Return the table as of now."""
        now = monotonic()
        table = Table("member", "state", "what, or why", "silent", "time", "last words")
        for member, row in self._rows.items():
            table.add_row(_plain(member), *row.cells(now))
        return table


def last_line(outcome: DispatchOutcome) -> str:
    """Return one line with the outcome of the dispatch."""
    words = f"{outcome.status}: {outcome.reason}" if outcome.reason != outcome.status else str(outcome.status)
    lost = f"; not recorded: {', '.join(outcome.lost_records)}" if outcome.lost_records else ""
    line = f"streamguard: {words}; {len(outcome.turns)} turns, {outcome.duration:.1f} s, id {outcome.execution_id}{lost}"
    return " ".join(printable(storable(line)).split())
