"""The OpenTelemetry adapter: GenAI metrics and spans. Needs `pip install 'streamguard[otel]'`.

Names are those of OpenTelemetry's semantic conventions for generative AI, which are in Development and may change. HTTP
metrics and spans are left to the instrumentation of requests or urllib3, whose spans become children of the stream's.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

from opentelemetry import metrics, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode

from .._reports import StreamReport
from .events import (
    GAP_BOUNDS,
    AttemptStarted,
    Event,
    Gaps,
    RunFinished,
    RunStarted,
    StepFallback,
    StepFinished,
    StepRetry,
    StepStarted,
    StreamFinished,
    StreamRetry,
    StreamStalled,
    StreamStarted,
    Upstream,
)
from .providers import provider_of

__all__ = ["OpenTelemetryHook"]

_NAME: Final = "streamguard"
_OTHER: Final = "_OTHER"

Attributes = dict[str, Any]


class OpenTelemetryHook:
    """Record GenAI metrics of model calls, and spans of streams, runs and steps.

    provider:        `gen_ai.provider.name` of every stream. Default: found by the host's name, else `"openai"`, whose wire
                     format most gateways use.
    tracer_provider: default: the global one.
    meter_provider:  default: the global one.

    Metrics are recorded when a stream ends. A span starts and ends with its stream, run or step. Its parent is the span
    that is current at the start.

    Limits
        The gaps between chunks come from buckets with the conventions' bounds: counts and sum are exact, a single value
        is the mean of its bucket (the longest gap is exact). Each chunk is one call of the metrics API, made when the
        stream ends: some microseconds for each. The first chunk may be metadata: it is not a "first token".
    """

    def __init__(
        self,
        *,
        provider: str | None = None,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._provider = provider
        self._tracer = trace.get_tracer(_NAME, tracer_provider=tracer_provider)
        self._metrics = _Metrics(metrics.get_meter(_NAME, meter_provider=meter_provider))
        self._spans: dict[str, Span] = {}

    def __call__(self, event: Event) -> None:
        """Record *event*."""
        match event:
            case StreamStarted():
                self._stream_started(event)
            case StreamFinished():
                self._stream_finished(event)
            case StreamStalled() | StreamRetry():
                self._note(event.id, event)
            case RunStarted():
                self._start(event.id, f"run {event.run}", {"streamguard.run.name": event.run})
            case StepStarted():
                self._step_started(event)
            case StepRetry() | StepFallback():
                self._note(_step_key(event), event)
            case StepFinished():
                self._step_finished(event)
            case RunFinished():
                self._run_finished(event)

    def scope(self, event: Event) -> AbstractContextManager[object]:
        """Return a context in which the span of a stream's attempt, or of a step, is the current one."""
        key = _step_key(event) if isinstance(event, StepStarted) else event.id if isinstance(event, AttemptStarted) else ""
        span = self._spans.get(key)
        if span is None:
            return nullcontext()
        return trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False)

    def _start(
        self,
        key: str,
        name: str,
        attributes: Attributes,
        *,
        kind: SpanKind = SpanKind.INTERNAL,
        context: Context | None = None,
    ) -> None:
        self._spans[key] = self._tracer.start_span(name, context=context, kind=kind, attributes=attributes)

    def _end(self, key: str, *, error_type: str | None, attributes: Attributes) -> None:
        """End a span, as an error if *error_type* is given. No exception is recorded: its text may be secret."""
        span = self._spans.pop(key, None)
        if span is None:
            return
        span.set_attributes({name: value for name, value in attributes.items() if value is not None})
        if error_type is not None:
            span.set_attribute("error.type", error_type)
            span.set_status(StatusCode.ERROR)
        span.end()

    def _note(self, key: str, event: StreamStalled | StreamRetry | StepRetry | StepFallback) -> None:
        span = self._spans.get(key)
        if span is None:
            return
        fields = {name: getattr(event, name, None) for name in ("phase", "fired", "error_type", "reason", "fallback")}
        attributes = {f"streamguard.{name}": value for name, value in fields.items() if value is not None}
        span.add_event(f"streamguard.{_EVENT_NAMES[type(event)]}", attributes)

    def _stream_started(self, event: StreamStarted) -> None:
        title = event.operation or "stream"
        detail = event.upstream.model if event.operation else event.name
        name = f"{title} {detail}" if detail else title
        attributes = self._genai(event.operation, event.upstream)
        self._start(event.id, name, attributes, kind=SpanKind.CLIENT)

    def _stream_finished(self, event: StreamFinished) -> None:
        report = event.report
        error_type = _error_type(report)
        self._end(report.id, error_type=error_type, attributes=_of_report(report, event.operation))
        if event.operation:
            self._metrics.record(event, self._genai(event.operation, event.upstream), error_type)

    def _genai(self, operation: str | None, upstream: Upstream) -> Attributes:
        attributes: Attributes = {"server.address": upstream.address, "server.port": upstream.port}
        if operation:
            attributes["gen_ai.operation.name"] = operation
            attributes["gen_ai.provider.name"] = self._provider or provider_of(upstream.address)
            attributes["gen_ai.request.model"] = upstream.model
        return {name: value for name, value in attributes.items() if value is not None}

    def _step_started(self, event: StepStarted) -> None:
        run = self._spans.get(event.id)
        context = None if run is None else trace.set_span_in_context(run)
        attributes = {"streamguard.run.name": event.run, "streamguard.step.name": event.step}
        self._start(_step_key(event), f"step {event.step}", attributes, context=context)

    def _step_finished(self, event: StepFinished) -> None:
        failed = event.status in ("timeout", "error")
        error_type = event.error_type or event.reason or _OTHER
        attributes = {"streamguard.step.status": event.status, "streamguard.step.reason": event.reason}
        error_type = "timeout" if event.status == "timeout" else error_type
        self._end(_step_key(event), error_type=error_type if failed else None, attributes=attributes)

    def _run_finished(self, event: RunFinished) -> None:
        failed = event.status in (None, "waiting_external_service")
        error_type = event.error_type or event.status or _OTHER
        attributes = {"streamguard.run.status": event.status or "raised"}
        for key in [key for key in list(self._spans) if key.startswith(f"{event.id} ")]:
            self._end(
                key, error_type=None, attributes={"streamguard.step.status": "cancelled"}
            )  # the run did not wait for it
        self._end(event.id, error_type=error_type if failed else None, attributes=attributes)


class _Metrics:
    """The three histograms of a model call."""

    def __init__(self, meter: metrics.Meter) -> None:
        def histogram(name: str, description: str) -> metrics.Histogram:
            return meter.create_histogram(
                f"gen_ai.client.operation.{name}",
                unit="s",
                description=description,
                explicit_bucket_boundaries_advisory=GAP_BOUNDS,
            )

        self._duration = histogram("duration", "Duration of a call of a model.")
        self._first = histogram("time_to_first_chunk", "From the request to the first chunk.")
        self._gaps = histogram("time_per_output_chunk", "From one chunk to the next.")

    def record(self, event: StreamFinished, attributes: Attributes, error_type: str | None) -> None:
        failed = {} if error_type is None else {"error.type": error_type}
        self._duration.record(event.report.lifetime, {**attributes, **failed})
        if event.report.time_to_first_chunk is not None:
            self._first.record(event.report.time_to_first_chunk, attributes)
        for seconds, times in _gap_values(event.gaps, event.report.max_gap):
            for _ in range(times):
                self._gaps.record(seconds, attributes)


def _gap_values(gaps: Gaps, longest: float | None) -> list[tuple[float, int]]:
    """Return values, and how often to record each, that give the counts and sums of *gaps*, and its maximum."""
    filled = [(count, total) for count, total in gaps if count]
    if filled and longest is not None:
        count, total = filled.pop()
        filled += [(count - 1, total - longest), (1, longest)]
    return [(max(0.0, total) / count, count) for count, total in filled if count]


_EVENT_NAMES: Final[dict[type, str]] = {
    StreamStalled: "stall",
    StreamRetry: "retry",
    StepRetry: "retry",
    StepFallback: "fallback",
}


def _step_key(event: StepStarted | StepRetry | StepFallback | StepFinished) -> str:
    return f"{event.id} {event.step}"


def _error_type(report: StreamReport) -> str | None:
    """Return `error.type`: None for an end that is not a failure, such as `closed`."""
    if report.outcome == "timeout":
        return "timeout"
    return (report.error_type or _OTHER) if report.outcome in ("error", "cancelled") else None


def _of_report(report: StreamReport, operation: str | None) -> Attributes:
    attributes: Attributes = {
        "streamguard.outcome": report.outcome,
        "streamguard.phase": report.phase,
        "streamguard.attempts": report.attempts,
        "streamguard.chunks": report.chunks,
        "streamguard.max_gap": report.max_gap,
        "streamguard.id": report.id,
    }
    if operation:
        usage = report.usage or {}
        reason = report.to_log()["finish_reason"]
        attributes["gen_ai.request.stream"] = True
        attributes["gen_ai.response.time_to_first_chunk"] = report.time_to_first_chunk
        attributes["gen_ai.usage.input_tokens"] = _count(usage.get("prompt_tokens"))
        attributes["gen_ai.usage.output_tokens"] = _count(usage.get("completion_tokens"))
        attributes["gen_ai.response.finish_reasons"] = [reason] if reason else None
    return attributes


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
