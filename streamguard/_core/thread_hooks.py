"""What each thread of ours does last: the clean-up of what a framework keeps for that thread."""

from collections.abc import Callable

from ..telemetry.events import CloserFailed
from ..telemetry.hooks import emit

_actions: list[Callable[[], object]] = []


def at_thread_end(action: Callable[[], object]) -> None:
    """Call *action* at the end of each thread of this package: the caller's code may have run in it.

    Registering the same function again changes nothing. What it raises is logged by its type, and stops nothing.
    """
    if action not in _actions:
        _actions.append(action)


def run_thread_hooks() -> None:
    """Call what was registered, in the thread that is done."""
    for action in _actions:
        try:
            action()
        except Exception as exc:
            emit(CloserFailed(error_type=type(exc).__name__))
