"""Report a run to the hooks."""

from contextlib import AbstractContextManager
from typing import Any

from ..telemetry.events import (
    RunFinished,
    RunStarted,
    StepBudgetReduced,
    StepFallback,
    StepFinished,
    StepRetry,
    StepStarted,
)
from ..telemetry.hooks import emit, scope
from .chain_report import ChainResult, StepReport
from .step import Step
from .step_status import Budget


class ChainNotifier:
    """Emits the events of one run of the chain named *run*."""

    def __init__(self, run: str, id: str) -> None:
        self.run = run
        self.id = id

    def started(self) -> None:
        """Report the start of the run."""
        emit(RunStarted(id=self.id, run=self.run))

    def step_started(self, step: Step[Any], budget: Budget) -> None:
        """Report that a step starts with this budget."""
        emit(StepStarted(id=self.id, run=self.run, step=step.name))
        if step.limit is not None and budget.seconds is not None and budget.seconds < step.limit:
            limit, seconds = step.limit, budget.seconds
            emit(StepBudgetReduced(id=self.id, run=self.run, step=step.name, limit=limit, budget=seconds))

    def step_scope(self, step: Step[Any]) -> AbstractContextManager[object]:
        """Return the context in which to create the step's thread, or to copy the context that the step runs in."""
        return scope(StepStarted(id=self.id, run=self.run, step=step.name))

    def step_retried(self, step: str, attempt: int, error: BaseException) -> None:
        """Report that an attempt failed and another one follows."""
        error_type = type(error).__name__
        emit(StepRetry(id=self.id, run=self.run, step=step, attempt=attempt, error_type=error_type))

    def fell_back(self, report: StepReport) -> None:
        """Report that a fallback stands in for a step's value."""
        emit(
            StepFallback(
                id=self.id,
                run=self.run,
                step=report.name,
                reason=report.reason or report.status,
                fallback=report.fallback,
                details=report.to_log(),
            )
        )

    def step_finished(self, report: StepReport) -> None:
        """Report that a step ended, or was skipped."""
        emit(
            StepFinished(
                id=self.id,
                run=self.run,
                step=report.name,
                status=report.status,
                reason=report.reason,
                seconds=report.duration or 0.0,
                error_type=report.error_type,
                details=report.to_log(),
            )
        )

    def finished(self, result: ChainResult) -> None:
        """Report that the run ended with a result."""
        details = result.to_log()
        emit(RunFinished(id=self.id, run=self.run, status=result.status, seconds=result.elapsed, details=details))

    def raised(self, error: BaseException, seconds: float) -> None:
        """Report that the run ended with an exception: a bug, or an interrupt of the caller such as Ctrl-C."""
        status = None if isinstance(error, Exception) else "cancelled"
        error_type = type(error).__name__
        emit(RunFinished(id=self.id, run=self.run, status=status, seconds=seconds, error_type=error_type))
