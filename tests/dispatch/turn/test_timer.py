"""The timer with threads, and its supervisor. When a timer is due is tested in test_output_timeout.py."""

import math
import queue
import threading
import time
from typing import Any

import pytest

from streamguard.dispatch._data.output_timeout import Activity, Diagnosis
from streamguard.dispatch._data.turn_events import Event, Kind
from streamguard.dispatch._process.cpu_activity import ActivityProbe
from streamguard.dispatch._turn.timer import Supervisor, Timer, TurnLimits

from ...helpers import wait_until

TEXT = Event(kind=Kind.TEXT, text="x")


class Probe(ActivityProbe):
    """A probe with scripted answers, which counts its samples."""

    def __init__(self, *answers: Activity) -> None:
        super().__init__(1)
        self.answers = list(answers)
        self.samples = 0

    def sample(self, now: float | None = None) -> None:
        self.samples += 1

    def activity(self, now: float | None = None) -> Activity:
        self.sample()
        self.rate = 0.9
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Fired:
    """Collects diagnoses."""

    def __init__(self) -> None:
        self.diagnoses: list[Diagnosis] = []
        self.at: list[float] = []

    def __call__(self, diagnosis: Diagnosis) -> None:
        self.at.append(time.monotonic())
        self.diagnoses.append(diagnosis)


@pytest.fixture
def supervisor() -> Any:
    supervisor = Supervisor()
    yield supervisor
    supervisor.close()


def test_it_fires_once_within_a_tenth_of_a_second(supervisor: Supervisor) -> None:
    """R5: it fires at the timeout, never before, exactly once, however often it is checked."""
    fired = Fired()
    timer = Timer(TurnLimits(output_timeout=0.2), fired)
    supervisor.watch(timer)
    wait_until(lambda: fired.diagnoses)
    overshoot = fired.at[0] - timer.started - 0.2
    assert 0 <= overshoot < 2
    supervisor.wake()
    assert timer.check() == math.inf
    assert len(fired.diagnoses) == 1
    assert fired.diagnoses[0].activity is Activity.ABSENT
    assert fired.diagnoses[0].process_alive


def test_an_early_check_only_waits() -> None:
    """R5: an early check returns the time that is left."""
    fired = Fired()
    timer = Timer(TurnLimits(output_timeout=5), fired)
    assert 0 < timer.check() <= 5
    assert fired.diagnoses == []


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_disabled_timer_is_not_watched(supervisor: Supervisor, timeout: float) -> None:
    """R2, T26: 0 arms nothing, and starts no thread."""
    timer = Timer(TurnLimits(output_timeout=timeout), Fired())
    before = threading.active_count()
    supervisor.watch(timer)
    assert threading.active_count() == before
    assert timer.check() == math.inf


def test_close_waits_for_a_firing_and_nothing_fires_afterwards() -> None:
    """T4: `close()` during a firing neither deadlocks nor lets anything fire after it returned."""
    inside: queue.SimpleQueue[None] = queue.SimpleQueue()
    order = []

    def fire(_diagnosis: Diagnosis) -> None:
        inside.put(None)
        time.sleep(0.1)
        order.append("fired")

    timer = Timer(TurnLimits(output_timeout=0.001), fire)
    time.sleep(0.002)
    asking = threading.Thread(target=timer.check)
    asking.start()
    inside.get(timeout=10)
    timer.close()
    order.append("closed")
    asking.join()
    assert order == ["fired", "closed"]
    assert timer.check() == math.inf


def test_a_closed_timer_never_fires() -> None:
    """R8: `close()` is idempotent; after it nothing fires, and no output re-arms the timer."""
    fired = Fired()
    timer = Timer(TurnLimits(output_timeout=0.001), fired)
    timer.close()
    timer.close()
    timer.observe(TEXT)
    time.sleep(0.005)
    assert timer.check() == math.inf
    assert fired.diagnoses == []


def test_output_after_the_firing_does_not_revive_it() -> None:
    """T3: output after the firing changes nothing."""
    fired = Fired()
    timer = Timer(TurnLimits(output_timeout=0.001), fired)
    time.sleep(0.005)
    timer.check()
    timer.observe(TEXT)
    assert timer.check() == math.inf
    assert fired.diagnoses[0].last_output_at is None


def test_a_busy_process_is_sampled_twice_and_defers_to_twice_the_timeout(supervisor: Supervisor) -> None:
    """R6, T11: a busy process defers the firing to twice the timeout; the diagnosis has the measured rate."""
    fired, probe = Fired(), Probe(Activity.BUSY)
    timer = Timer(TurnLimits(output_timeout=0.2), fired)
    timer.set_probe(probe, 1)
    supervisor.watch(timer)
    wait_until(lambda: fired.diagnoses)
    assert fired.at[0] - timer.started >= 0.4
    assert probe.samples >= 3
    diagnosis = fired.diagnoses[0]
    assert (diagnosis.activity, diagnosis.cpu_rate, diagnosis.deferrals) == (Activity.BUSY, 0.9, 1)


@pytest.mark.parametrize("activity", [Activity.IDLE, Activity.DEAD, Activity.ABSENT, Activity.UNKNOWN])
def test_only_busy_defers(supervisor: Supervisor, activity: Activity) -> None:
    """R6: idle, dead, absent and unknown fire at the timeout; only dead is reported as not alive."""
    fired = Fired()
    timer = Timer(TurnLimits(output_timeout=0.1), fired)
    timer.set_probe(Probe(activity), 1)
    supervisor.watch(timer)
    wait_until(lambda: fired.diagnoses)
    assert fired.diagnoses[0].deferrals == 0
    assert fired.diagnoses[0].process_alive == (activity is not Activity.DEAD)


def test_a_late_unregister_does_not_remove_the_second_attempts_probe() -> None:
    """T28: a late end of the first attempt's process does not remove the probe of the second one."""
    timer = Timer(TurnLimits(output_timeout=1), Fired())
    first, second = Probe(Activity.BUSY), Probe(Activity.BUSY)
    timer.set_probe(first, 1)
    timer.set_probe(second, 2)
    timer.set_probe(None, 1)
    assert timer.probe is second
    timer.set_probe(None, 2)
    assert timer.probe is None


def test_a_paused_timer_does_not_run() -> None:
    """T1: while the member waits for a slow reader, its clock stands still."""
    fired = Fired()
    timer = Timer(TurnLimits(output_timeout=0.1), fired)
    timer.pause()
    time.sleep(0.2)
    assert 0 < timer.check() < math.inf  # it is checked again: the pause may be over by then
    timer.resume()
    assert 0 < timer.check() <= 0.1
    assert fired.diagnoses == []


def test_one_slow_timer_does_not_hold_up_the_others_for_long(supervisor: Supervisor) -> None:
    """T9: one thread checks all timers; each fires at its own time."""
    fired = [Fired() for _ in range(20)]
    timers = [Timer(TurnLimits(output_timeout=0.1 + number / 200), fire) for number, fire in enumerate(fired)]
    for timer in timers:
        supervisor.watch(timer)
    wait_until(lambda: all(fire.at for fire in fired))
    for timer, fire, number in zip(timers, fired, range(20), strict=True):
        assert fire.at[0] - timer.started >= 0.1 + number / 200


def test_the_longest_silence_is_between_outputs() -> None:
    """The longest silence counts from the start, between outputs, and until now."""
    timer = Timer(TurnLimits(output_timeout=10), Fired())
    time.sleep(0.05)
    timer.observe(TEXT)
    timer.observe(Event(kind=Kind.STATUS))
    first = timer.longest_silence()
    assert first >= 0.05
    assert timer.longest_silence(timer.started + 1000) > 900


def test_a_check_during_a_pause_is_not_the_last_one(supervisor: Supervisor) -> None:
    """A check during a pause is followed by another one: a silent member is stopped."""
    fired = Fired()
    timer = Timer(TurnLimits(output_timeout=0.2), fired)
    timer.pause()
    supervisor.watch(timer)
    time.sleep(0.05)  # it was checked during the pause
    timer.resume()
    wait_until(lambda: fired.diagnoses, 5)
    assert fired.diagnoses[0].silence >= 0.2
