"""The state of one run: each step's report and value, and whether the run has to stop."""

import dataclasses
import datetime
import uuid
from typing import Any, Final

from .chain_notifier import ChainNotifier
from .chain_report import StepReport
from .step import Step
from .step_status import StepStatus, StopReason

_NO_FALLBACK: Final = frozenset({"critical_failed", "run_cancelled", "dependency_failed"})
"""Reasons outside of the step: the run does not need its value any more."""


class RunState:
    """Records the end of each step once, with its value, and the first reason to stop."""

    def __init__(self, chain: str) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.started_at = datetime.datetime.now(datetime.UTC)
        self.reports: dict[str, StepReport] = {}
        self.values: dict[str, Any] = {}
        self.stopped: StopReason | None = None
        """Why no further step may start. The first reason counts."""
        self.notify = ChainNotifier(chain, self.id)

    def succeed(self, step: Step[Any], value: Any, *, reason: str | None = None, **facts: Any) -> None:
        """Record a step with a value of its own."""
        self.values[step.name] = value
        self._record(_report(step, "ok", reason, has_value=True, **facts))

    def fail(
        self, step: Step[Any], status: StepStatus, reason: str, error: BaseException | None = None, **facts: Any
    ) -> None:
        """Record a step without a value: use its fallback, or stop the run if it is critical."""
        report = _report(step, status, reason, error=error, **facts)
        if step.critical:
            self._record(report)
            self.stop("critical_failed")
        else:
            self._record(report if reason in _NO_FALLBACK else self._fall_back(step, report))

    def fail_with_bug(self, step: Step[Any], bug: BaseException, **facts: Any) -> None:
        """Record a step that ends the run by a bug, which has no reason, and which `run()` raises."""
        report = _report(step, "error", None, **facts)
        # Without the bug itself: this object is among its frames.
        self._record(dataclasses.replace(report, error_type=type(bug).__name__))
        self.stop("critical_failed")

    def stop(self, reason: StopReason) -> None:
        """Let no further step start."""
        self.stopped = self.stopped or reason

    def _fall_back(self, step: Step[Any], report: StepReport) -> StepReport:
        try:
            self.values[step.name] = step.fall_back(report)
        except Exception as exc:
            return dataclasses.replace(
                report, status="error", reason="fallback_failed", error=exc, error_type=type(exc).__name__
            )
        used = dataclasses.replace(report, has_value=True, fallback=step.fallback_name)
        self.notify.fell_back(used)
        return used

    def _record(self, report: StepReport) -> None:
        self.reports[report.name] = report
        self.notify.step_finished(report)


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
