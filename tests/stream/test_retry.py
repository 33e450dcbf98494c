"""Retries: tenacity's policies, consulted before the first chunk, and slept where everything still works."""

import datetime
import email.utils
import io
import itertools
import json
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import tenacity
from urllib3.util.retry import Retry

import streamguard
from streamguard import (
    HEARTBEAT,
    CancelToken,
    DeadlineExceededError,
    EmptyStreamError,
    HTTPStatusError,
    InStreamError,
    MalformedChunkError,
    NotEventStreamError,
    StreamCancelledError,
    StreamInactivityTimeoutError,
    TransportError,
    TransportTimeoutError,
    UsageError,
    before_first_chunk,
    classify,
    deadline,
    guarded_stream,
    has_content,
)
from streamguard.core.clock import monotonic

from .shapes import PROMPT, Factory, Run, ask, choice, consume, line

GOOD = "chat a\nchat b\nfinish\ndone"
STALL = "headers\nstall"
NOW = tenacity.wait_none()


def policy(attempts: int = 3, **options: Any) -> tenacity.Retrying:
    """Return a policy of tenacity's own that tries anything again, at once."""
    return tenacity.Retrying(**{"stop": tenacity.stop_after_attempt(attempts), "wait": NOW, **options})


def test_by_default_timeouts_are_tried_twice_again(streamguard_gateway: Factory) -> None:
    """Two further attempts after a silence before the first chunk; then the original error, which counts them."""
    gateway = streamguard_gateway(STALL)
    run = consume(guarded_stream("POST", gateway.url, first=0.1))
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.error.attempt, run.error.max_attempts, len(gateway.requests)) == (3, 3, 3)
    assert (run.stream.report.attempts, run.stream.report.outcome) == (3, "timeout")


def test_a_retry_may_succeed(streamguard_gateway: Factory) -> None:
    """The stream of a later attempt is handed over as if it had been the first; the report counts the attempts."""
    gateway = streamguard_gateway(STALL, GOOD)
    run = consume(guarded_stream("POST", gateway.url, first=0.2))
    assert (run.error, run.texts, run.stream.report.attempts) == (None, ["a", "b"], 2)
    assert gateway.wait_left(1).during == "stall"


@pytest.mark.parametrize(("retry", "requests_made"), [(None, 1), (0, 1), (1, 2), (3, 4)])
def test_a_number_of_retries(streamguard_gateway: Factory, retry: int | None, requests_made: int) -> None:
    """None and 0 are no retry, a number is that many further attempts."""
    gateway = streamguard_gateway(STALL)
    run = ask(gateway, retry=retry, first=0.05)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (len(gateway.requests), run.error.max_attempts) == (requests_made, requests_made)


@pytest.mark.parametrize("wrong", [True, False, 1.5, "3", {"max": 3}, tenacity.stop_after_attempt(3), tenacity.AsyncRetrying()])
def test_what_is_no_policy(wrong: object) -> None:
    """Anything else is refused when the stream is made, by its name."""
    with pytest.raises(TypeError, match="retry="):
        guarded_stream("POST", "http://127.0.0.1:9/", retry=wrong)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"max_retries": -1}, UsageError),
        ({"max_retries": True}, TypeError),
        ({"max_retries": "2"}, TypeError),
        ({"on": "ETIMEDOUT"}, TypeError),
        ({"on": {5}}, TypeError),
        ({"status": 503}, TypeError),
        ({"status": {"503"}}, TypeError),
    ],
)
def test_arguments_of_the_policy_are_checked(options: dict[str, Any], error: type[Exception]) -> None:
    """A wrong argument of before_first_chunk is refused by its name."""
    with pytest.raises(error, match=f"{next(iter(options))}="):
        before_first_chunk(**options)


def test_a_disabled_policy_is_none(streamguard_gateway: Factory) -> None:
    """tenacity's `enabled=False` turns a policy off."""
    gateway = streamguard_gateway("reset")
    try:
        off = policy(enabled=False)
    except TypeError:
        pytest.skip("this tenacity has no enabled=")
    assert isinstance(ask(gateway, retry=off).error, TransportError)
    assert len(gateway.requests) == 1


def test_one_policy_serves_many_streams(streamguard_gateway: Factory) -> None:
    """A policy keeps nothing of a stream: each counts its own attempts."""
    shared = policy(2)
    for _ in range(3):
        gateway = streamguard_gateway("reset", GOOD)
        assert ask(gateway, retry=shared).texts == ["a", "b"]


FAULTS: dict[str, tuple[str, type[Exception]]] = {
    "reset": ("wait 0.05\nreset", TransportError),
    "no-answer": ("close", TransportError),
    "reset-in-body": ("headers\nwait 0.05\nreset", TransportError),
    "broken-chunking": ("headers\nwire zz\\r\\n\nclose", TransportError),
    "503": ("headers 503", HTTPStatusError),
    "401": ("headers 401", HTTPStatusError),
    "html": ("headers content-type: text/html\nraw <html>", NotEventStreamError),
    "error-frame": ("error overloaded", InStreamError),
    "malformed": ("event x", MalformedChunkError),
    "empty": ("done", EmptyStreamError),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("retry", ["default", 2])
def test_only_timeouts_are_tried_again_unless_told_otherwise(
    streamguard_gateway: Factory, retry: object, fault: str
) -> None:
    """No other failure is tried again by the default policy, or by a number."""
    script, kind = FAULTS[fault]
    gateway = streamguard_gateway(script, GOOD)
    run = consume(guarded_stream("POST", gateway.url, **({} if retry == "default" else {"retry": retry})))
    assert type(run.error) is kind
    assert len(gateway.requests) == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_exception_types_widen_it(streamguard_gateway: Factory, fault: str) -> None:
    """`on=` takes exception types: those, and no others, are tried again."""
    script, kind = FAULTS[fault]
    gateway = streamguard_gateway(script, GOOD)
    run = ask(gateway, retry=before_first_chunk(1, on={kind}, wait=NOW))
    assert (run.error, run.texts, len(gateway.requests)) == (None, ["a", "b"], 2)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_policy_of_tenacity_decides_alone(streamguard_gateway: Factory, fault: str) -> None:
    """A bare Retrying tries again whatever is an Exception, and the original error is raised, never RetryError."""
    script, kind = FAULTS[fault]
    gateway = streamguard_gateway(script)
    run = ask(gateway, retry=policy(2))
    assert type(run.error) is kind
    assert len(gateway.requests) == 2


@pytest.mark.parametrize(("codes", "requests_made"), [({"ETIMEDOUT"}, 1), ({"ECONNRESET"}, 2), ({"ETIMEDOUT", "ECONNRESET"}, 2)])
def test_codes_widen_it(streamguard_gateway: Factory, codes: set[str], requests_made: int) -> None:
    """`on=` takes transport codes."""
    gateway = streamguard_gateway("close", GOOD)
    run = ask(gateway, retry=before_first_chunk(1, on=codes, wait=NOW))
    assert len(gateway.requests) == requests_made
    assert (run.error is None) == (requests_made == 2)


def test_codes_replace_the_default(streamguard_gateway: Factory) -> None:
    """Without "ETIMEDOUT" among the codes a silence is not tried again."""
    gateway = streamguard_gateway(STALL, GOOD)
    run = ask(gateway, retry=before_first_chunk(1, on={"ECONNRESET"}, wait=NOW), first=0.1)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert len(gateway.requests) == 1


def test_a_refused_connection_has_a_code(streamguard_gateway: Factory) -> None:
    """"ECONNREFUSED" is worth another attempt when it is asked for: each is counted."""
    gateway = streamguard_gateway(GOOD)
    gateway.stop()
    run = ask(gateway, retry=before_first_chunk(2, on={"ECONNREFUSED"}, wait=NOW))
    assert isinstance(run.error, TransportError)
    assert (run.error.code, run.error.attempt, run.stream.report.attempts) == ("ECONNREFUSED", 3, 3)


@pytest.mark.parametrize("phase", ["connect", "response", "first", "dead"])
def test_a_timeout_of_any_phase_before_the_first_chunk(streamguard_gateway: Factory, phase: str) -> None:
    """Silence before the headers, before the first chunk or on the line: each is tried again."""
    slow = {"connect": "", "response": "stall", "first": "loop forever\ncomment hb\nwait 0.02\nendloop", "dead": STALL}[phase]
    gateway = streamguard_gateway(slow or GOOD, GOOD, tls_stall=phase == "connect")
    run = ask(gateway, retry=before_first_chunk(1, wait=NOW), **{phase: 0.15})
    if phase == "connect":
        assert isinstance(run.error, TransportTimeoutError)
        assert (run.error.phase, run.error.attempt, gateway.connections) == ("connect", 2, 2)
    else:
        assert (run.error, run.texts, len(gateway.requests)) == (None, ["a", "b"], 2)


@pytest.mark.parametrize(("status", "requests_made"), [(429, 2), (503, 2), (500, 1), (401, 1)])
def test_statuses_widen_it(streamguard_gateway: Factory, status: int, requests_made: int) -> None:
    """`status=` names the statuses that are tried again."""
    gateway = streamguard_gateway(f"headers {status}", GOOD)
    run = ask(gateway, retry=before_first_chunk(1, status={429, 503}, wait=NOW))
    assert len(gateway.requests) == requests_made
    assert (run.error is None) == (requests_made == 2)


@pytest.mark.parametrize("statuses", [[503], (503,), frozenset({503}), range(500, 600)])
def test_statuses_are_any_collection(streamguard_gateway: Factory, statuses: Any) -> None:
    """A set, a list, a range: any collection of numbers will do."""
    gateway = streamguard_gateway("headers 503", GOOD)
    assert ask(gateway, retry=before_first_chunk(1, status=statuses, wait=NOW)).error is None


def test_retry_after_is_obeyed(streamguard_gateway: Factory) -> None:
    """The next attempt comes no earlier than the server asked for, though the policy would wait less."""
    gateway = streamguard_gateway("headers 503 retry-after: 0.4", GOOD)
    run = ask(gateway, retry=before_first_chunk(1, status={503}, wait=NOW))
    assert run.error is None
    assert 0.4 <= gateway.requests[1].at - gateway.requests[0].at < 0.4 + PROMPT


def test_the_longer_wait_wins(streamguard_gateway: Factory) -> None:
    """A policy that would wait longer than the server asked for does so."""
    gateway = streamguard_gateway("headers 503 retry-after: 0", GOOD)
    assert ask(gateway, retry=before_first_chunk(1, status={503}, wait=tenacity.wait_fixed(0.3))).error is None
    assert gateway.requests[1].at - gateway.requests[0].at >= 0.3


def test_retry_after_as_a_date_is_obeyed(streamguard_gateway: Factory) -> None:
    """A date counts in whole seconds: the wait ends when that second is there."""
    when = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2)
    gateway = streamguard_gateway(f"headers 503 retry-after: {email.utils.format_datetime(when, usegmt=True)}", GOOD)
    assert ask(gateway, retry=before_first_chunk(1, status={503}, wait=NOW)).error is None
    assert datetime.datetime.now(datetime.UTC) >= when.replace(microsecond=0)


@pytest.mark.parametrize("asked", ["3600", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_retry_after_beyond_the_deadline_fails_at_once(streamguard_gateway: Factory, asked: str) -> None:
    """A `Retry-After` that the deadline does not allow ends the call now, with the status error."""
    gateway = streamguard_gateway(f"headers 503 retry-after: {asked}", GOOD)
    run = ask(gateway, retry=before_first_chunk(3, status={503}), total=30)
    assert isinstance(run.error, HTTPStatusError)
    assert run.error.retry_after is not None
    assert (len(gateway.requests), run.stream.report.lifetime < PROMPT) == (1, True)


def test_retry_after_beyond_the_ambient_deadline(streamguard_gateway: Factory) -> None:
    """The surrounding deadline() is as good a deadline as `total`."""
    gateway = streamguard_gateway("headers 429 retry-after: 60")
    with deadline(5):
        run = ask(gateway, retry=before_first_chunk(3, status={429}))
    assert isinstance(run.error, HTTPStatusError)
    assert (len(gateway.requests), run.stream.report.lifetime < PROMPT) == (1, True)


def test_retry_after_of_a_status_that_is_not_retried(streamguard_gateway: Factory) -> None:
    """Nobody waits for what is not tried again."""
    run = ask(streamguard_gateway("headers 503 retry-after: 5"), retry=3)
    assert isinstance(run.error, HTTPStatusError)
    assert run.stream.report.lifetime < PROMPT


def test_retry_after_holds_for_any_policy(streamguard_gateway: Factory) -> None:
    """A policy of tenacity's own that tries a 429 again waits as the server asked, too."""
    gateway = streamguard_gateway("headers 429 retry-after: 0.3", GOOD)
    assert ask(gateway, retry=policy(2)).error is None
    assert gateway.requests[1].at - gateway.requests[0].at >= 0.3


def test_every_part_of_the_policy_is_asked(streamguard_gateway: Factory) -> None:
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
    assert [kind for _, _, kind in calls] == [type(None), *[TransportError] * 5, type(None), *[HTTPStatusError] * 5, type(None)]
    assert gateway.requests[2].at - gateway.requests[1].at >= 0.1


def test_the_state_tells_the_pause(streamguard_gateway: Factory) -> None:
    """before_sleep learns what is going to be slept, as tenacity's own logging callbacks expect it."""
    seen: list[tuple[float, float]] = []

    def note(state: tenacity.RetryCallState) -> None:
        assert state.next_action is not None
        seen.append((state.next_action.sleep, state.upcoming_sleep))

    gateway = streamguard_gateway("close", "close", GOOD)
    own = policy(wait=tenacity.wait_incrementing(start=0.05, increment=0.05), before_sleep=note)
    assert ask(gateway, retry=own).error is None
    assert seen == [(pytest.approx(0.05), pytest.approx(0.05)), (pytest.approx(0.1), pytest.approx(0.1))]


def test_tenacity_logging_works(streamguard_gateway: Factory, caplog: pytest.LogCaptureFixture) -> None:
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
def test_tenacity_conditions(streamguard_gateway: Factory, condition: Any) -> None:
    """Every kind of tenacity's conditions on exceptions decides."""
    gateway = streamguard_gateway("close", GOOD)
    assert ask(gateway, retry=policy(retry=condition)).error is None
    assert len(gateway.requests) == 2


def test_a_condition_may_say_no(streamguard_gateway: Factory) -> None:
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
def test_tenacity_stops(streamguard_gateway: Factory, stop: Any, requests_made: int) -> None:
    """Every kind of tenacity's stops ends the attempts, with the original error."""
    gateway = streamguard_gateway("close")
    run = ask(gateway, retry=policy(stop=stop))
    assert type(run.error) is TransportError
    assert len(gateway.requests) == requests_made


@pytest.mark.parametrize("kind", ["stop_after_delay", "stop_before_delay"])
def test_stops_by_time(streamguard_gateway: Factory, kind: str) -> None:
    """Stops by time measure from the start of the call, pauses included."""
    stop = getattr(tenacity, kind, None)
    if stop is None:
        pytest.skip(f"this tenacity has no {kind}")
    gateway = streamguard_gateway("close")
    run = ask(gateway, retry=policy(stop=stop(0.5), wait=tenacity.wait_fixed(0.2)))
    assert type(run.error) is TransportError
    assert 2 <= len(gateway.requests) <= 4


def test_the_time_of_a_policy_starts_with_the_stream(streamguard_gateway: Factory) -> None:
    """A stream that was made long before it is started has all of its policy's time."""
    gateway = streamguard_gateway("close", GOOD)
    stream = guarded_stream("POST", gateway.url, retry=policy(stop=tenacity.stop_after_delay(0.3)))
    threading.Event().wait(0.4)
    assert stream.read() == "ab"


def test_never_a_retry_error(streamguard_gateway: Factory) -> None:
    """With reraise or without, and with a retry_error_cls: the original error, raised once."""
    for options in ({"reraise": False}, {"reraise": True}, {"retry_error_cls": KeyError}):
        run = ask(streamguard_gateway("close"), retry=policy(2, **options))
        assert type(run.error) is TransportError
        assert run.error.attempt == 2


def test_a_callback_that_fails(streamguard_gateway: Factory) -> None:
    """An exception of the policy's own ends the stream with it, and leaves nothing open."""

    def fail(state: tenacity.RetryCallState) -> None:
        raise LookupError("mine")

    for name in ("before", "after", "before_sleep", "retry", "wait", "stop"):
        run = ask(streamguard_gateway("close"), retry=policy(**{name: fail}))
        assert type(run.error) is LookupError
        assert run.stream.report.outcome == "error"


def test_never_after_a_chunk(streamguard_gateway: Factory) -> None:
    """Under any policy, once a chunk was handed over nothing is tried again: not a silence, not a reset, nothing."""
    faults = ("stall", "wait 0.05\nreset", "close", "error no", "event x", "wire zz\\r\\n\nclose", "end")
    for fault in faults:
        gateway = streamguard_gateway(f"chat a\n{fault}", GOOD)
        run = ask(gateway, retry=policy(5), idle=0.15)
        assert run.error is not None
        assert run.texts == ["a"]
        assert (len(gateway.requests), run.stream.report.attempts) == (1, 1)


@pytest.mark.parametrize("decode", ["events", "json", "bytes", lambda event: event.data], ids=str)
def test_never_after_a_chunk_of_any_kind(streamguard_gateway: Factory, decode: Any) -> None:
    """The same for every decoder."""
    gateway = streamguard_gateway("event 1\nstall", "event 2")
    run = ask(gateway, retry=policy(5), idle=0.15, decode=decode)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (len(run.chunks), len(gateway.requests)) == (1, 1)


def test_a_skipped_event_is_no_chunk(streamguard_gateway: Factory) -> None:
    """Events for which the caller's decode returns None were not handed over: the attempt may be repeated."""
    gateway = streamguard_gateway("event ping | {}\nwait 0.05\nreset", "event ping | {}\nevent 2")
    run = ask(gateway, retry=policy(), decode=lambda event: None if event.event == "ping" else event.data)
    assert (run.error, run.chunks) == (None, ["2"])


ROLE = line(choice(role="assistant"))


def test_counts_decides_when_the_gate_closes(streamguard_gateway: Factory) -> None:
    """With `counts=` chunks that do not count are handed over and leave the gate open; the first that counts closes it."""
    gateway = streamguard_gateway(f"{ROLE}\nstall", f"{ROLE}\n{GOOD}")
    run = ask(gateway, retry=before_first_chunk(1, wait=NOW), counts=has_content, first=0.2)
    assert (run.error, run.texts, len(run.chunks)) == (None, ["a", "b"], 5)
    gateway = streamguard_gateway(f"{ROLE}\nchat a\nstall", GOOD)
    run = ask(gateway, retry=before_first_chunk(1, wait=NOW), counts=has_content, first=0.2, idle=0.2)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert len(gateway.requests) == 1


def test_the_message_is_that_of_the_last_attempt(streamguard_gateway: Factory) -> None:
    """Chunks that did not count, of an attempt that failed, are not in the message twice."""
    thinking = [line(choice(reasoning_content="hm")), line(choice(tool_calls=[{"index": 0, "function": {"name": "f"}}]))]
    end = [line(choice(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}])), "chat a", "finish tool_calls", "done"]
    gateway = streamguard_gateway([*thinking, "stall"], [*thinking, *end])
    run = ask(gateway, retry=before_first_chunk(1, wait=NOW), counts=lambda chunk: bool(chunk.text), first=0.2)
    message = run.stream.message
    assert (run.error, message.reasoning, message.text) == (None, "hm", "a")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("f", "{}")]


def test_never_a_cancel(streamguard_gateway: Factory) -> None:
    """A cancel is not tried again, whatever the policy wants."""
    gateway = streamguard_gateway(STALL)
    token = CancelToken()
    timer = threading.Timer(0.1, token.cancel, ["enough"])
    timer.start()
    run = ask(gateway, retry=policy(5, retry=tenacity.retry_always), cancel=token)
    timer.join()
    assert isinstance(run.error, StreamCancelledError)
    assert (run.error.reason, len(gateway.requests)) == ("enough", 1)


def test_never_a_spent_deadline(streamguard_gateway: Factory) -> None:
    """A deadline is not tried again either: that would multiply it."""
    gateway = streamguard_gateway(STALL)
    run = ask(gateway, retry=policy(5, retry=tenacity.retry_always), total=0.2, first=None)
    assert isinstance(run.error, DeadlineExceededError)
    assert len(gateway.requests) == 1
    with deadline(0.2):
        run = ask(gateway, retry=before_first_chunk(5, on={DeadlineExceededError}), first=None)
    assert isinstance(run.error, DeadlineExceededError)
    assert (run.error.scope, len(gateway.requests)) == ("ambient", 2)


def test_never_what_is_no_exception(streamguard_gateway: Factory) -> None:
    """A BaseException out of the attempt, such as a hook's SystemExit, is raised at once and as it is."""

    class Stop(BaseException):
        """Not an Exception."""

    def hook(response: requests.Response, **options: Any) -> None:
        raise Stop

    gateway = streamguard_gateway(GOOD)
    with pytest.raises(Stop):
        next(guarded_stream("POST", gateway.url, retry=policy(5, retry=tenacity.retry_always), hooks={"response": hook}))
    assert len(gateway.requests) == 1


def test_never_with_a_deadline_already_spent(streamguard_gateway: Factory) -> None:
    """`total=0` makes no attempt at all."""
    gateway = streamguard_gateway(GOOD)
    assert isinstance(ask(gateway, retry=policy(5), total=0).error, DeadlineExceededError)
    assert gateway.connections == 0


def test_heartbeats_flow_during_the_pause(streamguard_gateway: Factory) -> None:
    """`heartbeat=` goes on between attempts, and says so."""
    gateway = streamguard_gateway("close", GOOD)
    run = ask(gateway, retry=policy(wait=tenacity.wait_fixed(0.5)), heartbeat=0.1)
    assert run.error is None
    assert sum(chunk is HEARTBEAT for chunk in run.chunks) >= 2
    stream = guarded_stream("POST", streamguard_gateway("close").url, retry=policy(wait=tenacity.wait_fixed(5)), heartbeat=0.1)
    assert next(stream) is HEARTBEAT
    assert HEARTBEAT.phase == stream.report.phase == "retry"
    stream.close()


@pytest.mark.parametrize("how", ["token", "cancel", "close"])
def test_the_pause_can_be_interrupted(streamguard_gateway: Factory, how: str) -> None:
    """A cancel or a close ends the pause in moments, and no attempt follows."""
    gateway = streamguard_gateway("close", GOOD)
    token, asleep = CancelToken(), threading.Event()
    own = policy(wait=tenacity.wait_fixed(60), before_sleep=lambda state: asleep.set())
    stream = guarded_stream("POST", gateway.url, retry=own, cancel=token)
    stop = {"token": token.cancel, "cancel": stream.cancel, "close": stream.close}[how]

    def interrupt() -> None:
        asleep.wait(5)
        threading.Event().wait(0.1)
        stop()

    thread = threading.Thread(target=interrupt)
    thread.start()
    run = consume(stream)
    thread.join()
    assert type(run.error) is (type(None) if how == "close" else StreamCancelledError)
    assert (run.stream.report.lifetime < PROMPT, len(gateway.requests)) == (True, 1)


def test_a_pause_beyond_the_deadline_is_not_begun(streamguard_gateway: Factory) -> None:
    """If the deadline would pass in the pause, the original error is raised at once: nobody waits for nothing."""
    gateway = streamguard_gateway("close", GOOD)
    run = ask(gateway, retry=policy(wait=tenacity.wait_fixed(60)), total=30)
    assert isinstance(run.error, TransportError)
    assert (run.stream.report.lifetime < PROMPT, len(gateway.requests)) == (True, 1)


def test_the_deadline_holds_in_the_pause(streamguard_gateway: Factory) -> None:
    """A deadline that passes during the pause (here, for the consumer was away) ends it, and no attempt follows."""
    gateway = streamguard_gateway("close", GOOD)
    stream = guarded_stream("POST", gateway.url, retry=policy(wait=tenacity.wait_fixed(0.4)), heartbeat=0.1, total=0.7)
    assert next(stream) is HEARTBEAT
    threading.Event().wait(0.7)
    with pytest.raises(DeadlineExceededError) as caught:
        next(stream)
    assert (caught.value.phase, len(gateway.requests)) == ("retry", 1)


def test_total_is_never_multiplied(streamguard_gateway: Factory) -> None:
    """`total` bounds all attempts and pauses together."""
    gateway = streamguard_gateway(STALL)
    run = ask(gateway, retry=before_first_chunk(50, wait=tenacity.wait_fixed(0.05)), first=0.2, total=0.7)
    assert isinstance(run.error, DeadlineExceededError)
    assert 0.7 <= run.stream.report.lifetime < 0.7 + PROMPT
    assert 2 <= len(gateway.requests) <= 4


def test_open_waits_through_retries(streamguard_gateway: Factory) -> None:
    """`open()` and `with` go through the same retries, whatever they wait for."""
    gateway = streamguard_gateway("close", STALL, GOOD)
    retry = before_first_chunk(2, on={"ETIMEDOUT", "ECONNRESET"}, wait=NOW)
    stream = guarded_stream("POST", gateway.url, retry=retry, first=0.2).open(until="first")
    assert (stream.report.attempts, stream.report.chunks, stream.read()) == (3, 0, "ab")
    with guarded_stream("POST", streamguard_gateway("close", GOOD).url, retry=retry) as stream:
        assert (stream.report.attempts, stream.response.status_code) == (2, 200)


@pytest.mark.parametrize("method", ["POST", "post", "PATCH"])
def test_all_attempts_carry_one_key(streamguard_gateway: Factory, method: str) -> None:
    """A POST or PATCH that may be repeated carries an Idempotency-Key, the same in each attempt, new for each call."""
    gateway = streamguard_gateway("close", "close", GOOD)
    for _ in range(2):
        consume(guarded_stream(method, gateway.url, retry=policy(), json={"stream": True}))
    keys = [request.headers["Idempotency-Key"] for request in gateway.requests]
    assert keys[0] == keys[1] == keys[2]
    assert keys[3] != keys[0]
    assert all(len(key) >= 16 for key in keys)


def test_no_key_where_none_is_needed(streamguard_gateway: Factory) -> None:
    """A GET, and a POST that is not repeated, carry none."""
    gateway = streamguard_gateway(GOOD)
    consume(guarded_stream("GET", gateway.url))
    consume(guarded_stream("POST", gateway.url, retry=None))
    consume(guarded_stream("POST", gateway.url, retry=0))
    assert [request.headers.get("Idempotency-Key") for request in gateway.requests] == [None, None, None]


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key", b"Idempotency-Key"])
def test_the_callers_own_key_stands(streamguard_gateway: Factory, name: Any) -> None:
    """A key of the caller's, in the call or on the session, is left alone."""
    gateway = streamguard_gateway("close", GOOD)
    consume(guarded_stream("POST", gateway.url, retry=policy(), headers={name: "mine"}))
    with requests.Session() as session:
        session.headers["Idempotency-Key"] = "mine"
        consume(guarded_stream("POST", gateway.url, session=session))
    assert [request.headers["Idempotency-Key"] for request in gateway.requests] == ["mine"] * 3


def parts() -> Iterator[bytes]:
    """Yield a body that can be had once."""
    yield b"once "
    yield b"only"


ONCE: list[dict[str, Any]] = [
    {"data": parts},
    {"data": lambda: io.BytesIO(b"once only")},
    {"data": lambda: io.StringIO("once only")},
    {"data": lambda: map(bytes, [b"once ", b"only"])},
    {"files": lambda: {"f": io.BytesIO(b"once only")}},
    {"files": lambda: [("f", ("name", io.BytesIO(b"once only"), "text/plain"))]},
]


@pytest.mark.parametrize("option", ONCE, ids=lambda option: f"{next(iter(option))}-{id(option) % 97}")
def test_a_body_that_cannot_be_sent_again(streamguard_gateway: Factory, option: dict[str, Any]) -> None:
    """The first need of a retry is a clear error, with the original as its cause, and never a second, empty request."""
    (name, make), = option.items()
    gateway = streamguard_gateway("headers 503", GOOD)
    run = ask(gateway, retry=policy(), **{name: make()})
    assert type(run.error) is UsageError
    assert f"{name}=" in str(run.error)
    assert "retry=None" in str(run.error)
    assert isinstance(run.error.__cause__, HTTPStatusError)
    assert len(gateway.requests) == 1
    assert b"once only" in gateway.requests[0].body


@pytest.mark.parametrize("option", ONCE, ids=lambda option: f"{next(iter(option))}-{id(option) % 97}")
def test_such_a_body_is_fine_without_a_retry(streamguard_gateway: Factory, option: dict[str, Any]) -> None:
    """Nothing is refused that does not have to be sent again; with retry=None the original error comes."""
    (name, make), = option.items()
    run = ask(streamguard_gateway(GOOD), retry=policy(), **{name: make()})
    assert (run.error, run.texts) == (None, ["a", "b"])
    run = ask(streamguard_gateway("headers 503"), retry=None, **{name: make()})
    assert isinstance(run.error, HTTPStatusError)


@pytest.mark.parametrize(
    "option",
    [
        {"data": b"again"},
        {"data": "again"},
        {"data": bytearray(b"again")},
        {"data": {"k": "again"}},
        {"data": [("k", "again")]},
        {"json": {"k": "again"}},
        {"files": {"f": b"again"}},
        {"files": [("f", ("name", "again"))]},
    ],
    ids=repr,
)
def test_a_body_that_can_be_sent_again(streamguard_gateway: Factory, option: dict[str, Any]) -> None:
    """Each attempt carries the whole body."""
    gateway = streamguard_gateway("close", GOOD)
    assert ask(gateway, retry=policy(), **option).error is None
    assert len(gateway.requests) == 2
    assert all(b"again" in request.body for request in gateway.requests)


def test_a_retry_through_the_callers_session(streamguard_gateway: Factory) -> None:
    """Retries work through a session of the caller's, with our adapter and without."""
    for adapter in (True, False):
        gateway = streamguard_gateway(STALL, GOOD)
        with requests.Session() as session:
            if adapter:
                session.mount("http://", streamguard.Adapter())
            run = ask(gateway, retry=before_first_chunk(1, wait=NOW), first=0.2, session=session)
        assert (run.error, run.texts, len(gateway.requests)) == (None, ["a", "b"], 2)


def test_B086_overload_in_a_200_stream(streamguard_gateway: Factory) -> None:
    """An error frame is retried before the first chunk only if the policy says so."""
    frame = 'event {"error":{"type":"overloaded_error","message":"busy"}}'
    gateway = streamguard_gateway(frame, GOOD)
    run = consume(guarded_stream("POST", gateway.url))
    assert isinstance(run.error, InStreamError)
    assert (classify(run.error).diagnosis, len(gateway.requests)) == ("retryable", 1)
    gateway = streamguard_gateway(frame, GOOD)
    run = ask(gateway, retry=before_first_chunk(1, on={InStreamError}, wait=NOW))
    assert (run.error, run.texts) == (None, ["a", "b"])


def two_chunks_then_silence(streamguard_gateway: Factory, **options: Any) -> tuple[Run, int]:
    """Run a stream that stalls after two chunks, while a second attempt would succeed; return the requests made."""
    gateway = streamguard_gateway("chat a\nchat b\nstall", GOOD)
    run = consume(guarded_stream("POST", gateway.url, idle=0.2, **options))
    return run, len(gateway.requests)


def test_B100_no_text_is_shown_twice(streamguard_gateway: Factory) -> None:
    """Two chunks, then ETIMEDOUT with the partial text, and exactly one request."""
    run, made = two_chunks_then_silence(streamguard_gateway)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.texts, run.error.partial_text, run.error.code, made) == (["a", "b"], "ab", "ETIMEDOUT", 1)


def test_B101_the_wait_for_the_first_chunk_is_retried(streamguard_gateway: Factory) -> None:
    """A stall before the first chunk is inside of what is retried, though it is met in the iterator."""
    gateway = streamguard_gateway(STALL, GOOD)
    stream = guarded_stream("POST", gateway.url, first=0.2, retry=1)
    assert next(stream).text == "a"
    assert len(gateway.requests) == 2
    stream.close()


def test_B103_no_attempt_starts_after_the_deadline(streamguard_gateway: Factory) -> None:
    """A pause that would overshoot the deadline is not slept through."""
    gateway = streamguard_gateway("close")
    run = ask(gateway, retry=policy(50, wait=tenacity.wait_fixed(0.4)), total=0.5)
    assert run.error is not None
    assert len(gateway.requests) == 2
    assert run.stream.report.lifetime < 0.5 + PROMPT
    assert all(request.at - gateway.requests[0].at < 0.5 for request in gateway.requests)


def test_B104_a_mounted_retry_that_sleeps(streamguard_gateway: Factory) -> None:
    """Own sessions obey no foreign Retry; behind a caller's, which sleeps, the consumer is free on time all the same."""
    gateway = streamguard_gateway("headers 503 retry-after: 1")
    with requests.Session() as session:
        session.mount("http://", streamguard.Adapter(max_retries=Retry(1, status_forcelist=[503])))
        run = consume(guarded_stream("GET", gateway.url, session=session, total=0.3))
        assert isinstance(run.error, DeadlineExceededError)
        assert 0.3 <= run.stream.report.lifetime < 0.3 + 0.6
        assert run.stream.report.abandoned_threads == 1
    own = ask(streamguard_gateway("headers 503 retry-after: 5"), total=3)
    assert isinstance(own.error, HTTPStatusError)


def test_B105_retries_do_not_multiply_the_timeout(streamguard_gateway: Factory) -> None:
    """Three attempts of half a second under a total of one end at one; the error lists the attempts made."""
    gateway = streamguard_gateway("stall")
    run = ask(gateway, retry=before_first_chunk(2, wait=NOW), response=0.4, total=1.0)
    assert isinstance(run.error, DeadlineExceededError)
    assert (run.error.attempt, run.error.max_attempts, len(gateway.requests)) == (3, 3, 3)
    assert 1.0 <= run.stream.report.lifetime < 1.0 + PROMPT


def test_B106_three_parameters(streamguard_gateway: Factory) -> None:
    """The number of attempts, the limit of each, and the total are set, and told, one by one."""
    run = ask(streamguard_gateway("stall"), retry=before_first_chunk(1, wait=NOW), response=0.2, total=30)
    assert isinstance(run.error, TransportTimeoutError)
    assert (run.error.attempt, run.error.max_attempts, run.error.limit, run.error.phase) == (2, 2, 0.2, "response")


def test_B107_a_connection_that_closed_while_idle(streamguard_gateway: Factory) -> None:
    """A kept connection that the server closed meanwhile is replaced, without an error."""
    gateway = streamguard_gateway(f"{GOOD}\nend\nclose", GOOD)
    with requests.Session() as session:
        session.mount("http://", streamguard.Adapter())
        assert ask(gateway, session=session).error is None
        threading.Event().wait(0.1)
        assert ask(gateway, session=session).error is None
    assert gateway.connections == 2


@pytest.mark.parametrize(("codes", "requests_made"), [({"ETIMEDOUT"}, 2), ({"ETIMEDOUT", "ECONNRESET"}, 3)])
def test_B107_a_connection_that_closes_on_receipt(
    streamguard_gateway: Factory, codes: set[str], requests_made: int
) -> None:
    """One that closes on receipt of the request is ECONNRESET, with no response bytes; retried only if asked for."""
    gateway = streamguard_gateway(GOOD, "close", GOOD)
    with requests.Session() as session:
        session.mount("http://", streamguard.Adapter())
        assert ask(gateway, session=session).error is None
        run = ask(gateway, session=session, retry=before_first_chunk(1, on=codes, wait=NOW))
    assert len(gateway.requests) == requests_made
    if requests_made == 2:
        assert isinstance(run.error, TransportError)
        assert run.error.code == "ECONNRESET"
        assert "not one byte" in str(run.error)
    else:
        assert run.texts == ["a", "b"]


def test_B108_the_request_waits_for_the_first_step(streamguard_gateway: Factory) -> None:
    """Making a stream sends nothing; next(), with and open() start it, and their errors pass through the policy."""
    for start in (next, lambda stream: stream.open(), lambda stream: stream.__enter__()):
        gateway = streamguard_gateway("headers 401", GOOD)
        stream = guarded_stream("POST", gateway.url, retry=before_first_chunk(1, status={401}, wait=NOW))
        assert gateway.connections == 0
        start(stream)
        assert (len(gateway.requests), stream.response.status_code) == (2, 200)
        stream.close()


def test_B109_the_error_says_whether_the_route_may_change(streamguard_gateway: Factory) -> None:
    """Before the first chunk the error shows that nothing was handed over; after it there is no silent switch."""
    early = ask(streamguard_gateway(STALL), first=0.1)
    assert isinstance(early.error, StreamInactivityTimeoutError)
    assert (early.error.chunks, early.error.phase, classify(early.error).diagnosis) == (0, "first", "retryable")
    late, made = two_chunks_then_silence(streamguard_gateway, retry=policy(5))
    assert isinstance(late.error, StreamInactivityTimeoutError)
    assert (late.error.chunks, late.error.phase, made) == (2, "idle", 1)


def test_B110_without_a_policy_the_original_error(streamguard_gateway: Factory) -> None:
    """retry=None: one request, and the error as it is."""
    gateway = streamguard_gateway("chat a\nwait 0.05\nreset", GOOD)
    run = ask(gateway, retry=None)
    assert type(run.error) is TransportError
    assert (run.texts, len(gateway.requests)) == (["a"], 1)


def test_B111_a_clean_end_is_never_retried(streamguard_gateway: Factory) -> None:
    """An endpoint that always ends at once gets one request, and strict=False none more."""
    for options in ({}, {"strict": False}):
        gateway = streamguard_gateway("end")
        run = consume(guarded_stream("POST", gateway.url, retry=3, **options))
        assert type(run.error) is (type(None) if options else EmptyStreamError)
        assert len(gateway.requests) == 1


def test_B111_attempts_are_counted_over_the_whole_call(streamguard_gateway: Factory) -> None:
    """Failures of different kinds use up the same number of attempts."""
    faults = itertools.cycle(["close", STALL, "stall"])
    gateway = streamguard_gateway(*itertools.islice(faults, 9))
    retry = before_first_chunk(3, on={"ETIMEDOUT", "ECONNRESET"}, wait=NOW)
    run = ask(gateway, retry=retry, first=0.1, response=0.1)
    assert run.error is not None
    assert (len(gateway.requests), run.stream.report.attempts) == (4, 4)


def test_the_report_adds_up_all_attempts(streamguard_gateway: Factory) -> None:
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
