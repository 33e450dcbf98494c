"""What still runs when the interpreter ends is ended with it: its threads would be gone, and nobody would watch it."""

import atexit
import weakref
from typing import Protocol

from ..._core.clock import monotonic

_POLITE_SECONDS = 1.0


class Sweepable(Protocol):
    """A running process, as the sweeper knows it."""

    @property
    def ours(self) -> bool: ...

    def stop(self, reason: object) -> object: ...

    def kill(self) -> None: ...

    def join(self, seconds: float) -> bool: ...


class _Sweeper:
    """Remembers the running processes, weakly. Its handler is installed with the first one, not at import."""

    def __init__(self) -> None:
        self._running: weakref.WeakSet[Sweepable] = weakref.WeakSet()
        self._installed = False

    def add(self, process: Sweepable) -> None:
        """Remember *process* until it is forgotten by everyone else."""
        self._running.add(process)
        if not self._installed:
            self._installed = True
            atexit.register(self.sweep)

    def sweep(self) -> None:
        """End all that runs: politely first, then by force."""
        running = [process for process in [*self._running] if process.ours]
        for process in running:
            process.stop("the interpreter ends")
        end = monotonic() + _POLITE_SECONDS
        for process in running:
            if not process.join(max(0.0, end - monotonic())):
                process.kill()
                process.join(_POLITE_SECONDS)


sweeper = _Sweeper()
