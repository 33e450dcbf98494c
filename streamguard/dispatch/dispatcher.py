"""The dispatcher: one request to one or more members of a conversation, each under exactly one output timeout."""

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from .._core import CancelToken
from .._core.limits import NOT_GIVEN, Limit, NotGiven
from ..errors import UsageError
from ._data.outcome import DispatchOutcome
from ._data.status import CANCEL_ALL, USER_CANCEL
from ._members.member import Member
from ._turn.channel import Channel, MemberEvent
from ._turn.dispatch_options import DispatchPlan, Follow, Mode, Prompt, TurnLimits, limits_of, plan_of
from ._turn.execution import Execution
from ._turn.session_lock import SessionLocks
from ._turn.slots import SlotTable
from ._turn.turn import Services

if TYPE_CHECKING:
    from ._data.rows import ExecutionRecord
    from ._records.records import RecordStore

_CLOSE_SECONDS = 15.0
READER_LEFT = "reader_left"
DISPATCHER_CLOSED = "dispatcher_closed"


class DispatchStream:
    """The events of one dispatch as they come, each with its member. Made by `Dispatcher.stream()`.

    An iterator over `MemberEvent`, and a context manager. A member whose events are not read waits, and its clock with it.
    Leaving it (the `with` block, `close()`, or the last reference) stops what still runs, with the reason `reader_left`.
    """

    def __init__(self, execution: Execution, channel: Channel) -> None:
        self._execution = execution
        self._channel = channel
        self._finalizer = weakref.finalize(self, execution.batch.cancel, READER_LEFT)
        self._finalizer.atexit = False

    def __iter__(self) -> Iterator[MemberEvent]:
        return self

    def __next__(self) -> MemberEvent:
        if not self._execution.ours:
            raise UsageError("this dispatch belongs to the parent process: make a Dispatcher in the forked child")
        item = self._channel.get()
        if isinstance(item, MemberEvent):
            return item
        if isinstance(item, BaseException):
            raise item
        raise StopIteration

    @property
    def execution_id(self) -> str:
        """The dispatch's id, as in its records."""
        return self._execution.id

    @property
    def outcome(self) -> DispatchOutcome:
        """What it came to. Raises UsageError as long as it runs."""
        if self._execution.outcome is None:
            raise UsageError("the dispatch has no outcome yet: read its events to the end, or call read()")
        return self._execution.outcome

    def read(self) -> DispatchOutcome:
        """Read the rest of the events, and return the outcome."""
        for _event in self:
            pass
        return self.outcome

    def stop(self, member: str, reason: str = USER_CANCEL) -> bool:
        """Stop one member; the others go on. Returns whether this stop came first.

        Raises UsageError for a member that takes no part.
        """
        return self._execution.stop(member, reason)

    def cancel_all(self, reason: str = CANCEL_ALL) -> bool:
        """Stop every member, and let none begin any more."""
        return self._execution.cancel_all(reason)

    def close(self) -> None:
        """Stop what still runs, and wait for it. Idempotent. In a forked child it does nothing: it is the parent's."""
        self._execution.cancel_all(READER_LEFT)
        self._execution.wait(_CLOSE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Dispatcher:
    """Runs members of conversations, and keeps the records.

    records: where executions, turns and responses are recorded: `sqlite:///FILE`, `postgresql://…`, a `RecordStore`, or
             None: in memory.

    Records left by a process that has ended are closed when the dispatcher is made, as failed with the reason
    `process_restart`; `restarted` has the ids of those executions.

    Raises UsageError for records that cannot be used at all. A store that is locked, read-only or gone costs a dispatch its
    records (see `DispatchOutcome.lost_records`), not its run.

    Limits
        Slots and sessions are guarded within this dispatcher: two processes that dispatch to one conversation are kept
        apart only by a `DispatchQueue` on common records. In-memory records keep the last thousand dispatches.
    """

    def __init__(self, records: "str | RecordStore | None" = None) -> None:
        from ._records.records import RecordStore
        from ._records.safe_writes import (
            SafeWrites,  # SQLAlchemy takes its time to load, and not everyone who imports this needs it
        )

        self.records = records if isinstance(records, RecordStore) else RecordStore(records)
        self.writes = SafeWrites(self.records)
        self.session_locks = SessionLocks()
        self._services = Services(SlotTable(), self.session_locks, self.writes)
        self._lock = threading.Lock()
        self._active: dict[str, Execution] = {}
        self._closed = False
        self._own = self.records is not records
        if self._own:
            self._finalizer = weakref.finalize(self, self.records.close)
            self._finalizer.atexit = False
        self.restarted = [] if self.records.in_memory else self.writes.reconcile()

    def dispatch(
        self,
        conversation: str,
        members: Sequence[Member],
        prompt: Prompt,
        *,
        mode: Mode = "parallel",
        output_timeout: Limit | NotGiven = NOT_GIVEN,
        tool_timeout: Limit = None,
        first: Limit = None,
        follow: Follow | None = None,
        cancel: CancelToken | None = None,
    ) -> DispatchOutcome:
        """Send *prompt* to *members*, and return the outcome.

        conversation:   whatever names it. A member runs once at a time in it: a turn that is still running is preempted.
        members:        no two of the same name.
        prompt:         text, or a function of the member's name that builds it.
        mode:           `"parallel"` (default): side by side; `"serial"`: one after another, whatever becomes of each.
        output_timeout: seconds that a member may be without output; 0: never. Default: `CLI_TIMEOUT_MS`, else never.
        tool_timeout:   seconds without output that a running tool call may take, if that is more. Default None.
        first:          seconds until a member's first frame of any kind, for members that support it. Default None.
        follow:         serial only: called with each turn's outcome, returns further members for the list.
        cancel:         a token whose cancel stops all of it, as `user_cancel`.

        Raises TypeError and UsageError, before anything runs, for arguments that cannot be right. What a member raises or
        fails with is in its outcome. Ctrl-C stops everything, then is raised.
        """
        limits = limits_of(output_timeout, tool_timeout, first)
        plan = plan_of(conversation, members, prompt, mode, limits, follow)
        execution = self._start(Execution(plan, self._services, cancel=cancel))
        try:
            execution.wait()
        except BaseException:
            self._give_up(execution)
            raise
        return outcome_of(execution)

    def stream(
        self,
        conversation: str,
        members: Sequence[Member],
        prompt: Prompt,
        *,
        mode: Mode = "parallel",
        output_timeout: Limit | NotGiven = NOT_GIVEN,
        tool_timeout: Limit = None,
        first: Limit = None,
        follow: Follow | None = None,
        cancel: CancelToken | None = None,
    ) -> DispatchStream:
        """Give *prompt* to *members*, and return their events as they come. The arguments are those of `dispatch()`.

        It starts at once. Use it in a `with` block, or read it to its end: each member's last event is one `done`.
        """
        limits = limits_of(output_timeout, tool_timeout, first)
        plan = plan_of(conversation, members, prompt, mode, limits, follow)
        channel = Channel()
        return DispatchStream(self._start(Execution(plan, self._services, channel=channel, cancel=cancel)), channel)

    def stop(self, conversation: str, member: str, reason: str = USER_CANCEL) -> bool:
        """Stop *member* in *conversation*; its siblings go on. Returns whether this stop came first.

        Returns False if nothing runs there. Raises UsageError if something does, but no such member takes part.
        """
        found = self._running(conversation)
        knowing = [execution for execution in found if execution.knows(member)]
        if found and not knowing:
            raise UsageError(f"no member {member!r} takes part in what runs in this conversation")
        stopped = [execution.stop(member, reason) for execution in knowing]
        return any(stopped)

    def cancel_all(self, conversation: str | None = None, reason: str = CANCEL_ALL) -> int:
        """Stop every dispatch in *conversation* (None: everywhere); return how many this has stopped."""
        return sum(execution.cancel_all(reason) for execution in self._running(conversation))

    def close(self) -> None:
        """Stop what runs, wait for it up to 15 s, and close the records, unless they were given as a store. Idempotent.

        In a forked child, what the parent runs and has opened is left alone.
        """
        with self._lock:
            self._closed = True
        self.cancel_all(reason=DISPATCHER_CLOSED)
        for execution in self._running(None):
            execution.wait(_CLOSE_SECONDS)
        if self._own:
            self.writes.close()

    def run_recorded(
        self, record: "ExecutionRecord", members: Sequence[Member], limits: TurnLimits, on_end: Callable[[], object]
    ) -> Execution:
        """Start what the records say already runs: for queues. *on_end* is called, in a thread of ours, when it is over."""
        plan = DispatchPlan(record=record, members=tuple(members), prompt=record.prompt, limits=limits, recorded=True)
        return self._start(Execution(plan, self._services, on_end=on_end))

    def runs(self, execution_id: str) -> bool:
        """Whether this dispatcher runs that execution now."""
        return any(execution.id == execution_id for execution in self._running(None))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _start(self, execution: Execution) -> Execution:
        with self._lock:
            if self._closed:
                raise UsageError("the dispatcher is closed")
            ended = [key for key, other in self._active.items() if other.ended.is_set()]
            for key in ended:
                del self._active[key]
            self._active[execution.id] = execution
        try:
            execution.start()
        except BaseException:
            self._give_up(execution)
            raise
        return execution

    def _give_up(self, execution: Execution) -> None:
        execution.cancel_all(USER_CANCEL)
        execution.wait(_CLOSE_SECONDS)

    def _running(self, conversation: str | None) -> list[Execution]:
        with self._lock:
            active = [execution for execution in self._active.values() if not execution.ended.is_set()]
        return [execution for execution in active if conversation in (None, execution.conversation)]


def outcome_of(execution: Execution) -> DispatchOutcome:
    """Return what an ended execution came to, or raise what went wrong with it."""
    if execution.failure is not None:
        raise execution.failure
    assert execution.outcome is not None
    return execution.outcome
