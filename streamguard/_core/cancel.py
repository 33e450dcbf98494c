"""Cancel tokens: the first reason wins, closers run once, nothing locks.

A token may be cancelled from any thread, from a signal handler, and from a finalizer that the collector runs in the middle
of this very module. So there is no lock in it: the first reason is a `Once`, each closer belongs to the caller that pops
it from a dict, and each waiter has its own queue. All three are single steps of the interpreter.
"""

import itertools
import queue
from collections.abc import Callable
from types import TracebackType

from ..telemetry.events import CloserFailed
from ..telemetry.hooks import defer
from .ambient import Ambient, Block
from .once import Once
from .waits import take

Closer = Callable[[], object]


class CancelToken:
    """Carry one decision to stop to everything that must be stopped.

    Hand one token to several streams, calls or chains to stop them together. Each of them works under a `child()`, so that
    a limit that fires inside one of them never cancels the others.
    """

    __slots__ = ("__weakref__", "_closers", "_forget_parent", "_keys", "_reason")

    def __init__(self) -> None:
        self._reason: Once[object] = Once()
        self._closers: dict[int, Closer] = {}
        self._keys = itertools.count()
        self._forget_parent: Closer | None = None

    def __repr__(self) -> str:
        return f"<CancelToken {'cancelled' if self.cancelled else 'live'}>"

    @property
    def cancelled(self) -> bool:
        """Whether someone has cancelled this token."""
        return bool(self._reason.decision)

    @property
    def reason(self) -> object:
        """The reason of the first `cancel()`; None while the token is live."""
        return self._reason.value

    def cancel(self, reason: object = "cancelled") -> bool:
        """Cancel, and run the registered closers in this thread.

        Returns True for the first call only; later calls change nothing, the reason included. A closer that raises an
        `Exception` is logged by its type and never stops the others.
        """
        if not self._reason.set(reason):
            return False
        self._run_closers()
        return True

    def on_cancel(self, closer: Closer) -> Closer:
        """Call *closer* once when the token is cancelled; at once if it already is.

        Returns a function that removes the registration. Closers run in the cancelling thread, the latest first: they
        must be quick, and must not wait for that thread.
        """
        key = next(self._keys)
        closers = self._closers
        closers[key] = closer
        if self._reason:
            self._run_closers()

        def unregister() -> None:
            closers.pop(key, None)

        return unregister

    def wait(self, seconds: float | None = None) -> bool:
        """Sleep up to *seconds* (None: without end); return True as soon as the token is cancelled."""
        wakes: queue.SimpleQueue[None] = queue.SimpleQueue()
        unregister = self.on_cancel(lambda: wakes.put(None))
        try:
            take(wakes, seconds)
        except queue.Empty:
            return self.cancelled
        finally:
            unregister()
        return True

    def active(self) -> "_Active":
        """Return a `with` block in which this token is the current one, as `current_token()` returns it.

        Leaving the block restores the token that was current before. Threads that you start yourself do not see it, unless
        you run them in a copied context.
        """
        return _Active(self)

    def child(self) -> "CancelToken":
        """Return a token that is cancelled with this one, and that can be cancelled without this one.

        Call `detach()` on it (or use it in a `with` statement) when its work ends: otherwise a long-lived token keeps all
        of its children.
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
                defer(CloserFailed(error_type=type(exc).__name__))  # not emitted at once: a signal handler may be here
            except BaseException:
                self._run_closers()
                raise


_ambient: Ambient[CancelToken] = Ambient("streamguard_token")


def current_token() -> CancelToken | None:
    """Return the token that the surrounding call works under, or None.

    It is the token of a `bounded_call()`, a chain's step, a Session's call, or of `with token.active():`. Streams, bounded
    calls and Session calls that start under it end when it is cancelled.
    """
    return _ambient.get()


def set_current_token(token: CancelToken | None) -> None:
    """Make *token* the current one for the rest of this context: for the context that a thread of ours runs in."""
    _ambient.set(token)


class _Active(Block[CancelToken]):
    """The block of `CancelToken.active()`."""

    __slots__ = ("_active",)

    def __init__(self, token: CancelToken) -> None:
        super().__init__(_ambient)
        self._active = token

    def __enter__(self) -> CancelToken:
        self._enter(self._active)
        return self._active
