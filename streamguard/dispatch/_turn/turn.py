"""One member's run, from the slot to the recorded response."""

import functools
import logging
import queue
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..._core import CancelToken, Deadline, monotonic
from ..._core.bounded import count_abandoned, run_until
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
from .channel import Channel
from .dispatch_options import DispatchPlan
from .reader import Reader, TurnState, text_of
from .session_lock import SessionLocks
from .slots import SlotHold, SlotTable
from .timer import Supervisor, Timer
from .transcript import Transcript, diagnostics_of

_FAULT = "dispatch_error"
STOP_GRACE = 5.0
"""Seconds that a stopped member may take to end, unless it has a `stop_grace`. After `done` it may take its `done_grace`,
which by default is its `stop_grace`."""

_CAPACITY = 100
"""Number of events that may wait for the turn's thread, which writes sessions to the records."""
_DONE_SECONDS = 0.5
"""Seconds that a member may take from its `error` to its `done`."""


@dataclass(frozen=True, slots=True)
class Services:
    """What the turns of one dispatcher share."""

    slots: SlotTable
    locks: SessionLocks
    writes: SafeWrites


class Turn:
    """Runs one member, in the calling thread and one of its own, and records how it ended.

    batch:   the token of the whole execution: after its cancel no turn starts.
    channel: takes the events; None: they are not read.
    """

    def __init__(
        self,
        plan: DispatchPlan,
        member: Member,
        services: Services,
        *,
        batch: CancelToken,
        supervisor: Supervisor,
        channel: Channel | None,
        losses: LostRecords,
    ) -> None:
        self._plan = plan
        self._member = member
        self._name = member.name
        self._services = services
        self._batch = batch
        self._supervisor = supervisor
        self._losses = losses
        record = plan.record
        turn_id = uuid.uuid4().hex
        self._record = TurnRecord(id=turn_id, execution_id=record.id, conversation=record.conversation, member=self._name)
        timer = Timer(plan.limits, self._time_out)
        self._state = TurnState(turn_id=turn_id, timer=timer, first=plan.limits.first)
        self._inlet = None if channel is None else channel.inlet(self._name, turn_id, self._state.gate, timer)
        self._transcript = Transcript()
        self._diagnosis: Diagnosis | None = None
        self._pump: Pump[None] | None = None
        self._done: Event | None = None
        self._error_sent = False
        self._ended: EndedTurn | None = None
        self._stop_grace = self._done_grace = STOP_GRACE
        self._hold: SlotHold
        self._forget_batch: Callable[[], object] = bool
        self._silence = 0.0

    def run(self, on_start: Callable[[str], str | None]) -> TurnOutcome:
        """Run to the end.

        on_start: called with the member's name once the turn can be stopped; returns the reason if it was stopped already.
        """
        self._start(on_start)
        try:
            self._run_member()
        except Exception as exc:
            self._state.end.set(_fault(exc))
            _log_fault("a turn failed inside the dispatch", exc)
        finally:
            self._end_run()
        try:
            outcome = self._conclude()
        except Exception as exc:  # it costs this turn, but not its `done`, the slot, or the siblings
            _log_fault("a turn failed inside the dispatch", exc)
            outcome = self._conclude_fault(exc)
        finally:
            self._services.slots.release(self._hold)
        self._emit(outcome)
        return outcome

    def _start(self, on_start: Callable[[str], str | None]) -> None:
        record, state = self._record, self._state
        self._hold = self._services.slots.take(
            record.conversation,
            record.member,
            execution_id=record.execution_id,
            end=state.end,
            wind_down=state.gate.cancel,
        )
        self._supervisor.watch(state.timer)
        stopped = on_start(self._name)
        if stopped is not None:
            self._stop(stopped)
        self._forget_batch = self._batch.on_cancel(self._stop_with_batch)
        self._services.writes.begin_turn(record, self._losses)

    def _stop(self, reason: str) -> bool:
        # By the execution's id and this hold's epoch: a late timer must not stop the next turn on the slot (R10, R11).
        record = self._record
        return self._services.slots.stop(
            record.conversation, record.member, reason, execution_id=record.execution_id, epoch=self._hold.epoch
        )

    def _stop_with_batch(self) -> None:
        # No lock is taken: this may run in a signal handler, or in a finalizer.
        reason = str(self._batch.reason)
        self._state.end.set(TurnEnd(stop=reason))
        self._state.gate.cancel(reason)

    def _time_out(self, diagnosis: Diagnosis) -> None:
        self._diagnosis = replace(diagnosis, turn_id=self._record.id, phase=self._state.phase, stop_result=True)
        if not self._stop(TIMEOUT):
            self._diagnosis = None

    def _run_member(self) -> None:
        state = self._state
        if state.gate.cancelled:
            return
        self._stop_grace = _grace_of(self._member, "stop_grace", STOP_GRACE)
        self._done_grace = _grace_of(self._member, "done_grace", self._stop_grace)
        reader = Reader(state, self._member, self._plan.prompt, self._services.locks, self._resumable, self._route)
        pump: Pump[None] = Pump(reader.read, state.gate, name=f"member-{self._name}", capacity=_CAPACITY)
        try:
            pump.start()
        except StreamguardError as exc:
            state.end.set(TurnEnd(failed=True, error="no_thread", message=str(exc)))
            return
        self._pump = pump
        self._wait_for_end(pump)

    def _wait_for_end(self, pump: "Pump[None]") -> None:
        """Wait for `done`, the end of the member's thread, or a stop."""
        while self._done is None:
            try:
                item = pump.get(_DONE_SECONDS if self._error_sent else None)
            except queue.Empty:
                return
            if not isinstance(item, Event):
                assert isinstance(item, End)
                return
            pump.feed.take(1)
            if item.kind is Kind.DONE:
                self._done = item
            elif item.kind is Kind.ERROR:
                self._error_sent = True
            elif item.session_id:
                self._set_session(item.session_id)

    def _route(self, event: Event) -> None:
        self._transcript.add(event)
        if self._inlet is not None:
            self._inlet.put(event)

    def _end_run(self) -> None:
        self._state.timer.close()
        self._supervisor.forget(self._state.timer)
        self._forget_batch()
        self._silence = self._state.timer.longest_silence()

    def _resumable(self) -> str | None:
        return self._services.writes.session(self._record.conversation, self._name, self._losses)

    def _set_session(self, session: str | None) -> None:
        self._services.writes.set_session(self._record.conversation, self._name, session, self._losses)

    def _conclude(self) -> TurnOutcome:
        self._state.end.set(TurnEnd())  # no `done`, stop or error: the member just ended
        end = self._state.end.value
        assert end is not None
        if end.stop is None:
            outcome = self._settle(self._ended_by(end))
            return replace(outcome, abandoned=not self._end_member("ended"))
        probe = self._state.timer.probe
        gone = self._end_member(end.stop)
        return replace(self._settle(self._stopped(end, probe)), abandoned=not gone)

    def _conclude_fault(self, exc: Exception) -> TurnOutcome:
        self._cancel_member(_FAULT)
        if self._ended is not None:  # it is recorded: the outcome says the same
            gone = self._pump is None or self._pump.join(self._stop_grace)
            return replace(self._outcome(self._ended), abandoned=not gone)
        return self._settle(self._ended_by(_fault(exc)))

    def _ended_by(self, end: TurnEnd) -> EndedTurn:
        return EndedTurn(turn=self._record, end=end, text=self._transcript.text)

    def _stopped(self, end: TurnEnd, probe: ActivityProbe | None) -> EndedTurn:
        remote = getattr(self._member, "remote", False) and self._pump is not None
        return replace(
            self._ended_by(end),
            diagnosis=None if self._diagnosis is None else diagnostics_of(self._diagnosis, self._state.timer.started),
            evidence=probe.snapshot() if isinstance(probe, SnapshotProbe) else None,
            remote_termination="unconfirmed" if remote else None,
        )

    def _settle(self, ended: EndedTurn) -> TurnOutcome:
        """Commit the response and the turn, then send the closing events (R18)."""
        if self._services.writes.commit_response(ended.response_record(), self._losses) is False:
            ended = replace(ended, commit_refused=True)
        self._services.writes.commit_turn(ended.turn_record(), self._losses)
        self._ended = ended
        if self._inlet is not None:
            for event in closing_events(ended, done=self._done, error_sent=self._error_sent):
                self._inlet.put_last(event)
        return self._outcome(ended)

    def _outcome(self, ended: EndedTurn) -> TurnOutcome:
        return ended.outcome(
            session_id=self._state.session_id,
            attempts=max(1, self._state.attempts),
            duration=monotonic() - self._state.timer.started,
        )

    def _end_member(self, reason: str) -> bool:
        """End the member's thread; return False if it could not be stopped and was abandoned. Never raises."""
        try:
            return self._pump is None or self._stop_thread(self._pump, reason)
        except Exception as exc:
            _log_fault("turn clean-up failed", exc)
            return self._pump is None or self._pump.join(0)

    def _stop_thread(self, pump: "Pump[None]", reason: str) -> bool:
        self._state.gate.cancel(reason)
        if reason == "ended" and pump.join(self._done_grace):
            return True
        self._cancel_member(reason)
        if pump.join(self._stop_grace):
            return True
        count_abandoned(pump, kind="turn")
        if self._state.session_id is not None:
            # The thread may still use the session: the next turn gets a new one (T34).
            self._services.locks.abandon(self._state.session_id)
            self._set_session(None)
        return False

    def _cancel_member(self, reason: str) -> None:
        # In another thread: the closers of the member, or of the user, run in it, and may hang.
        cancel = functools.partial(self._state.token.cancel, reason)
        try:
            run_until(cancel, Deadline.after(self._stop_grace), None, expired=_hangs, grace=0, name="stop")
        except StreamguardError as exc:
            log_line(logging.WARNING, "closers_failed", "a member's closers did not return", error_type=type(exc).__name__)

    def _emit(self, outcome: TurnOutcome) -> None:
        emit(
            TurnFinished(
                id=self._record.id,
                execution_id=self._record.execution_id,
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
        raise TypeError(f"{name} of member {member.name!r} must be seconds >= 0, got {seconds!r}")
    return min(float(seconds), threading.TIMEOUT_MAX)


def _fault(exc: Exception) -> TurnEnd:
    return TurnEnd(failed=True, error=_FAULT, message=text_of(exc))


def _log_fault(what: str, exc: Exception) -> None:
    log_line(logging.ERROR, "turn_failed", what, error_type=type(exc).__name__)


def _hangs(overran: bool) -> DeadlineExceededError:
    return DeadlineExceededError("the closers of a member hang", scope="step", overran=overran)
