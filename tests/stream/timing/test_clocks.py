"""Which clock of a stream fires. Time is the time that the consumer has spent waiting."""

from hypothesis import given
from hypothesis import strategies as st

from streamguard import Timeouts
from streamguard._stream.timing.clocks import Alarm, Firing, Phase, StreamClocks

LIMITS = Timeouts(connect=10, response=20, first=30, idle=5, dead=2, total=None)
NO_DEAD = LIMITS.replace(dead=None)


def opened(limits: Timeouts = NO_DEAD, at: float = 0.0, heartbeat: float | None = None) -> StreamClocks:
    """Return the clocks of a stream whose headers came at *at*."""
    clocks = StreamClocks(limits, heartbeat)
    clocks.opened(at)
    return clocks


def test_nothing_fires_before_the_start() -> None:
    """A stream that has not begun has nothing to wait for."""
    clocks = StreamClocks(LIMITS)
    assert clocks.phase is Phase.NEW
    assert clocks.alarm(1e9) is None
    assert clocks.wait(0) is None


def test_each_phase_has_its_own_limit_from_its_own_beginning() -> None:
    """The limit of a phase counts from when it was entered, and time in earlier phases is no part of it."""
    clocks = StreamClocks(LIMITS)
    clocks.enter(Phase.CONNECT, 0, LIMITS.connect)
    assert clocks.firing(9.9) is None
    clocks.enter(Phase.RESPONSE, 9.9, LIMITS.response)
    assert clocks.firing(29.8) is None
    assert clocks.firing(29.9) == Firing(Phase.RESPONSE, 20, 20)


def test_headers_do_not_start_idle() -> None:
    """Until the first chunk `first` rules, however short `idle` is."""
    clocks = opened()
    assert clocks.firing(29.9) is None
    assert clocks.firing(30) == Firing(Phase.FIRST, 30, 30)


def test_a_chunk_ends_first_and_re_arms_idle() -> None:
    """From the first chunk on `idle` rules, from each chunk anew."""
    clocks = opened()
    clocks.progressed(29)
    assert clocks.firing(33.9) is None
    clocks.progressed(33.9)
    assert clocks.firing(38.8) is None
    assert clocks.firing(39) == Firing(Phase.IDLE, 5, 39 - 33.9)


def test_bytes_alone_do_not_re_arm_idle() -> None:
    """Comments keep `dead` quiet, and neither `first` nor `idle`."""
    clocks = opened(LIMITS)
    for now in range(30):
        clocks.heard(now)
        assert clocks.firing(now) is None
    assert clocks.firing(30) == Firing(Phase.FIRST, 30, 30)


def test_dead_fires_when_not_a_byte_comes() -> None:
    """`dead` fires in a long `first` as soon as the line itself has been silent for its own limit."""
    clocks = opened(LIMITS)
    clocks.heard(7)
    assert clocks.firing(8.9) is None
    assert clocks.firing(9) == Firing(Phase.DEAD, 2, 2)


def test_dead_watches_the_body_only() -> None:
    """Before the headers, and in the pause before a retry, there is no line to be dead."""
    clocks = StreamClocks(LIMITS)
    for phase in (Phase.CONNECT, Phase.RESPONSE, Phase.RETRY):
        clocks.enter(phase, 0, None)
        assert clocks.firing(1e6) is None


def test_the_phases_own_limit_goes_before_dead() -> None:
    """Where both are used up at one instant, the error names the phase."""
    clocks = opened(NO_DEAD.replace(first=2, idle=2, dead=2))
    assert clocks.firing(2) == Firing(Phase.FIRST, 2, 2)


def test_finish_leaves_only_the_grace() -> None:
    """When every choice has its finish reason, the grace rules: neither idle nor dead."""
    clocks = opened(LIMITS)
    clocks.progressed(0)
    clocks.finishing(1, 2.5)
    assert clocks.firing(3.4) is None
    assert clocks.firing(3.5) == Firing(Phase.GRACE, 2.5, 2.5)


def test_without_a_grace_idle_goes_on() -> None:
    """With the grace off, a finish reason changes nothing: the silence that was measured so far counts."""
    clocks = opened()
    clocks.progressed(1)
    clocks.finishing(1, None)
    assert clocks.firing(6) == Firing(Phase.IDLE, 5, 5)


def test_the_heartbeat_is_due_after_each_silence() -> None:
    """A heartbeat is due when nothing was handed over for that long, in every phase."""
    clocks = opened(heartbeat=1)
    assert clocks.alarm(0.9) is None
    assert clocks.alarm(1) is Alarm.HEARTBEAT
    clocks.handed_over(1)
    assert clocks.alarm(1.9) is None
    clocks.enter(Phase.RETRY, 1.9, 100)
    assert clocks.alarm(2) is Alarm.HEARTBEAT


def test_a_limit_goes_before_a_heartbeat() -> None:
    """Where both are due, the limit has fired."""
    assert opened(heartbeat=30).alarm(30) is Alarm.LIMIT


def test_the_warning_comes_once_at_half_of_each_limit() -> None:
    """At half of a phase's limit there is one warning; a new chunk or phase makes another one possible."""
    clocks = opened()
    assert clocks.alarm(14.9) is None
    assert clocks.alarm(15) is Alarm.WARNING
    assert clocks.alarm(16) is None
    clocks.progressed(16)
    assert clocks.alarm(18.5) is Alarm.WARNING
    assert clocks.alarm(19) is None
    clocks.progressed(19)
    assert clocks.alarm(21.5) is Alarm.WARNING


def test_no_warning_for_a_pause_of_ours() -> None:
    """Half of a retry's pause, or of the grace at the end, is nothing to warn of."""
    clocks = opened()
    clocks.enter(Phase.RETRY, 0, 10)
    assert clocks.alarm(6) is None
    clocks.finishing(0, 10)
    assert clocks.alarm(6) is None


def test_limits_that_are_off_never_fire() -> None:
    """With everything off a stream waits for ever."""
    clocks = opened(Timeouts.off())
    assert clocks.wait(0) is None
    clocks.progressed(5)
    assert clocks.alarm(1e12) is None


events = st.sampled_from(["bytes", "chunk", "nothing"])
some_limit = st.none() | st.floats(0.01, 100)


@st.composite
def some_limits(draw: st.DrawFn) -> Timeouts:
    """Draw limits of the body that do not contradict each other."""
    first, idle = draw(some_limit), draw(some_limit)
    highest = max(100.0 if limit is None else limit for limit in (first, idle))
    return Timeouts.off().replace(first=first, idle=idle, dead=draw(st.none() | st.floats(0.001, highest)))


@given(some_limits(), st.lists(st.tuples(st.floats(0, 60), events), max_size=60))
def test_the_clocks_against_their_definition(limits: Timeouts, script: list[tuple[float, str]]) -> None:
    """Whatever comes when: what fires is what the table of limits says, the phase's own limit before `dead`."""
    first, idle, dead = limits.first, limits.idle, limits.dead
    clocks = StreamClocks(limits)
    clocks.opened(0.0)
    now, phase, since, byte = 0.0, Phase.FIRST, 0.0, 0.0
    for wait, event in script:
        now += wait
        limit = first if phase is Phase.FIRST else idle
        due = [limit is not None and limit - (now - since) <= 0, dead is not None and dead - (now - byte) <= 0]
        firing = clocks.firing(now)
        assert (firing.phase if firing else None) == (phase if due[0] else Phase.DEAD if due[1] else None)
        if event != "nothing":
            clocks.heard(now)
            byte = now
        if event == "chunk":
            clocks.progressed(now)
            phase, since = Phase.IDLE, now


@given(some_limits(), st.none() | st.floats(0.01, 10), st.floats(0, 200))
def test_the_wait_ends_when_something_is_due_and_not_later(limits: Timeouts, heartbeat: float | None, now: float) -> None:
    """`wait` is zero exactly when an alarm is due, and after a wait of that length one is (but for rounding)."""
    clocks = StreamClocks(limits, heartbeat)
    clocks.opened(0.0)
    wait = clocks.wait(now)
    if wait is None:
        assert clocks.alarm(now + 1e9) is None
    elif wait == 0:
        assert clocks.alarm(now) is not None
    else:
        assert clocks.alarm(now) is None
        assert clocks.alarm((now + wait) * (1 + 1e-9)) is not None
