"""One event of each kind that no stream emits, as a chain or a dispatch emits it."""

from streamguard.telemetry import (
    CloserFailed,
    ConcurrencyChanged,
    DispatchFinished,
    Event,
    RunFinished,
    RunStarted,
    StepBudgetReduced,
    StepFallback,
    StepFinished,
    StepRetry,
    StepStarted,
    ThreadAbandoned,
    TurnFinished,
)

RUN: list[Event] = [
    RunStarted(id="r1", run="agent"),
    StepStarted(id="r1", run="agent", step="profile"),
    StepBudgetReduced(id="r1", run="agent", step="profile", limit=0.4, budget=0.3),
    StepRetry(id="r1", run="agent", step="profile", attempt=1, error_type="TransportError"),
    StepFallback(id="r1", run="agent", step="profile", reason="step_limit", fallback="neutral_profile"),
    StepFinished(id="r1", run="agent", step="profile", status="timeout", reason="step_limit", seconds=0.3),
    StepStarted(id="r1", run="agent", step="policy"),
    StepFinished(id="r1", run="agent", step="policy", status="ok", reason=None, seconds=0.02),
    RunFinished(id="r1", run="agent", status="completed_with_fallback", seconds=0.35),
]
DISPATCH: list[Event] = [
    ConcurrencyChanged(pool="dispatch", in_use=2),
    TurnFinished(
        id="t1", execution_id="x1", member="claude", status="failed", reason="timeout", seconds=700, silence=600.0
    ),
    TurnFinished(id="t2", execution_id="x1", member="codex", status="succeeded", reason=None, seconds=60, silence=None),
    ConcurrencyChanged(pool="dispatch", in_use=0),
    ThreadAbandoned(kind="turn"),
    DispatchFinished(id="x1", status="failed", members=2, seconds=701.0),
]
OTHERS: list[Event] = [CloserFailed(error_type="RuntimeError")]
