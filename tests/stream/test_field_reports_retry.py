"""Behaviours met in public bug reports: retries, budgets, and connections that went stale. Named by the reports' ids."""

import itertools
import threading
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
    StreamInactivityTimeoutError,
    TransportError,
    TransportTimeoutError,
    before_first_chunk,
    classify,
    guarded_stream,
)

from ..helpers import PROMPT, Serve
from .helpers import GOOD, NOW, STALL, Run, ask, consume, policy


def test_B086_overload_in_a_200_stream(streamguard_gateway: Serve) -> None:
    """An error frame is retried before the first chunk only if the policy says so."""
    frame = 'event {"error":{"type":"overloaded_error","message":"busy"}}'
    gateway = streamguard_gateway(frame, GOOD)
    run = consume(guarded_stream("POST", gateway.url))
    assert isinstance(run.error, InStreamError)
    assert (classify(run.error).diagnosis, len(gateway.requests)) == ("retryable", 1)
    gateway = streamguard_gateway(frame, GOOD)
    run = ask(gateway, retry=before_first_chunk(1, on={InStreamError}, wait=NOW))
    assert (run.error, run.texts) == (None, ["a", "b"])


def two_chunks_then_silence(streamguard_gateway: Serve, **options: Any) -> tuple[Run, int]:
    """Run a stream that stalls after two chunks, while a second attempt would succeed; return the requests made."""
    gateway = streamguard_gateway("chat a\nchat b\nstall", GOOD)
    run = consume(guarded_stream("POST", gateway.url, idle=0.2, **options))
    return run, len(gateway.requests)


def test_B100_no_text_is_shown_twice(streamguard_gateway: Serve) -> None:
    """Two chunks, then ETIMEDOUT with the partial text, and exactly one request."""
    run, made = two_chunks_then_silence(streamguard_gateway)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.texts, run.error.partial_text, run.error.code, made) == (["a", "b"], "ab", "ETIMEDOUT", 1)


def test_B101_the_wait_for_the_first_chunk_is_retried(streamguard_gateway: Serve) -> None:
    """A stall before the first chunk is inside of what is retried, though it is met in the iterator."""
    gateway = streamguard_gateway(STALL, GOOD)
    stream = guarded_stream("POST", gateway.url, first=0.2, retry=1)
    assert next(stream).text == "a"
    assert len(gateway.requests) == 2
    stream.close()


def test_B103_no_attempt_starts_after_the_deadline(streamguard_gateway: Serve) -> None:
    """A pause that would overshoot the deadline is not slept through."""
    gateway = streamguard_gateway("close")
    run = ask(gateway, retry=policy(50, wait=tenacity.wait_fixed(0.4)), total=0.5)
    assert run.error is not None
    assert len(gateway.requests) == 2
    assert run.stream.report.lifetime < 0.5 + PROMPT
    assert all(request.at - gateway.requests[0].at < 0.5 for request in gateway.requests)


def test_B104_a_mounted_retry_that_sleeps(streamguard_gateway: Serve) -> None:
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


def test_B105_retries_do_not_multiply_the_timeout(streamguard_gateway: Serve) -> None:
    """Attempts of a part of a second each end at the total, whatever remain; the error lists the attempts made."""
    gateway = streamguard_gateway("stall")
    run = ask(gateway, retry=before_first_chunk(50, wait=NOW), response=0.3, total=1.0)
    assert isinstance(run.error, DeadlineExceededError)
    assert run.error.attempt == run.stream.report.attempts
    assert (run.error.max_attempts, 2 <= len(gateway.requests) <= 4) == (51, True)
    assert 1.0 <= run.stream.report.lifetime < 1.0 + PROMPT


def test_B106_three_parameters(streamguard_gateway: Serve) -> None:
    """The number of attempts, the limit of each, and the total are set, and told, one by one."""
    run = ask(streamguard_gateway("stall"), retry=before_first_chunk(1, wait=NOW), response=0.2, total=30)
    assert isinstance(run.error, TransportTimeoutError)
    assert (run.error.attempt, run.error.max_attempts, run.error.limit, run.error.phase) == (2, 2, 0.2, "response")


def test_B107_a_connection_that_closed_while_idle(streamguard_gateway: Serve) -> None:
    """A kept connection that the server closed meanwhile is replaced, without an error."""
    gateway = streamguard_gateway(f"{GOOD}\nend\nclose", GOOD)
    with requests.Session() as session:
        session.mount("http://", streamguard.Adapter())
        assert ask(gateway, session=session).error is None
        threading.Event().wait(0.1)
        assert ask(gateway, session=session).error is None
    assert gateway.connections == 2


@pytest.mark.parametrize(("codes", "requests_made"), [({"ETIMEDOUT"}, 2), ({"ETIMEDOUT", "ECONNRESET"}, 3)])
def test_B107_a_connection_that_closes_on_receipt(streamguard_gateway: Serve, codes: set[str], requests_made: int) -> None:
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


def test_B108_the_request_waits_for_the_first_step(streamguard_gateway: Serve) -> None:
    """Making a stream sends nothing; next(), with and open() start it, and their errors pass through the policy."""
    for start in (next, lambda stream: stream.open(), lambda stream: stream.__enter__()):
        gateway = streamguard_gateway("headers 401", GOOD)
        stream = guarded_stream("POST", gateway.url, retry=before_first_chunk(1, status={401}, wait=NOW))
        assert gateway.connections == 0
        start(stream)
        assert (len(gateway.requests), stream.response.status_code) == (2, 200)
        stream.close()


def test_B109_the_error_says_whether_the_route_may_change(streamguard_gateway: Serve) -> None:
    """Before the first chunk the error shows that nothing was handed over; after it there is no silent switch."""
    early = ask(streamguard_gateway(STALL), first=0.1)
    assert isinstance(early.error, StreamInactivityTimeoutError)
    assert (early.error.chunks, early.error.phase, classify(early.error).diagnosis) == (0, "first", "retryable")
    late, made = two_chunks_then_silence(streamguard_gateway, retry=policy(5))
    assert isinstance(late.error, StreamInactivityTimeoutError)
    assert (late.error.chunks, late.error.phase, made) == (2, "idle", 1)


def test_B110_without_a_policy_the_original_error(streamguard_gateway: Serve) -> None:
    """retry=None: one request, and the error as it is."""
    gateway = streamguard_gateway("chat a\nwait 0.05\nreset", GOOD)
    run = ask(gateway, retry=None)
    assert type(run.error) is TransportError
    assert (run.texts, len(gateway.requests)) == (["a"], 1)


def test_B111_a_clean_end_is_never_retried(streamguard_gateway: Serve) -> None:
    """An endpoint that always ends at once gets one request, and strict=False none more."""
    for strict in (True, False):
        gateway = streamguard_gateway("end")
        run = consume(guarded_stream("POST", gateway.url, retry=3, strict=strict))
        assert type(run.error) is (EmptyStreamError if strict else type(None))
        assert len(gateway.requests) == 1


def test_B111_attempts_are_counted_over_the_whole_call(streamguard_gateway: Serve) -> None:
    """Failures of different kinds use up the same number of attempts."""
    faults = itertools.cycle(["close", STALL, "stall"])
    gateway = streamguard_gateway(*itertools.islice(faults, 9))
    retry = before_first_chunk(3, on={"ETIMEDOUT", "ECONNRESET"}, wait=NOW)
    run = ask(gateway, retry=retry, first=0.1, response=0.1)
    assert run.error is not None
    assert (len(gateway.requests), run.stream.report.attempts) == (4, 4)
