"""Statuses, the sentence of a timeout, routing, and the second start (R15, R16, R19, R20, R23, R27, T23)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard.dispatch._data.status import (
    TIMEOUT,
    USER_CANCEL,
    ExecutionStatus,
    Tally,
    TurnEnd,
    may_restart,
    member_status,
    read_reason,
    response_status,
    routing_signal,
    silence_sentence,
)
from streamguard.dispatch._data.turn_events import STARTUP_TIMEOUT


def test_an_error_code_is_the_reason_of_a_stop_too() -> None:
    """R15: the reason is the error code, else the stop's reason; only a timeout has its own word whatever the code."""
    both = TurnEnd(stop=USER_CANCEL, error="exit_143")
    assert response_status(both).reason == "exit_143"
    assert response_status(TurnEnd(stop=TIMEOUT, error="exit_143")).reason == "timeout"


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


def test_a_target_that_never_ran_is_not_a_success() -> None:
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
        ("startup_timeout", "provider_timeout"),
        ("deadline_exceeded", "provider_timeout"),
        ("idle_timeout", "provider_timeout"),
        ("call_timeout", "provider_timeout"),
        ("ETIMEDOUT", "provider_timeout"),
        ("something_new", "something_new"),
        ("", ""),
    ],
)
def test_routing_reads_old_and_new_reasons(reason: str, signal: str) -> None:
    """R23, C241: every timeout is `provider_timeout`; old words read as current ones; unknown ones pass through."""
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
