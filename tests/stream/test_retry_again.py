"""Retries: what is sent again, and what the server's `Retry-After` makes of the pause."""

import datetime
import email.utils
import io
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import tenacity

import streamguard
from streamguard import (
    HEARTBEAT,
    EmptyStreamError,
    HTTPStatusError,
    StreamInactivityTimeoutError,
    TransportTimeoutError,
    UsageError,
    before_first_chunk,
    deadline,
    guarded_stream,
)

from ..helpers import PROMPT, Serve
from .helpers import GOOD, NOW, STALL, ask, consume, policy


@pytest.mark.parametrize(("status", "requests_made"), [(429, 2), (503, 2), (500, 1), (401, 1)])
def test_statuses_widen_it(streamguard_gateway: Serve, status: int, requests_made: int) -> None:
    """`status=` names the statuses that are tried again."""
    gateway = streamguard_gateway(f"headers {status}", GOOD)
    run = ask(gateway, retry=before_first_chunk(1, status={429, 503}, wait=NOW))
    assert len(gateway.requests) == requests_made
    assert (run.error is None) == (requests_made == 2)


@pytest.mark.parametrize("statuses", [[503], (503,), frozenset({503}), range(500, 600)])
def test_statuses_are_any_collection(streamguard_gateway: Serve, statuses: Any) -> None:
    """A set, a list, a range: any collection of numbers will do."""
    gateway = streamguard_gateway("headers 503", GOOD)
    assert ask(gateway, retry=before_first_chunk(1, status=statuses, wait=NOW)).error is None


def test_retry_after_is_obeyed(streamguard_gateway: Serve) -> None:
    """The next attempt comes no earlier than the server asked for, though the policy would wait less."""
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
    """A date counts in whole seconds: the wait ends when that second is there."""
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
    """The surrounding deadline() is as good a deadline as `total`."""
    gateway = streamguard_gateway("headers 429 retry-after: 60")
    with deadline(5):
        run = ask(gateway, retry=before_first_chunk(3, status={429}))
    assert isinstance(run.error, HTTPStatusError)
    assert (len(gateway.requests), run.stream.report.lifetime < PROMPT) == (1, True)


def test_retry_after_of_a_status_that_is_not_retried(streamguard_gateway: Serve) -> None:
    """Nobody waits for what is not tried again."""
    run = ask(streamguard_gateway("headers 503 retry-after: 5"), retry=3)
    assert isinstance(run.error, HTTPStatusError)
    assert run.stream.report.lifetime < PROMPT


def test_retry_after_holds_for_any_policy(streamguard_gateway: Serve) -> None:
    """A policy of tenacity's own that tries a 429 again waits as the server asked, too."""
    gateway = streamguard_gateway("headers 429 retry-after: 0.3", GOOD)
    assert ask(gateway, retry=policy(2)).error is None
    assert gateway.requests[1].at - gateway.requests[0].at >= 0.3


@pytest.mark.parametrize("method", ["POST", "post", "PATCH"])
def test_all_attempts_carry_one_key(streamguard_gateway: Serve, method: str) -> None:
    """A POST or PATCH that may be repeated carries an Idempotency-Key, the same in each attempt, new for each call."""
    gateway = streamguard_gateway("close", "close", GOOD)
    for _ in range(2):
        consume(guarded_stream(method, gateway.url, retry=policy(), json={"stream": True}))
    keys = [request.headers["Idempotency-Key"] for request in gateway.requests]
    assert keys[0] == keys[1] == keys[2]
    assert keys[3] != keys[0]
    assert all(len(key) >= 16 for key in keys)


def test_no_key_where_none_is_needed(streamguard_gateway: Serve) -> None:
    """A GET, and a POST that is not repeated, carry none."""
    gateway = streamguard_gateway(GOOD)
    consume(guarded_stream("GET", gateway.url))
    consume(guarded_stream("POST", gateway.url, retry=None))
    consume(guarded_stream("POST", gateway.url, retry=0))
    assert [request.headers.get("Idempotency-Key") for request in gateway.requests] == [None, None, None]


@pytest.mark.parametrize("name", ["Idempotency-Key", "idempotency-key", b"Idempotency-Key"])
def test_the_callers_own_key_stands(streamguard_gateway: Serve, name: Any) -> None:
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


@pytest.mark.parametrize("option", ONCE, ids=lambda option: next(iter(option)))
def test_a_body_that_cannot_be_sent_again(streamguard_gateway: Serve, option: dict[str, Any]) -> None:
    """The first need of a retry is a clear error, with the original as its cause, and never a second, empty request."""
    ((name, make),) = option.items()
    gateway = streamguard_gateway("headers 503", GOOD)
    run = ask(gateway, retry=policy(), **{name: make()})
    assert type(run.error) is UsageError
    assert f"{name}=" in str(run.error)
    assert "retry=None" in str(run.error)
    assert isinstance(run.error.__cause__, HTTPStatusError)
    assert len(gateway.requests) == 1
    assert b"once only" in gateway.requests[0].body


@pytest.mark.parametrize("option", ONCE, ids=lambda option: next(iter(option)))
def test_such_a_body_is_fine_without_a_retry(streamguard_gateway: Serve, option: dict[str, Any]) -> None:
    """Nothing is refused that does not have to be sent again; with retry=None the original error comes."""
    ((name, make),) = option.items()
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
def test_a_body_that_can_be_sent_again(streamguard_gateway: Serve, option: dict[str, Any]) -> None:
    """Each attempt carries the whole body."""
    gateway = streamguard_gateway("close", GOOD)
    assert ask(gateway, retry=policy(), **option).error is None
    assert len(gateway.requests) == 2
    assert all(b"again" in request.body for request in gateway.requests)


def test_a_retry_through_the_callers_session(streamguard_gateway: Serve) -> None:
    """Retries work through a session of the caller's, with our adapter and without."""
    for adapter in (True, False):
        gateway = streamguard_gateway(STALL, GOOD)
        with requests.Session() as session:
            if adapter:
                session.mount("http://", streamguard.Adapter())
            run = ask(gateway, retry=before_first_chunk(1, wait=NOW), first=0.2, session=session)
        assert (run.error, run.texts, len(gateway.requests)) == (None, ["a", "b"], 2)


def test_the_report_is_that_of_the_last_attempt(streamguard_gateway: Serve) -> None:
    """What an earlier one was told, status, id and response, is gone when the next one has not been answered."""
    gateway = streamguard_gateway("headers 503 x-request-id: one\nbody no", "stall")
    stream = guarded_stream("GET", gateway.url, response=0.2, retry=before_first_chunk(1, status={503}, wait=NOW))
    assert isinstance(consume(stream).error, TransportTimeoutError)
    assert (stream.report.status_code, stream.report.request_id) == (None, None)
    with pytest.raises(UsageError, match="no response yet"):
        _ = stream.response


def test_silence_behind_the_headers_of_a_second_attempt_is_told(streamguard_gateway: Serve) -> None:
    """Though bytes had come in the first one."""
    gateway = streamguard_gateway("comment a\nstall", "headers\nstall")
    run = ask(gateway, first=0.2, retry=before_first_chunk(1, wait=NOW))
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert "Nothing arrived after the headers" in str(run.error)
    assert run.error.last_byte_ago is None


@pytest.mark.parametrize("codes", [{"NOPE"}, {"ETIMEDOUT", "ECONRESET"}, ["timeout"]])
def test_a_code_that_does_not_exist_is_named(codes: Any) -> None:
    """It would never match, and nobody would know."""
    with pytest.raises(UsageError, match=r"NOPE|ECONRESET|timeout"):
        before_first_chunk(on=codes)


def test_every_code_that_there_is_will_do() -> None:
    """Those of the system under all of their names, and ours."""
    before_first_chunk(on={"ETIMEDOUT", "EAGAIN", "EWOULDBLOCK", "ECERT", "EAI_NONAME", "EPROTO", OSError})


@pytest.mark.parametrize("wait", [3, 0.5, "1"])
def test_a_wait_is_one_of_tenacitys(wait: Any) -> None:
    """Said at once, not when it would be needed, in the place of the error that it is needed for."""
    with pytest.raises(TypeError, match="wait= takes a tenacity wait"):
        before_first_chunk(wait=wait)


def test_heartbeats_in_the_pause_do_not_use_up_attempts(streamguard_gateway: Serve) -> None:
    """After an empty stream, a consumer that gets heartbeats during the pause still has all of its attempts."""
    gateway = streamguard_gateway("headers", "headers", GOOD)
    retry = before_first_chunk(2, on={EmptyStreamError}, wait=tenacity.wait_fixed(0.3))
    items = list(guarded_stream("GET", gateway.url, retry=retry, heartbeat=0.05))
    assert HEARTBEAT in items
    assert "".join(item.text for item in items) == "ab"
    assert len(gateway.requests) == 3
