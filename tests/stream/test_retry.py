"""Retries: what is tried again, and what never is."""

import threading
from typing import Any

import pytest
import requests
import tenacity

from streamguard import (
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
    deadline,
    guarded_stream,
    has_content,
)

from ..helpers import Serve
from .helpers import GOOD, NOW, STALL, ask, choice, consume, line, policy


def test_by_default_timeouts_are_tried_twice_again(streamguard_gateway: Serve) -> None:
    """Two further attempts after a silence before the first chunk; then the original error, which counts them."""
    gateway = streamguard_gateway(STALL)
    run = consume(guarded_stream("POST", gateway.url, first=0.1))
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.error.attempt, run.error.max_attempts, len(gateway.requests)) == (3, 3, 3)
    assert (run.stream.report.attempts, run.stream.report.outcome) == (3, "timeout")


def test_a_retry_may_succeed(streamguard_gateway: Serve) -> None:
    """The stream of a later attempt is handed over as if it had been the first; the report counts the attempts."""
    gateway = streamguard_gateway(STALL, GOOD)
    run = consume(guarded_stream("POST", gateway.url, first=0.2))
    assert (run.error, run.texts, run.stream.report.attempts) == (None, ["a", "b"], 2)
    assert gateway.wait_left(1).during == "stall"


@pytest.mark.parametrize(("retry", "requests_made"), [(None, 1), (0, 1), (1, 2), (3, 4)])
def test_a_number_of_retries(streamguard_gateway: Serve, retry: int | None, requests_made: int) -> None:
    """None and 0 are no retry, a number is that many further attempts."""
    gateway = streamguard_gateway(STALL)
    run = ask(gateway, retry=retry, first=0.05)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (len(gateway.requests), run.error.max_attempts) == (requests_made, requests_made)


@pytest.mark.parametrize(
    "wrong", [True, False, 1.5, "3", {"max": 3}, tenacity.stop_after_attempt(3), tenacity.AsyncRetrying()]
)
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
def test_only_timeouts_are_tried_again_unless_told_otherwise(streamguard_gateway: Serve, retry: object, fault: str) -> None:
    """No other failure is tried again by the default policy, or by a number."""
    script, kind = FAULTS[fault]
    gateway = streamguard_gateway(script, GOOD)
    options: dict[str, Any] = {} if retry == "default" else {"retry": retry}
    run = consume(guarded_stream("POST", gateway.url, **options))
    assert type(run.error) is kind
    assert len(gateway.requests) == 1


@pytest.mark.parametrize("fault", FAULTS)
def test_exception_types_widen_it(streamguard_gateway: Serve, fault: str) -> None:
    """`on=` takes exception types: those, and no others, are tried again."""
    script, kind = FAULTS[fault]
    gateway = streamguard_gateway(script, GOOD)
    run = ask(gateway, retry=before_first_chunk(1, on={kind}, wait=NOW))
    assert (run.error, run.texts, len(gateway.requests)) == (None, ["a", "b"], 2)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_policy_of_tenacity_decides_alone(streamguard_gateway: Serve, fault: str) -> None:
    """A bare Retrying tries again whatever is an Exception, and the original error is raised, never RetryError."""
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
    """Without "ETIMEDOUT" among the codes a silence is not tried again."""
    gateway = streamguard_gateway(STALL, GOOD)
    run = ask(gateway, retry=before_first_chunk(1, on={"ECONNRESET"}, wait=NOW), first=0.1)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert len(gateway.requests) == 1


def test_a_refused_connection_has_a_code(streamguard_gateway: Serve) -> None:
    """ "ECONNREFUSED" is worth another attempt when it is asked for: each is counted."""
    gateway = streamguard_gateway(GOOD)
    gateway.stop()
    run = ask(gateway, retry=before_first_chunk(2, on={"ECONNREFUSED"}, wait=NOW))
    assert isinstance(run.error, TransportError)
    assert (run.error.code, run.error.attempt, run.stream.report.attempts) == ("ECONNREFUSED", 3, 3)


@pytest.mark.parametrize("phase", ["connect", "response", "first", "dead"])
def test_a_timeout_of_any_phase_before_the_first_chunk(streamguard_gateway: Serve, phase: str) -> None:
    """Silence before the headers, before the first chunk or on the line: each is tried again."""
    slow = {"connect": "", "response": "stall", "first": "loop forever\ncomment hb\nwait 0.02\nendloop", "dead": STALL}[
        phase
    ]
    gateway = streamguard_gateway(slow or GOOD, GOOD, tls_stall=phase == "connect")
    run = ask(gateway, retry=before_first_chunk(1, wait=NOW), **{phase: 0.15})
    if phase == "connect":
        assert isinstance(run.error, TransportTimeoutError)
        assert (run.error.phase, run.error.attempt, gateway.connections) == ("connect", 2, 2)
    else:
        assert (run.error, run.texts, len(gateway.requests)) == (None, ["a", "b"], 2)


def test_never_after_a_chunk(streamguard_gateway: Serve) -> None:
    """Under any policy, once a chunk was handed over nothing is tried again: not a silence, not a reset, nothing."""
    faults = ("stall", "wait 0.05\nreset", "close", "error no", "event x", "wire zz\\r\\n\nclose", "end")
    for fault in faults:
        gateway = streamguard_gateway(f"chat a\n{fault}", GOOD)
        run = ask(gateway, retry=policy(5), idle=0.15)
        assert run.error is not None
        assert run.texts == ["a"]
        assert (len(gateway.requests), run.stream.report.attempts) == (1, 1)


@pytest.mark.parametrize(
    "decode",
    ["events", "json", "bytes", lambda event: event.data],
    ids=lambda decode: decode if isinstance(decode, str) else "callable",
)
def test_never_after_a_chunk_of_any_kind(streamguard_gateway: Serve, decode: Any) -> None:
    """The same for every decoder."""
    gateway = streamguard_gateway("event 1\nstall", "event 2")
    run = ask(gateway, retry=policy(5), idle=0.15, decode=decode)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (len(run.chunks), len(gateway.requests)) == (1, 1)


def test_a_skipped_event_is_no_chunk(streamguard_gateway: Serve) -> None:
    """Events for which the caller's decode returns None were not handed over: the attempt may be repeated."""
    gateway = streamguard_gateway("event ping | {}\nwait 0.05\nreset", "event ping | {}\nevent 2")
    run = ask(gateway, retry=policy(), decode=lambda event: None if event.event == "ping" else event.data)
    assert (run.error, run.chunks) == (None, ["2"])


ROLE = line(choice(role="assistant"))


def test_counts_decides_when_the_gate_closes(streamguard_gateway: Serve) -> None:
    """With `counts=` chunks that do not count are handed over and leave the gate open; the first that counts closes it."""
    gateway = streamguard_gateway(f"{ROLE}\nstall", f"{ROLE}\n{GOOD}")
    run = ask(gateway, retry=before_first_chunk(1, wait=NOW), counts=has_content, first=0.2)
    assert (run.error, run.texts, len(run.chunks)) == (None, ["a", "b"], 5)
    gateway = streamguard_gateway(f"{ROLE}\nchat a\nstall", GOOD)
    run = ask(gateway, retry=before_first_chunk(1, wait=NOW), counts=has_content, first=0.2, idle=0.2)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert len(gateway.requests) == 1


def test_the_message_is_that_of_the_last_attempt(streamguard_gateway: Serve) -> None:
    """Chunks that did not count, of an attempt that failed, are not in the message twice."""
    thinking = [line(choice(reasoning_content="hm")), line(choice(tool_calls=[{"index": 0, "function": {"name": "f"}}]))]
    end = [line(choice(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}])), "chat a", "finish tool_calls", "done"]
    gateway = streamguard_gateway([*thinking, "stall"], [*thinking, *end])
    run = ask(gateway, retry=before_first_chunk(1, wait=NOW), counts=lambda chunk: bool(chunk.text), first=0.2)
    message = run.stream.message
    assert (run.error, message.reasoning, message.text) == (None, "hm", "a")
    assert [(call.name, call.arguments) for call in message.tool_calls] == [("f", "{}")]


def test_never_a_cancel(streamguard_gateway: Serve) -> None:
    """A cancel is not tried again, whatever the policy wants."""
    gateway = streamguard_gateway(STALL)
    token = CancelToken()
    timer = threading.Timer(0.1, token.cancel, ["enough"])
    timer.start()
    run = ask(gateway, retry=policy(5, retry=tenacity.retry_always), cancel=token)
    timer.join()
    assert isinstance(run.error, StreamCancelledError)
    assert (run.error.reason, len(gateway.requests)) == ("enough", 1)


def test_never_a_spent_deadline(streamguard_gateway: Serve) -> None:
    """A deadline is not tried again either: that would multiply it."""
    gateway = streamguard_gateway(STALL)
    run = ask(gateway, retry=policy(5, retry=tenacity.retry_always), total=0.2, first=None)
    assert isinstance(run.error, DeadlineExceededError)
    assert len(gateway.requests) == 1
    with deadline(0.2):
        run = ask(gateway, retry=before_first_chunk(5, on={DeadlineExceededError}), first=None)
    assert isinstance(run.error, DeadlineExceededError)
    assert (run.error.scope, len(gateway.requests)) == ("ambient", 2)


def test_never_what_is_no_exception(streamguard_gateway: Serve) -> None:
    """A BaseException out of the attempt, such as a hook's SystemExit, is raised at once and as it is."""

    class Stop(BaseException):
        """Not an Exception."""

    def hook(response: requests.Response, **options: Any) -> None:
        raise Stop

    gateway = streamguard_gateway(GOOD)
    with pytest.raises(Stop):
        next(guarded_stream("POST", gateway.url, retry=policy(5, retry=tenacity.retry_always), hooks={"response": hook}))
    assert len(gateway.requests) == 1


def test_never_with_a_deadline_already_spent(streamguard_gateway: Serve) -> None:
    """`total=0` makes no attempt at all."""
    gateway = streamguard_gateway(GOOD)
    assert isinstance(ask(gateway, retry=policy(5), total=0).error, DeadlineExceededError)
    assert gateway.connections == 0
