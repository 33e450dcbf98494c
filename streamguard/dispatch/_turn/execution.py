"""One dispatch: its turns in parallel or in series, their stops, and their outcome."""

import functools
import os
import threading
from collections.abc import Callable, Iterable

from ..._core import CancelToken, monotonic
from ..._core.tasks import Task
from ..._core.waits import happens
from ...errors import StreamguardError, UsageError
from ...telemetry import DispatchFinished, emit
from .._data.outcome import DispatchOutcome, TurnOutcome
from .._data.status import CANCEL_ALL, USER_CANCEL, ExecutionStatus, StatusAndReason, Tally
from .._members.member import Member
from .._records.safe_writes import LostRecords
from .channel import Channel
from .dispatch_options import DispatchPlan
from .timer import Supervisor
from .turn import Services, Turn


class Execution:
    """Runs a plan in threads of its own.

    cancel: a token whose cancel stops all of it, as `user_cancel`.
    on_end: called when it has ended, in a thread of its own.
    """

    def __init__(
        self,
        plan: DispatchPlan,
        services: Services,
        *,
        channel: Channel | None = None,
        cancel: CancelToken | None = None,
        on_end: Callable[[], object] = bool,
    ) -> None:
        self._plan = plan
        self.id = plan.record.id
        self.conversation = plan.record.conversation
        self.batch = CancelToken()
        """Stops all turns. Its cancel takes no lock; stopping one member never cancels it (R12)."""
        self.ended = threading.Event()
        self.outcome: DispatchOutcome | None = None
        self.failure: BaseException | None = None
        """The error of the dispatch itself: one that the caller's `follow` raised, for example."""
        self._services = services
        self._channel = channel
        self._on_end = on_end
        self._supervisor = Supervisor()
        self._losses = LostRecords()
        self._lock = threading.Lock()
        self._pending = [member.name for member in plan.members]
        self._names = set(self._pending)
        self._stopped_early: dict[str, str] = {}
        self._turns: list[TurnOutcome] = []
        self._tally = Tally()
        self._started_at = monotonic()
        self._thread: Task | None = None
        self._owner = os.getpid()
        # No lock is taken: the token may be cancelled in a signal handler, or in a finalizer.
        self._forget = bool if cancel is None else cancel.on_cancel(lambda: self.batch.cancel(USER_CANCEL))

    @property
    def ours(self) -> bool:
        """Whether this process runs it. A forked child does not touch it, and does not wait for it."""
        return self._owner == os.getpid()

    def start(self) -> None:
        """Start, and do not wait."""
        task = Task(self._run, name="dispatch")
        try:
            task.start()
        finally:
            # Ctrl-C may arrive after the thread has started.
            self._thread = task if task.thread.ident is not None else None

    def wait(self, seconds: float | None = None) -> bool:
        """Wait at most *seconds* for the end; return whether it has ended."""
        if self._thread is None or not self.ours:
            return True
        if not happens(self.ended, seconds):
            return False
        self._thread.join(1.0)
        return True

    def has(self, member: str) -> bool:
        """Whether *member* is a member of this dispatch."""
        return member in self._names

    def stop(self, member: str, reason: str) -> bool:
        """Stop one member's turn, or keep it from starting; return whether this took effect.

        Raises UsageError if *member* is not a member of this dispatch.
        """
        if not self.has(member):
            raise UsageError(f"unknown member {member!r}: this dispatch has {', '.join(sorted(self._names))}")
        if not self.ours:
            return False
        if self._stop_active(member, reason):
            return True
        with self._lock:
            if member in self._pending:
                first = member not in self._stopped_early
                self._stopped_early.setdefault(member, reason)
                return first
        return self._stop_active(member, reason)  # it has started in the meantime

    def cancel_all(self, reason: str = CANCEL_ALL) -> bool:
        """Stop every turn, and start no further one; return False if it was stopped before, or has ended."""
        return self.ours and not self.ended.is_set() and self.batch.cancel(reason)

    def _stop_active(self, member: str, reason: str) -> bool:
        return self._services.slots.stop(self.conversation, member, reason, execution_id=self.id)

    def _run(self) -> None:
        try:
            with self._services.writes.leased():
                self._run_recorded()
        except BaseException as exc:
            self.failure = exc
        finally:
            self._forget()
            self._supervisor.close()
            self.ended.set()
            self._on_end()
            if self._channel is not None:
                self._channel.end(self.failure or self.outcome or RuntimeError("the dispatch has no outcome"))

    def _run_recorded(self) -> None:
        writes = self._services.writes
        if not self._plan.recorded:
            writes.begin_execution(self._plan.record, self._losses)
        end = StatusAndReason(ExecutionStatus.FAILED, "dispatch_error")
        try:
            self._run_turns()
            reason = str(self.batch.reason) if self.batch.cancelled else None
            end = self._tally.status(self._names, reason)
        finally:
            outcomes = {name: str(status) for name, status in self._tally.members.items()}
            writes.commit_execution(self._plan.record, end, outcomes, self._losses)
            self.outcome = self._outcome_of(end)

    def _outcome_of(self, end: StatusAndReason[ExecutionStatus]) -> DispatchOutcome:
        status, seconds = end.status, monotonic() - self._started_at
        emit(DispatchFinished(id=self.id, status=status, members=len(self._names), seconds=seconds))
        return DispatchOutcome(
            execution_id=self.id,
            conversation=self.conversation,
            mode=self._plan.record.mode,
            status=status,
            reason=end.reason,
            turns=tuple(self._turns),
            members=dict(self._tally.members),
            lost_records=tuple(self._losses.names),
            duration=seconds,
        )

    def _run_turns(self) -> None:
        if self._plan.record.mode == "parallel":
            self._run_in_parallel()
            return
        work = list(self._plan.members)
        while work:
            outcome = self._run_turn(work.pop(0))
            if self._plan.follow is not None and not self.batch.cancelled:
                work += self._added(self._plan.follow(outcome))

    def _added(self, members: Iterable[Member]) -> list[Member]:
        added = list(members)
        with self._lock:
            self._pending += [member.name for member in added]
            self._names.update(self._pending)
        return added

    def _run_in_parallel(self) -> None:
        tasks = []
        for member in self._plan.members:
            run = functools.partial(self._run_turn, member)
            task = Task(run, name=f"turn-{member.name}")
            try:
                task.start()
            except StreamguardError:  # no thread: this one runs the turn
                run()
            else:
                tasks.append(task)
        for task in tasks:
            task.join(None)

    def _run_turn(self, member: Member) -> TurnOutcome:
        turn = Turn(
            self._plan,
            member,
            self._services,
            batch=self.batch,
            supervisor=self._supervisor,
            channel=self._channel,
            losses=self._losses,
        )
        outcome = turn.run(self._started)
        with self._lock:
            self._turns.append(outcome)
            self._tally.count(member.name, outcome.queue_status, outcome.reason)
        return outcome

    def _started(self, member: str) -> str | None:
        with self._lock:
            self._pending.remove(member)
            return self._stopped_early.pop(member, None)
