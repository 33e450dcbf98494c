"""How a process ends: on its own or because it is stopped, until nothing of its group is left. Pure but for the hook."""

import logging
import signal
from collections.abc import Callable

from ..._core.tasks import Task
from ...errors import StreamguardError
from ...telemetry.logs import log_line
from .spawn import Child

_DRAIN_SECONDS = 0.5
_LOOK_SECONDS = 0.02
_HOOK_SECONDS = 10.0


class Escalation:
    """SIGTERM at *now*, SIGKILL *grace* seconds later, and a last wait of at most *drain* seconds. Pure (T19)."""

    def __init__(self, now: float, *, grace: float, drain: float) -> None:
        self._drain = drain
        self._steps = [(now, signal.SIGTERM), (now + grace, signal.SIGKILL)]
        self._end = now + grace + drain

    @property
    def killing(self) -> bool:
        """Whether SIGKILL has been sent."""
        return not self._steps

    def hurry(self, now: float) -> None:
        """Go to SIGKILL at once."""
        if self._steps:
            self._steps = [(now, signal.SIGKILL)]
            self._end = now + self._drain

    def signals(self, now: float) -> list[signal.Signals]:
        """Return, once, the signals that are due at *now*."""
        due = [number for at, number in self._steps if at <= now]
        self._steps = self._steps[len(due) :]
        if due and self.killing:
            self._end = max(self._end, now + self._drain)
        return due

    def wait(self, now: float) -> float:
        """Return the seconds to the next step."""
        return max(0.0, (self._steps[0][0] if self._steps else self._end) - now)

    def over(self, now: float) -> bool:
        """Whether every step was taken and the last wait is over."""
        return self.killing and now >= self._end


class Termination:
    """The state of one process's end. *wake* is called when another thread has changed it."""

    def __init__(self, grace: float, wake: Callable[[], None]) -> None:
        self._grace = grace
        self._wake = wake
        self._exited_at: float | None = None
        self._hook: _Hook | None = None
        self._escalation: Escalation | None = None
        self.stopped = False
        self.hurry = False
        """Set to skip the grace."""
        self.longest = grace + 2 * _DRAIN_SECONDS + _HOOK_SECONDS
        """Upper bound, in seconds, of the time from a stop to the end."""

    @property
    def exited(self) -> bool:
        """Whether the program itself has exited; its children may still run."""
        return self._exited_at is not None

    @property
    def killed(self) -> bool:
        """Whether SIGKILL was needed."""
        return self._escalation is not None and self._escalation.killing

    def exit_seen(self, now: float) -> None:
        """Record that the program itself has exited."""
        self._exited_at = now

    def stop(self, now: float, before: Callable[[], object] | None) -> None:
        """Start to stop the process; first run *before*, for a bounded time."""
        self.stopped = True
        if before is not None:
            self._hook = _Hook(before, now + _HOOK_SECONDS, self._wake)

    def advance(self, now: float, child: Child, drained: bool) -> bool:
        """Take the next step if it is due; return whether the end is complete."""
        if self._hook is not None and not (self._hook.over(now) or self.hurry):
            return False
        read = drained or (self._exited_at is not None and now - self._exited_at >= _DRAIN_SECONDS)
        if self.exited and read and not child.others():
            return True
        if self._escalation is None and (self.stopped or (self.exited and read)):
            self._escalation = Escalation(now, grace=self._grace, drain=_DRAIN_SECONDS)
        return self._escalation is not None and self._escalate(self._escalation, now, child)

    def wait(self, now: float, drained: bool) -> float:
        """Return the seconds to the next step. Call it only after a stop or the exit."""
        if self._hook is not None and not self._hook.over(now):
            return self._hook.until - now
        left = self._escalation.wait(now) if self._escalation is not None else _DRAIN_SECONDS
        if self._exited_at is None:
            return left
        to_read = self._exited_at + _DRAIN_SECONDS - now
        return min(left, _LOOK_SECONDS) if drained or to_read <= 0 else min(left, to_read)

    def _escalate(self, escalation: Escalation, now: float, child: Child) -> bool:
        if self.hurry:
            escalation.hurry(now)
        for number in escalation.signals(now):
            child.end(number)
        return escalation.over(now)


class _Hook:
    """Runs a function of the caller in a thread of its own, until it returns or its time is up."""

    def __init__(self, run: Callable[[], object], until: float, wake: Callable[[], None]) -> None:
        self._run = run
        self._wake = wake
        self.until = until
        self._done = False
        try:
            Task(self._call, name="on-stall").start()
        except StreamguardError as exc:
            self._done = True
            _log_failure(exc)

    def over(self, now: float) -> bool:
        return self._done or now >= self.until

    def _call(self) -> None:
        try:
            self._run()
        except Exception as exc:
            _log_failure(exc)
        finally:
            self._done = True
            self._wake()


def _log_failure(exc: Exception) -> None:
    log_line(logging.WARNING, "on_stall_failed", "on_stall failed", error_type=type(exc).__name__)
