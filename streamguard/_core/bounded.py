"""Run a function for a bounded time, in a thread of its own.

When the time is up, the call's token is cancelled, so that whatever registered with it (sockets, processes) is cut, and the
function gets a short grace to return. Python cannot stop a thread that ignores this: it is abandoned and counted, and what
it returns or raises later is dropped.
"""

import functools
import inspect
from collections.abc import Callable
from datetime import timedelta
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, TypeVar

from ..errors import DeadlineExceededError, StreamCancelledError, StreamguardError, UsageError
from ..telemetry.events import ThreadAbandoned
from ..telemetry.hooks import emit
from .calls import Call
from .cancel import CancelToken, current_token, set_current_token
from .clock import monotonic
from .deadline import Deadline, current_deadline, deadline
from .limits import seconds_of
from .pump import End, Pump
from .tasks import Task

T = TypeVar("T")

GRACE_SECONDS = 0.04
"""How long a cancelled call may take to return before it is abandoned."""

_DEFERRING: dict[Callable[[object], bool], str] = {
    inspect.iscoroutinefunction: "an async function",
    inspect.isasyncgenfunction: "an async generator function",
    inspect.isgeneratorfunction: "a generator function",
}

_UNRUN = (AsyncGeneratorType, CoroutineType, GeneratorType)

_left_behind: set[Callable[[], bool]] = set()
"""For each thread that could not be stopped, what tells whether it still runs."""


def bounded_call(
    fn: Callable[..., T],
    *args: Any,
    limit: float | str | timedelta | None = None,
    cancel: CancelToken | None = None,
    grace: float = GRACE_SECONDS,
    name: str = "call",
) -> T:
    """Return `fn(*args)`, or raise when it takes longer than *limit* seconds or the ambient deadline.

    limit:  seconds; None: only the ambient deadline and the token bound it. 0 or less is already spent: fn never runs.
    cancel: a token whose cancel ends the wait; default: the current one. fn runs under a child of it, `current_token`.
    grace:  seconds that fn may take to leave once it is cancelled. Default 0.04.
    name:   for the thread and in messages.

    fn runs in a daemon thread, in a copy of the caller's context; what it raises propagates as it is.

    Raises UsageError for an async or a generator function, whose call would only make what has still to run.

    Raises `DeadlineExceededError` (scope `"step"` for *limit*, `"ambient"` for a surrounding `deadline()`), whose
    `overran` says that fn is still running; `StreamCancelledError` when the token is cancelled. A result that comes after
    the instant is late, and an error.

    Limits
        Code that registers nothing with the token, and looks at nothing, goes on in its thread until it ends by itself.
    """
    if cancel is not None and not isinstance(cancel, CancelToken):
        raise TypeError(f"cancel= takes a CancelToken, not {type(cancel).__name__}")
    refuse_deferring(fn, "what bounded_call() shall run")
    seconds = seconds_of("limit", limit)
    own = None if seconds is None else Deadline.after(seconds)
    ambient = current_deadline()
    until = Deadline.nearest(own, ambient)
    scope = "step" if until is own else "ambient"
    begun = monotonic()

    def expired(overran: bool) -> StreamguardError:
        what = f"limit={seconds:g}" if scope == "step" else "the surrounding deadline()"
        still = "; it could not be stopped and was abandoned" if overran else ""
        elapsed = monotonic() - begun
        spent = until is not None and until.at <= begun
        return DeadlineExceededError(
            f"{name}: {what} is already spent: nothing was run"
            if spent
            else f"{name} took longer than {what} ({elapsed:.2f} s){still}",
            scope=scope,
            limit=seconds if scope == "step" else None,
            elapsed=elapsed,
            name=name,
            overran=overran,
        )

    parent = cancel if cancel is not None else current_token()
    result = run_until(functools.partial(fn, *args), until, parent, expired=expired, grace=grace, name=name)
    return refuse_unrun(result, name)


def run_until(
    fn: Callable[[], T],
    until: Deadline | None,
    parent: CancelToken | None,
    *,
    expired: Callable[[bool], BaseException],
    grace: float = GRACE_SECONDS,
    name: str = "call",
    reuse: bool = False,
) -> T:
    """Return what *fn* returns before *until*; else raise `expired(overran)`. The heart of `bounded_call()`.

    fn runs under a child of *parent*, its `current_token`, and with *until* as its ambient deadline. With *reuse* its
    thread may have served other calls: for our own code, which leaves nothing behind in a thread.
    """
    token = CancelToken() if parent is None else parent.child()
    try:
        _raise_if_stopped(token, until, expired, name)
        call = Call(functools.partial(_within, token, until, fn), token)
        call.start(name=name, reuse=reuse)
        return _result(_end_of(call, until, expired, grace, name))
    finally:
        token.detach()


def abandoned_threads() -> int:
    """Return how many threads that could not be stopped are still running in this process."""
    return sum(is_running() for is_running in list(_left_behind))


def refuse_deferring(fn: object, whose: str) -> None:
    """Raise UsageError if a call of *fn* would run nothing: an async or a generator function, also inside a partial."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    for code in (fn, getattr(type(fn), "__call__", None)):  # noqa: B004 - its kind is asked for
        for defers, kind in _DEFERRING.items():
            if defers(code):
                raise UsageError(f"{whose} is {kind}: calling it runs nothing. Give a plain function")


def refuse_unrun(value: T, whose: str) -> T:
    """Return what *whose* function has returned; raise UsageError if that is a generator or a coroutine, still to be run.

    Its type alone is asked: a lazy object would be evaluated here, outside of every limit.
    """
    kind = type(value)
    if kind not in _UNRUN:
        return value
    if isinstance(value, CoroutineType):
        value.close()  # else Python would warn that it was never awaited
    raise UsageError(f"{whose} has returned a {kind.__name__}, which has still to run; return what comes of it")


def left_behind(task: Pump[Any] | Task, *, kind: str = "reader") -> None:
    """Count the thread of *task* among those that could not be stopped; it was for a *kind*: reader, step, turn."""
    _count_while(task.thread.is_alive, kind)


def _count_while(is_running: Callable[[], bool], kind: str) -> None:
    for other in list(_left_behind):
        if not other():
            _left_behind.discard(other)
    _left_behind.add(is_running)
    emit(ThreadAbandoned(kind=kind))


def _within(token: CancelToken, until: Deadline | None, fn: Callable[[], T]) -> T:
    set_current_token(token)
    if until is None:
        return fn()
    with deadline(until):
        return fn()


def _end_of(
    call: Call[T], until: Deadline | None, expired: Callable[[bool], BaseException], grace: float, name: str
) -> End[T]:
    """Wait for the end of *call*; raise, once it is stopped, if its token or *until* comes first. Late is never success."""
    try:
        end = call.wait(None if until is None else until.remaining())
    except BaseException:  # Ctrl-C, or an exception of a signal handler: abandon fn, and do not wait for it
        _stop(call, "left", 0)
        raise
    cancelled, reason = call.token.cancelled, call.token.reason
    if end is not None and not cancelled and not (until is not None and until.expired):
        return end
    overran = not _stop(call, "expired", grace)
    if cancelled:
        raise StreamCancelledError(f"{name} was cancelled", reason=reason, name=name)
    raise expired(overran)


def _stop(call: Call[Any], reason: str, grace: float) -> bool:
    gone = call.stop(reason, grace)
    if not gone:
        _count_while(call.is_running, "call")
    return gone


def _result(end: End[T]) -> T:
    try:
        if end.failure is not None:
            raise end.failure
        return end.result  # type: ignore[return-value]
    finally:
        del end  # the failure's traceback refers to this frame: a cycle


def _raise_if_stopped(
    token: CancelToken, until: Deadline | None, expired: Callable[[bool], BaseException], name: str
) -> None:
    if token.cancelled:
        raise StreamCancelledError(f"{name} was cancelled before it began", reason=token.reason, name=name)
    if until is not None and until.expired:
        raise expired(False)
