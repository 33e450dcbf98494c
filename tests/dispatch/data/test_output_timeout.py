"""The one timer of a turn, with made-up times (R1 to R8)."""

import json
import math

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamguard import UsageError
from streamguard.dispatch._data.output_timeout import LATE_SECONDS, MOST_EXCUSES, Activity, Defer, Fire, OutputTimeout, Wait
from streamguard.dispatch._data.turn_events import OUTPUT_KINDS, Event, Kind

NOT_BUSY = sorted(set(Activity) - {Activity.BUSY})
NO_OUTPUT = sorted(set(Kind) - OUTPUT_KINDS)
T = 10.0


def fired(due: object) -> Fire:
    assert isinstance(due, Fire)
    return due


def call(name: str, key: str) -> Event:
    return Event(kind=Kind.TOOL_CALL, tool=name, tool_id=key)


def result(key: str) -> Event:
    return Event(kind=Kind.TOOL_RESULT, tool_id=key)


@pytest.mark.parametrize("kind", sorted(OUTPUT_KINDS))
def test_output_gives_the_full_timeout_again(kind: Kind) -> None:
    """Each of the five kinds re-arms, pieces of it too (R3, R4)."""
    for event in (Event(kind=kind, text="x"), Event(kind=kind, text="x", delta=True), kind):
        timer = OutputTimeout(T, 0)
        assert timer.observe(9, event)
        assert isinstance(timer.due(18.9, Activity.IDLE), Wait)
        assert fired(timer.due(19, Activity.IDLE)).diagnosis.last_output_kind == kind


@pytest.mark.parametrize("kind", NO_OUTPUT)
def test_what_is_no_output_does_not_rearm(kind: Kind) -> None:
    """Signals, status, errors, stderr and the unknown never re-arm; they are counted, and named in the diagnosis (R3)."""
    timer = OutputTimeout(T, 0)
    assert not timer.observe(9, Event(kind=kind, text="x"))
    assert not timer.observe(9.5, kind)
    diagnosis = fired(timer.due(T, Activity.IDLE)).diagnosis
    assert (diagnosis.last_signal_kind, diagnosis.last_signal_at) == (kind, 9.5)
    assert diagnosis.uncounted == {kind: 2}
    assert diagnosis.first_output_at is diagnosis.last_output_at is diagnosis.last_output_kind is None


@pytest.mark.parametrize(
    "event",
    [
        Event(kind=Kind.TEXT),
        Event(kind=Kind.TEXT, delta=True),
        Event(kind=Kind.THINKING),
        Event(kind=Kind.TOOL_CALL, delta=True),
    ],
)
def test_what_is_empty_is_no_output(event: Event) -> None:
    """An empty text, thinking, or piece of a tool's input re-arms nothing."""
    assert not OutputTimeout(T, 0).observe(1, event)


def test_an_early_question_is_answered_with_the_rest() -> None:
    """The measurement authorises the stop, not the question (R5); the wait ends where CPU is to be measured (T11)."""
    timer = OutputTimeout(T, 0)
    assert timer.due(1, Activity.IDLE) == Wait(7)
    assert not timer.needs_sample(7.9)
    assert timer.needs_sample(8)
    assert timer.due(8, Activity.IDLE) == Wait(2)
    assert timer.due(9.75, Activity.IDLE) == Wait(0.25)


@pytest.mark.parametrize("activity", NOT_BUSY)
def test_only_burning_cpu_defers(activity: Activity) -> None:
    """Idle, dead, absent and unknown fire at the timeout (R6)."""
    diagnosis = fired(OutputTimeout(T, 0).due(T, activity, 0.01)).diagnosis
    assert (diagnosis.silence, diagnosis.deferrals, diagnosis.activity) == (T, 0, activity)
    assert diagnosis.process_alive == (activity is not Activity.DEAD)


def test_busy_does_not_fire_at_one_and_a_half_and_fires_at_two() -> None:
    """Burning CPU puts it off to twice the timeout since the last output, not since the start (R5, R6)."""
    timer = OutputTimeout(T, 0)
    timer.observe(5, Kind.TEXT)
    assert timer.due(15, Activity.BUSY) == Defer(8)
    assert isinstance(timer.due(20, Activity.BUSY), Defer)
    assert timer.due(23, Activity.BUSY) == Defer(2)
    diagnosis = fired(timer.due(25, Activity.BUSY, 0.93)).diagnosis
    assert (diagnosis.silence, diagnosis.cpu_rate, diagnosis.deferrals, diagnosis.deferred) == (20, 0.93, 1, 10)
    assert timer.deferred(99) == 10


def test_what_was_busy_at_the_timeout_is_left_alone_until_twice_that() -> None:
    """A deferral is waited for, even if the CPU is quiet again."""
    timer = OutputTimeout(T, 0)
    timer.due(10, Activity.BUSY)
    assert isinstance(timer.due(19.9, Activity.IDLE), Defer)
    assert isinstance(timer.due(20, Activity.IDLE), Fire)


def test_output_ends_a_deferral() -> None:
    """Output during a deferral gives the full timeout, and the next silence may be deferred again."""
    timer = OutputTimeout(T, 0)
    timer.due(10, Activity.BUSY)
    timer.observe(14, Kind.TEXT)
    assert isinstance(timer.due(23.9, Activity.IDLE), Wait)
    assert isinstance(timer.due(24, Activity.BUSY), Defer)
    assert fired(timer.due(34, Activity.BUSY)).diagnosis.deferrals == 1
    assert timer.deferred(34) == 14


def test_it_fires_once() -> None:
    """After the firing nothing is due any more, and output does not revive the turn (T3)."""
    timer = OutputTimeout(T, 0)
    fired(timer.due(T, Activity.IDLE))
    assert not timer.observe(11, Kind.TEXT)
    assert timer.due(99, Activity.IDLE) == Wait(math.inf)


def test_behind_close_nothing_fires_or_rearms() -> None:
    """`close()` is final, and may be called twice (R8)."""
    timer = OutputTimeout(T, 0)
    timer.close()
    timer.close()
    assert not timer.observe(1, Kind.TEXT)
    assert timer.due(99, Activity.IDLE) == Wait(math.inf)
    assert not timer.needs_sample(99)


@pytest.mark.parametrize("timeout", [0, -1, -math.inf])
def test_zero_and_less_never_fire(timeout: float) -> None:
    """0 arms nothing (R2)."""
    timer = OutputTimeout(timeout, 0)
    assert timer.due(1e9, Activity.DEAD) == Wait(math.inf)
    assert not timer.observe(1, Kind.TEXT)


@pytest.mark.parametrize("limits", [{"timeout": math.nan}, {"timeout": 1, "tool_timeout": math.nan}])
def test_nan_is_refused(limits: dict[str, float]) -> None:
    """NaN would compare as never due: it is an error."""
    with pytest.raises(UsageError, match="nan"):
        OutputTimeout(now=0, **limits)


def test_a_running_tool_has_its_own_allowance() -> None:
    """With tool_timeout, a tool call without result may be silent for that long; burning CPU does not double it."""
    timer = OutputTimeout(T, 0, tool_timeout=25)
    timer.observe(1, call("Bash", "a"))
    assert timer.due(11, Activity.IDLE) == Wait(13)
    assert timer.tools == ("Bash",)
    diagnosis = fired(timer.due(26, Activity.BUSY)).diagnosis
    assert (diagnosis.timeout, diagnosis.silence, diagnosis.tools) == (25, 25, ("Bash",))


def test_the_allowance_ends_with_the_result() -> None:
    """Once every tool call has its result, the plain timeout rules."""
    timer = OutputTimeout(T, 0, tool_timeout=25)
    for event in (call("Bash", "a"), call("Read", "b"), result("b")):
        timer.observe(1, event)
    assert isinstance(timer.due(20, Activity.IDLE), Wait)
    timer.observe(20, result("a"))
    assert fired(timer.due(30, Activity.IDLE)).diagnosis.timeout == T


def test_a_tool_is_named_even_without_an_allowance() -> None:
    """The diagnosis names the calls in flight; a piece of a call's input is none yet."""
    timer = OutputTimeout(T, 0)
    timer.observe(1, Event(kind=Kind.TOOL_CALL, tool="Edit", text="{", delta=True))
    timer.observe(1, call("Bash", "a"))
    assert fired(timer.due(11, Activity.IDLE)).diagnosis.tools == ("Bash",)


def test_being_held_back_is_no_silence() -> None:
    """While it is paused nothing is due; after it the clock goes on from there (T1)."""
    timer = OutputTimeout(T, 0)
    timer.pause(4)
    timer.pause(5)
    assert isinstance(timer.due(1000, Activity.IDLE), Wait)
    timer.resume(1000)
    timer.resume(2000)
    assert isinstance(timer.due(1005.9, Activity.IDLE), Wait)
    assert isinstance(timer.due(1006, Activity.IDLE), Fire)


def test_a_pause_is_asked_about_again() -> None:
    """During a pause it returns a time, as the end of the pause is not announced: never later than the limit can be due."""
    timer = OutputTimeout(T, 0)
    timer.pause(4)
    due = timer.due(4, Activity.IDLE)
    assert isinstance(due, Wait)
    timer.resume(4)
    assert 0 < due.seconds <= 10 - 4
    timer.pause(12)
    assert 0 < timer.due(12, Activity.IDLE).seconds < 1  # type: ignore[union-attr]


def test_output_during_a_pause_gives_the_full_timeout_behind_it() -> None:
    """What arrived while we held it back counts, from the end of the pause."""
    timer = OutputTimeout(T, 0)
    timer.pause(4)
    timer.observe(6, Kind.TEXT)
    timer.resume(100)
    assert isinstance(timer.due(109.9, Activity.IDLE), Wait)
    assert isinstance(timer.due(110, Activity.IDLE), Fire)


def test_the_diagnosis_is_plain_data() -> None:
    """`to_dict()` is JSON, with what the caller adds to it."""
    timer = OutputTimeout(T, 5)
    timer.observe(6, Kind.TEXT)
    timer.observe(7, Kind.STDERR)
    plain = fired(timer.due(16, Activity.IDLE, 0.002)).diagnosis.to_dict()
    assert json.loads(json.dumps(plain)) == plain
    assert (
        plain
        | {
            "lifetime": 11,
            "first_output_at": 6,
            "last_signal_kind": "stderr",
            "uncounted": {"stderr": 1},
            "process_alive": True,
        }
        == plain
    )


STEPS = st.lists(
    st.tuples(
        st.floats(0.01, 8),
        st.sampled_from([None, None, Kind.TEXT, Kind.STDERR]),
        st.sampled_from(list(Activity)),
    ),
    max_size=40,
)


@given(steps=STEPS, timeout=st.floats(0.5, 10))
def test_it_never_fires_early_and_never_later_than_twice(
    steps: list[tuple[float, Kind | None, Activity]], timeout: float
) -> None:
    """Whatever happens, it fires between one and two timeouts of silence when asked as it says, and exactly once."""
    timer, now, last, firings = OutputTimeout(timeout, 0.0), 0.0, 0.0, 0
    for pause, kind, activity in steps:
        end = now + pause
        while now < end and not firings:
            due = timer.due(now, activity)
            if isinstance(due, Fire):
                firings += 1
                assert now - last >= timeout * (1 - 1e-9)
                assert now - last <= 2 * timeout * (1 + 1e-9)
                break
            now = min(end, now + max(due.seconds, 1e-9))
        now = end
        if kind and timer.observe(now, kind):
            last = now
    assert firings <= 1
    if firings:
        assert timer.due(now + 1000, Activity.IDLE) == Wait(math.inf)


def test_time_in_which_nothing_could_be_read_is_subtracted() -> None:
    """The silence is shorter by it, never negative; while the clock is paused, nothing is counted anyway."""
    timer = OutputTimeout(T, 0)
    assert timer.excuse(9, LATE_SECONDS) == 0
    assert timer.excuse(9, 5) == 5 + LATE_SECONDS
    assert timer.diagnosis(9, Activity.IDLE).silence == 4 - LATE_SECONDS
    timer.excuse(9, 100)
    assert timer.diagnosis(9, Activity.IDLE).silence == 0
    timer.pause(10)
    assert timer.excuse(12, 2) == 0
    timer.resume(12)
    assert timer.diagnosis(12, Activity.IDLE).silence == 1


def test_a_machine_that_is_always_late_does_not_put_it_off_for_ever() -> None:
    """So often in one silence, and no more; after output, again."""
    timer = OutputTimeout(T, 0)
    for _ in range(MOST_EXCUSES + 1):
        timer.excuse(9, 1)
    assert timer.diagnosis(9, Activity.IDLE).silence == 9 - MOST_EXCUSES * (1 + LATE_SECONDS)
    timer.observe(9, Kind.TEXT)
    timer.excuse(12, 1)
    assert timer.diagnosis(12, Activity.IDLE).silence == 2 - LATE_SECONDS
