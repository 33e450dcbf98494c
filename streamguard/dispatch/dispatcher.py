"""The dispatcher sends one request to the members of a conversation, each with exactly one output timeout."""

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
    """The events of one dispatch as they arrive, each with its member. `Dispatcher.stream()` returns it.

    An iterator over `MemberEvent`, and a context manager. While a member's events are not read, the member waits, and its
    output timeout is paused. `close()`, the end of the `with` block, and dropping the last reference stop the members that
    still run, with the reason `reader_left`.
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
        """The id of the dispatch, as in its records."""
        return self._execution.id

    @property
    def outcome(self) -> DispatchOutcome:
        """The outcome. Raises UsageError while the dispatch runs."""
        if self._execution.outcome is None:
            raise UsageError("the dispatch has no outcome yet: read its events to the end, or call read()")
        return self._execution.outcome

    def read(self) -> DispatchOutcome:
        """Read the other events, and return the outcome."""
        for _event in self:
            pass
        return self.outcome

    def stop(self, member: str, reason: str = USER_CANCEL) -> bool:
        """Stop one member; the others go on. Return whether this stop came first.

        Raises UsageError if *member* is not a member of this dispatch.
        """
        return self._execution.stop(member, reason)

    def cancel_all(self, reason: str = CANCEL_ALL) -> bool:
        """Stop every member, and start no further one. Return whether this stop came first."""
        return self._execution.cancel_all(reason)

    def close(self) -> None:
        """Stop the members that still run, and wait for them. Idempotent. In a forked child it does nothing."""
        self._execution.cancel_all(READER_LEFT)
        self._execution.wait(_CLOSE_SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Dispatcher:
    """Run the members of conversations, and record how they ended.

    records: where executions, turns and responses are recorded: `sqlite:///FILE`, `postgresql://…`, or a `RecordStore`.
             Default None: in memory, the last thousand dispatches.

    A new dispatcher ends the running records of processes that have died, as failed with the reason `process_restart`;
    `restarted` has the ids of those executions.

    Raises UsageError if *records* cannot be used. A store that is locked, read-only or gone later costs a dispatch its
    records (see `DispatchOutcome.lost_records`), not its run.

    Limits
        A dispatcher does not know the slots and sessions of other dispatchers: use a `DispatchQueue` on common records to
        dispatch to one conversation from several processes.
    """

    def __init__(self, records: "str | RecordStore | None" = None) -> None:
        from ._records.records import RecordStore  # SQLAlchemy is slow to import
        from ._records.safe_writes import SafeWrites

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

        conversation:   any name. A member has one turn at a time in a conversation: a new turn preempts a running one.
        members:        the members; their names differ.
        prompt:         text, or a function that returns the text for a member's name.
        mode:           `"parallel"` (default), or `"serial"`: one after another, whether or not they succeed.
        output_timeout: seconds that a member may be without output; 0 disables it. Default: the environment variable
                        `CLI_TIMEOUT_MS` (milliseconds), else 0.
        tool_timeout:   seconds without output that a running tool call may take, if longer. Default None: off.
        first:          seconds until a member's first frame of any kind, for members that support it. Default None: off.
        follow:         with `"serial"`: a function that gets the outcome of each turn, and returns members to run after it.
        cancel:         a token whose cancel stops all members, as `user_cancel`.

        Raises TypeError or UsageError for an invalid argument, before anything runs. The error of a member is in its
        outcome. Ctrl-C stops all members, and is raised.
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
        """Send *prompt* to *members*, and return their events as they arrive. Takes the arguments of `dispatch()`.

        It starts at once. Use it in a `with` block, or read it to its end. The last event of each member is one `done`.
        """
        limits = limits_of(output_timeout, tool_timeout, first)
        plan = plan_of(conversation, members, prompt, mode, limits, follow)
        channel = Channel()
        return DispatchStream(self._start(Execution(plan, self._services, channel=channel, cancel=cancel)), channel)

    def stop(self, conversation: str, member: str, reason: str = USER_CANCEL) -> bool:
        """Stop *member* in *conversation*; the other members go on. Return whether this stop came first.

        Returns False if nothing runs in the conversation. Raises UsageError if *member* is not a member of what runs.
        """
        running = self._running(conversation)
        having = [execution for execution in running if execution.has(member)]
        if running and not having:
            raise UsageError(f"unknown member {member!r}: no running dispatch of conversation {conversation!r} has it")
        stopped = [execution.stop(member, reason) for execution in having]
        return any(stopped)

    def cancel_all(self, conversation: str | None = None, reason: str = CANCEL_ALL) -> int:
        """Stop every dispatch of *conversation* (None: of all); return the number of dispatches that this call stopped."""
        return sum(execution.cancel_all(reason) for execution in self._running(conversation))

    def close(self) -> None:
        """Stop all dispatches, wait for them at most 15 s, and close the records unless they were given as a store.

        Idempotent. In a forked child, the parent's dispatches and records are not touched.
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
        """Run an entry of a queue, whose record is already `running`. *on_end* is called when it has ended, in a thread."""
        plan = DispatchPlan(record=record, members=tuple(members), prompt=record.prompt, limits=limits, recorded=True)
        return self._start(Execution(plan, self._services, on_end=on_end))

    def runs(self, execution_id: str) -> bool:
        """Whether this dispatcher runs that execution."""
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
                raise UsageError("this dispatcher is closed: make a new Dispatcher")
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
    """Return the outcome of an ended execution, or raise its error."""
    if execution.failure is not None:
        raise execution.failure
    assert execution.outcome is not None
    return execution.outcome
