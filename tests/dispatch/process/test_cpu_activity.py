"""How busy a process tree is."""

import shlex
import time

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamguard._core import monotonic
from streamguard.dispatch._data.output_timeout import Activity
from streamguard.dispatch._process.cpu_activity import ActivityProbe, Usage, cpu_used

from ...helpers import wait_until
from ..programs import SLEEP, Start, python, shell

BURN = "say('ready')\nwhile True: pass"


def measured(probe: ActivityProbe, seconds: float = 0.3) -> Activity:
    probe.sample()
    time.sleep(seconds)
    return probe.activity()


def test_a_child_that_has_exited_makes_nothing_negative() -> None:
    """92 ticks before, 4 and a waited-for child after: what it used since counts, not less than nothing (T12)."""
    before = {(1, 0.0): Usage(0.04, 0.0), (2, 5.0): Usage(0.88, 0.0)}
    after = {(1, 0.0): Usage(0.04, 0.95)}
    assert cpu_used(before, after) == pytest.approx(0.07)
    assert cpu_used(before, {(1, 0.0): Usage(0.04, 0.0)}) == 0


def test_a_pid_that_was_used_again_is_another_process() -> None:
    """The start time tells two processes with one pid apart."""
    assert cpu_used({(7, 1.0): Usage(5, 0)}, {(7, 2.0): Usage(0.25, 0)}) == 0.25


USAGES = st.dictionaries(
    st.tuples(st.integers(1, 5), st.just(0.0)), st.builds(Usage, st.floats(0, 9), st.floats(0, 9)), max_size=5
)


@given(USAGES, USAGES)
def test_usage_is_never_negative(before: dict[tuple[int, float], Usage], after: dict[tuple[int, float], Usage]) -> None:
    """Whatever two looks see, the CPU between them is none or some."""
    assert cpu_used(before, after) >= 0
    assert cpu_used(before, before) == 0


def test_one_sample_is_not_enough(start: Start) -> None:
    """With one sample the activity is unknown, and unknown is not busy (T11)."""
    probe = ActivityProbe(start(python(BURN)).pid)
    assert probe.activity() is Activity.UNKNOWN
    assert probe.rate is None


def test_an_old_sample_is_not_used(start: Start) -> None:
    """A sample from a minute ago is not used."""
    probe = ActivityProbe(start(python(BURN)).pid)
    probe.sample(monotonic() - 60)
    assert probe.activity() is Activity.UNKNOWN


def test_a_burner_is_busy(start: Start) -> None:
    """A program that burns CPU is busy, at a rate well above idle polling (T14)."""
    probe = ActivityProbe(start(python(BURN)).pid)
    assert measured(probe) is Activity.BUSY
    assert probe.rate is not None
    assert probe.rate > 0.1


def test_a_sleeper_is_idle(start: Start) -> None:
    """A program that waits is idle."""
    probe = ActivityProbe(start(python(SLEEP)).pid)
    assert measured(probe) is Activity.IDLE


def test_a_busy_grandchild_counts(start: Start) -> None:
    """The CPU use of every process in the tree counts."""
    probe = ActivityProbe(start(shell(f"{shlex.join(python(BURN))} & wait")).pid)
    assert measured(probe) is Activity.BUSY


def test_an_orphan_in_the_session_counts(start: Start) -> None:
    """A child whose parent has exited is still found, by its session."""
    probe = ActivityProbe(start(shell(f"({shlex.join(python(BURN))} & exit); exec sleep 60")).pid)
    assert measured(probe) is Activity.BUSY


def test_work_by_many_short_children_counts(start: Start) -> None:
    """Children that come and go between two looks count by what their parent has waited for (T12)."""
    probe = ActivityProbe(start(shell("echo ready; while :; do seq 40000 >/dev/null; done")).pid)
    assert measured(probe, 0.5) is Activity.BUSY


def test_a_zombie_is_dead(start: Start) -> None:
    """A program that has ended is dead before and after it is reaped."""
    program = start(shell("echo ready"))
    probe = ActivityProbe(program.pid)
    wait_until(lambda: probe.activity() is Activity.DEAD)
    program.wait()
    assert probe.activity() is Activity.DEAD
