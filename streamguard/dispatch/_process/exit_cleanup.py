"""Stop running processes when the interpreter exits: the threads that supervise them end then."""

import atexit
import functools
import weakref
from typing import Protocol

from ..._core.clock import monotonic

_GRACE_SECONDS = 1.0


class Stoppable(Protocol):
    """A running process, as the clean-up uses it."""

    @property
    def ours(self) -> bool: ...

    def stop(self, reason: object) -> object: ...

    def kill(self) -> None: ...

    def join(self, seconds: float) -> bool: ...


_running: weakref.WeakSet[Stoppable] = weakref.WeakSet()


def stop_at_exit(process: Stoppable) -> None:
    """Stop *process* at exit if it still runs. The first call installs the handler; importing this module does not."""
    _running.add(process)
    _install()


@functools.cache
def _install() -> None:
    atexit.register(_stop_all)


def _stop_all() -> None:
    running = [process for process in [*_running] if process.ours]
    for process in running:
        process.stop("the interpreter exits")
    end = monotonic() + _GRACE_SECONDS
    for process in running:
        if not process.join(max(0.0, end - monotonic())):
            process.kill()
            process.join(_GRACE_SECONDS)
