"""TERM, grace, KILL, with made-up times."""

import signal

from streamguard.dispatch._process.termination import Escalation

TERM, KILL = signal.SIGTERM, signal.SIGKILL


def test_each_rung_is_climbed_once() -> None:
    """TERM at once, KILL behind the grace, and the end behind the drain."""
    escalation = Escalation(100, grace=3, drain=0.5)
    assert escalation.signals(100) == [TERM]
    assert (escalation.signals(102.9), escalation.wait(102), escalation.killing) == ([], 1, False)
    assert escalation.signals(103) == [KILL]
    assert (escalation.killing, escalation.over(103.4), escalation.over(103.5)) == (True, False, True)
    assert escalation.signals(999) == []


def test_hurry_skips_the_grace() -> None:
    """In a hurry KILL is due at once, and once."""
    escalation = Escalation(100, grace=3, drain=0.5)
    escalation.signals(100)
    escalation.hurry(101)
    assert escalation.signals(101) == [KILL]
    escalation.hurry(102)
    assert escalation.signals(102) == []
    assert escalation.over(101.5)


def test_a_late_look_still_waits_for_the_drain() -> None:
    """If nobody looked for long, the time behind KILL counts from KILL."""
    escalation = Escalation(100, grace=3, drain=0.5)
    assert escalation.signals(200) == [TERM, KILL]
    assert not escalation.over(200.4)
    assert escalation.over(200.5)
