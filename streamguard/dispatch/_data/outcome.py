"""What a dispatch comes to, as plain data."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..._svg import Lane, Span, card, draw, format_seconds
from .status import ExecutionStatus, ResponseStatus, TurnStatus

__all__ = ["DispatchOutcome", "TurnOutcome"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """What one member's run came to. `status`, `turn_status`, `queue_status` and `signal` stem from one decision."""

    member: str
    turn_id: str
    status: ResponseStatus
    """The response's: completed, failed, cancelled, interrupted."""
    reason: str
    """The response's: an error code, why it was stopped, or the status itself."""
    turn_status: TurnStatus
    turn_reason: str
    queue_status: ExecutionStatus
    """What the queue counts for this member."""
    signal: str
    """What routing is told: `provider_timeout`, or the reason as it is."""
    text: str = ""
    """The answer, as far as it came (at most 4 MiB characters)."""
    message: str = ""
    """One sentence for people, where it did not complete."""
    diagnosis: Mapping[str, Any] | None = None
    """What was known when the output timeout fired; None if it did not."""
    evidence: Mapping[str, Any] | None = None
    """What a stopped member's process tree looked like before the kill."""
    session_id: str | None = None
    attempts: int = 1
    """2 if it was begun once more with a new session after a start-up timeout."""
    abandoned: bool = False
    """Whether the member's thread could not be stopped, and still runs."""
    remote_termination: str | None = None
    """`unconfirmed` for a stopped member that runs elsewhere: our wait has ended, its work may go on (R28)."""
    duration: float = 0.0
    """Seconds, from the turn's beginning to its response."""

    @property
    def timed_out(self) -> bool:
        """Whether the output timeout stopped it."""
        return self.diagnosis is not None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {**asdict(self), "timed_out": self.timed_out}


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOutcome:
    """What one dispatch came to."""

    execution_id: str
    conversation: str
    mode: str
    status: ExecutionStatus
    """Of the whole: succeeded, failed, cancelled."""
    reason: str
    """The first error, why all of it was stopped, or the status itself."""
    turns: tuple[TurnOutcome, ...]
    """In the order they ended."""
    lost_records: tuple[str, ...] = ()
    """What could not be recorded, as the store was locked, read-only or gone; the dispatch went on without."""
    duration: float = 0.0
    """Seconds."""
    members: Mapping[str, ExecutionStatus] = field(default_factory=dict)
    """What the queue counts for each member."""

    def __getitem__(self, member: str) -> TurnOutcome:
        """Return the last turn of *member*. Raises KeyError."""
        found = [turn for turn in self.turns if turn.member == member]
        if not found:
            raise KeyError(member)
        return found[-1]

    @property
    def succeeded(self) -> bool:
        """Whether every member that was not cancelled succeeded, and one did."""
        return self.status is ExecutionStatus.SUCCEEDED

    def _repr_html_(self) -> str:
        rows = [(turn.member, f"{turn.status}, {format_seconds(turn.duration)}") for turn in self.turns]
        title = f"dispatch {self.execution_id}"
        return card(title, str(self.status), self.reason, rows, draw(_lanes(self), self.duration))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {**asdict(self), "turns": [turn.to_dict() for turn in self.turns]}


def _lanes(outcome: DispatchOutcome) -> list[Lane]:
    """Return one lane for each turn.

    *Limits*: a turn records its duration, not its start: parallel turns are drawn from the left, serial ones end to end.
    """
    lanes, began = [], 0.0
    for turn in outcome.turns:
        lanes.append(Lane(turn.member, (Span(began, began + turn.duration, str(turn.status)),)))
        began += turn.duration if outcome.mode == "serial" else 0.0
    return lanes
