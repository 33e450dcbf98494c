"""How the end of a process comes about: by itself, or since we stop it; and when nothing of it is left."""

import logging
import threading
from collections.abc import Callable

from ...telemetry.logs import log_line
from .ladder import Ladder
from .spawn import Child

__all__ = ["Ending"]

_DRAIN_SECONDS = 0.5
_LOOK_SECONDS = 0.02
_HOOK_SECONDS = 10.0


class Ending:
    """The state of one process's end. *wake* is called when something has happened in another thread."""

    def __init__(self, grace: float, wake: Callable[[], None]) -> None:
        self._grace = grace
        self._wake = wake
        self._exited_at: float | None = None
        self._hook: _Hook | None = None
        self._ladder: Ladder | None = None
        self.stopped = False
        self.hurry = False
        """Set to skip the grace."""
        self.longest = grace + 2 * _DRAIN_SECONDS + _HOOK_SECONDS
        """Seconds that the end can take once the process is stopped, at most."""

    @property
    def exited(self) -> bool:
        """Whether the program itself has ended; children of it may live."""
        return self._exited_at is not None

    @property
    def killed(self) -> bool:
        """Whether SIGKILL was needed."""
        return self._ladder is not None and self._ladder.killing

    def exit_seen(self, now: float) -> None:
        """Note that the program itself has ended."""
        self._exited_at = now

    def stop(self, now: float, before: Callable[[], object] | None) -> None:
        """Begin to stop it; first run *before*, for a bounded time."""
        self.stopped = True
        if before is not None:
            self._hook = _Hook(before, now + _HOOK_SECONDS, self._wake)

    def advance(self, now: float, child: Child, drained: bool) -> bool:
        """Do the next step, if it is due; return whether all is over."""
        if self._hook is not None and not (self._hook.over(now) or self.hurry):
            return False
        read = drained or (self._exited_at is not None and now - self._exited_at >= _DRAIN_SECONDS)
        if self.exited and read and not child.others():
            return True
        if self._ladder is None and (self.stopped or (self.exited and read)):
            self._ladder = Ladder(now, grace=self._grace, drain=_DRAIN_SECONDS)
        return self._ladder is not None and self._climb(self._ladder, now, child)

    def wait(self, now: float, drained: bool) -> float:
        """Return the seconds to the next step; only asked once it is stopped or has exited."""
        if self._hook is not None and not self._hook.over(now):
            return self._hook.until - now
        left = self._ladder.wait(now) if self._ladder is not None else _DRAIN_SECONDS
        if self._exited_at is None:
            return left
        to_read = self._exited_at + _DRAIN_SECONDS - now
        return min(left, _LOOK_SECONDS) if drained or to_read <= 0 else min(left, to_read)

    def _climb(self, ladder: Ladder, now: float, child: Child) -> bool:
        if self.hurry:
            ladder.hurry(now)
        for number in ladder.signals(now):
            child.end(number)
        return ladder.over(now)


class _Hook:
    """Runs something in a thread of its own, and tells when it is over, or has had its time."""

    def __init__(self, run: Callable[[], object], until: float, wake: Callable[[], None]) -> None:
        self._run = run
        self._wake = wake
        self.until = until
        self._thread = threading.Thread(target=self._call, name="streamguard-on-stall", daemon=True)
        self._done = False
        self._thread.start()

    def over(self, now: float) -> bool:
        return self._done or now >= self.until

    def _call(self) -> None:
        try:
            self._run()
        except Exception as exc:
            log_line(logging.WARNING, "on_stall_failed", "on_stall failed", error_type=type(exc).__name__)
        finally:
            self._done = True
            self._wake()
