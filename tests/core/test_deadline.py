"""Deadlines: one instant, and the ambient one, which nesting only tightens."""

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
def test_an_instant_that_has_passed(seconds: float) -> None:
    """With zero or less the instant has passed: 0 seconds remain."""
    end = Deadline.after(seconds)
    assert end.expired
    assert end.remaining() == 0
    assert end.clamp(5) == 0
    assert end.clamp(None) == 0


def test_clamp() -> None:
    """A limit is cut to the time that remains; without a limit it is the time that remains."""
    end = Deadline.after(100)
    assert end.clamp(5) == 5
    assert 99 < end.clamp(1000) <= 100
    assert 99 < end.clamp(None) <= 100


@pytest.mark.parametrize("wrong", [True, b"5", object()])
def test_invalid_types_are_refused(wrong: Any) -> None:
    """A bool or bytes are a TypeError, in the call and not at the `with`."""
    for make in (Deadline.after, deadline):
        with pytest.raises(TypeError, match=type(wrong).__name__):
            make(wrong)


def test_a_deadline_needs_a_number() -> None:
    """NaN is refused everywhere; a Deadline without a number too, but `deadline(None)` adds none."""
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
    """Inside the block there is an ambient deadline, after it there is none, also when the block raises."""
    with deadline(5) as mine:
        assert mine is not None
        assert current_deadline() == mine
    assert current_deadline() is None
    with pytest.raises(ZeroDivisionError), deadline(5):
        _ = 1 / 0
    assert current_deadline() is None


def test_nesting_only_tightens() -> None:
    """An inner block may bring the deadline nearer, but not farther."""
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
def test_the_nearest_of_all_is_in_force(limits: list[float | None]) -> None:
    """At any depth the ambient deadline is the nearest so far, and each block restores the one before."""
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
    """In a shield there is no ambient deadline; a new one may be set there; after it the old one is in force again."""
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
    """Entering an entered block is refused and changes nothing; it may be entered again after it was left."""
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
    """A thread of the caller does not see the deadline, unless it runs in a copied context."""
    seen: list[float | None] = []
    with deadline(5):
        context = contextvars.copy_context()
        for target in (lambda: seen.append(at()), lambda: context.run(lambda: seen.append(at()))):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
        assert seen == [None, at()]


def in_a_block(make: Callable[[], Any]) -> Iterator[float | None]:
    """Yield the ambient deadline inside a block."""
    with make():
        yield at()


def run_elsewhere(function: Callable[[], object]) -> float | None:
    """Call *function* in an empty context; return the ambient deadline that it has afterwards."""

    def run() -> float | None:
        function()
        return at()

    return contextvars.Context().run(run)


def close(generator: Iterator[Any]) -> None:
    generator.close()  # type: ignore[attr-defined]


@pytest.mark.parametrize("make", [lambda: deadline(1), shield], ids=["deadline", "shield"])
@pytest.mark.parametrize("outer", [None, 5])
def test_a_block_that_is_left_in_another_context(make: Callable[[], Any], outer: float | None) -> None:
    """A generator closed in another context raises nothing there and sets nothing there; here its deadline is gone too."""
    with deadline(outer) as expected:
        generator = in_a_block(make)
        next(generator)
        assert run_elsewhere(lambda: close(generator)) is None
        assert current_deadline() == expected


@pytest.mark.parametrize("make", [lambda: deadline(1), shield], ids=["deadline", "shield"])
def test_a_block_that_is_left_in_a_copy_of_its_context(make: Callable[[], Any]) -> None:
    """Left in a context copied inside the block, the outer block is in force again in both."""
    with deadline(5) as outer:
        generator = in_a_block(make)
        next(generator)
        copied = contextvars.copy_context()
        copied.run(close, generator)
        assert copied.run(current_deadline) == outer
        assert current_deadline() == outer


def test_the_deadline_of_another_context_stays() -> None:
    """A block that is left in a context with another deadline does not change that one."""

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


def test_overlapping_generators_leave_no_deadline() -> None:
    """Two blocks left in the order in which they were entered: each removes its own deadline, and none remains."""
    first, second = in_a_block(lambda: deadline(5)), in_a_block(lambda: deadline(1))
    next(first)
    nearest = next(second)
    close(first)
    assert at() == nearest
    close(second)
    assert current_deadline() is None


def test_a_thread_keeps_the_deadline_of_its_start() -> None:
    """A copied context keeps the deadline after its block was left elsewhere."""
    with deadline(5) as mine:
        copied = contextvars.copy_context()
    assert copied.run(current_deadline) == mine


def test_a_stream_takes_the_deadline_with_it(streamguard_gateway: Any) -> None:
    """A stream keeps the ambient deadline of its start: neither leaving the block nor a later shield changes that."""
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
    """The deadline at the start of a stream counts, not the one at its creation."""
    gateway = streamguard_gateway("chat hello\nwait 0.2\nfinish\ndone")
    with deadline(0.05):
        stream = guarded_stream("GET", gateway.url)
    assert stream.read() == "hello"


def test_the_nearer_of_total_and_ambient_names_itself(streamguard_gateway: Any) -> None:
    """The error names the nearer deadline."""
    gateway = streamguard_gateway("stall")
    for ambient, total, scope in ((0.1, 5, "ambient"), (5, 0.1, "total")):
        with deadline(ambient), pytest.raises(DeadlineExceededError) as caught:
            guarded_stream("GET", gateway.url, total=total).read()
        assert caught.value.scope == scope


@pytest.mark.parametrize("seconds", [0, -1])
def test_a_spent_deadline_stops_before_anything_connects(streamguard_gateway: Any, seconds: float) -> None:
    """Under a deadline that has passed, ambient or total, nothing is sent."""
    gateway = streamguard_gateway("chat hello\nfinish\ndone")
    with deadline(seconds), pytest.raises(DeadlineExceededError):
        guarded_stream("GET", gateway.url).read()
    with pytest.raises(DeadlineExceededError) as caught:
        guarded_stream("GET", gateway.url, total=seconds).read()
    assert caught.value.limit == seconds
    assert gateway.connections == 0
