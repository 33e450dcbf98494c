"""The OpenTelemetry adapter, with the real SDK and exporters in memory."""

import contextlib
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from streamguard import StreamguardError, before_first_chunk, guarded_stream
from streamguard.telemetry import GAP_BOUNDS, Event, RunFinished, RunStarted, StepStarted, emit, flush, set_hooks
from streamguard.telemetry.hooks import scope
from streamguard.telemetry.otel import OpenTelemetryHook
from streamguard.telemetry.providers import provider_of
from streamguard.testing import Gateway

from .samples import RUN

Serve = Callable[..., Gateway]

GOOD = "chat a\nchat b\nfinish\nusage 5 2\ndone"
DURATION, FIRST, GAPS = (
    f"gen_ai.client.operation.{name}" for name in ("duration", "time_to_first_chunk", "time_per_output_chunk")
)


class Telemetry:
    """A hook whose spans and metrics stay in memory."""

    def __init__(self, **options: Any) -> None:
        self.reader = InMemoryMetricReader()
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.meters = MeterProvider([self.reader], shutdown_on_exit=False)
        self.hook = OpenTelemetryHook(tracer_provider=self.tracers, meter_provider=self.meters, **options)
        set_hooks([self.hook])

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def span(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.spans if span.name == name]
        return found

    def points(self) -> dict[str, HistogramDataPoint]:
        """Return the one data point of each metric."""
        data = self.reader.get_metrics_data()
        metrics = [] if data is None else data.resource_metrics[0].scope_metrics[0].metrics
        return {metric.name: point for metric in metrics for point in metric.data.data_points}  # type: ignore[misc]


@pytest.fixture
def telemetry() -> Telemetry:
    """A hook with default options, the only active one."""
    return Telemetry()


def read(gateway: Gateway, **options: Any) -> Any:
    options.setdefault("retry", None)
    options.setdefault("json", {"model": "gpt-5-mini", "stream": True})
    stream = guarded_stream("POST", gateway.url, **options)
    with contextlib.suppress(StreamguardError):
        stream.read()
    return stream


def test_a_model_call_has_three_metrics(streamguard_gateway: Serve, telemetry: Telemetry) -> None:
    """Duration, time to the first chunk, and a value for each chunk but the first, in seconds and GenAI buckets."""
    gateway = streamguard_gateway("chat a\nwait 0.1\nchat b\nfinish\ndone")
    report = read(gateway).report
    points = telemetry.points()
    assert points.keys() == {DURATION, FIRST, GAPS}
    assert {tuple(point.explicit_bounds) for point in points.values()} == {GAP_BOUNDS}
    assert (points[DURATION].count, points[DURATION].sum) == (1, report.lifetime)
    assert (points[FIRST].count, points[FIRST].sum) == (1, report.time_to_first_chunk)
    assert (points[GAPS].count, points[GAPS].max) == (report.chunks - 1, report.max_gap)


def test_their_attributes_are_those_of_the_conventions(streamguard_gateway: Serve, telemetry: Telemetry) -> None:
    """Operation, provider, model, address and port, and nothing else."""
    gateway = streamguard_gateway(GOOD)
    read(gateway)
    host, port = gateway.url.removeprefix("http://").split(":")
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "gpt-5-mini",
        "server.address": host,
        "server.port": int(port),
    }
    assert [dict(point.attributes or {}) for point in telemetry.points().values()] == [expected] * 3


@pytest.mark.parametrize(
    ("script", "error_type"),
    [
        ("chat a\nstall", "timeout"),
        ("chat a\nend", "IncompleteStreamError"),
        ("chat a\nwait 0.05\nreset", "TransportError"),
    ],
)
def test_an_error_type_is_on_the_duration_only(
    streamguard_gateway: Serve, telemetry: Telemetry, script: str, error_type: str
) -> None:
    """`timeout`, or the class's name; the other metrics have none."""
    read(streamguard_gateway(script), idle=0.15)
    points = telemetry.points()
    assert (points[DURATION].attributes or {})["error.type"] == error_type
    assert "error.type" not in (points[FIRST].attributes or {})
    (span,) = telemetry.spans
    assert (span.status.status_code, (span.attributes or {})["error.type"]) == (StatusCode.ERROR, error_type)


def test_a_stream_without_a_chunk_has_no_first_chunk(streamguard_gateway: Serve, telemetry: Telemetry) -> None:
    """The metrics of chunks need chunks."""
    read(streamguard_gateway("headers 500"))
    assert telemetry.points().keys() == {DURATION}


def test_a_stream_without_a_model_has_a_span_only(streamguard_gateway: Serve, telemetry: Telemetry) -> None:
    """A download is not a GenAI operation: no metric, no such attribute."""
    read(streamguard_gateway("raw abc"), decode="bytes", json=None, name="download")
    assert telemetry.points() == {}
    span = telemetry.span("stream download")
    assert not [name for name in span.attributes or {} if name.startswith("gen_ai")]


def test_the_span_of_a_stream(streamguard_gateway: Serve, telemetry: Telemetry) -> None:
    """A CLIENT span named by operation and model, with the report's numbers; status unset."""
    stream = read(streamguard_gateway(GOOD))
    span = telemetry.span("chat gpt-5-mini")
    attributes = dict(span.attributes or {})
    assert (span.kind, span.status.status_code) == (SpanKind.CLIENT, StatusCode.UNSET)
    assert attributes["streamguard.outcome"] == "completed"
    assert attributes["streamguard.id"] == stream.report.id
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert (attributes["gen_ai.usage.input_tokens"], attributes["gen_ai.usage.output_tokens"]) == (5, 2)
    assert span.start_time is not None
    assert span.end_time is not None
    assert (span.end_time - span.start_time) / 1e9 == pytest.approx(stream.report.lifetime, abs=0.5)


def test_stalls_and_retries_are_events_of_the_span(streamguard_gateway: Serve, telemetry: Telemetry) -> None:
    """Each with its phase; a retry with the type of the error. One span for all attempts."""
    gateway = streamguard_gateway("headers\nstall", GOOD)
    read(gateway, first=0.1, retry=before_first_chunk(1, wait=lambda state: 0.0))
    (span,) = telemetry.spans
    assert [(event.name, dict(event.attributes or {})) for event in span.events] == [
        ("streamguard.stall", {"streamguard.phase": "first", "streamguard.fired": False}),
        ("streamguard.stall", {"streamguard.phase": "first", "streamguard.fired": True}),
        (
            "streamguard.retry",
            {"streamguard.phase": "first", "streamguard.error_type": "StreamInactivityTimeoutError"},
        ),
    ]
    assert span.status.status_code is StatusCode.UNSET
    assert (span.attributes or {})["streamguard.attempts"] == 2


def test_a_stream_is_a_child_of_the_callers_span(streamguard_gateway: Serve, telemetry: Telemetry) -> None:
    """Its parent is the span that was current at its first `next()`; the caller's current span is never changed."""
    tracer = telemetry.tracers.get_tracer("caller")
    with tracer.start_as_current_span("caller") as caller:
        stream = guarded_stream("POST", streamguard_gateway(GOOD).url)
        for _ in stream:
            assert trace.get_current_span() is caller
    span = telemetry.span("chat")
    assert span.parent is not None
    assert span.parent.span_id == caller.get_span_context().span_id


def test_http_spans_are_children_of_the_streams(streamguard_gateway: Serve, telemetry: Telemetry) -> None:
    """In the reader thread of each attempt the stream's span is current: there an HTTP instrumentation works."""
    seen: list[tuple[str, int]] = []

    def look(response: Any, **options: Any) -> None:
        name = threading.current_thread().name
        seen.append((name, trace.get_current_span().get_span_context().span_id))

    read(streamguard_gateway(GOOD), hooks={"response": look})
    ((thread, span_id),) = seen
    context = telemetry.span("chat gpt-5-mini").context
    assert context is not None
    assert span_id == context.span_id
    assert thread.startswith("streamguard-reader-")


def test_a_stream_left_early_is_not_an_error(streamguard_gateway: Serve, telemetry: Telemetry) -> None:
    """Leaving early is not an error: outcome closed, status unset, no `error.type`."""
    with guarded_stream("POST", streamguard_gateway("chat a\nstall").url) as stream:
        next(stream)
    span = telemetry.span("chat")
    assert span.status.status_code is StatusCode.UNSET
    assert (span.attributes or {})["streamguard.outcome"] == "closed"
    assert "error.type" not in (telemetry.points()[DURATION].attributes or {})


def test_a_collected_stream_leaves_no_span_open(streamguard_gateway: Serve, telemetry: Telemetry) -> None:
    """Its span ends with the next event, or with `flush`; the hook keeps nothing of it."""
    next(guarded_stream("POST", streamguard_gateway("chat a\nstall").url))
    gc.collect()
    flush()
    assert (telemetry.span("chat").attributes or {})["streamguard.outcome"] == "closed"
    assert telemetry.hook._spans == {}


def test_a_run_and_its_steps(telemetry: Telemetry) -> None:
    """A handled error is not the parent's: with a fallback the run's span is unset, the step's is an ERROR."""
    for event in RUN:
        emit(event)
    run, profile, policy = (telemetry.span(name) for name in ("run agent", "step profile", "step policy"))
    assert [span.status.status_code for span in (run, profile, policy)] == [
        StatusCode.UNSET,
        StatusCode.ERROR,
        StatusCode.UNSET,
    ]
    assert (profile.attributes or {})["error.type"] == "timeout"
    assert (run.attributes or {})["streamguard.run.status"] == "completed_with_fallback"
    assert run.events == ()
    assert [event.name for event in profile.events] == ["streamguard.retry", "streamguard.fallback"]
    assert run.context is not None
    assert [span.parent.span_id for span in (profile, policy) if span.parent] == [run.context.span_id] * 2
    assert telemetry.hook._spans == {}


@pytest.mark.parametrize(
    ("status", "raised", "error_type"),
    [
        ("completed", None, None),
        ("cancelled", None, None),
        ("waiting_external_service", None, "waiting_external_service"),
        (None, "NameError", "NameError"),
    ],
)
def test_the_status_of_a_run(telemetry: Telemetry, status: str | None, raised: str | None, error_type: str | None) -> None:
    """A run that waits for a service, or that a bug ended, is an error; a cancelled one is not."""
    emit(RunStarted(id="r", run="agent"))
    emit(RunFinished(id="r", run="agent", status=status, seconds=1.0, error_type=raised))
    span = telemetry.span("run agent")
    assert (span.status.status_code is StatusCode.ERROR) == (error_type is not None)
    assert (span.attributes or {}).get("error.type") == error_type
    assert (span.attributes or {})["streamguard.run.status"] == (status or "raised")


def test_a_step_is_the_current_span_of_its_thread(telemetry: Telemetry, streamguard_gateway: Serve) -> None:
    """A stream in a step is a child of the step's span."""
    step = StepStarted(id="r1", run="agent", step="profile")
    for event in RUN[:2]:
        emit(event)
    with scope(step):
        read(streamguard_gateway(GOOD))
    for event in RUN[2:]:
        emit(event)
    stream, profile = telemetry.span("chat gpt-5-mini"), telemetry.span("step profile")
    assert stream.parent is not None
    assert profile.context is not None
    assert stream.parent.span_id == profile.context.span_id


def test_the_provider_can_be_given(streamguard_gateway: Serve) -> None:
    """The argument `provider=` precedes the guess by the host."""
    telemetry = Telemetry(provider="my.gateway")
    read(streamguard_gateway(GOOD))
    assert (telemetry.points()[DURATION].attributes or {})["gen_ai.provider.name"] == "my.gateway"


@pytest.mark.parametrize(
    ("host", "provider"),
    [
        ("api.openai.com", "openai"),
        ("me.openai.azure.com", "azure.ai.openai"),
        ("API.Anthropic.com.", "anthropic"),
        ("bedrock-runtime.eu-west-1.amazonaws.com", "aws.bedrock"),
        ("my-gateway.elb.amazonaws.com", "openai"),
        ("us-central1-aiplatform.googleapis.com", "gcp.vertex_ai"),
        ("generativelanguage.googleapis.com", "gcp.gemini"),
        ("api.x.ai", "x_ai"),
        ("gateway-x.ai", "openai"),
        ("notopenai.com", "openai"),
        ("127.0.0.1", "openai"),
    ],
)
def test_known_hosts_have_a_provider(host: str, provider: str) -> None:
    """By the end of the host's name; any other host is a gateway with OpenAI's wire format."""
    assert provider_of(host) == provider


def test_events_without_a_span_are_ignored(telemetry: Telemetry) -> None:
    """A hook that is set in the middle of a run receives ends without starts."""
    late: list[Event] = RUN[2:6]
    for event in late:
        emit(event)
    assert telemetry.spans == []


def test_without_an_sdk_it_does_nothing(streamguard_gateway: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """With the API's own providers, which record nothing, a stream works and no hook fails."""
    set_hooks([OpenTelemetryHook()])
    assert read(streamguard_gateway(GOOD)).text == "ab"
    assert caplog.records == []
