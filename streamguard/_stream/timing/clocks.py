"""Which clock fires. Pure: time is an argument, and it is the time that the consumer has spent *waiting*.

A stream passes through phases: connect, response (waiting for headers), first (headers are here, no chunk yet), idle
(between chunks), and, between attempts, retry. One silence clock runs for the phase, one for bytes of any kind (`dead`),
and one for the heartbeats that the caller asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum

from ..._core.limits import Timeouts
from ..._core.silence import FIRED, Fired, SilenceClock

__all__ = ["Alarm", "Firing", "Phase", "StreamClocks"]


class Phase(StrEnum):
    """Where a stream is. The value is the name of the limit that rules there, where there is one."""

    NEW = "new"
    CONNECT = "connect"
    RESPONSE = "response"
    FIRST = "first"
    IDLE = "idle"
    DEAD = "dead"
    GRACE = "grace"
    RETRY = "retry"
    DONE = "done"


class Alarm(Enum):
    """Why a wait ended with nothing received."""

    LIMIT = "limit"
    WARNING = "warning"
    HEARTBEAT = "heartbeat"


@dataclass(frozen=True, slots=True)
class Firing:
    """A limit that is used up."""

    phase: Phase
    limit: float
    elapsed: float


class StreamClocks:
    """All the clocks of one stream. Every method takes *now*: the seconds that the consumer has waited so far."""

    __slots__ = ("_dead", "_heartbeat", "_limits", "_phase_clock", "_unfinished", "_warned", "phase")

    def __init__(self, limits: Timeouts, heartbeat: float | None = None) -> None:
        self._limits = limits
        self.phase = Phase.NEW
        self._phase_clock = SilenceClock(None)
        self._dead = SilenceClock(None)
        self._heartbeat = SilenceClock(heartbeat)
        self._warned = False
        self._unfinished = Phase.IDLE

    def enter(self, phase: Phase, now: float, limit: float | None) -> None:
        """Go into *phase*, which ends after *limit* seconds of waiting (None: never)."""
        self.phase = phase
        self._phase_clock = SilenceClock(limit, now)
        self._warned = False
        self._dead = SilenceClock(self._limits.dead if phase in (Phase.FIRST, Phase.IDLE) else None, now)

    def opened(self, now: float) -> None:
        """The headers are here; `first` rules until a chunk comes. They do not start `idle`."""
        self.enter(Phase.FIRST, now, self._limits.first)

    def heard(self, now: float) -> None:
        """Bytes came, of any kind: that keeps `dead` quiet, and nothing else."""
        self._dead.since = now

    def progressed(self, now: float) -> None:
        """A chunk came that counts: `idle` rules from here, anew."""
        if self.phase is Phase.IDLE:
            self._phase_clock.since = now
            self._warned = False
        else:
            self.enter(Phase.IDLE, now, self._limits.idle)

    def finishing(self, now: float, grace: float | None) -> None:
        """Every choice has its finish reason: only *grace* more seconds are given to the end (None: `idle` goes on)."""
        if grace is not None:
            self._unfinished = self.phase
            self.enter(Phase.GRACE, now, grace)

    def resumed(self, now: float) -> None:
        """Another choice began when all known ones had finished: the limit that ruled before does so again."""
        self.enter(self._unfinished, now, getattr(self._limits, self._unfinished.value))

    def handed_over(self, now: float) -> None:
        """`next()` returns something: the caller's heartbeat starts anew."""
        self._heartbeat.since = now

    def beat(self, heartbeat: float | None, now: float) -> None:
        """From now on the caller wants a heartbeat after each *heartbeat* seconds of waiting; None: none."""
        self._heartbeat = SilenceClock(heartbeat, now)

    def silence(self, now: float) -> float:
        """Return the seconds waited since the phase's clock last started."""
        return self._phase_clock.silence(now)

    def left(self, now: float) -> float | None:
        """Return the seconds until a limit fires if nothing comes; None: no limit rules."""
        dues = (self._phase_clock.due(now), self._dead.due(now))
        return min((0.0 if due is FIRED else due for due in dues if due is not None), default=None)

    @property
    def limit(self) -> float | None:
        """The limit that rules in the phase."""
        return self._phase_clock.limit

    def firing(self, now: float) -> Firing | None:
        """Return the limit that is used up at *now*, if one is; the phase's own before `dead`."""
        for phase, clock in ((self.phase, self._phase_clock), (Phase.DEAD, self._dead)):
            if clock.due(now) is FIRED:
                return Firing(phase, clock.limit or 0.0, clock.silence(now))
        return None

    def alarm(self, now: float) -> Alarm | None:
        """Say what is due at *now*: a limit, else a heartbeat, else the warning at half of the limit."""
        if self.firing(now) is not None:
            return Alarm.LIMIT
        if self._heartbeat.due(now) is FIRED:
            return Alarm.HEARTBEAT
        if self._half(now) is FIRED:
            self._warned = True
            return Alarm.WARNING
        return None

    def wait(self, now: float) -> float | None:
        """Return how long to wait, at most, before asking `alarm()` again; None: without end."""
        dues: tuple[Callable[[float], float | Fired | None], ...] = (
            self._phase_clock.due,
            self._dead.due,
            self._heartbeat.due,
            self._half,
        )
        waits = [0.0 if due is FIRED else due for due in (ask(now) for ask in dues) if due is not None]
        return min(waits, default=None)

    def _half(self, now: float) -> float | Fired | None:
        limit = self._phase_clock.limit
        if limit is None or self._warned or self.phase in (Phase.GRACE, Phase.RETRY):
            return None
        left = limit / 2 - self._phase_clock.silence(now)
        return left if left > 0 else FIRED
