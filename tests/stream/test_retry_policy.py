"""Retry policies: `before_first_chunk()`, tenacity's own, and the server's `Retry-After`."""

import datetime
import email.utils
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
import requests
import tenacity
from urllib3.util.retry import Retry

import streamguard
from streamguard import (
    DeadlineExceededError,
    EmptyStreamError,
    HTTPStatusError,
    InStreamError,
    MalformedChunkError,
    NotEventStreamError,
    StreamInactivityTimeoutError,
    TransportError,
    UsageError,
    before_first_chunk,
    classify,
    deadline,
    guarded_stream,
)

from ..helpers import PROMPT, Serve
from .helpers import GOOD, NOW, STALL, ask, consume, policy, rejected


def test_a_mounted_retry_that_sleeps(streamguard_gateway: Serve) -> None:
    """Our own sessions use no `Retry`; under a caller's, which sleeps, the consumer is free on time (B104)."""
    gateway = streamguard_gateway("headers 503 retry-after: 1")
    with requests.Session() as session:
        session.mount("http://", streamguard.Adapter(max_retries=Retry(1, status_forcelist=[503])))
        run = consume(guarded_stream("GET", gateway.url, session=session, total=0.3))
        assert isinstance(run.error, DeadlineExceededError)
        assert 0.3 <= run.stream.report.lifetime < 0.3 + 0.6
        assert run.stream.report.abandoned_threads == 1
    own = ask(streamguard_gateway("headers 503 retry-after: 5"), total=3)
    assert isinstance(own.error, HTTPStatusError)


def test_without_a_policy_the_original_error(streamguard_gateway: Serve) -> None:
    """retry=None: one request, and the original error (B110)."""
    gateway = streamguard_gateway("chat a\nwait 0.05\nreset", GOOD)
    run = ask(gateway, retry=None)
    assert type(run.error) is TransportError
    assert (run.texts, len(gateway.requests)) == (["a"], 1)


def http_date(seconds: float, layout: str = "") -> str:
    """Return the date *seconds* from now as a header; *layout* is for strftime."""
    when = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    return when.strftime(layout) if layout else email.utils.format_datetime(when, usegmt=True)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("7", 7.0), ("0", 0.0), ("1.5", 1.5), ("-3", 0.0), ("soon", None), ("nan", None), ("inf", None), ("1e999", None)],
)
def test_retry_after_in_seconds(streamguard_gateway: Serve, value: str, seconds: float | None) -> None:
    """`Retry-After` as a number is that many seconds, never negative; a wrong value is ignored."""
    assert rejected(streamguard_gateway(f"headers 429 Retry-After: {value}")).retry_after == seconds


@pytest.mark.parametrize("layout", ["", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"], ids=["imf", "850", "asctime"])
def test_retry_after_as_a_date(streamguard_gateway: Serve, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`Retry-After` as a date, in the three formats of RFC 9110, 5.6.7, is the seconds until then."""
    error = rejected(streamguard_gateway(f"headers 503 Retry-After: {http_date(300, layout)}"))
    assert error.retry_after is not None
    assert 290 < error.retry_after <= 300


@pytest.mark.parametrize("value", ["Wed, 21 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 2015 07:28:00 -0000"])
def test_retry_after_as_a_date_gone_by(streamguard_gateway: Serve, value: str) -> None:
    """A date in the past means now."""
    assert rejected(streamguard_gateway(f"headers 503 Retry-After: {value}")).retry_after == 0.0


@pytest.mark.parametrize("value", ["Wed, 99 Oct 2015 07:28:00 GMT", "Wed, 21 Oct 99999 07:28:00 GMT", ",", "Wed"])
def test_retry_after_that_is_not_a_date(streamguard_gateway: Serve, value: str) -> None:
    """A value that only looks like a date is ignored."""
    assert rejected(streamguard_gateway(f"headers 503 Retry-After: {value}")).retry_after is None


@pytest.mark.parametrize(("retry", "requests_made"), [(None, 1), (0, 1), (1, 2), (3, 4)])
def test_a_number_of_retries(streamguard_gateway: Serve, retry: int | None, requests_made: int) -> None:
    """None and 0 mean no retry, a number that many more attempts."""
    gateway = streamguard_gateway(STALL)
    run = ask(gateway, retry=retry, first=0.05)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (len(gateway.requests), run.error.max_attempts) == (requests_made, requests_made)


@pytest.mark.parametrize(
    "wrong", [True, False, 1.5, "3", {"max": 3}, tenacity.stop_after_attempt(3), tenacity.AsyncRetrying()]
)
def test_a_wrong_policy_is_refused(wrong: object) -> None:
    """A wrong `retry=` is refused when the stream is made, by name."""
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
    """A wrong argument of before_first_chunk() is refused by name."""
    with pytest.raises(error, match=f"{next(iter(options))}="):
        before_first_chunk(**options)


def test_a_disabled_policy_is_none(streamguard_gateway: Serve) -> None:
    """tenacity's `enabled=False` turns a policy off."""
    gateway = streamguard_gateway("reset")
    try:
        off = policy(enabled=False)
    except TypeError:
        pytest.skip("this tenacity has no enabled=")
    assert isinstance(ask(gateway, retry=off).error, TransportError)
    assert len(gateway.requests) == 1


def test_one_policy_serves_many_streams(streamguard_gateway: Serve) -> None:
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
def test_only_timeouts_are_retried_by_default(streamguard_gateway: Serve, retry: object, fault: str) -> None:
    """The default policy, or a number, retries no other failure."""
    script, kind = FAULTS[fault]
    gateway = streamguard_gateway(script, GOOD)
    options: dict[str, Any] = {} if retry == "default" else {"retry": retry}
    run = consume(guarded_stream("POST", gateway.url, **options))
    assert type(run.error) is kind
    assert len(gateway.requests) == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_exception_types_widen_it(streamguard_gateway: Serve, fault: str) -> None:
    """`on=` takes exception types: only those are retried."""
    script, kind = FAULTS[fault]
    gateway = streamguard_gateway(script, GOOD)
    run = ask(gateway, retry=before_first_chunk(1, on={kind}, wait=NOW))
    assert (run.error, run.texts, len(gateway.requests)) == (None, ["a", "b"], 2)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_policy_of_tenacity_decides_alone(streamguard_gateway: Serve, fault: str) -> None:
    """A bare Retrying retries any Exception, and the original error is raised, never RetryError."""
    script, kind = FAULTS[fault]
    gateway = streamguard_gateway(script)
    run = ask(gateway, retry=policy(2))
    assert type(run.error) is kind
    assert len(gateway.requests) == 2


@pytest.mark.parametrize(
    ("codes", "requests_made"), [({"ETIMEDOUT"}, 1), ({"ECONNRESET"}, 2), ({"ETIMEDOUT", "ECONNRESET"}, 2)]
)
def test_codes_widen_it(streamguard_gateway: Serve, codes: set[str], requests_made: int) -> None:
    """`on=` takes transport codes."""
    gateway = streamguard_gateway("close", GOOD)
    run = ask(gateway, retry=before_first_chunk(1, on=codes, wait=NOW))
    assert len(gateway.requests) == requests_made
    assert (run.error is None) == (requests_made == 2)


def test_codes_replace_the_default(streamguard_gateway: Serve) -> None:
    """Without "ETIMEDOUT" among the codes a silence is not retried."""
    gateway = streamguard_gateway(STALL, GOOD)
    run = ask(gateway, retry=before_first_chunk(1, on={"ECONNRESET"}, wait=NOW), first=0.1)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert len(gateway.requests) == 1


def test_a_refused_connection_has_a_code(streamguard_gateway: Serve) -> None:
    """ "ECONNREFUSED" is retried if `on=` names it; each attempt is counted."""
    gateway = streamguard_gateway(GOOD)
    gateway.stop()
    run = ask(gateway, retry=before_first_chunk(2, on={"ECONNREFUSED"}, wait=NOW))
    assert isinstance(run.error, TransportError)
    assert (run.error.code, run.error.attempt, run.stream.report.attempts) == ("ECONNREFUSED", 3, 3)


@pytest.mark.parametrize(("status", "requests_made"), [(429, 2), (503, 2), (500, 1), (401, 1)])
def test_statuses_widen_it(streamguard_gateway: Serve, status: int, requests_made: int) -> None:
    """`status=` names the statuses that are retried."""
    gateway = streamguard_gateway(f"headers {status}", GOOD)
    run = ask(gateway, retry=before_first_chunk(1, status={429, 503}, wait=NOW))
    assert len(gateway.requests) == requests_made
    assert (run.error is None) == (requests_made == 2)


@pytest.mark.parametrize("statuses", [[503], (503,), frozenset({503}), range(500, 600)])
def test_statuses_are_any_collection(streamguard_gateway: Serve, statuses: Any) -> None:
    """A set, a list, a range: any collection of numbers is accepted."""
    gateway = streamguard_gateway("headers 503", GOOD)
    assert ask(gateway, retry=before_first_chunk(1, status=statuses, wait=NOW)).error is None


def test_retry_after_is_obeyed(streamguard_gateway: Serve) -> None:
    """The next attempt is not earlier than the server asked for, though the policy would wait less."""
    gateway = streamguard_gateway("headers 503 retry-after: 0.4", GOOD)
    run = ask(gateway, retry=before_first_chunk(1, status={503}, wait=NOW))
    assert run.error is None
    assert 0.4 <= gateway.requests[1].at - gateway.requests[0].at < 0.4 + PROMPT


def test_the_longer_wait_wins(streamguard_gateway: Serve) -> None:
    """A policy that would wait longer than the server asked for does so."""
    gateway = streamguard_gateway("headers 503 retry-after: 0", GOOD)
    assert ask(gateway, retry=before_first_chunk(1, status={503}, wait=tenacity.wait_fixed(0.3))).error is None
    assert gateway.requests[1].at - gateway.requests[0].at >= 0.3


def test_retry_after_as_a_date_is_obeyed(streamguard_gateway: Serve) -> None:
    """A date has whole seconds: the wait ends when that second begins."""
    when = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=2)
    gateway = streamguard_gateway(f"headers 503 retry-after: {email.utils.format_datetime(when, usegmt=True)}", GOOD)
    assert ask(gateway, retry=before_first_chunk(1, status={503}, wait=NOW)).error is None
    assert datetime.datetime.now(datetime.UTC) >= when.replace(microsecond=0)


@pytest.mark.parametrize("asked", ["3600", "Fri, 31 Dec 9999 23:59:59 GMT"])
def test_retry_after_beyond_the_deadline_fails_at_once(streamguard_gateway: Serve, asked: str) -> None:
    """A `Retry-After` that the deadline does not allow ends the call now, with the status error."""
    gateway = streamguard_gateway(f"headers 503 retry-after: {asked}", GOOD)
    run = ask(gateway, retry=before_first_chunk(3, status={503}), total=30)
    assert isinstance(run.error, HTTPStatusError)
    assert run.error.retry_after is not None
    assert (len(gateway.requests), run.stream.report.lifetime < PROMPT) == (1, True)


def test_retry_after_beyond_the_ambient_deadline(streamguard_gateway: Serve) -> None:
    """The surrounding deadline() ends the call as `total` does."""
    gateway = streamguard_gateway("headers 429 retry-after: 60")
    with deadline(5):
        run = ask(gateway, retry=before_first_chunk(3, status={429}))
    assert isinstance(run.error, HTTPStatusError)
    assert (len(gateway.requests), run.stream.report.lifetime < PROMPT) == (1, True)


def test_retry_after_of_a_status_that_is_not_retried(streamguard_gateway: Serve) -> None:
    """There is no pause for a status that is not retried."""
    run = ask(streamguard_gateway("headers 503 retry-after: 5"), retry=3)
    assert isinstance(run.error, HTTPStatusError)
    assert run.stream.report.lifetime < PROMPT


def test_retry_after_holds_for_any_policy(streamguard_gateway: Serve) -> None:
    """A plain tenacity policy that retries a 429 waits as the server asked, too."""
    gateway = streamguard_gateway("headers 429 retry-after: 0.3", GOOD)
    assert ask(gateway, retry=policy(2)).error is None
    assert gateway.requests[1].at - gateway.requests[0].at >= 0.3


@pytest.mark.parametrize("codes", [{"NOPE"}, {"ETIMEDOUT", "ECONRESET"}, ["timeout"]])
def test_a_code_that_does_not_exist_is_named(codes: Any) -> None:
    """An unknown code is refused: it would never match."""
    with pytest.raises(UsageError, match=r"NOPE|ECONRESET|timeout"):
        before_first_chunk(on=codes)


def test_every_known_code_is_accepted() -> None:
    """The system's codes under all of their names, and ours, are accepted."""
    before_first_chunk(on={"ETIMEDOUT", "EAGAIN", "EWOULDBLOCK", "ECERT", "EAI_NONAME", "EPROTO", OSError})


@pytest.mark.parametrize("wait", [3, 0.5, "1"])
def test_a_wrong_wait_is_refused(wait: Any) -> None:
    """It is refused at once, not when the pause is due."""
    with pytest.raises(TypeError, match="wait= takes a tenacity wait"):
        before_first_chunk(wait=wait)


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
    """before_sleep sees the pause, as tenacity's own logging callbacks expect."""
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
    """An error that the condition rejects is raised at once, unchanged."""
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
    """The policy's time begins when the stream starts, however early it was made."""
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
    """An exception of a callback ends the stream, and leaves nothing open."""

    def fail(state: tenacity.RetryCallState) -> None:
        raise LookupError("mine")

    for name in ("before", "after", "before_sleep", "retry", "wait", "stop"):
        broken: dict[str, Any] = {name: fail}
        run = ask(streamguard_gateway("close"), retry=policy(**broken))
        assert type(run.error) is LookupError
        assert run.stream.report.outcome == "error"
