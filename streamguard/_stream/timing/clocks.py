"""Which clock fires. Pure: the only time here is the time that the consumer has spent *waiting*, `StreamClocks.now`.

A stream passes through phases: connect, response (waiting for headers), first (headers are here, no chunk yet), idle
(between chunks), and, between attempts, retry. One silence clock runs for the phase, one for bytes of any kind (`dead`),
and one for the heartbeats that the caller asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum

from ..._core.limits import Timeouts
from ..._core.silence import FIRED, Fired, SilenceClock


class Phase(StrEnum):
    """Where a stream is. The value is the name of the limit that applies there, if there is one."""

    NEW = "new"
    CONNECT = "connect"
    RESPONSE = "response"
    FIRST = "first"
    IDLE = "idle"
    DEAD = "dead"
    RETRY = "retry"
    DONE = "done"


class Due(Enum):
    """Which clock an alarm is from."""

    LIMIT = "limit"
    """The limit of the phase, or `dead`, is used up."""
    GRACE = "grace"
    """The time that the end of a finished answer may take is used up."""
    RETRY = "retry"
    """The pause before the next attempt is over."""
    HALF = "half"
    """Half of the limit of the phase is used up."""
    HEARTBEAT = "heartbeat"
    """The caller wants a heartbeat."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """A clock that is due, and what it has measured."""

    due: Due
    phase: Phase
    """The phase, or DEAD if it was that clock."""
    limit: float | None
    elapsed: float
    """Seconds of silence, against *limit*."""

    @property
    def is_final(self) -> bool:
        """Whether the wait is over, and this is not only something to report on the way."""
        return self.due in (Due.LIMIT, Due.GRACE, Due.RETRY)


class StreamClocks:
    """All the clocks of one stream, its phase, and the seconds that its consumer has waited so far.

    *entered* is called with each new phase.
    """

    __slots__ = ("_dead", "_entered", "_heartbeat", "_limits", "_phase_clock", "_warned", "in_grace", "now", "phase")

    def __init__(self, limits: Timeouts, heartbeat: float | None, entered: Callable[[Phase], object]) -> None:
        self.now = 0.0
        self.phase = Phase.NEW
        self.in_grace = False
        """Whether every choice has finished, and only the end of the stream is awaited."""
        self._limits = limits
        self._entered = entered
        self._phase_clock = SilenceClock(None)
        self._dead = SilenceClock(None)
        self._heartbeat = SilenceClock(heartbeat)
        self._warned = False

    def passed(self, seconds: float) -> None:
        """Count *seconds* of waiting."""
        self.now += seconds

    def begin(self, *, reports_phases: bool) -> None:
        """Start an attempt. If its reader does not report `connect` and `response`, both limits apply as one."""
        if reports_phases:
            self.enter(Phase.CONNECT)
            return
        connect, response = self._limits.connect, self._limits.response
        self._enter(Phase.RESPONSE, None if connect is None or response is None else connect + response)

    def enter(self, phase: Phase) -> None:
        """Enter *phase*, under the limit of its name."""
        self._enter(phase, getattr(self._limits, phase.value))

    def opened(self) -> None:
        """The headers are here: `first` applies until a chunk comes, from the first time that this is reported."""
        if self.phase is not Phase.FIRST:
            self.enter(Phase.FIRST)

    def rejected(self, seconds: float) -> None:
        """The response is not a stream: its body has *seconds* to arrive."""
        self._restrict(seconds)

    def pause(self, seconds: float) -> None:
        """Enter the pause before another attempt."""
        self._enter(Phase.RETRY, seconds)

    def bytes_came(self) -> None:
        """Bytes of any kind arrived: they restart `dead`, and nothing else."""
        self._dead.since = self.now

    def progressed(self) -> None:
        """A chunk that counts arrived: `idle` starts again."""
        if self.phase is Phase.IDLE and not self.in_grace:
            self._phase_clock.since = self.now
            self._warned = False
        else:
            self.enter(Phase.IDLE)

    def finishing(self, grace: float | None) -> None:
        """Every choice has its finish reason: the end has *grace* seconds to come (None: the phase's limit applies)."""
        if grace is not None and not self.in_grace and self.phase in (Phase.FIRST, Phase.IDLE):
            self._restrict(grace)
            self.in_grace = True

    def resumed(self) -> None:
        """Another choice began after all known ones had finished: the phase's own limit applies again."""
        if self.in_grace:
            self.enter(self.phase)

    def handed_over(self) -> None:
        """`next()` returns something: the heartbeat's clock restarts."""
        self._heartbeat.since = self.now

    def beat(self, heartbeat: float | None) -> None:
        """Make a heartbeat due after each *heartbeat* seconds of waiting; None: never."""
        self._heartbeat = SilenceClock(heartbeat, self.now)

    @property
    def silence(self) -> float:
        """The seconds waited since the phase's clock last started."""
        return self._phase_clock.silence(self.now)

    @property
    def left(self) -> float | None:
        """The seconds until a limit fires if nothing comes; None: no limit applies."""
        dues = (self._phase_clock.due(self.now), self._dead.due(self.now))
        return min((0.0 if due is FIRED else due for due in dues if due is not None), default=None)

    def fired(self) -> Alarm | None:
        """Return the alarm of the limit, grace or pause that is used up, if one is; the phase's own before `dead`."""
        if self._phase_clock.due(self.now) is FIRED:
            due = Due.GRACE if self.in_grace else Due.RETRY if self.phase is Phase.RETRY else Due.LIMIT
            return self._alarm(due)
        if self._dead.due(self.now) is FIRED:
            return Alarm(Due.LIMIT, Phase.DEAD, self._dead.limit, self._dead.silence(self.now))
        return None

    def alarm(self) -> Alarm | None:
        """Return what is due: a limit, else a heartbeat, else, once for each silence, the warning at half of the limit."""
        fired = self.fired()
        if fired is not None:
            return fired
        if self._heartbeat.due(self.now) is FIRED:
            return self._alarm(Due.HEARTBEAT)
        if self._half() is FIRED:
            self._warned = True
            return self._alarm(Due.HALF)
        return None

    def wait(self) -> float | None:
        """Return how long to wait, at most, before asking `alarm()` again; None: without end."""
        now = self.now
        dues = (self._phase_clock.due(now), self._dead.due(now), self._heartbeat.due(now), self._half())
        return min((0.0 if due is FIRED else due for due in dues if due is not None), default=None)

    def _alarm(self, due: Due) -> Alarm:
        return Alarm(due, self.phase, self._phase_clock.limit, self.silence)

    def _enter(self, phase: Phase, limit: float | None) -> None:
        self._restrict(limit)
        if phase in (Phase.FIRST, Phase.IDLE):
            self._dead = SilenceClock(self._limits.dead, self.now)
        if phase is not self.phase:
            self.phase = phase
            self._entered(phase)

    def _restrict(self, limit: float | None) -> None:
        """Start the phase's clock with *limit*, and stop `dead`."""
        self._phase_clock = SilenceClock(limit, self.now)
        self._dead = SilenceClock(None)
        self._warned = self.in_grace = False

    def _half(self) -> float | Fired | None:
        limit = self._phase_clock.limit
        if limit is None or self._warned or self.in_grace or self.phase is Phase.RETRY:
            return None
        left = limit / 2 - self.silence
        return left if left > 0 else FIRED
