"""The listener: it makes entries of what it is told, remembers the last failures, and hands all to the journal.

No lock is taken, for events may come from a signal handler that interrupts another one's telling: deques and dicts
change in one step.
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

__all__ = ["RECENT", "RECORDER", "Recorder", "recent"]

RECENT = 100
_OPEN = 1000
"""How many streams and runs that are under way may have something noted; beyond that the oldest notes go."""

_NOTES = 200
"""How many notes of each: the last ones."""


class Recorder:
    """Called with each event. *keep* gets what makes each entry; what it raises is the hooks' affair."""

    def __init__(self, keep: Callable[[Callable[[], JournalEntry]], object]) -> None:
        self._keep = keep
        self._failures: collections.deque[Callable[[], JournalEntry]] = collections.deque(maxlen=RECENT)
        self._notes: dict[str, collections.deque[Note]] = {}

    def __call__(self, event: Event) -> None:
        """Note *event*, or make an entry of what has ended."""
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
        """Remember so many failures from now on."""
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
            self._failures.append(make)  # nobody may ever ask
        self._keep(make)


RECORDER = Recorder(keep)
witness(RECORDER)


def recent() -> list[JournalEntry]:
    """Return the last failures of this process, the newest last: streams, runs and turns.

    Always on; in memory; at most 100, or what `configure(recent=...)` says. A failure is a stream that timed out or
    failed, a run that waits for a service or that a bug ended, a turn that failed or was interrupted. What you cancelled
    or left early is none, nor is a run with a fallback.

    Limits
        For this process: a forked child begins with its parent's. What a hook does itself is not in it.
    """
    flush()
    return RECORDER.failures()
