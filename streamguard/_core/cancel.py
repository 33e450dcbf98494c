"""Cancel tokens: the first reason wins, closers run once, nothing locks.

A token may be cancelled from any thread, from a signal handler, and from a finalizer that the collector runs in the middle
of this very module. So there is no lock in it: the first reason is decided by `dict.setdefault`, each closer belongs to
whoever pops it from a dict, and waiters sit on a queue of their own. All three are single steps of the interpreter.
"""

import contextvars
import itertools
import queue
from collections.abc import Callable
from types import TracebackType

from ..telemetry.events import CloserFailed
from ..telemetry.hooks import defer
from .waits import take

__all__ = ["CancelToken", "current_token"]

Closer = Callable[[], object]


class CancelToken:
    """Carry one decision to stop from whoever makes it to whatever must be stopped.

    Hand one token to several streams, calls or chains to stop them together. Each of them works under a `child()`, so that
    a limit that fires inside one of them never cancels the others.
    """

    __slots__ = ("__weakref__", "_closers", "_decision", "_forget_parent", "_keys")

    def __init__(self) -> None:
        self._decision: dict[str, tuple[object]] = {}
        """Empty while the token is live: the cheapest way to ask, for loops that ask each time."""
        self._closers: dict[int, Closer] = {}
        self._keys = itertools.count()
        self._forget_parent: Closer | None = None

    def __repr__(self) -> str:
        return f"<CancelToken {'cancelled' if self.cancelled else 'live'}>"

    @property
    def cancelled(self) -> bool:
        """Whether someone has cancelled this token."""
        return bool(self._decision)

    @property
    def reason(self) -> object:
        """What the first `cancel()` gave as its reason; None while the token is live."""
        decision = self._decision.get("reason")
        return decision[0] if decision else None

    def cancel(self, reason: object = "cancelled") -> bool:
        """Cancel, and run the registered closers in this thread.

        Returns True for the first call only; later calls change nothing, the reason included. A closer that raises an
        `Exception` is logged by its type and never stops the others.
        """
        mine = (reason,)
        if self._decision.setdefault("reason", mine) is not mine:
            return False
        self._run_closers()
        return True

    def on_cancel(self, closer: Closer) -> Closer:
        """Have *closer* called, once, when the token is cancelled; at once if it already is.

        Returns a function that takes the registration back. Closers run in the cancelling thread, the latest first: they
        must be quick, and must not wait for that thread.
        """
        key = next(self._keys)
        closers = self._closers
        closers[key] = closer
        if self._decision:
            self._run_closers()

        def unregister() -> None:
            closers.pop(key, None)

        return unregister

    def wait(self, seconds: float | None = None) -> bool:
        """Sleep up to *seconds* (None: without end); return True as soon as the token is cancelled."""
        bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        unregister = self.on_cancel(lambda: bell.put(None))
        try:
            take(bell, seconds)
        except queue.Empty:
            return self.cancelled
        finally:
            unregister()
        return True

    def child(self) -> "CancelToken":
        """Return a token that is cancelled with this one, but whose own cancel stays its own.

        Call `detach()` on it (or use it in a `with` statement) when its work ends: a long-lived token would otherwise keep
        every child it ever had.
        """
        child = CancelToken()
        child._forget_parent = self.on_cancel(lambda: child.cancel(self.reason))
        return child

    def detach(self) -> None:
        """Leave the parent: its later cancel no longer reaches this token. Idempotent."""
        forget, self._forget_parent = self._forget_parent, None
        if forget is not None:
            forget()

    def __enter__(self) -> "CancelToken":
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.detach()

    def _run_closers(self) -> None:
        while True:
            try:
                _, closer = self._closers.popitem()
            except KeyError:
                return
            try:
                closer()
            except Exception as exc:
                defer(CloserFailed(error_type=type(exc).__name__))  # not told at once: a signal handler may be here
            except BaseException:
                self._run_closers()
                raise


current_token: contextvars.ContextVar[CancelToken | None] = contextvars.ContextVar("streamguard_token", default=None)
