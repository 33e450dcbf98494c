"""The silence clock: the measured silence decides."""

from hypothesis import given
from hypothesis import strategies as st

from streamguard._core import FIRED, SilenceClock

seconds = st.floats(0, 1e6)
limits = st.floats(1e-6, 1e6)


def test_it_fires_when_the_limit_is_used_up_not_before() -> None:
    """A clock of five seconds has one left after four, and has fired after five."""
    clock = SilenceClock(5, now=100)
    assert clock.due(104) == 1
    assert clock.due(105) is FIRED
    assert clock.due(900) is FIRED
    assert repr(clock.due(105)) == "FIRED"


def test_an_arrival_restarts_the_silence() -> None:
    """An arrival at any moment, even after it fired, restarts the silence."""
    clock = SilenceClock(5)
    clock.observe(4)
    assert clock.due(8) == 1
    assert clock.due(9) is FIRED
    clock.observe(20)
    assert clock.due(21) == 4
    assert clock.silence(23) == 3


@given(seconds)
def test_without_a_limit_it_never_fires(now: float) -> None:
    """Without a limit it never fires."""
    assert SilenceClock(None).due(now) is None


@given(limits, st.lists(st.tuples(seconds, st.booleans()), max_size=50))
def test_due_is_the_rest_of_the_limit(limit: float, steps: list[tuple[float, bool]]) -> None:
    """At each call `due` is the limit less the time since the last arrival, or FIRED from there on."""
    clock, now, last = SilenceClock(limit), 0.0, 0.0
    for step, sound in steps:
        now += step
        left = limit - (now - last)
        assert clock.due(now) == (left if left > 0 else FIRED)
        if sound:
            clock.observe(now)
            last = now


@given(limits, seconds)
def test_asking_changes_nothing(limit: float, now: float) -> None:
    """Two calls at one time return the same."""
    clock = SilenceClock(limit)
    assert clock.due(now) == clock.due(now)
