"""The book of one run: what each step came to, which fallbacks stood in, and whether the run has to stop."""

import dataclasses
import datetime
import uuid
from typing import Any, Final, Literal

from .chain_notifier import RunTeller
from .chain_report import StepReport
from .step import Step
from .step_status import StepStatus

__all__ = ["Ledger", "Stop"]

Stop = Literal["critical_failed", "run_cancelled"]

_NO_FALLBACK: Final = frozenset({"critical_failed", "run_cancelled", "dependency_failed"})
"""Reasons that lie not with the step: the run has no use for its value any more."""


class Ledger:
    """Take each step's ending once; know the values, and the first reason to stop."""

    def __init__(self, chain: str) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.started_at = datetime.datetime.now(datetime.UTC)
        self.reports: dict[str, StepReport] = {}
        self.values: dict[str, Any] = {}
        self.stopped: Stop | None = None
        """Why no further step may start; the first reason stays."""
        self.tell = RunTeller(chain, self.id)

    def succeed(self, step: Step[Any], value: Any, *, reason: str | None = None, **facts: Any) -> None:
        """Enter a step that has a value of its own."""
        self.values[step.name] = value
        self._enter(_report(step, "ok", reason, has_value=True, **facts))

    def fail(
        self, step: Step[Any], status: StepStatus, reason: str, error: BaseException | None = None, **facts: Any
    ) -> None:
        """Enter a step that has none; let its fallback stand in, or stop the run if it is critical."""
        report = _report(step, status, reason, error=error, **facts)
        if step.critical:
            self._enter(report)
            self.stop("critical_failed")
        else:
            self._enter(report if reason in _NO_FALLBACK else self._fall_back(step, report))

    def stop(self, reason: Stop) -> None:
        """Let no further step start. Only the first reason counts."""
        self.stopped = self.stopped or reason

    def _fall_back(self, step: Step[Any], report: StepReport) -> StepReport:
        try:
            self.values[step.name] = step.fall_back(report)
        except Exception as exc:
            return dataclasses.replace(
                report, status="error", reason="fallback_failed", error=exc, error_type=type(exc).__name__
            )
        used = dataclasses.replace(report, has_value=True, fallback=step.fallback_name)
        self.tell.fell_back(used)
        return used

    def _enter(self, report: StepReport) -> None:
        self.reports[report.name] = report
        self.tell.step_finished(report)


def _report(step: Step[Any], status: StepStatus, reason: str | None, **facts: Any) -> StepReport:
    error = facts.get("error")
    return StepReport(
        name=step.name,
        status=status,
        reason=reason,
        critical=step.critical,
        limit=step.limit,
        error_type=None if error is None else type(error).__name__,
        **facts,
    )
