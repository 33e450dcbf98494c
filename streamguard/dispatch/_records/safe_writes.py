"""The records as a dispatch writes them: each write takes a bounded time, and the dispatch goes on without what is lost."""

import functools
import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from ..._core import Deadline
from ..._core.bounded import run_until
from ...errors import DeadlineExceededError, StreamguardError
from ...telemetry.logs import log_line
from .._data.rows import ExecutionRecord, ResponseRecord, TurnRecord
from .._data.status import ExecutionStatus, StatusAndReason

if TYPE_CHECKING:
    from .records import RecordStore

T = TypeVar("T")
Lost = Literal["lost"]
LOST: Final = "lost"
"""What a call returns whose record could not be written or read."""

_LEAST_PATIENCE = 0.25
_MARGIN = 0.5
_BACKLOG = 100
_KEPT_IN_MEMORY = 1000
_KEEPER_SECONDS = 5.0
"""How long a close waits for a renewal of the lease that is under way."""


class RecordsError(StreamguardError):
    """Raised by a queue whose records are locked, read-only or gone. A dispatch goes on without."""


class LostRecords:
    """What one dispatch could not record: names such as `response agent-1`, in the order it happened, the first hundred."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def add(self, name: str) -> None:
        """Note one more."""
        if len(self.names) < _BACKLOG:
            self.names.append(name)


class SafeWrites:
    """Writes to a store that may be locked, read-only, or gone.

    The first failure costs the store's timeout; while the store stays lost, each further call costs a fifth of it.
    """

    def __init__(self, store: "RecordStore") -> None:
        self.store = store
        self._lost = False
        self._running = 0
        self._lock = threading.Lock()
        self._keeper: queue.SimpleQueue[None] | None = None
        self._keeping: threading.Thread | None = None

    def begin_execution(self, record: ExecutionRecord, losses: LostRecords) -> None:
        """Record that a dispatch runs."""
        self._try("execution", losses, lambda: self.store.begin_execution(record))

    def begin_turn(self, turn: TurnRecord, losses: LostRecords) -> None:
        """Record that a turn runs."""
        self._try(f"turn {turn.member}", losses, lambda: self.store.begin_turn(turn))

    def commit_response(self, response: ResponseRecord, losses: LostRecords) -> bool | Lost:
        """Record an answer; False: it was refused, as something else had ended it."""
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
        """Record how a dispatch ended; one whose beginning was lost is recorded now."""

        def commit() -> None:
            if self.store.execution(record.id) is None:
                self.store.begin_execution(record)
            self.store.transition(record.id, end, outcomes=outcomes)
            if self.store.in_memory:
                self.store.forget_all_but(_KEPT_IN_MEMORY)

        self._try("execution", losses, commit)

    def session(self, conversation: str, member: str, losses: LostRecords) -> str | None:
        """Return the session that may be resumed, as far as the records can tell."""
        found = self._try(f"session {member}", losses, lambda: self.store.session(conversation, member))
        return None if found == LOST else found

    def set_session(self, conversation: str, member: str, session_id: str | None, losses: LostRecords) -> None:
        """Record the session to resume next time."""
        self._try(f"session {member}", losses, lambda: self.store.set_session(conversation, member, session_id))

    def ask(self, name: str, call: Callable[[], T]) -> T:
        """Return what *call* finds in the records, or writes to them. Raises RecordsError if that fails."""
        try:
            return self._bounded(call)
        except Exception as exc:
            raise RecordsError(f"the records cannot be used ({name}): {type(exc).__name__}") from exc

    def reconcile(self) -> list[str]:
        """End what no living owner runs; return the executions that this call ended."""
        ended = self._try("restart", LostRecords(), self.store.reconcile)
        return [] if ended == LOST else list(ended)

    @contextmanager
    def leased(self) -> Iterator[None]:
        """Keep this owner's lease fresh for the length of the block."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def close(self) -> None:
        """Give up the lease, and close the store."""
        if self._keeping is not None:
            # A connection that it gives back to a closed store would stay open.
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
                self._keeper = queue.SimpleQueue()
                keep = functools.partial(_keep, self, self._keeper, self.store.lease / 3)
                self._keeping = threading.Thread(target=keep, name="streamguard-lease", daemon=True)
                self._keeping.start()
            elif not self._running and self._keeper is not None:
                self._keeper.put(None)
                self._keeper = None

    def renew(self) -> None:
        """Renew the lease, and look for owners that have not renewed theirs."""
        self._try("lease", LostRecords(), self.store.renew)
        self._try("restart", LostRecords(), self.store.reconcile)

    def _try(self, name: str, losses: LostRecords, call: Callable[[], T]) -> T | Lost:
        try:
            result = self._bounded(call)
        except Exception as exc:  # whatever it is, it costs a record, and never the turn
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
        # The database's own limits come first, and tell more; this one is for a line on which nothing comes back.
        patient, hasty = self.store.timeout + _MARGIN, max(_LEAST_PATIENCE, self.store.timeout / 5)
        seconds = hasty if self._lost else patient
        return run_until(call, Deadline.after(seconds), None, expired=_took_too_long, grace=0, name="records")


def _took_too_long(overran: bool) -> DeadlineExceededError:
    return DeadlineExceededError("the record store did not answer", scope="step", overran=overran)


def _keep(writes: SafeWrites, bell: "queue.SimpleQueue[None]", seconds: float) -> None:
    while True:
        try:
            return bell.get(timeout=seconds)
        except queue.Empty:
            writes.renew()
