"""Deadlines and cancels reach the threads that we start, and nothing else."""

import contextvars
import threading
import weakref
from collections.abc import Callable
from typing import Any

import hypothesis
import hypothesis.strategies as st
import pytest
import requests

from streamguard import (
    Adapter,
    CancelToken,
    Deadline,
    DeadlineExceededError,
    Session,
    StreamCancelledError,
    bounded_call,
    current_deadline,
    deadline,
    guarded_stream,
    shield,
)
from streamguard._core.clock import monotonic
from streamguard._http import SocketGuard, guard_in_force
from streamguard.session import _Call
from streamguard.testing import Gateway

Serve = Callable[..., Gateway]
LIMIT = 0.2
TRICKLE = "headers content-type: text/plain\nloop forever\nraw x\nwait 0.02\nendloop"


def plain_session(adapter: Any = Adapter) -> requests.Session:
    """Return requests' own Session with our adapter."""
    session = requests.Session()
    session.mount("http://", adapter())
    return session


def at(found: Deadline | None) -> float:
    assert found is not None
    return found.at


def test_the_surrounding_deadline_is_seen_inside() -> None:
    """A bounded function sees the deadline that surrounds its caller, the same instant."""
    with deadline(10) as outer:
        assert bounded_call(current_deadline) == outer
    assert bounded_call(current_deadline) is None


def test_a_limit_is_a_deadline_for_all_inside() -> None:
    """The calls of a bounded function are bounded by its limit, and by a surrounding deadline if that is nearer."""
    before = monotonic()
    assert before + 10 <= at(bounded_call(current_deadline, limit=10)) <= monotonic() + 10
    with deadline(5) as outer:
        assert at(bounded_call(current_deadline, limit=10)) == at(outer)


def test_nested_calls_only_shorten() -> None:
    """At any depth the nearest deadline is in force, and each level has its own afterwards."""

    def inner() -> tuple[float, float]:
        return at(bounded_call(current_deadline, limit=30)), at(bounded_call(current_deadline, limit=1))

    with deadline(20) as outer:
        longer, shorter = bounded_call(inner, limit=25)
        assert longer == at(outer)
        assert shorter < at(outer)
        assert current_deadline() == outer


def test_a_shield_holds_inside() -> None:
    """A shielded call has only its own limit, and a shield inside a function removes that function's limit."""

    def shielded() -> Deadline | None:
        with shield():
            return bounded_call(current_deadline)

    with deadline(1) as outer, shield():
        assert bounded_call(current_deadline) is None
        assert at(bounded_call(current_deadline, limit=10)) > at(outer)
    assert bounded_call(shielded, limit=10) is None


def test_the_context_is_the_callers_copied_once() -> None:
    """A bounded function sees the caller's context of the call, and its own changes stay inside."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    variable.set("caller's")

    def work() -> str:
        seen = variable.get()
        variable.set("function's")
        return seen

    assert (bounded_call(work, limit=10), variable.get()) == ("caller's", "caller's")


def test_a_deadline_goes_into_a_thread_by_hand() -> None:
    """A `Deadline` can be passed to a thread of the caller, which enters a block with it."""
    seen: list[Deadline | None] = []

    def work(given: Deadline | None) -> None:
        with deadline(given):
            seen.append(current_deadline())

    with deadline(10) as outer:
        thread = threading.Thread(target=work, args=(outer,))
        thread.start()
        thread.join(5)
    assert seen == [outer]


def test_a_streams_total_is_a_deadline_for_what_its_reader_calls(streamguard_gateway: Serve) -> None:
    """An auth that a stream's reader runs sees the stream's own total."""
    gateway = streamguard_gateway("chat hello\nfinish\ndone")
    seen: list[float] = []

    def auth(request: requests.PreparedRequest) -> requests.PreparedRequest:
        seen.append(at(current_deadline()))
        return request

    begun = monotonic()
    guarded_stream("GET", gateway.url, total=50, auth=auth).read()
    assert begun + 50 <= seen[0] <= monotonic() + 50


@hypothesis.given(st.lists(st.one_of(st.none(), st.floats(-5, 100)), max_size=5), st.one_of(st.none(), st.floats(-5, 100)))
def test_budgets_never_exceed(outer: list[float | None], own: float | None) -> None:
    """A call's time is never more than its own total, nor than what any of the surrounding deadlines leaves."""

    def descend(rest: list[float | None]) -> tuple[_Call, float]:
        if rest:
            with deadline(rest[0]):
                return descend(rest[1:])
        call = _Call("GET", "http://host/")
        call.limit_to(own)
        return call, monotonic()

    call, now = descend(outer)
    given = [seconds for seconds in (*outer, own) if seconds is not None]
    assert (call.until is None) == (not given)
    if call.until is not None:
        assert call.until.at <= now + min(given)
    others = min((seconds for seconds in outer if seconds is not None), default=1000.0)
    if own is None or own > others:
        assert call.scope == "ambient"
    elif own < others - 1:
        assert call.scope == "total"


def test_a_plain_sessions_sockets_are_cut_with_the_call(streamguard_gateway: Serve) -> None:
    """requests' own Session with our Adapter, inside a bounded call: when the limit fires, its server sees the close."""
    gateway = streamguard_gateway("stall", TRICKLE)
    with plain_session() as session:
        for number in (1, 2):
            with pytest.raises(DeadlineExceededError) as expired:
                bounded_call(session.get, gateway.url, limit=LIMIT)
            gateway.wait_left(number)
            assert not expired.value.overran


def test_a_plain_sessions_stream_is_cut_with_the_call(streamguard_gateway: Serve) -> None:
    """The body of a streaming response that is read inside a bounded call is cut, too."""
    gateway = streamguard_gateway(TRICKLE)

    def read() -> int:
        with plain_session() as session, session.get(gateway.url, stream=True) as response:
            return sum(len(block) for block in response.iter_content(1))

    with pytest.raises(DeadlineExceededError) as expired:
        bounded_call(read, limit=LIMIT)
    assert gateway.wait_left().how == "fin"
    assert not expired.value.overran


def test_a_response_may_outlive_its_call(streamguard_gateway: Serve) -> None:
    """A streaming response that a bounded function returns in time stays open: nothing cuts it afterwards."""
    gateway = streamguard_gateway("raw one\nwait 0.3\nraw two")
    with plain_session() as session:
        with bounded_call(lambda: session.get(gateway.url, stream=True), limit=LIMIT) as response:
            assert response.content == b"onetwo"
        assert session.get(gateway.url).content == b"onetwo"
    assert gateway.connections == 1


def test_a_cancel_of_the_current_token_reaches_a_plain_session(streamguard_gateway: Serve) -> None:
    """A cut by the current token is a StreamCancelledError with the token's reason, also in an unguarded call."""
    gateway, token = streamguard_gateway("stall"), CancelToken()

    def call() -> None:
        with token.active(), plain_session() as session:
            session.get(gateway.url)

    threading.Thread(target=lambda: (gateway.wait_step("stall"), token.cancel("enough")), daemon=True).start()
    with pytest.raises(StreamCancelledError) as cancelled:
        call()
    assert cancelled.value.reason == "enough"
    gateway.wait_left()


@pytest.mark.parametrize("make", [plain_session, Session])
def test_a_long_lived_token_keeps_nothing(streamguard_gateway: Serve, make: Callable[[], requests.Session]) -> None:
    """With any number of calls, one token holds at most one guard, and that holds no socket."""
    gateway, token = streamguard_gateway("body hello"), CancelToken()

    def calls() -> int:
        with token.active(), make() as session:
            for _ in range(20):
                assert session.get(gateway.url).text == "hello"
        return len(token._closers)

    assert calls() <= 1
    assert len(token._closers) <= 1
    assert gateway.connections == 1


def test_one_guard_for_each_token() -> None:
    """Calls under one token share a guard, which is freed with the token."""

    def guards(token: CancelToken) -> tuple[SocketGuard | None, SocketGuard | None]:
        with token.active():
            return guard_in_force(), guard_in_force()

    token = CancelToken()
    first, second = guards(token)
    other, _ = guards(CancelToken())
    assert first is second
    assert first is not None
    assert other is not first
    gone = weakref.ref(first)
    del first, second, token
    assert gone() is None


def test_a_guard_of_another_token_is_not_used(streamguard_gateway: Serve) -> None:
    """A bounded call inside a guarded one has its own sockets: its limit cuts them, and not the outer call's."""
    gateway = streamguard_gateway("stall", "body outer")
    errors: list[BaseException] = []

    def auth(request: requests.PreparedRequest) -> requests.PreparedRequest:
        with plain_session() as inner:
            try:
                bounded_call(inner.get, gateway.url, limit=LIMIT)
            except DeadlineExceededError as error:
                errors.append(error)
        return request

    with Session() as session:
        assert session.get(gateway.url, timeout=10, auth=auth).text == "outer"
    assert [error.overran for error in errors if isinstance(error, DeadlineExceededError)] == [False]
    gateway.wait_left(1)


def test_a_session_inside_of_a_bounded_call(streamguard_gateway: Serve) -> None:
    """The limit of a bounded call ends the Session's call in it: the outer error is raised, the server sees the close."""
    gateway = streamguard_gateway(TRICKLE)
    with Session(timeout=10) as session, pytest.raises(DeadlineExceededError) as expired:
        bounded_call(session.get, gateway.url, limit=LIMIT)
    assert (expired.value.scope, expired.value.overran) == ("step", False)
    gateway.wait_left()
