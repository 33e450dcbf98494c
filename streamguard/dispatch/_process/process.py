"""One supervised process: a thread drains its pipes, asks the watch what is due, and ends the whole group.

The thread blocks in one place, a wait for every event at once (T17). So the limits hold whether or not the items are read,
and nothing that the program does can prevent its end.
"""

import contextlib
import os
import queue
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ..._core.cancel import CancelToken
from ..._core.clock import monotonic
from ..._core.pump import End, Feed, Pump
from .exit_cleanup import stop_at_exit
from .pipes import Pipes, Waker
from .spawn import Child, Spec, start_child
from .termination import Termination

T = TypeVar("T")

CAPACITY = 8 * 1024 * 1024
"""Bytes that may wait for a slow reader of the items; above that the program is held back, and its clocks are paused."""

_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process ended."""

    code: int | None
    """The exit code; negative for a signal; None if it is unknown, or if the process survived SIGKILL."""
    stopped: bool
    """Whether we ended it."""
    killed: bool
    """Whether a process of the group outlived SIGTERM and its grace, and was sent SIGKILL."""


@dataclass(frozen=True, slots=True)
class StopDecision:
    """A watch's decision to stop the process."""

    reason: object
    before: Callable[[], object] | None = None
    """A function to run before the first signal, in a thread of its own, for at most ten seconds."""


class Watch(Protocol):
    """What watches a process. The process's thread makes all calls; the times are monotonic."""

    def received(self, now: float, stream: str, data: bytes) -> Iterable[tuple[Any, int]]:
        """Take bytes of `stdout` or `stderr`; return items for the reader, each with its size."""
        ...

    def due(self, now: float) -> float | StopDecision:
        """Return the seconds until the next call, or the decision to stop."""
        ...

    def stopped(self, now: float, reason: object) -> None:
        """The process is being stopped; *reason* is the first one."""
        ...

    def held_back(self, now: float, held: bool) -> None:
        """The program is held back because its output is not read (*held*), or no longer is."""
        ...

    def woken_late(self, now: float, late: float) -> None:
        """The thread woke up *late* seconds late at *now*, and has read the output that arrived meanwhile."""
        ...

    def ended(self, now: float, exit: ProcessExit) -> Iterable[Any]:
        """Return the last items."""
        ...


class Process(Generic[T]):
    """A running program, supervised until nothing of its group is left.

    token: its cancel stops the program: SIGTERM to the group, *grace* seconds, SIGKILL. The first reason wins.
    name:  for the thread.

    Raises what `start_child` raises.

    Limits
        A daemon, which has left both its group and its parents, is not stopped. It does not block us: its pipes are read
        for half a second more. Everything in the group ends with the program, background jobs too. A descendant that has
        only left the group (`setsid`) is ended if we stop the program, and left running if the program exits on its own.
    """

    def __init__(self, spec: Spec, watch: Watch, *, token: CancelToken, grace: float = 3.0, name: str = "process") -> None:
        self.token = token
        self._watch = watch
        self._input = spec.input
        self._waker = Waker()
        self._child = self._start(spec)
        self._termination = Termination(grace, self._waker.wake)
        self._backlog = _Backlog()
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._opening: int | None = None
        self._due = monotonic()
        self._owner = os.getpid()
        self.pid = self._child.pid
        self.longest_end = self._termination.longest
        self._pump: Pump[ProcessExit] = Pump(
            self._supervise, CancelToken(), name=f"{name}-{self.pid}", capacity=sys.maxsize
        )
        self._forget = token.on_cancel(self._waker.wake)
        _running[id(self)] = self

    def start(self) -> None:
        """Start to supervise. Raises StreamguardError, and ends the program, if no thread can be started."""
        try:
            self._pump.start()
        except BaseException:
            self._end()
            raise
        stop_at_exit(self)

    def get(self, seconds: float | None) -> T | End[ProcessExit]:
        """Return the next item, or the `End`. Raises `queue.Empty` after *seconds* (None: no limit)."""
        item: Any = self._pump.get(seconds)
        if isinstance(item, End):
            return item
        value, size = item
        self._backlog.taken += size
        if self._backlog.paused:
            self._waker.wake()
        return value  # type: ignore[no-any-return]

    def signal(self, number: int) -> None:
        """Pass a signal on to the group. Safe in a signal handler."""
        self._signals.put(number)
        self._waker.wake()

    def stop(self, reason: object, opening: int | None = None) -> bool:
        """Stop the process without waiting; return whether this stop was first. Safe in a signal handler.

        opening: a signal for the group before SIGTERM. It may end the program, so the reason is set first.
        """
        if not self.token.cancelled:
            self._opening = opening
        first = self.token.cancel(reason)
        if not first and opening is not None:
            self.signal(opening)
        return first

    def kill(self) -> None:
        """Stop the process without a grace."""
        self._termination.hurry = True
        self.token.cancel("killed")
        self._waker.wake()

    def kill_now(self) -> None:
        """Send SIGKILL in the calling thread and do not wait: for a caller that is about to exit."""
        self._child.signal(signal.SIGKILL)
        with contextlib.suppress(Exception):  # the supervising thread may use the same descendants
            self._child.end(signal.SIGKILL)

    def join(self, seconds: float) -> bool:
        """Wait at most *seconds* for the supervision to end; return whether it has ended."""
        return self._pump.join(seconds)

    @property
    def overflowed(self) -> bool:
        """Whether items were dropped during the stop because they were not read."""
        return self._backlog.dropped

    @property
    def ours(self) -> bool:
        """Whether the current process started it; False in a fork."""
        return self._owner == os.getpid()

    def _supervise(self, feed: Feed) -> ProcessExit:
        try:
            pipes = Pipes(self._child, self._input, self._waker, lambda stream, data: self._received(feed, stream, data))
            with contextlib.closing(pipes):
                while not self._advance(monotonic(), pipes):
                    pipes.wait(self._wait(monotonic(), pipes))
        finally:
            code = self._end()
        exit = ProcessExit(code, self._termination.stopped, self._termination.killed)
        for item in self._watch.ended(monotonic(), exit):
            feed.put((item, 0))
        return exit

    def _received(self, feed: Feed, stream: str, data: bytes) -> None:
        for item, size in self._watch.received(monotonic(), stream, data):
            if self._backlog.overflows:
                self._backlog.dropped = True
            else:
                self._backlog.given += size
                feed.put((item, size))

    def _advance(self, now: float, pipes: Pipes) -> bool:
        """Do what is due at *now*; return whether the process and its group have ended."""
        if now >= self._due and self._running:
            self._read_before_due(now, pipes)
        while not self._signals.empty():
            self._child.signal(self._signals.get())
        if not self._termination.exited and self._child.exited():
            self._termination.exit_seen(now)
        self._hold_back(now, pipes)
        if self._running:
            self._ask_watch(now)
        return self._termination.advance(now, self._child, pipes.drained)

    @property
    def _running(self) -> bool:
        return not (self._termination.stopped or self._termination.exited)

    def _read_before_due(self, now: float, pipes: Pipes) -> None:
        """Read the output that had arrived by *now* before a limit is measured: the wait may have ended late and empty."""
        pipes.wait(0)
        self._watch.woken_late(now, now - self._due)

    def _ask_watch(self, now: float) -> None:
        due = None if self.token.cancelled else self._watch.due(now)
        before = None
        if isinstance(due, StopDecision):
            before = due.before if self.token.cancel(due.reason) else None
        elif due is not None:
            self._due = now + due
        if self.token.cancelled:
            self._watch.stopped(now, self.token.reason)
            if self._opening is not None:
                self._child.signal(self._opening)
            self._termination.stop(now, before)

    def _wait(self, now: float, pipes: Pipes) -> float:
        seconds = self._due - now if self._running else self._termination.wait(now, pipes.drained)
        return seconds if self._termination.exited or pipes.sees_exit else min(seconds, _LOOK_SECONDS)

    def _hold_back(self, now: float, pipes: Pipes) -> None:
        backlog = self._backlog
        if backlog.paused and (not self._running or backlog.waiting < CAPACITY // 2):
            backlog.paused = False
            pipes.resume()
            self._watch.held_back(now, False)
        elif not backlog.paused and self._running and backlog.waiting > CAPACITY:
            backlog.paused = True
            pipes.pause()
            self._watch.held_back(now, True)

    def _start(self, spec: Spec) -> Child:
        try:
            return start_child(spec)
        except BaseException:
            self._waker.close()
            raise

    def _end(self) -> int | None:
        self._child.end(signal.SIGKILL)  # the group has ended already, unless an error brought us here
        code = self._child.reap()
        _running.pop(id(self), None)
        self._child.close()
        self._forget()
        self._waker.close()
        return code


_running: dict[int, Process[Any]] = {}
"""A plain dict, because each operation on it is atomic: a signal handler may read it."""


def kill_running(*, now: bool = False) -> None:
    """Stop every running program without a grace. Safe in a signal handler.

    now: send SIGKILL before this returns, for a caller that is about to exit, and its threads with it.
    """
    for process in [*_running.values()]:
        if process.ours:
            (process.kill_now if now else process.kill)()


class Unstarted(Process[T]):
    """Stands for a process that was stopped, for *reason*, before it was started: it has only an end."""

    def __init__(self, watch: Watch, reason: object, *, token: CancelToken) -> None:
        self.token = token
        self._backlog = _Backlog()
        self.pid = 0
        self.longest_end = 0.0
        self._owner = os.getpid()
        now = monotonic()
        watch.stopped(now, reason)
        self._items = iter([*watch.ended(now, ProcessExit(None, stopped=False, killed=False))])

    def start(self) -> None:
        """Do nothing: there is nothing to supervise."""

    def get(self, seconds: float | None) -> T | End[ProcessExit]:
        """Return the next of the last items, then the `End`."""
        return next(self._items, End())

    def signal(self, number: int) -> None:
        """Do nothing: there is no process."""

    def stop(self, reason: object, opening: int | None = None) -> bool:
        """Cancel the token, which its deadline alone would not do."""
        return self.token.cancel(reason)

    def kill(self) -> None:
        """Do nothing: there is no process."""

    def join(self, seconds: float) -> bool:
        """Return True: it has ended."""
        return True


@dataclass(slots=True)
class _Backlog:
    """The bytes that were handed to the reader of the items, and those that it took."""

    given: int = 0
    taken: int = 0
    paused: bool = False
    dropped: bool = False

    @property
    def waiting(self) -> int:
        return self.given - self.taken

    @property
    def overflows(self) -> bool:
        """Whether items are dropped now: a program that is being stopped is no longer held back."""
        return self.waiting > 4 * CAPACITY
