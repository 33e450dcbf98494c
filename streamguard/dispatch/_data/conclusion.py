"""A turn's end put into words: its response, its outcome, and its last events. Pure.

All of them are made from one `TurnEnd`, so that they cannot disagree.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .outcome import TurnOutcome
from .rows import ResponseRecord, TurnRecord
from .status import (
    ENDED_WITHOUT_DONE,
    OUTPUT_COMMIT_REJECTED,
    TIMEOUT,
    ResponseStatus,
    TurnEnd,
    TurnStatus,
    Verdict,
    member_status,
    response_verdict,
    routing_signal,
    timeout_sentence,
    turn_verdict,
)
from .turn_events import Event

__all__ = ["Conclusion", "last_events"]

_SENTENCES = {
    ENDED_WITHOUT_DONE: "The member ended without saying that it was done.",
    OUTPUT_COMMIT_REJECTED: "The response could not be committed: it had been ended by someone else, after a restart say.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conclusion:
    """How a turn ended, and what is known about that."""

    turn: TurnRecord
    end: TurnEnd
    text: str
    diagnosis: Mapping[str, Any] | None = None
    evidence: Mapping[str, Any] | None = None
    remote_termination: str | None = None
    commit_refused: bool = False

    @property
    def response(self) -> Verdict:
        """What the response says."""
        return response_verdict(self.end, commit_refused=self.commit_refused)

    @property
    def error(self) -> str | None:
        """The code that `done` carries: None for a success, and for a stop that is no failure."""
        if self.commit_refused or self.end.stop == TIMEOUT or self.end.failed:
            return self.response.reason
        return None if self.end.done or self.end.stop is not None else ENDED_WITHOUT_DONE

    @property
    def message(self) -> str:
        """One sentence for people; empty where all is well."""
        if self.diagnosis is not None and not self.commit_refused:
            return timeout_sentence(self.diagnosis["silence"])
        if self.commit_refused or self.error == ENDED_WITHOUT_DONE:
            return _SENTENCES[self.response.reason]
        if self.end.stop is not None:
            return f"Stopped: {self.end.stop}."
        return self.end.message or (f"The member failed: {self.error}." if self.error else "")

    def turn_record(self) -> TurnRecord:
        """Return the turn's record as it ends."""
        verdict = turn_verdict(self.end)
        return replace(self.turn, status=TurnStatus(verdict.status), terminal_reason=verdict.reason)

    def response_record(self) -> ResponseRecord:
        """Return the response as it is to be committed."""
        metadata = {
            "timeout_diagnostics": self.diagnosis,
            "evidence": self.evidence,
            "remote_termination": self.remote_termination,
            "message": self.message or None,
        }
        return ResponseRecord(
            turn_id=self.turn.id,
            execution_id=self.turn.execution_id,
            conversation=self.turn.conversation,
            member=self.turn.member,
            status=ResponseStatus(self.response.status),
            reason=self.response.reason,
            text=self.text,
            metadata={key: value for key, value in metadata.items() if value is not None},
        )

    def outcome(self, **details: Any) -> TurnOutcome:
        """Return the outcome, with the *details* that the turn itself knows."""
        turn = turn_verdict(self.end)
        return TurnOutcome(
            member=self.turn.member,
            turn_id=self.turn.id,
            status=ResponseStatus(self.response.status),
            reason=self.response.reason,
            turn_status=TurnStatus(turn.status),
            turn_reason=turn.reason,
            queue_status=member_status(error=self.error, stop=self.end.stop),
            signal=routing_signal(self.response.reason),
            text=self.text,
            message=self.message,
            diagnosis=self.diagnosis,
            evidence=self.evidence,
            remote_termination=self.remote_termination,
            **details,
        )


def last_events(conclusion: Conclusion, *, done: Event | None, error_told: bool) -> list[Event]:
    """Return what is said behind the committed response: `error` unless the member has said it, and one `done` (R18, T33).

    done: the member's own, whose text and data (usage, say) are kept.
    """
    events = []
    if conclusion.error is not None and not error_told:
        diagnosis = dict(conclusion.diagnosis or {})
        events.append(Event.failure(conclusion.message, conclusion.error, data=diagnosis))
    verdict = conclusion.response
    said = {} if done is None else {"text": done.text, "raw": done.raw}
    data = {**(done.data if done is not None else {}), "status": str(verdict.status), "reason": verdict.reason}
    return [*events, Event.done(conclusion.error, data=data, **said)]
