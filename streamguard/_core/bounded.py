"""Run a function for a bounded time, in a thread of its own.

When the time is up, the call's token is cancelled, which cuts everything that registered with it (sockets, processes). Then
the function gets a short grace to return. Python cannot stop a thread that ignores this: the thread is abandoned and
counted, and its later result or exception is dropped.
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

_abandoned: set[Callable[[], bool]] = set()
"""For each thread that could not be stopped, a function that returns whether it still runs."""


def bounded_call(
    fn: Callable[..., T],
    *args: Any,
    limit: float | str | timedelta | None = None,
    cancel: CancelToken | None = None,
    grace: float = GRACE_SECONDS,
    name: str = "call",
) -> T:
    """Return `fn(*args)`; raise if it takes longer than *limit* seconds or the ambient deadline.

    limit:  seconds. 0 or less is already spent: fn does not run. Default: None, only the ambient deadline and the token
            bound the call.
    cancel: a token that ends the wait when it is cancelled. fn runs under a child of it, which `current_token()` returns
            there. Default: the current token.
    grace:  seconds that fn may take to return once it is cancelled. Default: 0.04.
    name:   the name of the call in messages, and of the thread. Default: `"call"`.

    fn runs in a daemon thread, in a copy of the caller's context. Its exceptions propagate unchanged.

    Raises UsageError for an async function or a generator function: calling one runs nothing. Raises
    `DeadlineExceededError` (scope `"step"` for *limit*, `"ambient"` for a surrounding `deadline()`), also for a result that
    arrives too late; its `overran` is True if fn still runs. Raises `StreamCancelledError` when the token is cancelled.

    Limits
        A function that registers nothing with the token, and does not check it, runs in its thread until it returns.
    """
    if cancel is not None and not isinstance(cancel, CancelToken):
        raise TypeError(f"cancel= must be a CancelToken, got {type(cancel).__name__}")
    refuse_deferring(fn, "fn= of bounded_call()")
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
    """Return what *fn* returns before *until*; else raise `expired(overran)`.

    fn runs under a child of *parent*, as its current token, and with *until* as its ambient deadline. With *reuse* its
    thread may have run other calls: only for code of this package, which leaves nothing in a thread.
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
    return sum(is_running() for is_running in list(_abandoned))


def refuse_deferring(fn: object, whose: str) -> None:
    """Raise UsageError if a call of *fn* would run nothing: an async or a generator function, also inside a partial."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    for code in (fn, getattr(type(fn), "__call__", None)):  # noqa: B004 - its kind is asked for
        for defers, kind in _DEFERRING.items():
            if defers(code):
                raise UsageError(f"{whose} is {kind}: calling it runs nothing. Pass a plain function")


def refuse_unrun(value: T, whose: str) -> T:
    """Return *value*, a result of *whose*; raise UsageError if it is a generator or a coroutine, which has not run yet.

    Only its type is checked: comparing a lazy object would evaluate it here, outside of every limit.
    """
    kind = type(value)
    if kind not in _UNRUN:
        return value
    if isinstance(value, CoroutineType):
        value.close()  # else Python would warn that it was never awaited
    raise UsageError(f"{whose} returned a {kind.__name__}, which has not run yet: return its result instead")


def count_abandoned(task: Pump[Any] | Task, *, kind: str = "reader") -> None:
    """Count the thread of *task* as abandoned: it could not be stopped. *kind* is what it ran: reader, step, turn."""
    _count_while(task.thread.is_alive, kind)


def _count_while(is_running: Callable[[], bool], kind: str) -> None:
    for other in list(_abandoned):
        if not other():
            _abandoned.discard(other)
    _abandoned.add(is_running)
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
    """Wait for the end of *call*. If its token or *until* comes first, stop it and raise: no late result is returned."""
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
