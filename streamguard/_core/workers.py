"""One call in a thread of ours: what it is doing, how it ended, and a stop that never waits for it for long.

A new thread costs nearly as much as a request on a warm connection. So a call that may (`reuse`) runs in a worker that has
just done with another one; a worker waits a tenth of a second for its next call, and then ends.
"""

import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeAlias, TypeVar

from ..errors import StreamguardError
from .cancel import CancelToken
from .clock import monotonic
from .cut_throttle import TURN_SECONDS, turns
from .forks import forks
from .pump import End
from .thread_hooks import thread_ends
from .waits import take

__all__ = ["Call"]

T = TypeVar("T")

_IDLE_SECONDS = 0.1

_Mailbox: TypeAlias = "queue.SimpleQueue[Call[Any]]"


class Call(Generic[T]):
    """Run *fn* in a daemon thread, in a copy of the context that the call is made in.

    *token* is the call's own: cancelling it frees whoever waits for the call, at once.
    """

    def __init__(self, fn: Callable[[], T], token: CancelToken) -> None:
        self.token = token
        self._running = True
        forks.watch()
        self._forks = forks.count
        self._fn: Callable[[], T] | None = fn
        self._context: contextvars.Context | None = contextvars.copy_context()
        ends: queue.SimpleQueue[End[T] | None] = queue.SimpleQueue()
        self._ends = ends
        token.on_cancel(lambda: ends.put(None))

    def start(self, *, name: str, reuse: bool = False) -> None:
        """Start in a thread called *name*, or with *reuse* in a worker that others used before, if one is free.

        Raises StreamguardError if the interpreter can start no thread (any more).
        """
        if reuse:
            _workers.run(self)
        else:
            _start_thread(name, self.run)

    def run(self) -> None:
        """Run the function and tell its end: what the thread does."""
        try:
            fn, context = self._fn, self._context
            self._fn = self._context = None
            end = End(context.run(fn))  # type: ignore[union-attr, arg-type]
        except BaseException as exc:
            end = End(failure=exc)
        self._running = False
        try:
            self._ends.put(end)
        finally:
            del end  # its failure's traceback refers to this frame: a cycle
            thread_ends()

    def wait(self, seconds: float | None) -> End[T] | None:
        """Return how it ended; None when the token was cancelled, or *seconds* (None: no limit) have passed."""
        try:
            return take(self._ends, seconds)
        except queue.Empty:
            return None

    def stop(self, reason: object, grace: float) -> bool:
        """Cancel, wait at most *grace* seconds for the function to end, and return whether it has."""
        until = monotonic() + grace
        with turns:
            self.token.cancel(reason)
            self._join(min(until, monotonic() + TURN_SECONDS))
        self._join(until)
        return not self._running

    def _join(self, until: float) -> None:
        while self._running and (left := until - monotonic()) > 0:
            self.wait(left)

    def is_running(self) -> bool:
        """Return whether the function has still to end; in a forked child, which has not its thread, it has not."""
        return self._running and self._forks == forks.count


class _Workers:
    """Threads that take one call after the other, and end when no further one comes."""

    def __init__(self) -> None:
        self._idle: list[_Mailbox] = []
        """Of those that wait. Taking one out is a single step of the interpreter, and whoever did so fills it."""
        self._forks = 0

    def run(self, call: Call[Any]) -> None:
        if self._forks != forks.count:  # these threads have stayed in the parent
            self._idle, self._forks = [], forks.count
        try:
            mailbox = self._idle.pop()
        except IndexError:
            mailbox = queue.SimpleQueue()
            _start_thread("call", _work, mailbox, self._idle)
        mailbox.put(call)


def _work(mailbox: _Mailbox, idle: list[_Mailbox]) -> None:
    call: Call[Any] | None = mailbox.get()
    while call is not None:
        call.run()
        call = None  # or else it would be kept while this thread waits
        call = _next_call(mailbox, idle)


def _next_call(mailbox: _Mailbox, idle: list[_Mailbox]) -> Call[Any] | None:
    idle.append(mailbox)
    try:
        return mailbox.get(timeout=_IDLE_SECONDS)
    except queue.Empty:
        try:
            idle.remove(mailbox)
        except ValueError:  # taken out this very moment: a call is on its way
            return mailbox.get()
    return None


def _start_thread(name: str, target: Callable[..., None], *args: Any) -> None:
    thread = threading.Thread(target=target, args=args, name=f"streamguard-{name}", daemon=True)
    try:
        thread.start()
    except RuntimeError as exc:
        raise StreamguardError(f"no thread could be started: {exc}") from exc


_workers = _Workers()
