"""The result of a turn and of a dispatch, as plain data. Pure.

The response, the turn's record, the outcome and the last events are all functions of one `TurnEnd`, so that they agree.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ..._svg import Lane, Span, card, draw, format_seconds
from .rows import ResponseRecord, TurnRecord
from .status import (
    ENDED_WITHOUT_DONE,
    OUTPUT_COMMIT_REJECTED,
    TIMEOUT,
    ExecutionStatus,
    ResponseStatus,
    StatusAndReason,
    TurnEnd,
    TurnStatus,
    member_status,
    response_status,
    routing_signal,
    silence_sentence,
    turn_status,
)
from .turn_events import Event

_SENTENCES = {
    ENDED_WITHOUT_DONE: "The member ended without a `done` event.",
    OUTPUT_COMMIT_REJECTED: "The response could not be committed: another process ended it, after a restart for example.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnOutcome:
    """The result of one member's run. `status`, `turn_status`, `queue_status` and `signal` follow from one decision."""

    member: str
    turn_id: str
    status: ResponseStatus
    """The response's status: completed, failed, cancelled, interrupted."""
    reason: str
    """The response's reason: an error code, the reason of the stop, or the status itself."""
    turn_status: TurnStatus
    turn_reason: str
    queue_status: ExecutionStatus
    """The status that the queue counts for this member."""
    signal: str
    """The signal for routing: `provider_timeout` for a timeout, else the reason."""
    text: str = ""
    """The answer, or the part of it that arrived (at most 4 MiB characters)."""
    message: str = ""
    """One sentence for people, if the turn did not complete."""
    diagnosis: Mapping[str, Any] | None = None
    """The state of the turn when the output timeout fired; None if it did not fire."""
    evidence: Mapping[str, Any] | None = None
    """The process tree of a stopped member, recorded before the kill."""
    session_id: str | None = None
    attempts: int = 1
    """2 if the turn was started again with a new session after a start-up timeout."""
    abandoned: bool = False
    """Whether the member's thread could not be stopped and still runs."""
    remote_termination: str | None = None
    """`unconfirmed` for a stopped member that runs on another machine: the wait ended, the remote work may go on."""
    duration: float = 0.0
    """Seconds from the start of the turn to its response."""

    @property
    def timed_out(self) -> bool:
        """Whether the output timeout stopped the member."""
        return self.diagnosis is not None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {**asdict(self), "timed_out": self.timed_out}


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchOutcome:
    """The result of one dispatch."""

    execution_id: str
    conversation: str
    mode: str
    status: ExecutionStatus
    """Of the whole dispatch: succeeded, failed, cancelled."""
    reason: str
    """The first error, the reason why the whole dispatch was stopped, or the status itself."""
    turns: tuple[TurnOutcome, ...]
    """In the order in which they ended."""
    lost_records: tuple[str, ...] = ()
    """Records that could not be written because the store was locked, read-only or gone; the dispatch went on."""
    duration: float = 0.0
    """Seconds."""
    members: Mapping[str, ExecutionStatus] = field(default_factory=dict)
    """The status that the queue counts for each member."""

    def __getitem__(self, member: str) -> TurnOutcome:
        """Return the last turn of *member*. Raises KeyError."""
        found = [turn for turn in self.turns if turn.member == member]
        if not found:
            raise KeyError(member)
        return found[-1]

    @property
    def succeeded(self) -> bool:
        """Whether every member that was not cancelled succeeded, and at least one did."""
        return self.status is ExecutionStatus.SUCCEEDED

    def _repr_html_(self) -> str:
        rows = [(turn.member, f"{turn.status}, {format_seconds(turn.duration)}") for turn in self.turns]
        title = f"dispatch {self.execution_id}"
        return card(title, str(self.status), self.reason, rows, draw(_lanes(self), self.duration))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {**asdict(self), "turns": [turn.to_dict() for turn in self.turns]}


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedTurn:
    """A turn that ended, and what is known about its end: the source of its response, its record and its outcome."""

    turn: TurnRecord
    end: TurnEnd
    text: str
    diagnosis: Mapping[str, Any] | None = None
    evidence: Mapping[str, Any] | None = None
    remote_termination: str | None = None
    commit_refused: bool = False

    @property
    def response(self) -> StatusAndReason[ResponseStatus]:
        """The status and reason of the response."""
        return response_status(self.end, commit_refused=self.commit_refused)

    @property
    def error(self) -> str | None:
        """The error code of the `done` event: None for a success, and for a stop that is not a failure."""
        if self.commit_refused or self.end.stop == TIMEOUT or self.end.failed:
            return self.response.reason
        return None if self.end.done or self.end.stop is not None else ENDED_WITHOUT_DONE

    @property
    def message(self) -> str:
        """One sentence for people; empty for a success."""
        if self.diagnosis is not None and not self.commit_refused:
            return silence_sentence(self.diagnosis["silence"])
        if self.commit_refused or self.error == ENDED_WITHOUT_DONE:
            return _SENTENCES[self.response.reason]
        if self.end.stop is not None:
            return f"Stopped: {self.end.stop}."
        return self.end.message or (f"The member failed: {self.error}." if self.error else "")

    def turn_record(self) -> TurnRecord:
        """Return the turn's final record."""
        status, reason = turn_status(self.end)
        return replace(self.turn, status=status, terminal_reason=reason)

    def response_record(self) -> ResponseRecord:
        """Return the response to commit."""
        metadata = {
            "timeout_diagnostics": self.diagnosis,
            "evidence": self.evidence,
            "remote_termination": self.remote_termination,
            "message": self.message or None,
        }
        status, reason = self.response
        return ResponseRecord(
            turn_id=self.turn.id,
            execution_id=self.turn.execution_id,
            conversation=self.turn.conversation,
            member=self.turn.member,
            status=status,
            reason=reason,
            text=self.text,
            metadata={key: value for key, value in metadata.items() if value is not None},
            created_at=self.turn.started_at,
        )

    def outcome(self, **details: Any) -> TurnOutcome:
        """Return the outcome; *details* are the fields that only the turn knows."""
        status, reason = self.response
        status_of_turn, reason_of_turn = turn_status(self.end)
        return TurnOutcome(
            member=self.turn.member,
            turn_id=self.turn.id,
            status=status,
            reason=reason,
            turn_status=status_of_turn,
            turn_reason=reason_of_turn,
            queue_status=member_status(error=self.error, stop=self.end.stop),
            signal=routing_signal(reason),
            text=self.text,
            message=self.message,
            diagnosis=self.diagnosis,
            evidence=self.evidence,
            remote_termination=self.remote_termination,
            **details,
        )


def closing_events(ended: EndedTurn, *, done: Event | None, error_sent: bool) -> list[Event]:
    """Return the events to send once the response is committed: `error`, unless *error_sent*, and one `done` (R18, T33).

    done: the member's own `done` event, whose text and data (usage, for example) are kept.
    """
    events = []
    if ended.error is not None and not error_sent:
        events.append(Event.failure(ended.message, ended.error, data=dict(ended.diagnosis or {})))
    status, reason = ended.response
    own = {} if done is None else {"text": done.text, "raw": done.raw}
    data = {**(done.data if done is not None else {}), "status": str(status), "reason": reason}
    return [*events, Event.done(ended.error, data=data, **own)]


def _lanes(outcome: DispatchOutcome) -> list[Lane]:
    """Return one lane for each turn.

    *Limits*: a turn has a duration, not a start: parallel turns are drawn from the left, serial turns end to end.
    """
    lanes, start = [], 0.0
    for turn in outcome.turns:
        lanes.append(Lane(turn.member, (Span(start, start + turn.duration, str(turn.status)),)))
        start += turn.duration if outcome.mode == "serial" else 0.0
    return lanes
