"""One supervised process: a thread that drains its pipes, asks the watch what is due, and ends the whole group.

The thread blocks in one wait only, which is for everything. So limits hold whether or not anyone reads the items, and
nothing that the program does keeps us from ending it.
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
from .exit_cleanup import sweeper
from .pipes import Pipes, Waker
from .spawn import Child, Spec, start_child
from .termination import Termination

T = TypeVar("T")

CAPACITY = 8 * 1024 * 1024
"""Bytes that may wait for a slow reader of the items; beyond that the program is held back, and its clocks are paused."""

_LOOK_SECONDS = 0.02


@dataclass(frozen=True, slots=True)
class ProcessExit:
    """How a process ended."""

    code: int | None
    """The exit code; negative for a signal; None if it is not known, or the process could not even be killed."""
    stopped: bool
    """Whether it was we who ended it."""
    killed: bool
    """Whether something of it did not leave at SIGTERM, and was sent SIGKILL."""


@dataclass(frozen=True, slots=True)
class StopDecision:
    """A watch's decision to stop the process."""

    reason: object
    before: Callable[[], object] | None = None
    """What is to run before the first signal, in a thread of its own; it has ten seconds."""


class Watch(Protocol):
    """What a process is watched by. All of it is called in the process's thread; the times are monotonic."""

    def received(self, now: float, stream: str, data: bytes) -> Iterable[tuple[Any, int]]:
        """Note bytes of `stdout` or `stderr`; return items for the reader, each with its size."""
        ...

    def due(self, now: float) -> float | StopDecision:
        """Return the seconds after which to ask again, or the decision to stop."""
        ...

    def stopped(self, now: float, reason: object) -> None:
        """Note that the process is being stopped, and the reason that was first."""
        ...

    def held_back(self, now: float, held: bool) -> None:
        """Note that the program is held back, since nobody takes its output; or that it no longer is."""
        ...

    def woken_late(self, now: float, late: float) -> None:
        """Note that nobody listened for *late* seconds up to *now*, but that what had come meanwhile has been heard."""
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
        A daemon, which has left both group and parents, is not stopped. It does not hold us: its pipes are read for half a
        second more. Everything in the group ends with the program, its background jobs too; what has only left the group
        (`setsid`) is ended where we stop the program, and left alone where that ends by itself.
    """

    def __init__(self, spec: Spec, watch: Watch, *, token: CancelToken, grace: float = 3.0, name: str = "process") -> None:
        self.token = token
        self._watch = watch
        self._input = spec.input
        self._bell = Waker()
        self._child = self._start(spec)
        self._ending = Termination(grace, self._bell.ring)
        self._backlog = _Backlog()
        self._signals: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._opening: int | None = None
        self._due = monotonic()
        self._owner = os.getpid()
        self.pid = self._child.pid
        self.longest_end = self._ending.longest
        self._pump: Pump[ProcessExit] = Pump(
            self._supervise, CancelToken(), name=f"{name}-{self.pid}", capacity=sys.maxsize
        )
        self._forget = token.on_cancel(self._bell.ring)
        _running[id(self)] = self

    def start(self) -> None:
        """Begin to supervise. Raises StreamguardError, and ends the program, if no thread can be started."""
        try:
            self._pump.start()
        except BaseException:
            self._end()
            raise
        sweeper.add(self)

    def get(self, seconds: float | None) -> T | End[ProcessExit]:
        """Return the next item, or the `End`. Raises `queue.Empty` after *seconds* (None: waits without end)."""
        item: Any = self._pump.get(seconds)
        if isinstance(item, End):
            return item
        value, size = item
        self._backlog.taken += size
        if self._backlog.paused:
            self._bell.ring()
        return value  # type: ignore[no-any-return]

    def signal(self, number: int) -> None:
        """Pass a signal on to the group. Safe in a signal handler."""
        self._signals.put(number)
        self._bell.ring()

    def stop(self, reason: object, opening: int | None = None) -> bool:
        """Stop it, and return at once: whether this was the first stop, whose reason wins. Safe in a signal handler.

        opening: a signal for the group, ahead of SIGTERM. It may be what ends the program, so the reason is there before.
        """
        if not self.token.cancelled:
            self._opening = opening
        first = self.token.cancel(reason)
        if not first and opening is not None:
            self.signal(opening)
        return first

    def kill(self) -> None:
        """Stop it without a grace."""
        self._ending.hurry = True
        self.token.cancel("killed")
        self._bell.ring()

    def kill_now(self) -> None:
        """Send SIGKILL from here, and leave the rest to nobody: this process is about to end itself."""
        self._child.signal(signal.SIGKILL)
        with contextlib.suppress(Exception):  # its own thread may be looking for strays as well
            self._child.end(signal.SIGKILL)

    def join(self, seconds: float) -> bool:
        """Wait for the end of the supervision; return whether it has come."""
        return self._pump.join(seconds)

    @property
    def overflowed(self) -> bool:
        """Whether items were dropped while it was being stopped, since nobody took them."""
        return self._backlog.dropped

    @property
    def ours(self) -> bool:
        """Whether this is still the process that started it, and not a fork."""
        return self._owner == os.getpid()

    def _supervise(self, feed: Feed) -> ProcessExit:
        try:
            pipes = Pipes(self._child, self._input, self._bell, lambda stream, data: self._received(feed, stream, data))
            with contextlib.closing(pipes):
                while not self._advance(monotonic(), pipes):
                    pipes.wait(self._wait(monotonic(), pipes))
        finally:
            code = self._end()
        exit = ProcessExit(code, self._ending.stopped, self._ending.killed)
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
        """Do what is due at *now*; return whether all is over."""
        ending = self._ending
        if now >= self._due and not ending.stopped and not ending.exited:
            self._listen(now, pipes)
        while not self._signals.empty():
            self._child.signal(self._signals.get())
        if not ending.exited and self._child.exited():
            ending.exit_seen(now)
        self._hold_back(now, pipes)
        if not ending.stopped and not ending.exited:
            self._ask(now)
        return ending.advance(now, self._child, pipes.drained)

    def _listen(self, now: float, pipes: Pipes) -> None:
        """Hear what had come by *now*, before a limit is measured: the wait may have ended late, and empty."""
        pipes.wait(0)
        self._watch.woken_late(now, now - self._due)

    def _ask(self, now: float) -> None:
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
            self._ending.stop(now, before)

    def _wait(self, now: float, pipes: Pipes) -> float:
        running = not (self._ending.stopped or self._ending.exited)
        seconds = self._due - now if running else self._ending.wait(now, pipes.drained)
        return seconds if self._ending.exited or pipes.sees_exit else min(seconds, _LOOK_SECONDS)

    def _hold_back(self, now: float, pipes: Pipes) -> None:
        backlog, over = self._backlog, self._ending.stopped or self._ending.exited
        if backlog.paused and (over or backlog.waiting < CAPACITY // 2):
            backlog.paused = False
            pipes.resume()
            self._watch.held_back(now, False)
        elif not backlog.paused and not over and backlog.waiting > CAPACITY:
            backlog.paused = True
            pipes.pause()
            self._watch.held_back(now, True)

    def _start(self, spec: Spec) -> Child:
        try:
            return start_child(spec)
        except BaseException:
            self._bell.close()
            raise

    def _end(self) -> int | None:
        self._child.end(signal.SIGKILL)  # nobody is left, unless something went wrong
        code = self._child.reap()
        _running.pop(id(self), None)
        self._child.close()
        self._forget()
        self._bell.close()
        return code


_running: dict[int, Process[Any]] = {}
"""A plain dict: each step with it is a single one, so that a signal handler may read it."""


def kill_running(*, now: bool = False) -> None:
    """Stop every program that runs without a grace. Safe in a signal handler.

    now: send SIGKILL before this returns, for a caller that is about to end, and its threads with it.
    """
    for process in [*_running.values()]:
        if process.ours:
            (process.kill_now if now else process.kill)()


class Unstarted(Process[T]):
    """What stands for a process that was to be stopped before it was started, for *reason*: only its end is there."""

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
        """There is nothing to supervise."""

    def get(self, seconds: float | None) -> T | End[ProcessExit]:
        """Return the next of the last items, then the `End`."""
        return next(self._items, End())

    def signal(self, number: int) -> None:
        """Nobody is there to hear it."""

    def stop(self, reason: object, opening: int | None = None) -> bool:
        """It is stopped already, if only by its deadline."""
        return self.token.cancel(reason)

    def kill(self) -> None:
        """Nobody is there."""

    def join(self, seconds: float) -> bool:
        """It has ended."""
        return True


@dataclass(slots=True)
class _Backlog:
    """What has been given to the reader of the items, and not been taken."""

    given: int = 0
    taken: int = 0
    paused: bool = False
    dropped: bool = False

    @property
    def waiting(self) -> int:
        return self.given - self.taken

    @property
    def overflows(self) -> bool:
        """Whether items are dropped now: a program that is being ended is not held back any more."""
        return self.waiting > 4 * CAPACITY
