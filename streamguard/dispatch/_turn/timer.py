"""Output timers with threads: members' threads observe, and one supervisor thread per dispatch checks what is due (T9)."""

import math
import queue
import threading
from collections.abc import Callable

from ..._core import monotonic
from ..._core.clock import longest_wait
from ..._core.tasks import Task
from .._data.output_timeout import Activity, Diagnosis, Fire, OutputTimeout
from .._data.turn_events import Event
from .._process.cpu_activity import ActivityProbe
from .dispatch_options import TurnLimits


class Timer:
    """The one output timer of a turn.

    fire: called once, with the diagnosis, by the supervisor and under this timer's lock. It must not run code of the user.
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
        """Whether it can fire: the timeout is above 0 (R2)."""
        return self._timer.timeout > 0

    def observe(self, event: Event) -> None:
        """Record an event of the member."""
        with self._lock:
            now = monotonic()
            self._timer.observe(now, event)
            if event.is_output:
                self._longest, self._last_output = self.longest_silence(now), now

    def longest_silence(self, now: float | None = None) -> float:
        """Return the longest time without output up to *now*, in seconds. It is for telemetry and decides nothing."""
        return max(self._longest, (monotonic() if now is None else now) - self._last_output)

    @property
    def probe(self) -> ActivityProbe | None:
        """The probe of the process that runs for the turn."""
        return self._probe

    def pause(self) -> None:
        """Stop the clock: the member waits for the reader of its events (T1)."""
        with self._lock:
            self._timer.pause(monotonic())

    def resume(self) -> None:
        """Let the clock go on."""
        with self._lock:
            self._timer.resume(monotonic())

    def excuse(self, late: float) -> None:
        """Report that the supervisor woke up *late* seconds late: see `OutputTimeout.excuse`."""
        with self._lock:
            self._timer.excuse(monotonic(), late)

    def close(self) -> None:
        """Never fire again. After it returned, nothing fires, not even a firing that was about to start (R8, T4)."""
        with self._lock:
            self._timer.close()

    def set_probe(self, probe: ActivityProbe | None, attempt: int) -> None:
        """Set the probe of the process that *attempt* started; None: the process has ended.

        A late None of an earlier attempt does not remove the probe of a later one (T28).
        """
        if probe is not None:
            probe.sample()  # a rate needs an earlier sample, also if the next check is late
        with self._lock:
            if probe is not None or attempt == self._probe_of:
                self._probe, self._probe_of = probe, attempt

    def check(self) -> float:
        """Fire if it is due. Return the seconds until the next check (infinity: it cannot fire any more)."""
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
    """Checks the timers of one dispatch, in a thread that starts with the first armed one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._timers: set[Timer] = set()
        self._wakeups: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread: Task | None = None

    def watch(self, timer: Timer) -> None:
        """Check *timer* from now on, if it is armed."""
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
        """Check all timers now."""
        self._wakeups.put(True)

    def forget(self, timer: Timer) -> None:
        """Stop checking *timer*."""
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
