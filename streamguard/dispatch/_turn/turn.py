"""One member's run, from the slot to the recorded response."""

import functools
import logging
import queue
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..._core import CancelToken, Deadline, monotonic
from ..._core.bounded import left_behind, run_until
from ..._core.pump import End, Pump
from ...errors import DeadlineExceededError, StreamguardError
from ...telemetry import TurnFinished, emit
from ...telemetry.logs import log_line
from ...telemetry.words import word
from .._data.outcome import EndedTurn, TurnOutcome, closing_events
from .._data.output_timeout import Diagnosis
from .._data.rows import TurnRecord
from .._data.status import TIMEOUT, TurnEnd
from .._data.turn_events import Event, Kind
from .._members.member import Member
from .._process.cpu_activity import ActivityProbe
from .._process.snapshot import SnapshotProbe
from .._records.safe_writes import LostRecords, SafeWrites
from .channel import Channel, size_of
from .reader import Reader, TurnState, text_of
from .session_lock import SessionLocks
from .slots import SlotHold, SlotTable
from .timer import Supervisor, Timer, TurnLimits
from .transcript import Transcript, diagnostics_of

_FAULT = "dispatch_error"
STOP_GRACE = 5.0
"""Seconds that a stopped member may take to leave, unless it has a `stop_grace` of its own. One that has said `done` has a
`done_grace`; default: the same."""

_CAPACITY = 1 << 18
_LAST_WORDS = 0.5
"""Seconds that a member which has said `error` may take to say `done`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPlan:
    """What one turn is asked to do."""

    execution_id: str
    conversation: str
    member: Member
    prompt: str | Callable[[str], str] = field(repr=False)
    limits: TurnLimits


@dataclass(frozen=True, slots=True)
class Services:
    """What the turns of one dispatcher share."""

    slots: SlotTable
    locks: SessionLocks
    writes: SafeWrites


class Turn:
    """Runs one member, in the calling thread and one of its own, and records how it ended.

    batch:      the gate of the whole execution: once cancelled, no turn of it begins.
    channel:    where events go; None: they are not read.
    """

    def __init__(
        self,
        plan: TurnPlan,
        services: Services,
        *,
        batch: CancelToken,
        supervisor: Supervisor,
        channel: Channel | None,
        losses: LostRecords,
    ) -> None:
        self.plan = plan
        self.id = uuid.uuid4().hex
        self._name = plan.member.name
        self._services = services
        self._batch = batch
        self._supervisor = supervisor
        self._losses = losses
        self.state = TurnState(turn_id=self.id, timer=Timer(plan.limits, self._time_out), first=plan.limits.first)
        self._inlet = None if channel is None else channel.inlet(self._name, self.id, self.state.gate)
        self._record = TurnRecord(
            id=self.id, execution_id=plan.execution_id, conversation=plan.conversation, member=self._name
        )
        self._transcript = Transcript()
        self._diagnosis: Diagnosis | None = None
        self._pump: Pump[None] | None = None
        self._done: Event | None = None
        self._error_sent = False
        self._end_sent = False
        self._concluded: EndedTurn | None = None
        self._stop_grace = self._done_grace = STOP_GRACE
        self._hold: SlotHold
        self._forget_batch: Callable[[], object] = bool
        self._silence = 0.0

    def run(self, begun: Callable[[str], str | None]) -> TurnOutcome:
        """Run to the end. *begun* is called with the member's name once it can be stopped.

        It returns the reason of an earlier stop, or None.
        """
        self._begin(begun)
        try:
            self._pull()
        except Exception as exc:
            self.state.end.set(_fault(exc))
            log_line(logging.ERROR, "turn_failed", "a turn failed inside the dispatch", error_type=type(exc).__name__)
        finally:
            self._end_pull()
        try:
            outcome = self._conclude()
        except Exception as exc:  # it costs this turn, but neither its `done`, nor the slot, nor the siblings
            log_line(logging.ERROR, "turn_failed", "a turn failed inside the dispatch", error_type=type(exc).__name__)
            outcome = self._fail(exc)
        finally:
            self._services.slots.release(self._hold)
        self._tell(outcome)
        return outcome

    def _leave(self) -> None:
        """The whole execution is stopped. It takes no lock: this may run in a signal handler, or a finalizer."""
        self.state.gate.cancel(str(self._batch.reason))

    def _begin(self, begun: Callable[[str], str | None]) -> None:
        plan, state = self.plan, self.state
        self._hold = self._services.slots.take(
            plan.conversation,
            self._name,
            execution_id=plan.execution_id,
            turn_id=self.id,
            end=state.end,
            wind_down=state.gate.cancel,
        )
        self._supervisor.watch(state.timer)
        stopped = begun(self._name)
        if stopped is not None:
            self._stop(stopped)
        self._forget_batch = self._batch.on_cancel(self._leave)
        self._services.writes.begin_turn(self._record, self._losses)

    def _stop(self, reason: str) -> bool:
        # By the execution's id, and this very hold: a leftover timer must not hit the next turn on the slot (R10, R11).
        plan = self.plan
        return self._services.slots.stop(
            plan.conversation, self._name, reason, execution_id=plan.execution_id, epoch=self._hold.epoch
        )

    def _time_out(self, diagnosis: Diagnosis) -> None:
        self._diagnosis = replace(diagnosis, turn_id=self.id, phase=self.state.phase, stop_result=True)
        if not self._stop(TIMEOUT):
            self._diagnosis = None

    def _pull(self) -> None:
        state = self.state
        if state.gate.cancelled:
            return
        self._stop_grace = _grace_of(self.plan.member, "stop_grace", STOP_GRACE)
        self._done_grace = _grace_of(self.plan.member, "done_grace", self._stop_grace)
        reader = Reader(state, self.plan.member, self.plan.prompt, self._services.locks, self._resumable, self._route)
        self._pump = Pump(reader.read, state.gate, name=f"member-{self._name}", capacity=_CAPACITY)
        try:
            self._pump.start()
        except StreamguardError as exc:
            state.end.set(TurnEnd(failed=True, error="no_thread", message=str(exc)))
            self._pump = None
            return
        patience: float | None = None
        while (event := self._next(self._pump, patience)) is not None:
            if event.kind is Kind.ERROR:
                patience, self._error_sent = _LAST_WORDS, True
            elif event.session_id:
                self._set_session(event.session_id)

    def _next(self, pump: "Pump[None]", patience: float | None) -> Event | None:
        try:
            item = pump.get(patience)
        except queue.Empty:
            return None
        if isinstance(item, End):
            return None
        assert isinstance(item, Event)
        pump.feed.take(size_of(item))
        if item.kind is Kind.DONE:
            self._done = item
            return None
        return item

    def _route(self, event: Event) -> None:
        self._transcript.add(event)
        if self._inlet is not None:
            self._inlet.put(event)

    def _end_pull(self) -> None:
        self.state.timer.close()
        self._supervisor.forget(self.state.timer)
        self._forget_batch()
        if self.state.gate.cancelled and not self.state.end:
            self._stop(str(self.state.gate.reason))  # the whole was stopped, where no lock could be taken
        self._silence = self.state.timer.longest_silence()

    def _resumable(self) -> str | None:
        return self._services.writes.session(self.plan.conversation, self._name, self._losses)

    def _set_session(self, session: str | None) -> None:
        self._services.writes.set_session(self.plan.conversation, self._name, session, self._losses)

    def _conclude(self) -> TurnOutcome:
        self.state.end.set(TurnEnd())  # unless it is decided: it just ended
        end = self.state.end.value
        assert end is not None
        if end.stop is None:
            outcome = self._settle(EndedTurn(turn=self._record, end=end, text=self._transcript.text))
            outcome = replace(outcome, abandoned=not self._end_member("ended"))
        else:
            probe = self.state.timer.probe
            gone = self._end_member(end.stop)
            outcome = replace(self._settle(self._stopped(end, probe)), abandoned=not gone)
        return outcome

    def _fail(self, exc: Exception) -> TurnOutcome:
        self._cancel_member(_FAULT)
        if self._concluded is not None:  # it is on record: the events say the same
            gone = self._pump is None or self._pump.join(self._stop_grace)
            return replace(self._outcome(self._concluded), abandoned=not gone)
        return self._settle(EndedTurn(turn=self._record, end=_fault(exc), text=self._transcript.text))

    def _stopped(self, end: TurnEnd, probe: ActivityProbe | None) -> EndedTurn:
        remote = getattr(self.plan.member, "remote", False) and self._pump is not None
        return EndedTurn(
            turn=self._record,
            end=end,
            text=self._transcript.text,
            diagnosis=None if self._diagnosis is None else diagnostics_of(self._diagnosis, self.state.timer.started),
            evidence=probe.snapshot() if isinstance(probe, SnapshotProbe) else None,
            remote_termination="unconfirmed" if remote else None,
        )

    def _settle(self, conclusion: EndedTurn) -> TurnOutcome:
        """Commit the response and the turn, then send the closing events (R18)."""
        if self._services.writes.commit_response(conclusion.response_record(), self._losses) is False:
            conclusion = replace(conclusion, commit_refused=True)
        self._services.writes.commit_turn(conclusion.turn_record(), self._losses)
        self._concluded = conclusion
        if self._inlet is not None and not self._end_sent:
            self._end_sent = True
            for event in closing_events(conclusion, done=self._done, error_sent=self._error_sent):
                self._inlet.put_last(event)
        return self._outcome(conclusion)

    def _outcome(self, conclusion: EndedTurn) -> TurnOutcome:
        return conclusion.outcome(
            session_id=self.state.session_id,
            attempts=max(1, self.state.attempts),
            duration=monotonic() - self.state.timer.started,
        )

    def _end_member(self, reason: str) -> bool:
        """End the member's thread; return False if it could not be stopped and was abandoned. Never raises."""
        try:
            return self._pump is None or self._ends(self._pump, reason)
        except Exception as exc:
            log_line(logging.ERROR, "turn_failed", "turn clean-up failed", error_type=type(exc).__name__)
            return self._pump is None or self._pump.join(0)

    def _ends(self, pump: "Pump[None]", reason: str) -> bool:
        self.state.gate.cancel(reason)
        if reason == "ended" and pump.join(self._done_grace):
            return True
        self._cancel_member(reason)
        if pump.join(self._stop_grace):
            return True
        left_behind(pump, kind="turn")
        if self.state.session_id is not None:
            # The thread may still use the session: the next turn gets a new one (T34).
            self._services.locks.abandon(self.state.session_id)
            self._set_session(None)
        return False

    def _cancel_member(self, reason: str) -> None:
        # In a thread of its own: closers of the member, or of the user, run in it, and may hang.
        cancel = functools.partial(self.state.token.cancel, reason)
        try:
            run_until(cancel, Deadline.after(self._stop_grace), None, expired=_hangs, grace=0, name="stop")
        except StreamguardError as exc:
            log_line(logging.WARNING, "closers_failed", "a member's closers did not return", error_type=type(exc).__name__)

    def _tell(self, outcome: TurnOutcome) -> None:
        emit(
            TurnFinished(
                id=self.id,
                execution_id=self.plan.execution_id,
                member=self._name,
                status=outcome.turn_status,
                reason=word(outcome.turn_reason),  # a member's own error code, or the caller's reason for a stop
                seconds=outcome.duration,
                silence=self._silence,
            )
        )


def _grace_of(member: Member, name: str, default: float) -> float:
    seconds = getattr(member, name, None)
    if seconds is None:
        return default
    if not isinstance(seconds, int | float) or not seconds >= 0:
        raise TypeError(f"a member's {name} is a number of seconds, 0 or more; not {seconds!r}")
    return min(float(seconds), threading.TIMEOUT_MAX)


def _fault(exc: Exception) -> TurnEnd:
    return TurnEnd(failed=True, error=_FAULT, message=text_of(exc))


def _hangs(overran: bool) -> DeadlineExceededError:
    return DeadlineExceededError("the closers of a member hang", scope="step", overran=overran)
