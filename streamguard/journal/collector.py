"""Collect events into journal entries: remember the last failures, and pass every entry to the journal.

It takes no lock, because a signal handler may emit an event while another one is handled: deques and dicts change in one
step.
"""

import collections
from collections.abc import Callable, Sequence
from contextlib import suppress

from .._core.clock import wall
from ..telemetry.events import (
    Event,
    RunFinished,
    StepFinished,
    StepStarted,
    StreamFinished,
    StreamRetry,
    StreamStalled,
    TurnFinished,
)
from ..telemetry.hooks import flush, witness
from .builders import Note, entry_of_run, entry_of_stream, entry_of_turn
from .entries import JournalEntry, Kind, is_failure
from .lifecycle import keep

RECENT = 100
_OPEN = 1000
"""For how many open streams and runs notes are kept; beyond that the oldest are dropped."""

_NOTES = 200
"""How many notes of each are kept: the latest ones."""


class Collector:
    """A hook for all events. It calls *keep* with a function that returns the entry."""

    def __init__(self, keep: Callable[[Callable[[], JournalEntry]], object]) -> None:
        self._keep = keep
        self._failures: collections.deque[Callable[[], JournalEntry]] = collections.deque(maxlen=RECENT)
        self._notes: dict[str, collections.deque[Note]] = {}

    def __call__(self, event: Event) -> None:
        """Note *event*, or enter the stream, run or turn that it ends."""
        match event:
            case StreamStalled() | StreamRetry() | StepStarted() | StepFinished():
                self._note(event)
            case StreamFinished():
                notes = self._noted(event.report.id)
                self._enter("stream", event.report.outcome, lambda: entry_of_stream(event, notes))
            case RunFinished():
                notes, now = self._noted(event.id), wall()
                self._enter("run", event.status or "raised", lambda: entry_of_run(event, notes, now))
            case TurnFinished():
                now = wall()
                self._enter("turn", str(event.status), lambda: entry_of_turn(event, now))

    def failures(self) -> list[JournalEntry]:
        """Return the last failures, the newest last."""
        return [make() for make in self._failures.copy()]  # copied in one step: another thread may append

    def remember(self, count: int) -> None:
        """Remember *count* failures from now on."""
        self._failures = collections.deque(self._failures, maxlen=count)

    def _note(self, event: Note) -> None:
        self._notes.setdefault(event.id, collections.deque(maxlen=_NOTES)).append(event)
        if len(self._notes) > _OPEN:
            with suppress(RuntimeError, StopIteration):  # another thread has just changed it
                self._notes.pop(next(iter(self._notes)), None)

    def _noted(self, id: str) -> Sequence[Note]:
        return self._notes.pop(id, ())

    def _enter(self, kind: Kind, outcome: str, make: Callable[[], JournalEntry]) -> None:
        if is_failure(kind, outcome):
            self._failures.append(make)  # the entry is created when it is read
        self._keep(make)


COLLECTOR = Collector(keep)
witness(COLLECTOR)


def recent_failures() -> list[JournalEntry]:
    """Return the last failures of this process, the newest last: streams, runs and turns.

    They are always kept, in memory: at most 100, or the number in `configure(recent=...)`. A failure is a stream that timed
    out or failed, a run that waits for a service or that a bug ended, and a turn that failed or was interrupted. Streams
    and runs that you cancelled or left early are not failures, and runs with a fallback are not.

    Limits
        Each process has its own; a forked child starts with those of its parent. Streams of hooks are not included.
    """
    flush()
    return COLLECTOR.failures()


recent = recent_failures
"""The earlier name."""
