"""Which clock of a stream fires. Time is the time that the consumer has spent waiting."""

from hypothesis import given
from hypothesis import strategies as st

from streamguard import Timeouts
from streamguard._stream.timing.clocks import Due, Phase, StreamClocks

LIMITS = Timeouts(connect=10, response=20, first=30, idle=5, dead=2, total=None)
NO_DEAD = LIMITS.replace(dead=None)


def clocks_of(limits: Timeouts, heartbeat: float | None = None) -> StreamClocks:
    """Return clocks without a listener."""
    return StreamClocks(limits, heartbeat, lambda phase: None)


def opened(limits: Timeouts = NO_DEAD, heartbeat: float | None = None) -> StreamClocks:
    """Return the clocks of a stream whose headers came at once."""
    clocks = clocks_of(limits, heartbeat)
    clocks.opened()
    return clocks


def fired(clocks: StreamClocks, now: float) -> tuple[Due, Phase, float | None, float] | None:
    """Return what has fired after *now* seconds of waiting."""
    clocks.now = now
    alarm = clocks.fired()
    return None if alarm is None else (alarm.due, alarm.phase, alarm.limit, alarm.elapsed)


def due(clocks: StreamClocks, now: float) -> Due | None:
    """Return which clock is due after *now* seconds of waiting."""
    clocks.now = now
    alarm = clocks.alarm()
    return None if alarm is None else alarm.due


def test_nothing_fires_before_the_start() -> None:
    """A stream that has not begun has nothing to wait for."""
    clocks = clocks_of(LIMITS)
    assert clocks.phase is Phase.NEW
    assert clocks.wait() is None
    assert due(clocks, 1e9) is None


def test_each_phase_has_its_own_limit_from_its_own_beginning() -> None:
    """The limit of a phase counts from when it was entered, and time in earlier phases is not part of it."""
    clocks = clocks_of(LIMITS)
    clocks.begin(reports_phases=True)
    assert fired(clocks, 9.9) is None
    clocks.enter(Phase.RESPONSE)
    assert fired(clocks, 29.8) is None
    assert fired(clocks, 29.9) == (Due.LIMIT, Phase.RESPONSE, 20, 20)


def test_connect_and_response_are_one_limit_if_the_reader_cannot_tell() -> None:
    """A source that reports no phases has both limits together, and none if one of them is off."""
    clocks = clocks_of(LIMITS)
    clocks.begin(reports_phases=False)
    assert fired(clocks, 29.9) is None
    assert fired(clocks, 30) == (Due.LIMIT, Phase.RESPONSE, 30, 30)
    clocks = clocks_of(LIMITS.replace(connect=None))
    clocks.begin(reports_phases=False)
    assert fired(clocks, 1e9) is None


def test_each_new_phase_is_reported_once() -> None:
    """The listener is called with each phase that differs from the one before; the grace is not a phase."""
    seen: list[Phase] = []
    clocks = StreamClocks(LIMITS, None, seen.append)
    clocks.begin(reports_phases=True)
    for phase in (Phase.RESPONSE, Phase.RESPONSE):
        clocks.enter(phase)
    clocks.opened()
    clocks.progressed()
    clocks.finishing(1)
    clocks.progressed()
    clocks.pause(1)
    assert seen == [Phase.CONNECT, Phase.RESPONSE, Phase.FIRST, Phase.IDLE, Phase.RETRY]


def test_headers_do_not_start_idle() -> None:
    """Until the first chunk `first` applies, however short `idle` is."""
    clocks = opened()
    assert fired(clocks, 29.9) is None
    assert fired(clocks, 30) == (Due.LIMIT, Phase.FIRST, 30, 30)


def test_headers_that_are_reported_twice_start_first_once() -> None:
    """A body that has to be looked at reports them before and after: the clock counts from the first time."""
    clocks = opened()
    clocks.now = 20
    clocks.opened()
    assert fired(clocks, 30) == (Due.LIMIT, Phase.FIRST, 30, 30)


def test_a_chunk_ends_first_and_re_arms_idle() -> None:
    """From the first chunk on `idle` applies, and each chunk restarts it."""
    clocks = opened()
    clocks.now = 29
    clocks.progressed()
    assert fired(clocks, 33.9) is None
    clocks.progressed()
    assert fired(clocks, 38.8) is None
    assert fired(clocks, 39) == (Due.LIMIT, Phase.IDLE, 5, 39 - 33.9)


def test_bytes_alone_do_not_re_arm_idle() -> None:
    """Comments keep `dead` quiet, and neither `first` nor `idle`."""
    clocks = opened(LIMITS)
    for now in range(30):
        clocks.now = now
        clocks.bytes_came()
        assert fired(clocks, now) is None
    assert fired(clocks, 30) == (Due.LIMIT, Phase.FIRST, 30, 30)


def test_dead_fires_when_not_a_byte_comes() -> None:
    """`dead` fires in a long `first` as soon as no byte arrived for its own limit."""
    clocks = opened(LIMITS)
    clocks.now = 7
    clocks.bytes_came()
    assert fired(clocks, 8.9) is None
    assert fired(clocks, 9) == (Due.LIMIT, Phase.DEAD, 2, 2)


def test_dead_watches_the_body_only() -> None:
    """Before the headers, and in the pause before a retry, `dead` does not apply."""
    clocks = clocks_of(Timeouts.off().replace(dead=2))
    for phase in (Phase.CONNECT, Phase.RESPONSE):
        clocks.enter(phase)
        assert fired(clocks, 1e6) is None
    clocks.opened()
    clocks.pause(1e6)
    assert fired(clocks, 1.9e6) is None


def test_the_phases_own_limit_goes_before_dead() -> None:
    """If both are used up at one instant, the error names the phase."""
    clocks = opened(NO_DEAD.replace(first=2, idle=2, dead=2))
    assert fired(clocks, 2) == (Due.LIMIT, Phase.FIRST, 2, 2)


def test_finish_leaves_only_the_grace() -> None:
    """When every choice has its finish reason, the grace applies: neither idle nor dead."""
    clocks = opened(LIMITS)
    clocks.progressed()
    clocks.now = 1
    clocks.finishing(2.5)
    assert fired(clocks, 3.4) is None
    assert fired(clocks, 3.5) == (Due.GRACE, Phase.IDLE, 2.5, 2.5)


def test_a_finish_that_is_reported_again_does_not_extend_the_grace() -> None:
    """Blocks without a chunk that counts leave the grace as it is; a chunk that counts starts it again."""
    clocks = opened()
    clocks.progressed()
    clocks.finishing(2)
    clocks.now = 1.5
    clocks.finishing(2)
    assert fired(clocks, 2) == (Due.GRACE, Phase.IDLE, 2, 2)
    clocks.progressed()
    clocks.finishing(2)
    assert fired(clocks, 3.9) is None


def test_a_choice_that_goes_on_ends_the_grace() -> None:
    """If another choice begins, the limit of the phase applies again, from then on."""
    clocks = opened()
    clocks.progressed()
    clocks.finishing(1)
    clocks.now = 0.5
    clocks.resumed()
    assert fired(clocks, 5.4) is None
    assert fired(clocks, 5.5) == (Due.LIMIT, Phase.IDLE, 5, 5)


def test_without_a_grace_idle_goes_on() -> None:
    """With the grace off, a finish reason changes nothing: the silence that was measured so far counts."""
    clocks = opened()
    clocks.now = 1
    clocks.progressed()
    clocks.finishing(None)
    assert fired(clocks, 6) == (Due.LIMIT, Phase.IDLE, 5, 5)


def test_the_body_of_an_error_has_its_own_limit() -> None:
    """When the response is not a stream, neither `first` nor `dead` applies to the rest of it, and nothing warns."""
    clocks = opened(LIMITS)
    clocks.rejected(3)
    assert due(clocks, 2.9) in (None, Due.HALF)
    assert fired(clocks, 3) == (Due.LIMIT, Phase.FIRST, 3, 3)


def test_the_heartbeat_is_due_after_each_silence() -> None:
    """A heartbeat is due when nothing was handed over for that long, in every phase."""
    clocks = opened(heartbeat=1)
    assert due(clocks, 0.9) is None
    assert due(clocks, 1) is Due.HEARTBEAT
    clocks.handed_over()
    assert due(clocks, 1.9) is None
    clocks.pause(100)
    assert due(clocks, 2) is Due.HEARTBEAT


def test_a_limit_goes_before_a_heartbeat() -> None:
    """If both are due, the limit has fired."""
    assert due(opened(heartbeat=30), 30) is Due.LIMIT


def test_the_warning_comes_once_at_half_of_each_limit() -> None:
    """At half of a phase's limit there is one warning; a new chunk or phase makes another one possible."""
    clocks = opened()
    assert due(clocks, 14.9) is None
    assert due(clocks, 15) is Due.HALF
    assert due(clocks, 16) is None
    clocks.progressed()
    assert due(clocks, 18.5) is Due.HALF
    assert due(clocks, 19) is None
    clocks.progressed()
    assert due(clocks, 21.5) is Due.HALF


def test_no_warning_for_a_pause_of_ours() -> None:
    """Half of a retry's pause, or of the grace at the end, is nothing to warn of."""
    clocks = opened()
    clocks.pause(10)
    assert due(clocks, 6) is None
    clocks = opened()
    clocks.finishing(10)
    assert due(clocks, 6) is None


def test_limits_that_are_off_never_fire() -> None:
    """With everything off a stream waits for ever."""
    clocks = opened(Timeouts.off())
    assert clocks.wait() is None
    clocks.now = 5
    clocks.progressed()
    assert due(clocks, 1e12) is None


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
    clocks = opened(limits)
    phase, since, byte = Phase.FIRST, 0.0, 0.0
    for wait, event in script:
        clocks.passed(wait)
        now = clocks.now
        limit = first if phase is Phase.FIRST else idle
        used_up = [limit is not None and limit - (now - since) <= 0, dead is not None and dead - (now - byte) <= 0]
        alarm = clocks.fired()
        assert (alarm.phase if alarm else None) == (phase if used_up[0] else Phase.DEAD if used_up[1] else None)
        if event != "nothing":
            clocks.bytes_came()
            byte = now
        if event == "chunk":
            clocks.progressed()
            phase, since = Phase.IDLE, now


@given(some_limits(), st.none() | st.floats(0.01, 10), st.floats(0, 200))
def test_the_wait_ends_when_something_is_due_and_not_later(limits: Timeouts, heartbeat: float | None, now: float) -> None:
    """`wait` is zero exactly when an alarm is due, and after a wait of that length one is (but for rounding)."""
    clocks = opened(limits, heartbeat)
    clocks.now = now
    wait = clocks.wait()
    if wait is None:
        assert due(clocks, now + 1e9) is None
    elif wait == 0:
        assert due(clocks, now) is not None
    else:
        assert due(clocks, now) is None
        assert due(clocks, (now + wait) * (1 + 1e-9)) is not None
