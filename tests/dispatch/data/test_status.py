"""The outcome table: what response, turn, queue and routing signal say about one end (R15 to R20, R23, R27)."""

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
    Tally,
    TurnEnd,
    TurnStatus,
    may_restart,
    member_status,
    read_reason,
    response_status,
    routing_signal,
    silence_sentence,
    turn_status,
)
from streamguard.dispatch._data.turn_events import STARTUP_TIMEOUT, Event, Kind

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
    told = [tuple(tuple(re.findall(r"`(\w+)`", cell)) for cell in row) for row in rows[2:]]
    assert told == [
        (
            (response,) if response == reason else (response, reason),
            (turn,) if turn == terminal else (turn, terminal),
            (queue,),
            (signal,),
        )
        for _, response, reason, turn, terminal, queue, signal in TABLE
    ]


def test_a_refused_commit_comes_before_everything() -> None:
    """R15: whatever happened, a response whose commit is refused is interrupted, and is no success for the queue."""
    for end, *_ in TABLE:
        outcome = conclusion(end, commit_refused=True).outcome()
        assert (outcome.status, outcome.reason) == ("interrupted", "output_commit_rejected")
        assert outcome.queue_status in ("failed", "cancelled")
    assert conclusion(DONE, commit_refused=True).outcome().queue_status == "failed"


def test_an_error_code_is_the_reason_of_a_stop_too() -> None:
    """R15: the reason is the error code, else the stop's reason; only a timeout has its own word whatever the code."""
    both = TurnEnd(stop=USER_CANCEL, error="exit_143")
    assert response_status(both).reason == "exit_143"
    assert response_status(TurnEnd(stop=TIMEOUT, error="exit_143")).reason == "timeout"


@given(ENDS, st.booleans())
def test_the_four_accounts_agree(end: TurnEnd, refused: bool) -> None:
    """Completed, succeeded and succeeded go together; so do the four words for a timeout, and nothing else is one."""
    told = conclusion(end, commit_refused=refused)
    outcome = told.outcome()
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
def test_the_last_events(end: TurnEnd, refused: bool, told: bool) -> None:
    """R18, T33: exactly one `done`, the last; before it an `error` exactly where `done` has a code, unless it was told."""
    ended = conclusion(end, commit_refused=refused)
    own = Event.done(data={"usage": 3}) if end.done else None
    *errors, done = closing_events(ended, done=own, error_sent=told)
    assert done.kind is Kind.DONE
    assert [event.kind for event in errors] == ([Kind.ERROR] if done.error_code is not None and not told else [])
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


@pytest.mark.parametrize(
    ("silence", "words"),
    [
        (0.25, "0.2 seconds"),
        (1.0, "1 second"),
        (45.0, "45 seconds"),
        (59.4, "59 seconds"),
        (59.5, "1 minute"),
        (60, "1 minute"),
        (89.9, "1 minute"),
        (90, "2 minutes"),
        (150, "3 minutes"),
        (600, "10 minutes"),
        (1200.3, "20 minutes"),
    ],
)
def test_the_sentence_rounds_half_up(silence: float, words: str) -> None:
    """R16, T23: seconds below a minute, else minutes; 90 s are two minutes, as 150 s are three."""
    assert silence_sentence(silence) == f"Response timed out: no output for {words}, stopped."


def test_the_first_error_is_kept_and_a_later_failure_revokes_a_success() -> None:
    """R19: A succeeds, B fails, A fails when it comes again: A has failed, and the error is B's."""
    tally = Tally()
    tally.count("a", ExecutionStatus.SUCCEEDED, "completed")
    tally.count("b", ExecutionStatus.FAILED, "exit_2")
    tally.count("a", ExecutionStatus.FAILED, "timeout")
    tally.count("a", ExecutionStatus.SUCCEEDED, "completed")
    assert tally.members == {"a": "failed", "b": "failed"}
    assert tally.status(["a", "b"]).reason == "exit_2"


OF_QUEUE = st.sampled_from([ExecutionStatus.SUCCEEDED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED])


@pytest.mark.parametrize(
    ("members", "batch", "status", "reason"),
    [
        (["succeeded", "succeeded"], None, "succeeded", "succeeded"),
        (["succeeded", "cancelled"], None, "succeeded", "succeeded"),
        (["succeeded", "failed"], None, "failed", "why"),
        (["cancelled", "failed"], None, "failed", "why"),
        (["cancelled", "cancelled"], None, "cancelled", "user_cancel"),
        (["succeeded", "failed"], "cancel_all", "cancelled", "cancel_all"),
        (["failed", "failed"], "user_cancel", "cancelled", "user_cancel"),
    ],
)
def test_the_whole_entry(members: list[str], batch: str | None, status: str, reason: str) -> None:
    """R20: the batch's stop first, then only cancelled ones, then the outcomes; a cancel beside a failure is a failure."""
    tally = Tally()
    for number, member in enumerate(members):
        tally.count(str(number), ExecutionStatus(member), "why")
    verdict = tally.status([str(number) for number in range(len(members))], batch)
    assert (verdict.status, verdict.reason) == (status, reason)


@given(st.lists(OF_QUEUE, min_size=1), st.randoms())
def test_a_timeout_never_counts_as_a_cancel(others: list[ExecutionStatus], chance: Any) -> None:
    """R20: with one timed-out member among any others, in any order, the entry has failed."""
    timed_out = member_status(error=TIMEOUT, stop=TIMEOUT)
    statuses = [timed_out, *others]
    chance.shuffle(statuses)
    tally = Tally()
    for number, status in enumerate(statuses):
        tally.count(str(number), status, "why")
    assert tally.status(tally.members).status is ExecutionStatus.FAILED


def test_a_target_that_never_ran_is_no_success() -> None:
    """A target without any outcome makes the entry a failure."""
    tally = Tally()
    tally.count("a", ExecutionStatus.SUCCEEDED, "completed")
    assert tally.status(["a", "b"]).status is ExecutionStatus.FAILED


@pytest.mark.parametrize(
    ("reason", "signal"),
    [
        ("timeout", "provider_timeout"),
        ("invocation_timeout", "provider_timeout"),
        ("canceled", "cancelled"),
        ("cancelled", "cancelled"),
        ("something_new", "something_new"),
        ("", ""),
    ],
)
def test_routing_reads_old_and_new_reasons(reason: str, signal: str) -> None:
    """R23: an old record's words read as today's; unknown ones pass through."""
    assert routing_signal(reason) == signal
    assert routing_signal(read_reason(reason)) == signal


@pytest.mark.parametrize(
    ("changed", "again"),
    [
        ({}, True),
        ({"error": "timeout"}, False),
        ({"error": None}, False),
        ({"frames": 1}, False),
        ({"resumed": False}, False),
        ({"attempt": 2}, False),
        ({"stopped": True}, False),
    ],
)
def test_the_start_up_timeout_predicate(changed: dict[str, Any], again: bool) -> None:
    """R27: once more only after a start-up timeout, with no frame, on a resumed session, once, and not after a stop."""
    met = {"error": STARTUP_TIMEOUT, "frames": 0, "resumed": True, "attempt": 1, "stopped": False}
    assert may_restart(**{**met, **changed}) is again
