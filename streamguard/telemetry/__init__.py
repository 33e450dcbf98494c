"""Report events: to hooks, to the log by default, to Prometheus and OpenTelemetry if they are installed.

The adapters are `streamguard.telemetry.prometheus.PrometheusHook` (`pip install 'streamguard[prometheus]'`) and
`streamguard.telemetry.otel.OpenTelemetryHook` (`pip install 'streamguard[otel]'`).
"""

from .events import (
    GAP_BOUNDS,
    AttemptFinished,
    AttemptStarted,
    CloserFailed,
    ConcurrencyChanged,
    DispatchFinished,
    Event,
    Hook,
    RunFinished,
    RunStarted,
    StepBudgetReduced,
    StepFallback,
    StepFinished,
    StepRetry,
    StepStarted,
    StreamFinished,
    StreamRetry,
    StreamStalled,
    StreamStarted,
    ThreadAbandoned,
    TurnFinished,
    Upstream,
)
from .hooks import emit, flush, get_hooks, set_hooks
from .logs import log_event

__all__ = [
    "GAP_BOUNDS",
    "AttemptFinished",
    "AttemptStarted",
    "CloserFailed",
    "ConcurrencyChanged",
    "DispatchFinished",
    "Event",
    "Hook",
    "RunFinished",
    "RunStarted",
    "StepBudgetReduced",
    "StepFallback",
    "StepFinished",
    "StepRetry",
    "StepStarted",
    "StreamFinished",
    "StreamRetry",
    "StreamStalled",
    "StreamStarted",
    "ThreadAbandoned",
    "TurnFinished",
    "Upstream",
    "emit",
    "flush",
    "get_hooks",
    "log_event",
    "set_hooks",
]
