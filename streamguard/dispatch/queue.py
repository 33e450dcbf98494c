"""A durable queue of dispatches: ordered in each conversation, one run at a time in each slot."""

import contextlib
import functools
import logging
import queue
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from .._core import monotonic
from .._core.limits import NOT_GIVEN, Limit, NotGiven
from .._core.tasks import Task
from ..errors import StreamguardError, UsageError
from ..telemetry.logs import log_line
from ..telemetry.pools import take_place
from ._data.status import USER_CANCEL, ExecutionStatus, StatusAndReason
from ._members.member import Member
from ._turn.dispatch_options import Mode, TurnLimits, by_name, limits_of
from ._turn.execution import Execution
from .dispatcher import Dispatcher

if TYPE_CHECKING:
    from ._data.rows import ExecutionRecord

T = TypeVar("T")

_OVER = (ExecutionStatus.SUCCEEDED, ExecutionStatus.FAILED, ExecutionStatus.CANCELLED)
_LOOK_SECONDS = 0.25
_CLOSE_SECONDS = 15.0
QUEUE_CLOSED = "queue_closed"


class DispatchQueue:
    """Run the entries in the dispatcher's records, in a thread of its own, from `start()` to `close()`.

    dispatcher: runs the entries; its records hold them. With records in a file or on a server, entries outlive the process,
                and several processes may take entries from one store.
    members:    the members that entries may name.
    at_once:    number of entries that run at the same time. Default 4.
    poll:       seconds between two reads of the entries that other processes have added or ended. Default 1.

    Entries of one conversation start in the order of their submission, each as soon as no running entry shares a member
    with it. An entry that runs when its process ends becomes `failed`, `process_restart`, and runs again only after
    `retry()`.

    Raises UsageError for an invalid argument.

    Limits
        A member serves several conversations at once. An entry that runs in another process cannot be cancelled from here.
    """

    def __init__(self, dispatcher: Dispatcher, members: Sequence[Member], *, at_once: int = 4, poll: float = 1.0) -> None:
        from ._records.queue_table import QueueTable

        self.dispatcher = dispatcher
        self._members = by_name(members)
        self._entries = QueueTable(dispatcher.records)
        self._writes = dispatcher.writes
        if at_once < 1 or not poll > 0:
            raise UsageError(f"at_once= must be >= 1 and poll= above 0 seconds, got {at_once!r} and {poll!r}")
        self._at_once = at_once
        self._poll = poll
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._running: dict[str, Execution] = {}
        self._changed = threading.Condition()
        self._stopping = False
        self._thread: Task | None = None

    def start(self) -> Self:
        """Start to take entries. Idempotent."""
        if self._thread is None:
            thread = Task(self._run, name="queue")
            thread.start()
            self._thread = thread
        return self

    def submit(
        self,
        conversation: str,
        members: Sequence[str],
        prompt: str,
        *,
        mode: Mode = "parallel",
        output_timeout: Limit | NotGiven = NOT_GIVEN,
        tool_timeout: Limit = None,
        first: Limit = None,
        after: str | None = None,
    ) -> str:
        """Add an entry, and return its id. The arguments are those of `Dispatcher.dispatch()`, with members by name.

        after: the id of an entry that must succeed first; if it fails or is cancelled, this entry is cancelled with the
               reason `chain_broken`.

        Raises UsageError for an invalid argument, StreamguardError if the entry cannot be recorded.
        """
        from ._data.rows import ExecutionRecord

        names = self._checked(members)
        limits = limits_of(output_timeout, tool_timeout, first)
        if not conversation or not isinstance(prompt, str) or mode not in ("parallel", "serial"):
            raise UsageError(
                "conversation= must be a name, prompt= text, and mode= 'parallel' or 'serial'; "
                f"got {conversation!r}, {type(prompt).__name__} and {mode!r}"
            )
        record = ExecutionRecord(
            id=uuid.uuid4().hex,
            conversation=conversation,
            mode=mode,
            members=names,
            prompt=prompt,
            options=asdict(limits),
            status=ExecutionStatus.QUEUED,
            after=after,
        )
        self._ask(lambda: self._entries.add(record))
        self._wake()
        return record.id

    def cancel(self, entry_id: str) -> bool:
        """Cancel a waiting entry, or stop all of one that runs here; return whether that took effect."""
        execution = self._running.get(entry_id)
        if execution is not None and not execution.ended.is_set():
            return execution.cancel_all(USER_CANCEL)
        cancelled = self._ask(lambda: self._entries.cancel(entry_id))
        self._wake()
        return cancelled

    def stop(self, entry_id: str, member: str) -> bool:
        """Stop one member of an entry that runs here; return whether that took effect.

        Raises UsageError if *member* is not a member of the entry.
        """
        execution = self._running.get(entry_id)
        return execution is not None and execution.stop(member, USER_CANCEL)

    def retry(self, entry_id: str) -> bool:
        """Run a failed entry again, at its old place in the order; return False if it has not failed."""
        marked = self._ask(lambda: self._entries.retry(entry_id))
        self._wake()
        return marked

    def pause(self, conversation: str) -> None:
        """Start no further entry of *conversation*, in any process, until `resume()`. Running entries go on."""
        self._ask(lambda: self._entries.set_paused(conversation, True))

    def resume(self, conversation: str) -> None:
        """Undo `pause()`."""
        self._ask(lambda: self._entries.set_paused(conversation, False))
        self._wake()

    def entry(self, entry_id: str) -> "ExecutionRecord":
        """Return the current record of an entry. Raises UsageError for an unknown id."""
        record = self._ask(lambda: self.dispatcher.records.execution(entry_id))
        if record is None:
            raise UsageError(f"unknown entry_id {entry_id!r}: expected an id that submit() returned")
        return record

    def entries(self, conversation: str) -> "list[ExecutionRecord]":
        """Return all entries of *conversation*, in their order."""
        return self._ask(lambda: self._entries.in_order(conversation))

    def wait(self, entry_id: str, seconds: float | None = None) -> "ExecutionRecord":
        """Wait at most *seconds* (None: no limit) for the end of an entry, and return its record."""
        until = None if seconds is None else monotonic() + seconds
        while (record := self.entry(entry_id)).status not in _OVER:
            left = _LOOK_SECONDS if until is None else min(_LOOK_SECONDS, until - monotonic())
            if left <= 0:
                break
            with self._changed:
                self._changed.wait(left)
        return record

    def close(self, *, drain: bool = False) -> None:
        """Take no more entries, and stop those that run here; waiting entries stay for the next start. Idempotent.

        drain: wait for running entries instead of stopping them as cancelled (`queue_closed`). Default False.
        """
        self._stopping = True
        self._wake()
        if self._thread is not None:
            self._thread.join(None)
        for execution in list(self._running.values()):
            if not drain:
                execution.cancel_all(QUEUE_CLOSED)
            execution.wait(None if drain else _CLOSE_SECONDS)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _run(self) -> None:
        next_recovery = monotonic()
        while not self._stopping:
            self._forget_ended()
            if monotonic() >= next_recovery:
                next_recovery = monotonic() + self.dispatcher.records.lease / 3
                self._recover()
            if len(self._running) >= self._at_once or not self._take_one():
                with contextlib.suppress(queue.Empty):
                    self._wakeups.get(timeout=self._poll)

    def _forget_ended(self) -> None:
        for entry_id, execution in list(self._running.items()):
            if execution.ended.is_set():
                del self._running[entry_id]

    def _recover(self) -> None:
        """End the entries of dead processes, and run entries that were claimed here although the reply was lost."""
        self._writes.reconcile()
        with contextlib.suppress(StreamguardError):
            for record in self._ask(self._entries.claimed):
                if not self.dispatcher.runs(record.id):
                    self._start_entry(record)

    def _take_one(self) -> bool:
        try:
            record = self._ask(lambda: self._entries.claim(self._members))
        except StreamguardError as exc:
            log_line(logging.WARNING, "queue_failed", "the queue cannot take entries", error_type=type(exc).__name__)
            return False
        if record is not None:
            self._start_entry(record)
        return record is not None

    def _start_entry(self, record: "ExecutionRecord") -> None:
        free = take_place("dispatch_queue")
        try:
            members = [self._members[name] for name in record.members]
            limits = TurnLimits(**record.options)
            on_end = functools.partial(self._ended, free)
            self._running[record.id] = self.dispatcher.run_recorded(record, members, limits, on_end=on_end)
        except (StreamguardError, LookupError, TypeError) as exc:
            free()
            log_line(logging.WARNING, "queue_failed", "an entry cannot be run", error_type=type(exc).__name__)
            failed = StatusAndReason(ExecutionStatus.FAILED, "dispatch_error")
            with contextlib.suppress(StreamguardError):
                self._ask(lambda: self.dispatcher.records.transition(record.id, failed))

    def _ended(self, free: Callable[[], None]) -> None:
        free()
        self._wake()
        with self._changed:
            self._changed.notify_all()

    def _wake(self) -> None:
        self._wakeups.put(None)

    def _ask(self, call: Callable[[], T]) -> T:
        return self._writes.ask("entry", call)

    def _checked(self, members: Sequence[str]) -> list[str]:
        names = [members] if isinstance(members, str) else list(members)
        unknown = [name for name in names if name not in self._members]
        if unknown or not names or len(set(names)) < len(names):
            known = ", ".join(sorted(self._members))
            raise UsageError(f"members= must name at least one of the queue's members, each once ({known}); got {names!r}")
        return names
