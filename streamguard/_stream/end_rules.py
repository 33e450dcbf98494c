"""How a stream ends: complete, failed, stopped by its caller or its deadline; or that another attempt begins.

Each way goes through the same steps: the reason is recorded, then the socket is cut, then the error is raised. At one
instant the caller's cancel comes first, then the deadline, then the limit of a phase.
"""

from typing import NoReturn

from .._core.cancel import CancelToken
from .._core.deadline import Deadline, current_deadline
from .._core.forks import forks
from .._http import not_event_stream
from .._reports import EndedBy, Outcome
from ..errors import StreamguardError, UsageError
from .failures import Failures
from .interfaces import CLOSED, Over
from .options import StreamOptions
from .recorder import Recorder
from .running_attempt import RunningAttempt
from .stream_notifier import StreamNotifier
from .timing.clocks import Alarm, Due, Phase
from .timing.waiting import Waiting
from .upstream.decode import Completion
from .upstream.retry import RetryState


class EndRules:
    """Decide what ends a stream, and raise it: `Over`, or the error that the consumer gets."""

    def __init__(
        self,
        options: StreamOptions,
        attempt: RunningAttempt,
        recorder: Recorder,
        notifier: StreamNotifier,
        token: CancelToken,
    ) -> None:
        self._options = options
        self._attempt = attempt
        self.waiting = Waiting(attempt.clocks, token, attempt.take)
        self._recorder = recorder
        self._notifier = notifier
        self._token = token
        self._retry = RetryState(options.retry)
        self._failures = Failures(recorder, options.limits, self._retry.max_attempts, options.assembler)
        self._scope = "total"

    @property
    def is_stopped(self) -> bool:
        """Whether the caller's cancel, a close, or the deadline forbids to go on."""
        return self._token.cancelled or self._deadline_passed

    @property
    def _deadline_passed(self) -> bool:
        until = self.waiting.deadline
        return until is not None and until.expired

    def start(self) -> None:
        """Start the call: capture its deadline."""
        forks.watch()
        self._recorder.start()
        self._notifier.started()
        total, ambient = self._options.limits.total, current_deadline()
        own = None if total is None else Deadline.after(total)
        nearest = self.waiting.deadline = Deadline.nearest(own, ambient)
        self._scope = "total" if nearest is own else "ambient"

    def start_attempt(self) -> None:
        """Start an attempt."""
        self._recorder.attempt_starts()
        if self._options.assembler is not None:
            self._options.assembler.clear()  # chunks that did not count may be there, and this attempt repeats them
        self._retry.starting()
        self._attempt.start(self.waiting.deadline)

    def stop(self) -> NoReturn:
        """End the stream that the caller or the deadline has stopped."""
        if self._token.cancelled:
            self._cancelled()
        limit = self._options.limits.total if self._scope == "total" else None
        self._recorder.deadline_passed = (self._scope, limit)
        self._end("timeout", self._failures.deadline(self._scope, limit))

    def chunks_used_up(self) -> None:
        """Every chunk that is here has been taken: see whether the stream says that it is complete."""
        completion = self._attempt.decoder.completion
        if self._attempt.body_ended or completion is Completion.DONE:
            self._judge(completion)
        elif completion is Completion.SETTLED:
            self._attempt.clocks.finishing(self._options.end_grace)
        elif self._attempt.clocks.in_grace:
            self._attempt.clocks.resumed()

    def alarmed(self, alarm: Alarm) -> None:
        """Do what *alarm* calls for; a heartbeat is the consumer's."""
        if alarm.due is Due.HALF:
            self._notifier.half_silent(alarm)
        elif not alarm.is_final or self._deadline_passed:
            return  # at one instant, the deadline goes before a phase limit: the next step raises it
        elif alarm.due is Due.RETRY:
            self.start_attempt()
        elif alarm.due is Due.GRACE:
            self._complete("end_grace")
        elif self._attempt.rejection is not None:
            self.reading_failed(self._attempt.rejection)
        elif self._attempt.decoder.completion in (Completion.FINISHED, Completion.SETTLED):
            self._complete("idle")
        else:
            self._failed("timeout", self._failures.limit(alarm))

    def reading_failed(self, exc: BaseException) -> None:
        """End the attempt whose reader or decoder raised *exc*."""
        self._failed("error", self._failures.from_reader(exc))

    def _judge(self, completion: Completion) -> None:
        """The body has ended, or its end marker came: it is complete, or not."""
        self._attempt.drain()
        decoder, options, missing = self._attempt.decoder, self._options, self._attempt.missing
        if missing and completion is Completion.ANYWHERE:
            completion = Completion.OPEN
        vouched = completion is Completion.ANYWHERE or options.assembler is None or self._recorder.chunks
        if decoder.is_foreign:
            self.reading_failed(not_event_stream(self._attempt.response, decoder.strays))
        elif completion is not Completion.OPEN and vouched:
            self._complete("done" if completion is Completion.DONE else "eof")
        elif options.strict:
            self._failed("error", self._failures.incomplete(missing or decoder.missing, decoder.strays))
        else:
            self._attempt.cut()
            self._end("incomplete", Over(), "eof")

    def _complete(self, ended_by: EndedBy) -> NoReturn:
        self._attempt.cut()
        self._end("completed", Over(), ended_by)

    def _cancelled(self) -> NoReturn:
        reason = self._token.reason
        if reason is CLOSED:
            self._end("closed", Over(), "closed")
        self._end("cancelled", self._failures.cancelled(reason), "cancelled")

    def _failed(self, outcome: Outcome, error: BaseException) -> None:
        """Cut the attempt; then go into the pause before another one, or end the stream with *error*."""
        self._attempt.cut()
        if self._token.cancelled:
            self._cancelled()
        self._notifier.failed(error)
        pause = self._retry.pause_after(error) if self._recorder.first_chunk_at is None else None
        until = self.waiting.deadline
        if pause is None or (until is not None and pause >= until.remaining()):
            self._end("timeout" if isinstance(error, TimeoutError) else outcome, error)
        obstacle = self._attempt.source.why_not_replayable()
        if obstacle is not None:
            self._end("error", _not_replayable(obstacle, error))
        self._retry.sleeping(pause)
        self._notifier.retrying(error, pause)
        self._attempt.forget()
        self._attempt.clocks.pause(pause)

    def _end(self, outcome: Outcome, error: BaseException, ended_by: EndedBy = "error") -> NoReturn:
        """Conclude with *outcome* and raise *error*, unless a close or cancel from elsewhere came first."""
        failed = isinstance(error, Exception) and not isinstance(error, Over)
        named = error.phase if isinstance(error, StreamguardError) else None
        if failed:
            phase = Phase(named or self._attempt.clocks.phase)
        else:
            phase = Phase.DONE if outcome in ("completed", "incomplete") else self._attempt.clocks.phase
        if outcome == "timeout" or ended_by in ("end_grace", "idle"):
            self._recorder.silent(self._attempt.clocks.silence)
        error_type = type(error).__name__ if failed else None
        self._recorder.conclude(outcome, ended_by=ended_by, phase=phase, error_type=error_type)
        final = self._recorder.final
        raise Over if final is not None and final.outcome == "closed" else error


def _not_replayable(obstacle: str, error: BaseException) -> UsageError:
    refusal = UsageError(
        f"the request cannot be sent again: {obstacle}, which can be read only once. "
        "Pass bytes, or retry=None to get the original error."
    )
    refusal.__cause__ = error
    return refusal
