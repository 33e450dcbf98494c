"""The active hooks, and how events reach them: one hook after another, in the thread of the event."""

import collections
import contextvars
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext

from .events import Event, Hook, Scope
from .logs import log_event, log_line

_DEFERRED_EVENTS = 1000
"""How many deferred events may wait; above that the oldest are lost."""

_DEFAULT: tuple[Hook, ...] = (log_event,)


class _HookSet:
    """The active hooks, and which of their failures are logged. Replaced as a whole, so that no lock is needed."""

    __slots__ = ("hooks", "logged")

    def __init__(self, hooks: tuple[Hook, ...]) -> None:
        self.hooks = hooks
        self.logged: set[tuple[str, str]] = set()


_active = [_HookSet(_DEFAULT)]
_witnesses: list[Hook] = []
_deferred: "collections.deque[tuple[int, Event]]" = collections.deque(maxlen=_DEFERRED_EVENTS)
_in_hook: contextvars.ContextVar[bool] = contextvars.ContextVar("streamguard_in_hook", default=False)


def set_hooks(hooks: Iterable[Hook] | None) -> None:
    """Replace the active hooks. None restores the default, which only writes to the log.

    `set_hooks([*get_hooks(), mine])` adds one. For the whole process, at once, from any thread.

    Raises TypeError for a hook that cannot be called.

    Limits
        A hook runs in the thread of the event: inside the consumer's `next()`, or in the thread that ends a stream. It must
        be quick. Its exceptions are caught; the type is logged once. Streams and calls that a hook makes itself are not
        reported. A stream that the garbage collector ended is reported with the next event, or by `flush()`.
    """
    chosen = _DEFAULT if hooks is None else tuple(hooks)
    for hook in chosen:
        if not callable(hook):
            raise TypeError(f"hooks= must be callables, got {type(hook).__name__}")
    _active[0] = _HookSet(chosen)


def get_hooks() -> tuple[Hook, ...]:
    """Return the active hooks."""
    return _active[0].hooks


def witness(hook: Hook) -> None:
    """Call *hook* with every event, before the active hooks: for the journal of this package."""
    _witnesses.append(hook)


def emit(event: Event) -> None:
    """Call the hooks with *event*. Raises no `Exception`. Finalizers and signal handlers call `defer()` instead."""
    if _deferred:
        flush()
    _call_hooks(event)


def defer(event: Event) -> None:
    """Emit *event* together with the next one: for finalizers and signal handlers, which must not run other code."""
    _deferred.append((os.getpid(), event))


def flush() -> None:
    """Emit the deferred events: streams that the garbage collector ended, and failures inside a cancel."""
    for _ in range(len(_deferred)):
        try:
            pid, event = _deferred.popleft()
        except IndexError:
            return  # another thread was quicker
        if pid == os.getpid():
            _call_hooks(event)


def scope(event: Event) -> AbstractContextManager[object]:
    """Return a context in which the hooks' own context variables are set; a thread that is made inside copies them.

    Never put a `yield` inside: it would carry those variables into the caller's context.
    """
    active = _active[0]
    scopes = [(hook, found) for hook in active.hooks if (found := getattr(hook, "scope", None)) is not None]
    return _entered(active, scopes, event) if scopes else nullcontext()


def _entered(active: _HookSet, scopes: list[tuple[Hook, Scope]], event: Event) -> ExitStack:
    stack = ExitStack()

    def enter(make: Scope, hook: Hook) -> None:
        context = make(event)
        context.__enter__()
        # Not `enter_context`: a hook's scope does not see an exception raised inside it, and cannot suppress it.
        stack.callback(_quietly, active, hook, context.__exit__, None, None, None)

    for hook, make in scopes:
        _quietly(active, hook, enter, make, hook)
    return stack


def _call_hooks(event: Event) -> None:
    if _in_hook.get():
        return
    active = _active[0]
    token = _in_hook.set(True)
    try:
        for hook in (*_witnesses, *active.hooks):
            _quietly(active, hook, hook, event)
    finally:
        _in_hook.reset(token)


def _quietly(active: _HookSet, hook: Hook, call: Callable[..., object], *arguments: object) -> None:
    try:
        call(*arguments)
    except Exception as exc:
        failure = (getattr(hook, "__qualname__", type(hook).__qualname__), type(exc).__name__)
        if failure not in active.logged:
            active.logged.add(failure)
            log_line(logging.WARNING, "hook_failed", "a hook failed", hook=failure[0], error_type=failure[1])
