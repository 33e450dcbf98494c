"""Output timers among threads: members' threads observe, one supervisor thread per dispatch asks what is due (T9)."""

import math
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ..._core import monotonic
from ..._core.clock import longest_wait
from ..._core.tasks import Task
from .._data.output_timeout import Activity, Diagnosis, Fire, OutputTimeout
from .._data.turn_events import Event
from .._process.cpu_activity import ActivityProbe


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """The limits of each turn of a dispatch, in seconds; None and 0 are off."""

    output_timeout: float = 0.0
    """Without output: then the turn is stopped (R2)."""
    tool_timeout: float | None = None
    """Without output while a tool call is in flight, if it is longer: see `OutputTimeout`."""
    first: float | None = None
    """Until the first frame of a program (R26)."""


class Timer:
    """The one output timer of a turn.

    fire: called once, with the diagnosis, when it fires: by the supervisor, under this timer's lock. It runs no code of the
          user.
    """

    def __init__(self, limits: TurnLimits, fire: Callable[[Diagnosis], None]) -> None:
        self.started = monotonic()
        self._timer = OutputTimeout(limits.output_timeout, self.started, tool_timeout=limits.tool_timeout)
        self._fire = fire
        self._lock = threading.Lock()
        self._probe: ActivityProbe | None = None
        self._probe_of = 0
        self._last_output = self.started
        self._longest = 0.0

    @property
    def armed(self) -> bool:
        """Whether it can ever fire."""
        return self._timer.timeout > 0

    def observe(self, event: Event) -> None:
        """Record an event of the member."""
        with self._lock:
            now = monotonic()
            self._timer.observe(now, event)
            if event.is_output:
                self._longest, self._last_output = self.longest_silence(now), now

    def longest_silence(self, now: float | None = None) -> float:
        """Return the longest time without output up to *now*, in seconds. Telemetry's: nothing is decided by it."""
        return max(self._longest, (monotonic() if now is None else now) - self._last_output)

    @property
    def probe(self) -> ActivityProbe | None:
        """The probe of the process that runs for the turn."""
        return self._probe

    def pause(self) -> None:
        """The member is held back by us: this is not its own silence (T1)."""
        with self._lock:
            self._timer.pause(monotonic())

    def resume(self) -> None:
        """The member can go on."""
        with self._lock:
            self._timer.resume(monotonic())

    def excuse(self, late: float) -> None:
        """The supervisor has woken up *late* seconds late: see `OutputTimeout.excuse`."""
        with self._lock:
            self._timer.excuse(monotonic(), late)

    def close(self) -> None:
        """Never fire again: once this has returned, nothing fires, not even what was about to (R8, T4)."""
        with self._lock:
            self._timer.close()

    def set_probe(self, probe: ActivityProbe | None, attempt: int) -> None:
        """Take the probe of the process that *attempt* has started; None: it is gone.

        An earlier attempt that says so late does not take the probe of a later one away (T28).
        """
        if probe is not None:
            probe.sample()  # so that a rate is known even if the next look comes late
        with self._lock:
            if probe is not None or attempt == self._probe_of:
                self._probe, self._probe_of = probe, attempt

    def check(self) -> float:
        """Fire if it is due, and return the seconds after which to ask again (infinity: no need to)."""
        now = monotonic()
        with self._lock:
            probe = self._probe if self._timer.needs_sample(now) else None
            activity, rate = (Activity.ABSENT if self._probe is None else Activity.UNKNOWN), None
        if probe is not None:
            activity = probe.activity()
            rate = probe.rate
        with self._lock:
            due = self._timer.due(now, activity, rate)
            if not isinstance(due, Fire):
                return due.seconds
            self._fire(due.diagnosis)
        return math.inf


class Supervisor:
    """Asks the timers of one dispatch what is due, in a thread that is there only while one of them is armed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timers: set[Timer] = set()
        self._wakeups: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread: Task | None = None

    def watch(self, timer: Timer) -> None:
        """Ask *timer* from now on."""
        if not timer.armed:
            return
        with self._lock:
            self._timers.add(timer)
            if self._thread is None:
                thread = Task(self._run, name="supervisor")
                thread.start()
                self._thread = thread
        self.wake()

    def wake(self) -> None:
        """Have all timers asked now: one of them may be due earlier than it had said."""
        self._wakeups.put(True)

    def forget(self, timer: Timer) -> None:
        """Ask *timer* no more."""
        with self._lock:
            self._timers.discard(timer)

    def close(self, grace: float = 1.0) -> None:
        """End the thread, and wait at most *grace* seconds for it."""
        self._wakeups.put(False)
        if self._thread is not None:
            self._thread.join(grace)

    def _run(self) -> None:
        due = math.inf
        while True:
            with self._lock:
                timers = list(self._timers)
            late = monotonic() - due
            for timer in timers:
                timer.excuse(late)
            wait = min((timer.check() for timer in timers), default=math.inf)
            due = monotonic() + wait
            try:
                if not self._wakeups.get(timeout=longest_wait(None if wait == math.inf else wait)):
                    return
            except queue.Empty:
                continue
