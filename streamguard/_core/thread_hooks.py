"""Functions that run at the end of each thread of this package: a framework's clean-up for that thread."""

from collections.abc import Callable

from ..telemetry.events import CloserFailed
from ..telemetry.hooks import emit

_actions: list[Callable[[], object]] = []


def at_thread_end(action: Callable[[], object]) -> None:
    """Call *action* at the end of each thread of this package: the caller's code may have run in it.

    Registering the same function again changes nothing. The type of its exception is logged, and the others still run.
    """
    if action not in _actions:
        _actions.append(action)


def run_thread_hooks() -> None:
    """Call the registered functions, in the thread that ends."""
    for action in _actions:
        try:
            action()
        except Exception as exc:
            emit(CloserFailed(error_type=type(exc).__name__))
