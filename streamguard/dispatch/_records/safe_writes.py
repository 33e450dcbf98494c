"""Writes to the records for a dispatch: each takes a bounded time, and a lost one does not stop the dispatch."""

import functools
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from ..._core import Deadline
from ..._core.bounded import run_until
from ..._core.tasks import Task
from ...errors import DeadlineExceededError, StreamguardError
from ...telemetry.logs import log_line
from .._data.rows import ExecutionRecord, ResponseRecord, TurnRecord
from .._data.status import ExecutionStatus, StatusAndReason

if TYPE_CHECKING:
    from .records import RecordStore

T = TypeVar("T")
Lost = Literal["lost"]
LOST: Final = "lost"
"""The result of a call whose record could not be written or read."""

_SHORTEST_TRY = 0.25
_MARGIN = 0.5
_BACKLOG = 100
_KEPT_IN_MEMORY = 1000
_KEEPER_SECONDS = 5.0
"""Seconds that `close()` waits for a running renewal of the lease."""


class RecordsError(StreamguardError):
    """Raised by a queue whose records are locked, read-only or gone. A dispatch goes on without them."""


class LostRecords:
    """Names of the records that one dispatch lost, such as `response agent-1`, in order; at most one hundred."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def add(self, name: str) -> None:
        """Add a name."""
        if len(self.names) < _BACKLOG:
            self.names.append(name)


class SafeWrites:
    """Writes to a store that may be locked, read-only, or gone.

    The first failure takes the store's timeout; while the store stays lost, each further call takes a fifth of it.
    """

    def __init__(self, store: "RecordStore") -> None:
        self.store = store
        self._lost = False
        self._running = 0
        self._lock = threading.Lock()
        self._keeper: queue.SimpleQueue[None] | None = None
        self._keeping: Task | None = None

    def begin_execution(self, record: ExecutionRecord, losses: LostRecords) -> None:
        """Record a running dispatch."""
        self._try("execution", losses, lambda: self.store.begin_execution(record))

    def begin_turn(self, turn: TurnRecord, losses: LostRecords) -> None:
        """Record a running turn."""
        self._try(f"turn {turn.member}", losses, lambda: self.store.begin_turn(turn))

    def commit_response(self, response: ResponseRecord, losses: LostRecords) -> bool | Lost:
        """Record an answer; False: it was refused, because another process had ended it."""
        return self._try(f"response {response.member}", losses, lambda: self.store.commit_response(response))

    def commit_turn(self, turn: TurnRecord, losses: LostRecords) -> None:
        """Record how a turn ended."""
        self._try(f"turn {turn.member}", losses, lambda: self.store.commit_turn(turn))

    def commit_execution(
        self,
        record: ExecutionRecord,
        end: StatusAndReason[ExecutionStatus],
        outcomes: dict[str, str],
        losses: LostRecords,
    ) -> None:
        """Record how a dispatch ended; one whose start was lost is recorded now."""

        def commit() -> None:
            if self.store.execution(record.id) is None:
                self.store.begin_execution(record)
            self.store.transition(record.id, end, outcomes=outcomes)
            if self.store.in_memory:
                self.store.forget_all_but(_KEPT_IN_MEMORY)

        self._try("execution", losses, commit)

    def session(self, conversation: str, member: str, losses: LostRecords) -> str | None:
        """Return the session to resume, if the records have one and can be read."""
        found = self._try(f"session {member}", losses, lambda: self.store.session(conversation, member))
        return None if found == LOST else found

    def set_session(self, conversation: str, member: str, session_id: str | None, losses: LostRecords) -> None:
        """Record the session that the next turn resumes."""
        self._try(f"session {member}", losses, lambda: self.store.set_session(conversation, member, session_id))

    def ask(self, name: str, call: Callable[[], T]) -> T:
        """Return the result of *call*, which reads or writes the records. Raises RecordsError if it fails."""
        try:
            return self._bounded(call)
        except Exception as exc:
            raise RecordsError(f"cannot use the records ({name}): {type(exc).__name__}; check records=") from exc

    def reconcile(self) -> list[str]:
        """End the records of owners that are gone; return the executions that this call ended."""
        ended = self._try("restart", LostRecords(), self.store.reconcile)
        return [] if ended == LOST else list(ended)

    @contextmanager
    def leased(self) -> Iterator[None]:
        """Renew this owner's lease regularly during the block."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def close(self) -> None:
        """Give up the lease, and close the store."""
        if self._keeping is not None:
            # A connection that the renewal returns to a closed store would stay open.
            self._keeping.join(_KEEPER_SECONDS)
        if not self.store.in_memory and self.store.opened and self.store.ours:
            self._try("lease", LostRecords(), self.store.give_up_lease)
        self.store.close()

    def _count(self, change: int) -> None:
        if self.store.in_memory:
            return
        with self._lock:
            self._running += change
            if self._running and self._keeper is None:
                keeper: queue.SimpleQueue[None] = queue.SimpleQueue()
                keeping = Task(functools.partial(_keep, self, keeper, self.store.lease / 3), name="lease")
                try:
                    keeping.start()
                except StreamguardError as exc:  # the next turn tries again
                    log_line(logging.WARNING, "lease_not_renewed", "cannot renew the lease", error_type=type(exc).__name__)
                else:
                    self._keeper, self._keeping = keeper, keeping
            elif not self._running and self._keeper is not None:
                self._keeper.put(None)
                self._keeper = None

    def renew(self) -> None:
        """Renew the lease, and end the records of owners that have not renewed theirs."""
        self._try("lease", LostRecords(), self.store.renew)
        self._try("restart", LostRecords(), self.store.reconcile)

    def _try(self, name: str, losses: LostRecords, call: Callable[[], T]) -> T | Lost:
        try:
            result = self._bounded(call)
        except Exception as exc:  # any error costs a record, never the turn
            self._lost = True
            losses.add(name)
            log_line(
                logging.WARNING,
                "record_lost",
                "a record is lost",
                record=name.partition(" ")[0],
                error_type=type(exc).__name__,
            )
            return LOST
        self._lost = False
        return result

    def _bounded(self, call: Callable[[], T]) -> T:
        if self.store.in_memory:
            return call()
        # The database's own limits fire first and say more; this one is for a connection that never answers.
        seconds = max(_SHORTEST_TRY, self.store.timeout / 5) if self._lost else self.store.timeout + _MARGIN
        return run_until(call, Deadline.after(seconds), None, expired=_took_too_long, grace=0, name="records")


def _took_too_long(overran: bool) -> DeadlineExceededError:
    return DeadlineExceededError("the record store did not answer", scope="step", overran=overran)


def _keep(writes: SafeWrites, bell: "queue.SimpleQueue[None]", seconds: float) -> None:
    while True:
        try:
            return bell.get(timeout=seconds)
        except queue.Empty:
            writes.renew()
