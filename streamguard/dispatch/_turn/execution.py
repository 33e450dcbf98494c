"""One dispatch: its turns in parallel or in series, their stops, and their outcome."""

import functools
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

from ..._core import CancelToken, monotonic
from ..._core.tasks import Task
from ..._core.waits import happens
from ...errors import StreamguardError, UsageError
from ...telemetry import DispatchFinished, emit
from .._data.outcome import DispatchOutcome, TurnOutcome
from .._data.rows import ExecutionRecord
from .._data.status import CANCEL_ALL, USER_CANCEL, ExecutionStatus, StatusAndReason, Tally
from .._members.member import Member
from .._records.safe_writes import LostRecords
from .channel import Channel
from .timer import Supervisor, TurnLimits
from .turn import Services, Turn, TurnPlan

Mode = Literal["parallel", "serial"]
Follow = Callable[[TurnOutcome], Iterable[Member]]


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchPlan:
    """What a dispatch is asked to do."""

    record: ExecutionRecord
    members: tuple[Member, ...]
    prompt: str | Callable[[str], str] = field(repr=False)
    limits: TurnLimits
    follow: Follow | None = None
    recorded: bool = False
    """Whether its record says already that it runs: an entry of a queue's does."""


class Execution:
    """Runs a plan in threads of its own. Its holder may stop members, stop all of it, or wait for its end."""

    def __init__(
        self,
        plan: DispatchPlan,
        services: Services,
        *,
        channel: Channel | None = None,
        cancel: CancelToken | None = None,
        on_end: Callable[[], object] = bool,
    ) -> None:
        self.plan = plan
        self.id = plan.record.id
        self.conversation = plan.record.conversation
        self.batch = CancelToken()
        """The gate of the whole execution; stopping one member never touches it (R12). Its cancel takes no lock."""
        self.ended = threading.Event()
        self.outcome: DispatchOutcome | None = None
        self.failure: BaseException | None = None
        """What went wrong with the dispatch itself: a fault in the caller's `follow`, say."""
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
        self._began = monotonic()
        self._thread: Task | None = None
        self._owner = os.getpid()
        # Only this, which takes no lock, may run where the token is cancelled: in a signal handler, say, or a finalizer.
        self._forget = bool if cancel is None else cancel.on_cancel(lambda: self.batch.cancel(USER_CANCEL))

    @property
    def ours(self) -> bool:
        """Whether this is still the process that runs it, and not a fork: there nothing of it is touched, or waited for."""
        return self._owner == os.getpid()

    def start(self) -> None:
        """Start, and return at once."""
        task = Task(self._run, name="dispatch")
        try:
            task.start()
        finally:
            # Ctrl-C may come in just when it has begun to run.
            self._thread = task if task.thread.ident is not None else None

    def wait(self, seconds: float | None = None) -> bool:
        """Wait at most *seconds* for the end; return whether it has come."""
        if self._thread is None or not self.ours:
            return True
        if not happens(self.ended, seconds):
            return False
        self._thread.join(1.0)
        return True

    def knows(self, member: str) -> bool:
        """Whether *member* takes part."""
        return member in self._names

    def stop(self, member: str, reason: str) -> bool:
        """Stop one member's turn, or keep it from beginning; return whether this took effect.

        Raises UsageError for a member that takes no part.
        """
        if not self.knows(member):
            raise UsageError(f"no member {member!r} takes part in this dispatch: {', '.join(sorted(self._names))} do")
        if not self.ours:
            return False
        if self._stop_active(member, reason):
            return True
        with self._lock:
            if member in self._pending:
                first = member not in self._stopped_early
                self._stopped_early.setdefault(member, reason)
                return first
        return self._stop_active(member, reason)  # it may have begun between the two looks

    def cancel_all(self, reason: str = CANCEL_ALL) -> bool:
        """Stop every turn, and let none begin any more; return False if that was asked before, or all is over."""
        if not self.ours or self.ended.is_set() or not self.batch.cancel(reason):
            return False
        self._services.slots.stop_execution(self.id, reason)
        return True

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
        if not self.plan.recorded:
            writes.begin_execution(self.plan.record, self._losses)
        verdict = StatusAndReason(ExecutionStatus.FAILED, "dispatch_error")
        try:
            self._run_turns()
            reason = str(self.batch.reason) if self.batch.cancelled else None
            verdict = self._tally.status(self._names, reason)
        finally:
            outcomes = {name: str(status) for name, status in self._tally.members.items()}
            writes.commit_execution(self.plan.record, verdict, outcomes, self._losses)
            self.outcome = self._end(verdict)

    def _end(self, verdict: StatusAndReason[ExecutionStatus]) -> DispatchOutcome:
        status, seconds = verdict.status, monotonic() - self._began
        emit(DispatchFinished(id=self.id, status=status, members=len(self._names), seconds=seconds))
        return DispatchOutcome(
            execution_id=self.id,
            conversation=self.conversation,
            mode=self.plan.record.mode,
            status=status,
            reason=verdict.reason,
            turns=tuple(self._turns),
            members=dict(self._tally.members),
            lost_records=tuple(self._losses.names),
            duration=seconds,
        )

    def _run_turns(self) -> None:
        if self.plan.record.mode == "parallel":
            self._run_in_parallel()
            return
        work = list(self.plan.members)
        while work:
            outcome = self._run_turn(work.pop(0))
            if self.plan.follow is not None and not self.batch.cancelled:
                work += self._grown(self.plan.follow(outcome))

    def _grown(self, members: Iterable[Member]) -> list[Member]:
        added = list(members)
        with self._lock:
            self._pending += [member.name for member in added]
            self._names.update(self._pending)
        return added

    def _run_in_parallel(self) -> None:
        tasks = []
        for member in self.plan.members:
            run = functools.partial(self._run_turn, member)
            task = Task(run, name=f"turn-{member.name}")
            try:
                task.start()
            except StreamguardError:  # this thread has nothing else to do
                run()
            else:
                tasks.append(task)
        for task in tasks:
            task.join(None)

    def _run_turn(self, member: Member) -> TurnOutcome:
        plan = TurnPlan(
            execution_id=self.id,
            conversation=self.conversation,
            member=member,
            prompt=self.plan.prompt,
            limits=self.plan.limits,
        )
        turn = Turn(
            plan,
            self._services,
            batch=self.batch,
            supervisor=self._supervisor,
            channel=self._channel,
            losses=self._losses,
        )
        outcome = turn.run(self._begun)
        with self._lock:
            self._turns.append(outcome)
            self._tally.count(member.name, outcome.queue_status, outcome.reason)
        return outcome

    def _begun(self, member: str) -> str | None:
        with self._lock:
            self._pending.remove(member)
            return self._stopped_early.pop(member, None)
