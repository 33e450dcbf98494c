"""One call in a thread of its own: how it ended, and a stop that waits a bounded time."""

import queue
from collections.abc import Callable
from typing import Generic, TypeVar

from .cancel import CancelToken
from .clock import monotonic
from .cut_throttle import CUT_SECONDS, cut_throttle
from .forks import forks
from .pump import End
from .tasks import Task, run_in_worker
from .waits import take

T = TypeVar("T")


class Call(Generic[T]):
    """Run *fn* in a task. *token* is the call's own: cancelling it frees the waiting thread at once."""

    def __init__(self, fn: Callable[[], T], token: CancelToken) -> None:
        self.token = token
        self._running = True
        forks.watch()
        self._forks = forks.count
        self._fn: Callable[[], T] | None = fn
        ends: queue.SimpleQueue[End[T] | None] = queue.SimpleQueue()
        self._ends = ends
        token.on_cancel(lambda: ends.put(None))

    def start(self, *, name: str, reuse: bool = False) -> None:
        """Start in a thread called *name*, or with *reuse* in an idle worker if there is one.

        Raises StreamguardError if the interpreter cannot start a thread.
        """
        if reuse:
            run_in_worker(self._run)
        else:
            Task(self._run, name=name).start()

    def wait(self, seconds: float | None) -> End[T] | None:
        """Return how it ended; None if the token was cancelled, or *seconds* (None: no limit) have passed."""
        try:
            return take(self._ends, seconds)
        except queue.Empty:
            return None

    def stop(self, reason: object, grace: float) -> bool:
        """Cancel, wait at most *grace* seconds for the function to end, and return whether it has."""
        until = monotonic() + grace
        with cut_throttle:
            self.token.cancel(reason)
            self._join(min(until, monotonic() + CUT_SECONDS))
        self._join(until)
        return not self._running

    def is_running(self) -> bool:
        """Return whether the function still runs. In a forked child it does not: its thread stayed in the parent."""
        return self._running and self._forks == forks.count

    def _join(self, until: float) -> None:
        while self._running and (left := until - monotonic()) > 0:
            self.wait(left)

    def _run(self) -> None:
        end: End[T]
        try:
            fn, self._fn = self._fn, None
            end = End(fn())  # type: ignore[misc]
        except BaseException as exc:
            end = End(failure=exc)
        self._running = False
        try:
            self._ends.put(end)
        finally:
            del end  # its failure's traceback refers to this frame: a cycle
