"""Each fault of the table, over a connection of the call's own, over a shared Session, and over TLS."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import requests

import streamguard
from streamguard import classify, guarded_stream
from streamguard._core.clock import monotonic
from streamguard.testing import Gateway

from ..helpers import Serve
from ..stream.helpers import GOOD, Run, consume
from .scenarios import ALIVE, SCENARIOS, Call, Scenario

PROMPT = 5.0
"""Seconds above its own limits that a call may take: a hundred times what an idle machine needs."""

WAYS = ("own", "session", "tls")


@contextlib.contextmanager
def route(serve: Serve, scenario: Scenario, way: str) -> Iterator[tuple[Gateway, dict[str, Any]]]:
    """Serve the scenario, and one good answer after it; yield the gateway and how to call it."""
    gateway = serve(*scenario.answers, GOOD, framing=scenario.framing, tls=way == "tls")
    options: dict[str, Any] = {"verify": gateway.ca} if way == "tls" else {}
    with contextlib.ExitStack() as stack:
        if way == "session":
            options["session"] = stack.enter_context(streamguard.Session())
        yield gateway, options


def make(gateway: Gateway, call: Call, options: dict[str, Any]) -> tuple[Run, int, float]:
    """Make one call; return what came, the requests that it took, and the seconds."""
    before, began = len(gateway.requests), monotonic()
    run = consume(guarded_stream("POST", f"{gateway.url}/v1/chat/completions", **{**options, **call.options}))
    return run, len(gateway.requests) - before, monotonic() - began


def check(call: Call, run: Run, requests_made: int, seconds: float) -> None:
    """Compare what came with what had to."""
    report = run.stream.report
    assert type(run.error) is (call.error or type(None)), run.error
    assert ("".join(run.texts), requests_made, report.attempts) == (call.text, call.attempts, call.attempts)
    assert call.takes <= seconds < call.takes + PROMPT
    assert {key: getattr(report, key) for key in call.report} == call.report
    if run.error is None:
        assert report.outcome == "completed"
    else:
        check_failure(call, run, run.error)


def check_failure(call: Call, run: Run, error: Any) -> None:
    """A failed call says what is known, is not a success, and offers no incomplete tool call."""
    assert {key: getattr(error, key) for key in call.details} == call.details
    assert (classify(error).diagnosis == "retryable") is call.again
    assert run.stream.report.outcome == ("timeout" if isinstance(error, TimeoutError) else "error")
    assert run.stream.report.error_type == type(error).__name__
    assert (error.partial_text or "") == call.text
    assert run.stream.message.tool_calls == ()
    assert list(run.stream) == []


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_conduct(streamguard_gateway: Serve, name: str, way: str) -> None:
    """Bounded time, the right error, the attempts listed; then the same route answers, and no connection is left open."""
    scenario = SCENARIOS[name]
    with route(streamguard_gateway, scenario, way) as (gateway, options):
        for call in (*scenario.calls, ALIVE):
            check(call, *make(gateway, call, options))
    gateway.wait_connections(1, still_open=0)


def test_a_filtered_answer_offers_no_tool_call(streamguard_gateway: Serve) -> None:
    """An answer that a filter ended is complete, and its whole-looking tool call is none to make."""
    gateway = streamguard_gateway(SCENARIOS["content filter 400"].answers[1])
    run = consume(guarded_stream("POST", gateway.url))
    message = run.stream.message
    assert (run.error, message.finish_reason, message.tool_calls) == (None, "content_filter", ())
    assert [call.name for call in message.invalid_tool_calls] == ["rm"]


def test_a_failed_body_never_serves_the_next_call(streamguard_gateway: Serve) -> None:
    """On a shared Session a connection whose answer was cut, stalled or malformed is not used again."""
    gateway = streamguard_gateway("chat a\nstall", "chat a\nevent <html>\nstall", GOOD, GOOD)
    with requests.Session() as session:
        session.mount("http://", streamguard.Adapter())
        runs = [consume(guarded_stream("POST", gateway.url, session=session, idle=0.2)) for _ in range(4)]
    assert ["".join(run.texts) for run in runs] == ["a", "a", "ab", "ab"]
    assert [request.connection for request in gateway.requests] == [0, 1, 2, 2]


def test_attempts_of_one_call_carry_one_key(streamguard_gateway: Serve) -> None:
    """The attempts of a call have another key than those of the next one: a provider may bill each key once."""
    gateway = streamguard_gateway("headers\nstall", GOOD, GOOD)
    for _ in range(2):
        assert consume(guarded_stream("POST", gateway.url, first=0.2)).error is None
    first, again, other = (request.headers["idempotency-key"] for request in gateway.requests)
    assert first == again != other
