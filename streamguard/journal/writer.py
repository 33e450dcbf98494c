"""The thread that writes entries to a journal. The end of a stream never waits for it, and takes no lock."""

import functools
import logging
import queue
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from .._core.clock import wall
from .._core.tasks import Task
from .._core.waits import happens
from ..errors import StreamguardError
from ..telemetry.logs import log_line
from .builders import instant
from .entries import JournalEntry

if TYPE_CHECKING:
    from .store import JournalStore

_WAITING = 1000
_BATCH = 100
_LINGER = 0.25
"""Seconds that the thread and its connection stay after the last entry."""
_LONGEST_PAUSE = 60.0


class _Pause:
    """A request to the thread: close the database and wait for `over`."""

    def __init__(self) -> None:
        self.closed = threading.Event()
        self.over = threading.Event()


_Item = JournalEntry | threading.Event | _Pause


class Writer:
    """Takes entries and writes them in a daemon thread, which exists only while there is something to write.

    At most 1000 entries wait. Further entries, and those that the database refuses, are counted as lost: the log reports
    it once for each outage, and the journal gets the count once it can be written again.
    """

    def __init__(self, store: "JournalStore") -> None:
        self._store = store
        self._queue: queue.SimpleQueue[_Item] = queue.SimpleQueue()
        self._running: dict[str, object] = {}
        self._overflown: queue.SimpleQueue[None] = queue.SimpleQueue()
        """One item for each entry without room: a counter without a lock."""
        self._lost = 0
        """Lost entries that the journal does not count yet. Only the thread uses it."""
        self._reported = False

    def put(self, entry: JournalEntry) -> None:
        """Queue *entry* for the thread, if there is room for it."""
        if self._queue.qsize() >= _WAITING:
            self._overflown.put(None)
        else:
            self._queue.put(entry)
        self._ensure_thread()

    def settle(self, seconds: float) -> bool:
        """Wait until all queued entries are written or lost; return whether that took less than *seconds*."""
        if self._queue.empty() and not self._running:
            return True
        done = threading.Event()
        self._queue.put(done)
        self._ensure_thread()
        return happens(done, seconds)

    @property
    def pauses_for_forks(self) -> bool:
        """Whether it must pause during a fork: the locks and the shared memory of an SQLite file do not survive one."""
        return self._store.in_file

    def pause(self, seconds: float) -> Callable[[], None]:
        """Close the database and write nothing until the returned function is called. Waits at most *seconds* for it."""
        if self._running.setdefault("thread", self) is self:  # now no thread can start
            return self._go_on
        pause = _Pause()
        self._queue.put(pause)
        pause.closed.wait(seconds)
        return pause.over.set

    def _go_on(self) -> None:
        self._running.pop("thread", None)
        if not self._queue.empty():
            self._ensure_thread()

    def _ensure_thread(self) -> None:
        me = object()
        if self._running.setdefault("thread", me) is not me:
            return
        try:
            Task(functools.partial(self._run, me), name="journal").start()
        except StreamguardError:  # no more threads, or the interpreter exits: the next entry tries again
            self._running.pop("thread", None)

    def _run(self, me: object) -> None:
        while True:
            batch = self._next_batch()
            if batch:
                self._handle(batch)
                continue
            self._store.close()
            self._running.pop("thread", None)
            # An entry may have come since then: the first thread to take the place writes it.
            if self._queue.empty() or self._running.setdefault("thread", me) is not me:
                return

    def _next_batch(self) -> list[_Item]:
        batch: list[_Item] = []
        try:
            batch.append(self._queue.get(timeout=_LINGER))
            while len(batch) < _BATCH:
                batch.append(self._queue.get_nowait())
        except queue.Empty:
            pass
        return batch

    def _handle(self, batch: Sequence[_Item]) -> None:
        entries = [item for item in batch if isinstance(item, JournalEntry)]
        if entries:
            self._write(entries)
        for item in batch:
            if isinstance(item, threading.Event):
                item.set()
            elif isinstance(item, _Pause):
                self._store.close()
                item.closed.set()
                item.over.wait(_LONGEST_PAUSE)

    def _write(self, entries: Sequence[JournalEntry]) -> None:
        self._count_overflow()
        gap = [_gap(self._lost)] if self._lost else []
        try:
            self._store.add([*gap, *entries])
        except Exception as exc:  # of any driver: the thread must go on
            self._lost += len(entries)
            self._store.close()
            self._report(type(exc).__name__)
        else:
            self._lost, self._reported = 0, False

    def _count_overflow(self) -> None:
        lost = self._overflown.qsize()
        for _ in range(lost):
            self._overflown.get_nowait()
        self._lost += lost
        if lost:
            self._report("Full")

    def _report(self, error_type: str) -> None:
        if not self._reported:
            self._reported = True
            log_line(
                logging.WARNING, "journal_failed", "the journal cannot be written; entries are lost", error_type=error_type
            )


def _gap(lost: int) -> JournalEntry:
    return JournalEntry(
        kind="gap",
        id=uuid.uuid4().hex[:12],
        name=None,
        outcome="lost",
        stopped_in=None,
        started_at=instant(wall()),
        seconds=0.0,
        numbers={"entries": lost},
    )
