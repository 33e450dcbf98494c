"""The outcome table: response, turn, queue and routing signal of one end (R15 to R18)."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard.dispatch._data.outcome import EndedTurn, closing_events
from streamguard.dispatch._data.rows import TurnRecord
from streamguard.dispatch._data.status import (
    CANCEL_ALL,
    ENDED_WITHOUT_DONE,
    PREEMPTED,
    TIMEOUT,
    USER_CANCEL,
    ExecutionStatus,
    ResponseStatus,
    TurnEnd,
    TurnStatus,
    member_status,
    turn_status,
)
from streamguard.dispatch._data.turn_events import Event, Kind

MANUAL = Path(__file__).parent.parent.parent.parent / "docs" / "outcomes.md"


DONE = TurnEnd(done=True)


NOTHING = TurnEnd()


# end; response and its reason; turn and its reason; queue; signal
TABLE = [
    (DONE, "completed", "completed", "succeeded", "succeeded", "succeeded", "completed"),
    (TurnEnd(stop=TIMEOUT), "failed", "timeout", "failed", "timeout", "failed", "provider_timeout"),
    (TurnEnd(stop=USER_CANCEL), "cancelled", "user_cancel", "cancelled", "user_cancel", "cancelled", "user_cancel"),
    (TurnEnd(stop=CANCEL_ALL), "cancelled", "cancel_all", "cancelled", "cancel_all", "cancelled", "cancel_all"),
    (TurnEnd(stop=PREEMPTED), "interrupted", "preempted", "cancelled", "preempted", "cancelled", "preempted"),
    (
        TurnEnd(failed=True, error="idle_timeout"),
        "failed",
        "idle_timeout",
        "failed",
        "idle_timeout",
        "failed",
        "provider_timeout",
    ),
    (TurnEnd(failed=True, error="exit_3"), "failed", "exit_3", "failed", "exit_3", "failed", "exit_3"),
    (TurnEnd(failed=True), "failed", "provider_error", "failed", "provider_execution_failed", "failed", "provider_error"),
    (NOTHING, "interrupted", ENDED_WITHOUT_DONE, "interrupted", ENDED_WITHOUT_DONE, "failed", ENDED_WITHOUT_DONE),
]


ENDS = st.one_of(
    st.just(DONE),
    st.just(NOTHING),
    st.builds(TurnEnd, stop=st.sampled_from([TIMEOUT, USER_CANCEL, CANCEL_ALL, PREEMPTED, "reader_left", "a word"])),
    st.builds(TurnEnd, failed=st.just(True), error=st.sampled_from([None, "exit_1", "http_503", "ECONNRESET"])),
)


def conclusion(end: TurnEnd, **fields: Any) -> EndedTurn:
    turn = TurnRecord(id="t", execution_id="e", conversation="c", member="m")
    diagnosis = {"silence": 90.0} if end.stop == TIMEOUT else None
    return EndedTurn(turn=turn, end=end, text="so far", **{"diagnosis": diagnosis, **fields})


@pytest.mark.parametrize(("end", "response", "reason", "turn", "terminal", "queue", "signal"), TABLE)
def test_the_outcome_table(
    end: TurnEnd, response: str, reason: str, turn: str, terminal: str, queue: str, signal: str
) -> None:
    """R15, R17, R19, R23: each end has one response, one turn status, one count in the queue and one signal."""
    outcome = conclusion(end).outcome()
    assert (outcome.status, outcome.reason) == (response, reason)
    assert (outcome.turn_status, outcome.turn_reason) == (turn, terminal)
    assert (outcome.queue_status, outcome.signal) == (queue, signal)


def test_the_manual_has_this_table() -> None:
    """docs/outcomes.md has each row as it is here; where the reason is the status itself, it says it once."""
    rows = [line.split("|")[2:6] for line in MANUAL.read_text(encoding="utf-8").splitlines() if line.count("|") == 6]
    listed = [tuple(tuple(re.findall(r"`(\w+)`", cell)) for cell in row) for row in rows[2:]]
    assert listed == [
        (
            (response,) if response == reason else (response, reason),
            (turn,) if turn == terminal else (turn, terminal),
            (queue,),
            (signal,),
        )
        for _, response, reason, turn, terminal, queue, signal in TABLE
    ]


def test_a_refused_commit_comes_before_everything() -> None:
    """R15: whatever happened, a response whose commit is refused is interrupted, and not a success for the queue."""
    for end, *_ in TABLE:
        outcome = conclusion(end, commit_refused=True).outcome()
        assert (outcome.status, outcome.reason) == ("interrupted", "output_commit_rejected")
        assert outcome.queue_status in ("failed", "cancelled")
    assert conclusion(DONE, commit_refused=True).outcome().queue_status == "failed"


@given(ENDS, st.booleans())
def test_the_four_accounts_agree(end: TurnEnd, refused: bool) -> None:
    """Completed, succeeded and succeeded go together; so do the four words for a timeout, and nothing else is one."""
    outcome = conclusion(end, commit_refused=refused).outcome()
    success = outcome.status is ResponseStatus.COMPLETED
    assert success == (outcome.queue_status is ExecutionStatus.SUCCEEDED)
    assert not success or outcome.turn_status is TurnStatus.SUCCEEDED
    timed_out = end.stop == TIMEOUT
    assert (turn_status(end).reason == TIMEOUT) == timed_out
    if not refused:
        assert success == (outcome.turn_status is TurnStatus.SUCCEEDED)
        assert (outcome.signal == "provider_timeout") == timed_out
    assert not timed_out or outcome.queue_status is ExecutionStatus.FAILED


@given(ENDS, st.booleans(), st.booleans())
def test_the_last_events(end: TurnEnd, refused: bool, sent: bool) -> None:
    """R18, T33: exactly one `done`, the last; before it an `error` exactly where `done` has a code, unless it was sent."""
    ended = conclusion(end, commit_refused=refused)
    own = Event.done(data={"usage": 3}) if end.done else None
    *errors, done = closing_events(ended, done=own, error_sent=sent)
    assert done.kind is Kind.DONE
    assert [event.kind for event in errors] == ([Kind.ERROR] if done.error_code is not None and not sent else [])
    assert member_status(error=done.error_code, stop=end.stop) == ended.outcome().queue_status
    assert (done.data["status"], done.data["reason"]) == (ended.response.status, ended.response.reason)
    assert done.data.get("usage") == (3 if end.done else None)


def test_a_timeouts_events_carry_sentence_and_diagnosis() -> None:
    """R16, R18: the error says the one sentence and brings the diagnosis; the response has both as well."""
    ended = conclusion(TurnEnd(stop=TIMEOUT))
    error, done = closing_events(ended, done=None, error_sent=False)
    assert error.text == "Response timed out: no output for 2 minutes, stopped."
    assert error.data == {"silence": 90.0}
    assert done.error_code == "timeout"
    metadata = ended.response_record().metadata
    assert metadata == {"timeout_diagnostics": {"silence": 90.0}, "message": error.text}
    assert ended.response_record().text == "so far"
