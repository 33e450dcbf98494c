"""Retries: when another attempt is made, what is sent again, and what the report says."""

import io
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import tenacity

import streamguard
from streamguard import (
    HEARTBEAT,
    CancelToken,
    DeadlineExceededError,
    EmptyStreamError,
    HTTPStatusError,
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
from streamguard._core.clock import monotonic

from ..helpers import PROMPT, Serve
from .helpers import GOOD, NOW, STALL, ask, choice, consume, failure, line, policy, two_chunks_then_silence

BODIES: dict[str, Callable[[], dict[str, Any]]] = {
    "generator": lambda: {"data": (part for part in (b"a", b"b"))},
    "iterator": lambda: {"data": iter([b"a", b"b"])},
    "file": lambda: {"data": io.BytesIO(b"ab")},
    "upload": lambda: {"files": {"file": io.BytesIO(b"ab")}},
    "named upload": lambda: {"files": [("file", ("name.txt", io.BytesIO(b"ab"), "text/plain"))]},
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_can_be_read_only_once_is_not_sent_twice(streamguard_gateway: Serve, kind: str) -> None:
    """If a retry is due, it is a clear error with the original as its cause, never a second, empty request."""
    gateway = streamguard_gateway("stall", "chat a\ndone")
    error = failure(guarded_stream("POST", gateway.url, response=0.1, **BODIES[kind]()))
    assert isinstance(error, UsageError)
    assert ("data=" if "data" in BODIES[kind]() else "files=") in str(error)
    assert "retry=None" in str(error)
    assert isinstance(error.__cause__, streamguard.TransportTimeoutError)
    assert len(gateway.requests) == 1
    assert b"ab" in gateway.requests[0].body or gateway.requests[0].body == b"ab"


@pytest.mark.parametrize("kind", BODIES)
def test_such_a_body_is_sent_once_without_complaint(streamguard_gateway: Serve, kind: str) -> None:
    """If no retry is due, or none is allowed, any body is accepted."""
    gateway = streamguard_gateway("chat a\ndone", "stall")
    assert consume(guarded_stream("POST", gateway.url, **BODIES[kind]())).text == "a"
    error = failure(guarded_stream("POST", gateway.url, response=0.1, retry=None, **BODIES[kind]()))
    assert isinstance(error, streamguard.TransportTimeoutError)


@pytest.mark.parametrize("data", [b"ab", "ab", {"a": "b"}, [("a", "b")], (("a", "b"),), bytearray(b"ab"), None])
def test_a_body_that_can_be_sent_again_is(streamguard_gateway: Serve, data: Any) -> None:
    """Each attempt sends the same body."""
    gateway = streamguard_gateway("stall", "chat a\ndone")
    once = streamguard.before_first_chunk(1, wait=tenacity.wait_none())
    assert consume(guarded_stream("POST", gateway.url, response=0.3, data=data, retry=once)).text == "a"
    assert gateway.requests[0].body == gateway.requests[1].body


def test_no_text_is_shown_twice(streamguard_gateway: Serve) -> None:
    """Two chunks, then ETIMEDOUT with the partial text, and exactly one request (B100)."""
    run, made = two_chunks_then_silence(streamguard_gateway)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.texts, run.error.partial_text, run.error.code, made) == (["a", "b"], "ab", "ETIMEDOUT", 1)


def test_the_wait_for_the_first_chunk_is_retried(streamguard_gateway: Serve) -> None:
    """A stall before the first chunk is retried, though it happens in the iterator (B101)."""
    gateway = streamguard_gateway(STALL, GOOD)
    stream = guarded_stream("POST", gateway.url, first=0.2, retry=1)
    assert next(stream).text == "a"
    assert len(gateway.requests) == 2
    stream.close()


def test_no_attempt_starts_after_the_deadline(streamguard_gateway: Serve) -> None:
    """A pause that would overshoot the deadline is not begun (B103)."""
    gateway = streamguard_gateway("close")
    run = ask(gateway, retry=policy(50, wait=tenacity.wait_fixed(0.4)), total=0.5)
    assert run.error is not None
    assert len(gateway.requests) == 2
    assert run.stream.report.lifetime < 0.5 + PROMPT
    assert all(request.at - gateway.requests[0].at < 0.5 for request in gateway.requests)


def test_retries_do_not_multiply_the_timeout(streamguard_gateway: Serve) -> None:
    """Attempts of a fraction of a second end at the total; the error has the number of attempts (B105)."""
    gateway = streamguard_gateway("stall")
    run = ask(gateway, retry=before_first_chunk(50, wait=NOW), response=0.3, total=1.0)
    assert isinstance(run.error, DeadlineExceededError)
    assert run.error.attempt == run.stream.report.attempts
    assert (run.error.max_attempts, 2 <= len(gateway.requests) <= 4) == (51, True)
    assert 1.0 <= run.stream.report.lifetime < 1.0 + PROMPT


def test_three_parameters(streamguard_gateway: Serve) -> None:
    """The number of attempts, the limit of each, and the total are set and reported separately (B106)."""
    run = ask(streamguard_gateway("stall"), retry=before_first_chunk(1, wait=NOW), response=0.2, total=30)
    assert isinstance(run.error, TransportTimeoutError)
    assert (run.error.attempt, run.error.max_attempts, run.error.limit, run.error.phase) == (2, 2, 0.2, "response")


@pytest.mark.parametrize(("codes", "requests_made"), [({"ETIMEDOUT"}, 2), ({"ETIMEDOUT", "ECONNRESET"}, 3)])
def test_a_connection_that_closes_on_receipt(streamguard_gateway: Serve, codes: set[str], requests_made: int) -> None:
    """A close on receipt of the request is ECONNRESET, without a response; retried only if `on=` names it (B107)."""
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


def test_the_request_waits_for_the_first_step(streamguard_gateway: Serve) -> None:
    """Making a stream sends nothing; next(), with and open() start it, and their errors pass through the policy (B108)."""
    for start in (next, lambda stream: stream.open(), lambda stream: stream.__enter__()):
        gateway = streamguard_gateway("headers 401", GOOD)
        stream = guarded_stream("POST", gateway.url, retry=before_first_chunk(1, status={401}, wait=NOW))
        assert gateway.connections == 0
        start(stream)
        assert (len(gateway.requests), stream.response.status_code) == (2, 200)
        stream.close()


def test_a_clean_end_is_never_retried(streamguard_gateway: Serve) -> None:
    """An endpoint that always ends at once gets one request, and strict=False none more (B111)."""
    for strict in (True, False):
        gateway = streamguard_gateway("end")
        run = consume(guarded_stream("POST", gateway.url, retry=3, strict=strict))
        assert type(run.error) is (EmptyStreamError if strict else type(None))
        assert len(gateway.requests) == 1


def test_attempts_are_counted_over_the_whole_call(streamguard_gateway: Serve) -> None:
    """Failures of different kinds share the number of attempts (B111)."""
    faults = itertools.cycle(["close", STALL, "stall"])
    gateway = streamguard_gateway(*itertools.islice(faults, 9))
    retry = before_first_chunk(3, on={"ETIMEDOUT", "ECONNRESET"}, wait=NOW)
    run = ask(gateway, retry=retry, first=0.1, response=0.1)
    assert run.error is not None
    assert (len(gateway.requests), run.stream.report.attempts) == (4, 4)


def test_by_default_timeouts_are_retried_twice(streamguard_gateway: Serve) -> None:
    """Two more attempts after a silence before the first chunk; then the original error, with their number."""
    gateway = streamguard_gateway(STALL)
    run = consume(guarded_stream("POST", gateway.url, first=0.1))
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.error.attempt, run.error.max_attempts, len(gateway.requests)) == (3, 3, 3)
    assert (run.stream.report.attempts, run.stream.report.outcome) == (3, "timeout")


def test_a_retry_may_succeed(streamguard_gateway: Serve) -> None:
    """The chunks of a later attempt are returned as if it were the first; the report counts the attempts."""
    gateway = streamguard_gateway(STALL, GOOD)
    run = consume(guarded_stream("POST", gateway.url, first=0.2))
    assert (run.error, run.texts, run.stream.report.attempts) == (None, ["a", "b"], 2)
    assert gateway.wait_left(1).during == "stall"


@pytest.mark.parametrize("phase", ["connect", "response", "first", "dead"])
def test_a_timeout_of_any_phase_before_the_first_chunk(streamguard_gateway: Serve, phase: str) -> None:
    """Silence before the headers or before the first chunk, or without any byte: each is retried."""
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
    """Under any policy, nothing is retried after a chunk was returned."""
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


def test_a_skipped_event_is_not_a_chunk(streamguard_gateway: Serve) -> None:
    """Events for which the caller's decode returns None were not returned: the attempt may be repeated."""
    gateway = streamguard_gateway("event ping | {}\nwait 0.05\nreset", "event ping | {}\nevent 2")
    run = ask(gateway, retry=policy(), decode=lambda event: None if event.event == "ping" else event.data)
    assert (run.error, run.chunks) == (None, ["2"])


ROLE = line(choice(role="assistant"))


def test_counts_decides_when_the_gate_closes(streamguard_gateway: Serve) -> None:
    """With `counts=`, chunks that do not count allow a retry; the first that counts does not."""
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
    """A cancel is not retried under any policy."""
    gateway = streamguard_gateway(STALL)
    token = CancelToken()
    timer = threading.Timer(0.1, token.cancel, ["enough"])
    timer.start()
    run = ask(gateway, retry=policy(5, retry=tenacity.retry_always), cancel=token)
    timer.join()
    assert isinstance(run.error, StreamCancelledError)
    assert (run.error.reason, len(gateway.requests)) == ("enough", 1)


def test_never_a_spent_deadline(streamguard_gateway: Serve) -> None:
    """A deadline is not retried: that would multiply it."""
    gateway = streamguard_gateway(STALL)
    run = ask(gateway, retry=policy(5, retry=tenacity.retry_always), total=0.2, first=None)
    assert isinstance(run.error, DeadlineExceededError)
    assert len(gateway.requests) == 1
    with deadline(0.2):
        run = ask(gateway, retry=before_first_chunk(5, on={DeadlineExceededError}), first=None)
    assert isinstance(run.error, DeadlineExceededError)
    assert (run.error.scope, len(gateway.requests)) == ("ambient", 2)


def test_never_a_base_exception(streamguard_gateway: Serve) -> None:
    """A BaseException of the attempt, such as a hook's SystemExit, is raised at once, unchanged."""

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
    """A key of the caller's, in the call or on the session, is not changed."""
    gateway = streamguard_gateway("close", GOOD)
    consume(guarded_stream("POST", gateway.url, retry=policy(), headers={name: "mine"}))
    with requests.Session() as session:
        session.headers["Idempotency-Key"] = "mine"
        consume(guarded_stream("POST", gateway.url, session=session))
    assert [request.headers["Idempotency-Key"] for request in gateway.requests] == ["mine"] * 3


def parts() -> Iterator[bytes]:
    """Yield a body that can be read only once."""
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
    """If a retry is due, it is a clear error, with the original as its cause, and never a second, empty request."""
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
    """A body that is sent only once is accepted; with retry=None the original error is raised."""
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
    """Status, id and response of an earlier attempt are dropped when the next one begins."""
    gateway = streamguard_gateway("headers 503 x-request-id: one\nbody no", "stall")
    stream = guarded_stream("GET", gateway.url, response=0.2, retry=before_first_chunk(1, status={503}, wait=NOW))
    assert isinstance(consume(stream).error, TransportTimeoutError)
    assert (stream.report.status_code, stream.report.request_id) == (None, None)
    with pytest.raises(UsageError, match="no response yet"):
        _ = stream.response


def test_the_hint_for_a_second_attempt_ignores_the_first(streamguard_gateway: Serve) -> None:
    """Silence after its headers hints at buffering, though bytes arrived in the first attempt."""
    gateway = streamguard_gateway("comment a\nstall", "headers\nstall")
    run = ask(gateway, first=0.2, retry=before_first_chunk(1, wait=NOW))
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert "Nothing arrived after the headers" in str(run.error)
    assert run.error.last_byte_ago is None


def test_heartbeats_in_the_pause_do_not_use_up_attempts(streamguard_gateway: Serve) -> None:
    """After an empty stream, a consumer that gets heartbeats during the pause still has all of its attempts."""
    gateway = streamguard_gateway("headers", "headers", GOOD)
    retry = before_first_chunk(2, on={EmptyStreamError}, wait=tenacity.wait_fixed(0.3))
    items = list(guarded_stream("GET", gateway.url, retry=retry, heartbeat=0.05))
    assert HEARTBEAT in items
    assert "".join(item.text for item in items) == "ab"
    assert len(gateway.requests) == 3


def test_heartbeats_flow_during_the_pause(streamguard_gateway: Serve) -> None:
    """Heartbeats are returned between attempts, with phase `retry`."""
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
    """A cancel or a close ends the pause at once, and no attempt follows."""
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
    """If the deadline would pass in the pause, the original error is raised at once."""
    gateway = streamguard_gateway("close", GOOD)
    run = ask(gateway, retry=policy(wait=tenacity.wait_fixed(60)), total=30)
    assert isinstance(run.error, TransportError)
    assert (run.stream.report.lifetime < PROMPT, len(gateway.requests)) == (True, 1)


def test_the_deadline_holds_in_the_pause(streamguard_gateway: Serve) -> None:
    """A deadline that passes during the pause (the consumer was busy) ends it, and no attempt follows."""
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
    """`open()` and `with` make the same retries."""
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
