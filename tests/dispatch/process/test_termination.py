"""TERM, grace, KILL, with made-up times."""

import signal

from streamguard.dispatch._process.ladder import Ladder

TERM, KILL = signal.SIGTERM, signal.SIGKILL


def test_each_rung_is_climbed_once() -> None:
    """TERM at once, KILL behind the grace, and the end behind the drain."""
    ladder = Ladder(100, grace=3, drain=0.5)
    assert ladder.signals(100) == [TERM]
    assert (ladder.signals(102.9), ladder.wait(102), ladder.killing) == ([], 1, False)
    assert ladder.signals(103) == [KILL]
    assert (ladder.killing, ladder.over(103.4), ladder.over(103.5)) == (True, False, True)
    assert ladder.signals(999) == []


def test_hurry_skips_the_grace() -> None:
    """In a hurry KILL is due at once, and once."""
    ladder = Ladder(100, grace=3, drain=0.5)
    ladder.signals(100)
    ladder.hurry(101)
    assert ladder.signals(101) == [KILL]
    ladder.hurry(102)
    assert ladder.signals(102) == []
    assert ladder.over(101.5)


def test_a_late_look_still_waits_for_the_drain() -> None:
    """If nobody looked for long, the time behind KILL counts from KILL."""
    ladder = Ladder(100, grace=3, drain=0.5)
    assert ladder.signals(200) == [TERM, KILL]
    assert not ladder.over(200.4)
    assert ladder.over(200.5)
