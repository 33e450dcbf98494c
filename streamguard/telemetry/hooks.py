"""Who listens, and the telling. Listeners are called one after another, in the thread where something happened."""

import collections
import contextvars
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, nullcontext

from .events import Event, Hook, Scope
from .logs import log_event, log_line

_DEFERRED_EVENTS = 1000
"""How many events that a finalizer left may wait; beyond that the oldest are lost."""

_DEFAULT: tuple[Hook, ...] = (log_event,)


class _Listeners:
    """The hooks in force, and what has been said of them. Replaced as a whole, so that no lock is needed."""

    __slots__ = ("complaints", "hooks")

    def __init__(self, hooks: tuple[Hook, ...]) -> None:
        self.hooks = hooks
        self.complaints: set[tuple[str, str]] = set()


_listeners = [_Listeners(_DEFAULT)]
_witnesses: list[Hook] = []
_deferred: "collections.deque[tuple[int, Event]]" = collections.deque(maxlen=_DEFERRED_EVENTS)
_telling: contextvars.ContextVar[bool] = contextvars.ContextVar("streamguard_telling", default=False)


def set_hooks(hooks: Iterable[Hook] | None) -> None:
    """Replace the active hooks. None restores the default, which only writes to the log.

    `set_hooks([*get_hooks(), mine])` adds one. For the whole process, at once, from any thread.

    Raises TypeError for what cannot be called.

    Limits
        A hook runs where the event happened: inside the consumer's `next()`, or in the thread that ends a stream. It must
        be quick. What it raises is swallowed; the type is logged once. Streams and calls that a hook makes itself are
        not reported. A stream that the garbage collector ended is reported with the next event, or by `flush()`.
    """
    chosen = _DEFAULT if hooks is None else tuple(hooks)
    for hook in chosen:
        if not callable(hook):
            raise TypeError(f"set_hooks() takes callables, not {type(hook).__name__}")
    _listeners[0] = _Listeners(chosen)


def get_hooks() -> tuple[Hook, ...]:
    """Return the hooks in force."""
    return _listeners[0].hooks


def witness(hook: Hook) -> None:
    """Call *hook* with every event, before the active hooks: for the journal of this package."""
    _witnesses.append(hook)


def emit(event: Event) -> None:
    """Tell the hooks. Never raises an `Exception`. Not for finalizers and signal handlers: those `defer()`."""
    if _deferred:
        flush()
    _tell(event)


def defer(event: Event) -> None:
    """Emit *event* together with the next one: for finalizers and signal handlers, which must not call foreign code."""
    _deferred.append((os.getpid(), event))


def flush() -> None:
    """Tell what was deferred: streams that the garbage collector ended, failures inside of a cancel."""
    for _ in range(len(_deferred)):
        try:
            pid, event = _deferred.popleft()
        except IndexError:
            return  # another thread was quicker
        if pid == os.getpid():
            _tell(event)


def scope(event: Event) -> AbstractContextManager[object]:
    """Return a context in which the hooks' own context variables are set, to make a thread in that copies them.

    Never put a `yield` inside: it would carry those variables into the caller's context.
    """
    listeners = _listeners[0]
    scopes = [(hook, found) for hook in listeners.hooks if (found := getattr(hook, "scope", None)) is not None]
    return _entered(listeners, scopes, event) if scopes else nullcontext()


def _entered(listeners: _Listeners, scopes: list[tuple[Hook, Scope]], event: Event) -> ExitStack:
    stack = ExitStack()

    def enter(make: Scope, hook: Hook) -> None:
        context = make(event)
        context.__enter__()
        # Not `enter_context`: a hook's scope does not see what is raised inside it, and cannot swallow it.
        stack.callback(_quietly, listeners, hook, context.__exit__, None, None, None)

    for hook, make in scopes:
        _quietly(listeners, hook, enter, make, hook)
    return stack


def _tell(event: Event) -> None:
    if _telling.get():
        return
    listeners = _listeners[0]
    token = _telling.set(True)
    try:
        for hook in (*_witnesses, *listeners.hooks):
            _quietly(listeners, hook, hook, event)
    finally:
        _telling.reset(token)


def _quietly(listeners: _Listeners, hook: Hook, call: Callable[..., object], *arguments: object) -> None:
    try:
        call(*arguments)
    except Exception as exc:
        complaint = (getattr(hook, "__qualname__", type(hook).__qualname__), type(exc).__name__)
        if complaint not in listeners.complaints:
            listeners.complaints.add(complaint)
            log_line(logging.WARNING, "hook_failed", "a hook failed", hook=complaint[0], error_type=complaint[1])
