"""Deadlines: one instant; the ambient one, which nesting only tightens."""

import contextvars
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard import (
    Deadline,
    DeadlineExceededError,
    UsageError,
    current_deadline,
    deadline,
    guarded_stream,
    shield,
)
from streamguard._core.clock import monotonic


def at() -> float | None:
    """Return the instant of the ambient deadline."""
    ambient = current_deadline()
    return None if ambient is None else ambient.at


def test_an_instant() -> None:
    """A deadline counts down to zero, never below, and then has expired."""
    before = monotonic()
    end = Deadline.after(5)
    assert before + 5 <= end.at <= monotonic() + 5
    assert 4 < end.remaining() <= 5
    assert not end.expired
    assert Deadline.after(timedelta(minutes=1)).remaining() > 59


@pytest.mark.parametrize("seconds", [0, -1, -1e300])
def test_an_instant_gone_by(seconds: float) -> None:
    """Zero and below is an instant already gone: nothing remains, and not less than nothing."""
    end = Deadline.after(seconds)
    assert end.expired
    assert end.remaining() == 0
    assert end.clamp(5) == 0
    assert end.clamp(None) == 0


def test_clamp() -> None:
    """A limit is cut down to what remains; no limit is what remains."""
    end = Deadline.after(100)
    assert end.clamp(5) == 5
    assert 99 < end.clamp(1000) <= 100
    assert 99 < end.clamp(None) <= 100


@pytest.mark.parametrize("wrong", [True, b"5", object()])
def test_what_is_no_deadline(wrong: Any) -> None:
    """A bool or bytes are a TypeError, at once and not at the `with`."""
    for make in (Deadline.after, deadline):
        with pytest.raises(TypeError, match=type(wrong).__name__):
            make(wrong)


def test_a_deadline_needs_a_number() -> None:
    """NaN is refused everywhere; a Deadline without a number too, while `deadline(None)` adds none."""
    for make in (Deadline.after, deadline):
        with pytest.raises(UsageError, match="nan"):
            make(float("nan"))
    with pytest.raises(UsageError, match="number"):
        Deadline.after(None)  # type: ignore[arg-type]
    with deadline(None) as inside:
        assert inside is None
        assert current_deadline() is None
    with deadline(5) as outer, deadline(None) as inside:
        assert inside == outer


def test_the_block_sets_and_restores() -> None:
    """Inside of the block there is an ambient deadline, behind it none, also when the block raises."""
    with deadline(5) as mine:
        assert mine is not None
        assert current_deadline() == mine
    assert current_deadline() is None
    with pytest.raises(ZeroDivisionError), deadline(5):
        _ = 1 / 0
    assert current_deadline() is None


def test_nesting_only_tightens() -> None:
    """An inner block may bring the deadline nearer, and never farther."""
    with deadline(5) as outer:
        with deadline(50) as inner:
            assert inner == outer
        with deadline(1) as inner:
            assert inner is not None
            assert outer is not None
            assert inner < outer
            assert current_deadline() == inner
        assert current_deadline() == outer


@given(st.lists(st.none() | st.floats(0.1, 1000), min_size=1, max_size=8))
def test_the_nearest_of_all_rules(limits: list[float | None]) -> None:
    """Through any nesting the ambient deadline is the nearest so far, and each block restores the one before."""
    seen: list[float | None] = []

    def descend(rest: list[float | None]) -> None:
        before = at()
        if rest:
            with deadline(rest[0]):
                seen.append(at())
                descend(rest[1:])
        assert at() == before

    descend(limits)
    known = [x for x in seen if x is not None]
    assert known == sorted(known, reverse=True)
    assert current_deadline() is None


def test_shield_opts_out() -> None:
    """In a shield there is no ambient deadline; a new one may be set there; behind it the old one holds."""
    with deadline(5) as outer:
        with shield():
            assert current_deadline() is None
            with deadline(50) as longer:
                assert longer is not None
                assert outer is not None
                assert longer > outer
        assert current_deadline() == outer


@pytest.mark.parametrize("block", [deadline(5), shield()], ids=["deadline", "shield"])
def test_a_block_is_entered_once_at_a_time(block: Any) -> None:
    """Entering a block that is entered already is refused, and does no harm; entering it again afterwards is fine."""
    with block:
        with pytest.raises(UsageError, match="already entered"):
            block.__enter__()
        inside = current_deadline()
    assert current_deadline() is None
    with block:
        assert (current_deadline() is None) == (inside is None)
    assert current_deadline() is None


def test_leaving_twice_does_nothing() -> None:
    """A second exit, or one without an entry, changes nothing."""
    block = deadline(5)
    block.__exit__(None, None, None)
    with deadline(9) as outer:
        with block:
            pass
        block.__exit__(None, None, None)
        assert current_deadline() == outer


def test_a_thread_has_its_own_context() -> None:
    """A thread of the caller's does not see the deadline, unless it runs in a copied context."""
    seen: list[float | None] = []
    with deadline(5):
        context = contextvars.copy_context()
        for target in (lambda: seen.append(at()), lambda: context.run(lambda: seen.append(at()))):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        assert seen == [None, at()]


def in_a_block(make: Callable[[], Any]) -> Iterator[float | None]:
    """Yield the ambient deadline from within a block."""
    with make():
        yield at()


def run_elsewhere(function: Callable[[], object]) -> float | None:
    """Call *function* in an empty context; return the ambient deadline that is left there."""

    def run() -> float | None:
        function()
        return at()

    return contextvars.Context().run(run)


def close(generator: Iterator[Any]) -> None:
    generator.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("make", [lambda: deadline(1), shield], ids=["deadline", "shield"])
@pytest.mark.parametrize("outer", [None, 5])
def test_a_block_that_is_left_in_another_context(make: Callable[[], Any], outer: float | None) -> None:
    """A generator closed in a foreign context raises nothing there, leaves nothing there, and is gone here as well."""
    with deadline(outer) as expected:
        generator = in_a_block(make)
        next(generator)
        assert run_elsewhere(lambda: close(generator)) is None
        assert current_deadline() == expected


@pytest.mark.parametrize("make", [lambda: deadline(1), shield], ids=["deadline", "shield"])
def test_a_block_that_is_left_in_a_copy_of_its_context(make: Callable[[], Any]) -> None:
    """Left in a context copied from inside of the block, the block before it is in force again, in both."""
    with deadline(5) as outer:
        generator = in_a_block(make)
        next(generator)
        copied = contextvars.copy_context()
        copied.run(close, generator)
        assert copied.run(current_deadline) == outer
        assert current_deadline() == outer


def test_a_foreign_contexts_own_deadline_stays() -> None:
    """A block that is left in a context with a deadline of its own does not touch that one."""

    def elsewhere() -> tuple[float | None, float | None]:
        with deadline(9):
            before = at()
            close(generator)
            return before, at()

    generator = in_a_block(lambda: deadline(1))
    next(generator)
    before, after = contextvars.Context().run(elsewhere)
    assert before == after
    assert current_deadline() is None


def test_generators_that_overlap_leave_nothing_behind() -> None:
    """Two blocks left in the order in which they were entered: each takes back its own, and in the end none is left."""
    first, second = in_a_block(lambda: deadline(5)), in_a_block(lambda: deadline(1))
    next(first)
    nearest = next(second)
    close(first)
    assert at() == nearest
    close(second)
    assert current_deadline() is None


def test_a_thread_keeps_the_deadline_of_its_birth() -> None:
    """A copied context is still bound when the block that bound it has been left in the usual way."""
    with deadline(5) as mine:
        copied = contextvars.copy_context()
    assert copied.run(current_deadline) == mine


def test_a_stream_takes_the_deadline_with_it(streamguard_gateway: Any) -> None:
    """A stream captures the ambient deadline when it starts: leaving the block does not free it, a shield later neither."""
    gateway = streamguard_gateway("chat hello\nstall")
    with deadline(0.3):
        stream = guarded_stream("GET", gateway.url)
        assert next(stream).text == "hello"
    with shield(), pytest.raises(DeadlineExceededError) as caught:
        next(stream)
    error = caught.value
    assert (error.scope, error.limit, error.partial_text) == ("ambient", None, "hello")
    assert "total" not in str(error)
    gateway.wait_left()


def test_a_stream_made_inside_and_started_outside_is_free(streamguard_gateway: Any) -> None:
    """What counts is the deadline when a stream starts, not when it is made."""
    gateway = streamguard_gateway("chat hello\nwait 0.2\nfinish\ndone")
    with deadline(0.05):
        stream = guarded_stream("GET", gateway.url)
    assert stream.read() == "hello"


def test_the_nearer_of_total_and_ambient_names_itself(streamguard_gateway: Any) -> None:
    """The error says whose deadline it was: the nearer one's."""
    gateway = streamguard_gateway("stall")
    for ambient, total, scope in ((0.1, 5, "ambient"), (5, 0.1, "total")):
        with deadline(ambient), pytest.raises(DeadlineExceededError) as caught:
            guarded_stream("GET", gateway.url, total=total).read()
        assert caught.value.scope == scope


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_spent_deadline_stops_before_anything_connects(streamguard_gateway: Any, seconds: float) -> None:
    """Under a deadline that is over, ambient or total, nothing is sent."""
    gateway = streamguard_gateway("chat hello\nfinish\ndone")
    with deadline(seconds), pytest.raises(DeadlineExceededError):
        guarded_stream("GET", gateway.url).read()
    with pytest.raises(DeadlineExceededError) as caught:
        guarded_stream("GET", gateway.url, total=seconds).read()
    assert caught.value.limit == seconds
    assert gateway.connections == 0
