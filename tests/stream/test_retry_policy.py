"""Retries: tenacity's policies, and the pauses they ask for, slept where everything still works."""

import json
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import tenacity

from streamguard import (
    HEARTBEAT,
    CancelToken,
    DeadlineExceededError,
    HTTPStatusError,
    StreamCancelledError,
    TransportError,
    before_first_chunk,
    classify,
    guarded_stream,
)
from streamguard._core.clock import monotonic

from ..helpers import PROMPT, Serve
from .helpers import GOOD, NOW, STALL, ask, consume, policy


def test_every_part_of_the_policy_is_asked(streamguard_gateway: Serve) -> None:
    """retry, wait, stop, before, after and before_sleep are called as tenacity calls them, with what they need."""
    calls: list[tuple[str, int, object]] = []

    def note(name: str, answer: Any = None) -> Callable[[tenacity.RetryCallState], Any]:
        def call(state: tenacity.RetryCallState) -> Any:
            error = state.outcome.exception() if state.outcome is not None else None
            calls.append((name, state.attempt_number, type(error)))
            return answer(state) if answer else None

        return call

    gateway = streamguard_gateway("close", "headers 503", GOOD)
    own = tenacity.Retrying(
        retry=note("retry", lambda state: True),
        wait=note("wait", lambda state: 0.05 * state.attempt_number),
        stop=note("stop", lambda state: state.attempt_number >= 5),
        before=note("before"),
        after=note("after"),
        before_sleep=note("before_sleep"),
    )
    assert ask(gateway, retry=own).error is None
    one = ["retry", "after", "wait", "stop", "before_sleep"]
    assert [name for name, _, _ in calls] == ["before", *one, "before", *one, "before"]
    assert [number for _, number, _ in calls] == [1] * 6 + [2] * 6 + [3]
    assert [kind for _, _, kind in calls] == [
        type(None),
        *[TransportError] * 5,
        type(None),
        *[HTTPStatusError] * 5,
        type(None),
    ]
    assert gateway.requests[2].at - gateway.requests[1].at >= 0.1


def test_the_state_tells_the_pause(streamguard_gateway: Serve) -> None:
    """before_sleep learns what is going to be slept, as tenacity's own logging callbacks expect it."""
    seen: list[Any] = []

    def note(state: tenacity.RetryCallState) -> None:
        assert state.next_action is not None
        seen.append((state.next_action.sleep, state.upcoming_sleep))

    gateway = streamguard_gateway("close", "close", GOOD)
    own = policy(wait=tenacity.wait_incrementing(start=0.05, increment=0.05), before_sleep=note)
    assert ask(gateway, retry=own).error is None
    assert seen == [(pytest.approx(0.05), pytest.approx(0.05)), (pytest.approx(0.1), pytest.approx(0.1))]


def test_tenacity_logging_works(streamguard_gateway: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """tenacity's ready-made callbacks for logging can be used."""
    log = logging.getLogger("mine")
    own = policy(
        before=tenacity.before_log(log, logging.WARNING),
        after=tenacity.after_log(log, logging.WARNING),
        before_sleep=tenacity.before_sleep_log(log, logging.WARNING),
    )
    assert ask(streamguard_gateway("close", GOOD), retry=own).error is None
    assert len([record for record in caplog.records if record.name == "mine"]) == 4


@pytest.mark.parametrize(
    "condition",
    [
        tenacity.retry_if_exception_type(TransportError),
        tenacity.retry_if_exception_message(match=".*ECONNRESET.*"),
        tenacity.retry_if_not_exception_type(HTTPStatusError),
        tenacity.retry_unless_exception_type(HTTPStatusError),
        tenacity.retry_any(tenacity.retry_if_exception_type(KeyError), tenacity.retry_if_exception(lambda e: True)),
        tenacity.retry_if_exception(lambda e: classify(e).diagnosis == "retryable"),
    ],
    ids=range(6),
)
def test_tenacity_conditions(streamguard_gateway: Serve, condition: Any) -> None:
    """Every kind of tenacity's conditions on exceptions decides."""
    gateway = streamguard_gateway("close", GOOD)
    assert ask(gateway, retry=policy(retry=condition)).error is None
    assert len(gateway.requests) == 2


def test_a_condition_may_say_no(streamguard_gateway: Serve) -> None:
    """What the condition does not want is raised at once, as it is."""
    gateway = streamguard_gateway("close", GOOD)
    run = ask(gateway, retry=policy(retry=tenacity.retry_if_exception_type(KeyError)))
    assert isinstance(run.error, TransportError)
    assert len(gateway.requests) == 1


@pytest.mark.parametrize(
    ("stop", "requests_made"),
    [
        (tenacity.stop_after_attempt(4), 4),
        (tenacity.stop_any(tenacity.stop_after_attempt(2), tenacity.stop_after_delay(60)), 2),
        (tenacity.stop_after_attempt(2) | tenacity.stop_after_delay(60), 2),
        (tenacity.stop_all(tenacity.stop_after_attempt(1), tenacity.stop_after_attempt(3)), 3),
        (lambda state: state.attempt_number == 3, 3),
    ],
    ids=range(5),
)
def test_tenacity_stops(streamguard_gateway: Serve, stop: Any, requests_made: int) -> None:
    """Every kind of tenacity's stops ends the attempts, with the original error."""
    gateway = streamguard_gateway("close")
    run = ask(gateway, retry=policy(stop=stop))
    assert type(run.error) is TransportError
    assert len(gateway.requests) == requests_made


@pytest.mark.parametrize("kind", ["stop_after_delay", "stop_before_delay"])
def test_stops_by_time(streamguard_gateway: Serve, kind: str) -> None:
    """Stops by time measure from the start of the call, pauses included."""
    stop = getattr(tenacity, kind, None)
    if stop is None:
        pytest.skip(f"this tenacity has no {kind}")
    gateway = streamguard_gateway("close")
    run = ask(gateway, retry=policy(stop=stop(0.5), wait=tenacity.wait_fixed(0.2)))
    assert type(run.error) is TransportError
    assert 2 <= len(gateway.requests) <= 4


def test_the_time_of_a_policy_starts_with_the_stream(streamguard_gateway: Serve) -> None:
    """A stream that was made long before it is started has all of its policy's time."""
    gateway = streamguard_gateway("close", GOOD)
    stream = guarded_stream("POST", gateway.url, retry=policy(stop=tenacity.stop_after_delay(0.3)))
    threading.Event().wait(0.4)
    assert stream.read() == "ab"


def test_never_a_retry_error(streamguard_gateway: Serve) -> None:
    """With reraise or without, and with a retry_error_cls: the original error, raised once."""
    for options in ({"reraise": False}, {"reraise": True}, {"retry_error_cls": KeyError}):
        run = ask(streamguard_gateway("close"), retry=policy(2, **options))
        assert type(run.error) is TransportError
        assert run.error.attempt == 2


def test_a_callback_that_fails(streamguard_gateway: Serve) -> None:
    """An exception of the policy's own ends the stream with it, and leaves nothing open."""

    def fail(state: tenacity.RetryCallState) -> None:
        raise LookupError("mine")

    for name in ("before", "after", "before_sleep", "retry", "wait", "stop"):
        broken: dict[str, Any] = {name: fail}
        run = ask(streamguard_gateway("close"), retry=policy(**broken))
        assert type(run.error) is LookupError
        assert run.stream.report.outcome == "error"


def test_heartbeats_flow_during_the_pause(streamguard_gateway: Serve) -> None:
    """`heartbeat=` goes on between attempts, and says so."""
    gateway = streamguard_gateway("close", GOOD)
    run = ask(gateway, retry=policy(wait=tenacity.wait_fixed(0.5)), heartbeat=0.1)
    assert run.error is None
    assert sum(chunk is HEARTBEAT for chunk in run.chunks) >= 2
    stream = guarded_stream(
        "POST", streamguard_gateway("close").url, retry=policy(wait=tenacity.wait_fixed(5)), heartbeat=0.1
    )
    assert next(stream) is HEARTBEAT
    assert HEARTBEAT.phase == stream.report.phase == "retry"
    stream.close()


@pytest.mark.parametrize("how", ["token", "cancel", "close"])
def test_the_pause_can_be_interrupted(streamguard_gateway: Serve, how: str) -> None:
    """A cancel or a close ends the pause in moments, and no attempt follows."""
    gateway = streamguard_gateway("close", GOOD)
    token, asleep = CancelToken(), threading.Event()
    own = policy(wait=tenacity.wait_fixed(60), before_sleep=lambda state: asleep.set())
    stream = guarded_stream("POST", gateway.url, retry=own, cancel=token)
    stops: dict[str, Callable[[], object]] = {"token": token.cancel, "cancel": stream.cancel, "close": stream.close}

    def interrupt() -> None:
        asleep.wait(5)
        threading.Event().wait(0.1)
        stops[how]()

    thread = threading.Thread(target=interrupt)
    thread.start()
    run = consume(stream)
    thread.join()
    assert type(run.error) is (type(None) if how == "close" else StreamCancelledError)
    assert (run.stream.report.lifetime < PROMPT, len(gateway.requests)) == (True, 1)


def test_a_pause_beyond_the_deadline_is_not_begun(streamguard_gateway: Serve) -> None:
    """If the deadline would pass in the pause, the original error is raised at once: nobody waits for nothing."""
    gateway = streamguard_gateway("close", GOOD)
    run = ask(gateway, retry=policy(wait=tenacity.wait_fixed(60)), total=30)
    assert isinstance(run.error, TransportError)
    assert (run.stream.report.lifetime < PROMPT, len(gateway.requests)) == (True, 1)


def test_the_deadline_holds_in_the_pause(streamguard_gateway: Serve) -> None:
    """A deadline that passes during the pause (here, for the consumer was away) ends it, and no attempt follows."""
    gateway = streamguard_gateway("close", GOOD)
    stream = guarded_stream("POST", gateway.url, retry=policy(wait=tenacity.wait_fixed(0.4)), heartbeat=0.1, total=0.7)
    assert next(stream) is HEARTBEAT
    threading.Event().wait(0.7)
    with pytest.raises(DeadlineExceededError) as caught:
        next(stream)
    assert (caught.value.phase, len(gateway.requests)) == ("retry", 1)


def test_total_is_never_multiplied(streamguard_gateway: Serve) -> None:
    """`total` bounds all attempts and pauses together."""
    gateway = streamguard_gateway(STALL)
    run = ask(gateway, retry=before_first_chunk(50, wait=tenacity.wait_fixed(0.05)), first=0.2, total=0.7)
    assert isinstance(run.error, DeadlineExceededError)
    assert 0.7 <= run.stream.report.lifetime < 0.7 + PROMPT
    assert 2 <= len(gateway.requests) <= 4


def test_open_waits_through_retries(streamguard_gateway: Serve) -> None:
    """`open()` and `with` go through the same retries, whatever they wait for."""
    gateway = streamguard_gateway("close", STALL, GOOD)
    retry = before_first_chunk(2, on={"ETIMEDOUT", "ECONNRESET"}, wait=NOW)
    stream = guarded_stream("POST", gateway.url, retry=retry, first=0.2).open(until="first")
    assert (stream.report.attempts, stream.report.chunks, stream.read()) == (3, 0, "ab")
    with guarded_stream("POST", streamguard_gateway("close", GOOD).url, retry=retry) as stream:
        assert (stream.report.attempts, stream.response.status_code) == (2, 200)


def test_the_report_adds_up_all_attempts(streamguard_gateway: Serve) -> None:
    """Bytes and comments of all attempts are counted; times run from the start of the call."""
    gateway = streamguard_gateway("comment one\nstall", "comment two\nwait 0.1\nchat a\ndone")
    begun = monotonic()
    run = ask(gateway, retry=before_first_chunk(1, wait=tenacity.wait_fixed(0.1)), first=0.3)
    report = run.stream.report
    assert (run.error, report.comments, report.attempts, report.chunks) == (None, 2, 2, 1)
    assert report.time_to_headers is not None
    assert report.time_to_first_chunk is not None
    assert 0.4 <= report.time_to_headers <= report.time_to_first_chunk <= report.lifetime <= monotonic() - begun
    assert json.loads(json.dumps(report.to_dict()))["attempts"] == 2
