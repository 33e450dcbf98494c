"""The Prometheus adapter: it counts events. Needs `pip install 'streamguard[prometheus]'`."""

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

from .._reports import StreamReport
from .events import (
    GAP_BOUNDS,
    ConcurrencyChanged,
    Event,
    RunFinished,
    StepBudgetReduced,
    StepFallback,
    StepFinished,
    StepRetry,
    StreamFinished,
    StreamRetry,
    StreamStalled,
    ThreadAbandoned,
    TurnFinished,
)

__all__ = ["PrometheusHook"]

BUCKETS = (*GAP_BOUNDS, 163.84, 327.68, 655.36)
"""Seconds: those of the GenAI conventions, and three more, to above ten minutes: the longest timeouts of gateways."""


class PrometheusHook:
    """Count events. Use `set_hooks([*get_hooks(), PrometheusHook()])`, once for each registry.

    registry: the registry of the metrics. Default: prometheus_client's own.

    Raises ValueError if the registry has these metrics already.

    Limits
        Labels have a few values, or are constants of your program: names of runs, steps, members, pools. A name that is new
        for each user or request makes a time series for each.
    """

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        def histogram(name: str, documentation: str, *labels: str) -> Histogram:
            return Histogram(name, documentation, labels, buckets=BUCKETS, registry=registry)

        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(name, documentation, labels, registry=registry)

        self._streams = histogram("streamguard_stream_duration_seconds", "From start to end.", "outcome")
        self._first_chunks = histogram("streamguard_stream_time_to_first_chunk_seconds", "From start to first chunk.")
        self._max_gaps = histogram("streamguard_stream_max_gap_seconds", "The longest time between two chunks.")
        self._stalls = counter("streamguard_stream_stalls_total", "Limits on silence that fired.", "phase")
        self._retries = counter("streamguard_stream_retries_total", "Attempts after the first.", "error_type")
        self._runs = histogram("streamguard_run_duration_seconds", "Of a chain's run.", "run", "status")
        self._steps = histogram(
            "streamguard_step_duration_seconds", "Of a chain's step.", "run", "step", "status", "reason"
        )
        self._fallbacks = counter("streamguard_step_fallbacks_total", "Fallbacks used.", "run", "step", "reason")
        self._step_retries = counter(
            "streamguard_step_retries_total", "Attempts after the first.", "run", "step", "error_type"
        )
        self._reduced = counter(
            "streamguard_step_budget_reduced_total", "Steps with less time than their limit.", "run", "step"
        )
        self._turns = counter("streamguard_member_turns_total", "Turns ended.", "member", "status", "reason")
        self._silences = histogram("streamguard_member_silence_seconds", "A turn's longest time without output.", "member")
        self._abandoned = counter("streamguard_abandoned_threads_total", "Threads that could not be stopped.", "kind")
        self._in_use = Gauge(
            "streamguard_concurrency_in_use",
            "Places of a pool that are taken.",
            ["pool"],
            registry=registry,
            multiprocess_mode="livesum",
        )

    def __call__(self, event: Event) -> None:
        """Count *event*."""
        match event:
            case StreamFinished():
                self._stream(event.report)
            case StreamStalled(fired=True):
                self._stalls.labels(event.phase).inc()
            case StreamRetry():
                self._retries.labels(event.error_type).inc()
            case ThreadAbandoned():
                self._abandoned.labels(event.kind).inc()
            case ConcurrencyChanged():
                self._in_use.labels(event.pool).set(event.in_use)
            case TurnFinished():
                self._turns.labels(event.member, event.status, event.reason or "").inc()
                _observe(self._silences.labels(event.member), event.silence)
            case _:
                self._chain(event)

    def _stream(self, report: StreamReport) -> None:
        self._streams.labels(report.outcome).observe(report.lifetime)
        _observe(self._first_chunks, report.time_to_first_chunk)
        _observe(self._max_gaps, report.max_gap)

    def _chain(self, event: Event) -> None:
        match event:
            case RunFinished():
                self._runs.labels(event.run, event.status or "raised").observe(event.seconds)
            case StepFinished():
                self._steps.labels(event.run, event.step, event.status, event.reason or "").observe(event.seconds)
            case StepFallback():
                self._fallbacks.labels(event.run, event.step, event.reason).inc()
            case StepRetry():
                self._step_retries.labels(event.run, event.step, event.error_type).inc()
            case StepBudgetReduced():
                self._reduced.labels(event.run, event.step).inc()


def _observe(histogram: Histogram, seconds: float | None) -> None:
    if seconds is not None:
        histogram.observe(seconds)
