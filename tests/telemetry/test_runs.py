"""The events of a real chain, which hold nothing that it handles."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry.trace import StatusCode
from prometheus_client import CollectorRegistry

from streamguard import CancelToken, Chain, bounded_call
from streamguard.telemetry import (
    ConcurrencyChanged,
    Event,
    RunFinished,
    StepFallback,
    StepFinished,
    StepRetry,
    StepStarted,
    ThreadAbandoned,
    set_hooks,
)
from streamguard.telemetry.pools import take_place
from streamguard.telemetry.prometheus import PrometheusHook
from streamguard.testing import Gateway

from .test_events import names, only
from .test_otel import Telemetry
from .test_secrets import SECRET, Everything

Serve = Callable[..., Gateway]


def agent(gateway: Gateway, **options: Any) -> Chain:
    """Return a chain of an optional step, which gets the first script, and a critical one, which gets the second."""
    chain = Chain("agent", deadline=5)

    @chain.step(fallback={"name": SECRET}, fallback_name="neutral_profile", **{"limit": 0.1, **options})
    def profile(ctx: Any) -> Any:
        return ctx.get_json(f"{gateway.url}/{SECRET}?user={ctx.inputs['user']}", headers={"X-Key": SECRET})

    @chain.step(limit=2)
    def policy(ctx: Any) -> Any:
        return ctx.get_json(f"{gateway.url}/{SECRET}")

    return chain


FINE = f'body {{"{SECRET}": true}}'


def test_a_run_emits_its_steps_in_order(streamguard_gateway: Serve, emitted: list[Event]) -> None:
    """Start and end of each step are between those of the run, a fallback before the end of its step."""
    result = agent(streamguard_gateway("stall", FINE)).run(user=SECRET)
    assert result.status == "completed_with_fallback"
    assert [name for name in names(emitted) if name != "ConcurrencyChanged"] == [
        *("RunStarted", "StepStarted", "StepFallback", "StepFinished", "StepStarted", "StepFinished", "RunFinished"),
    ]
    assert [(end.step, end.status, end.reason) for end in only(emitted, StepFinished)] == [
        ("profile", "timeout", "step_limit"),
        ("policy", "ok", None),
    ]
    fallback, end = only(emitted, StepFallback)[0], only(emitted, RunFinished)[0]
    assert (fallback.step, fallback.reason, fallback.fallback) == ("profile", "step_limit", "neutral_profile")
    assert (end.run, end.status, end.id, end.seconds) == ("agent", result.status, result.id, result.elapsed)
    assert {event.id for event in emitted if not isinstance(event, ConcurrencyChanged)} == {result.id}  # type: ignore[union-attr]


def test_a_skipped_step_ends_without_a_beginning(streamguard_gateway: Serve, emitted: list[Event]) -> None:
    """A step that did not run has an end, with its reason."""
    chain = Chain("agent", deadline=0)
    chain.step(lambda ctx: None, name="never")
    chain.run()
    assert names(emitted) == ["RunStarted", "StepFinished", "RunFinished"]
    assert (emitted[1].status, emitted[1].reason) == ("skipped", "deadline_exhausted")  # type: ignore[union-attr]


def test_a_retried_step_is_emitted(streamguard_gateway: Serve, emitted: list[Event]) -> None:
    """One event for each further attempt, from the step's own thread, with the type of the error."""
    agent(streamguard_gateway("headers 503", FINE), limit=5, retries=1, idempotent=True).run(user=1)
    (retry,) = only(emitted, StepRetry)
    assert (retry.step, retry.attempt, retry.error_type) == ("profile", 1, "HTTPStatusError")


def test_a_short_budget_is_emitted(emitted: list[Event]) -> None:
    """It is the event of a step whose deadline leaves less than its own limit."""
    chain = Chain("agent", deadline=1)
    chain.step(lambda ctx: None, name="hurried", limit=60)
    chain.run()
    (reduced,) = [event for event in emitted if type(event).__name__ == "StepBudgetReduced"]
    assert (reduced.step, reduced.limit) == ("hurried", 60)  # type: ignore[union-attr]
    assert 0 < reduced.budget <= 1  # type: ignore[union-attr]


def test_a_bug_ends_the_run_with_its_type(emitted: list[Event]) -> None:
    """The run has no status then: its event has the type of the exception."""
    chain = Chain("agent")
    chain.step(lambda ctx: 1 / 0, name="buggy")
    with pytest.raises(ZeroDivisionError):
        chain.run()
    (end,) = only(emitted, RunFinished)
    assert (end.status, end.error_type) == (None, "ZeroDivisionError")


def test_a_bug_belongs_to_its_step_and_has_no_reason(emitted: list[Event]) -> None:
    """The step with the bug is an error without a reason, with the type; the others are stopped."""
    registry = CollectorRegistry()
    set_hooks([emitted.append, PrometheusHook(registry)])
    begun = threading.Event()
    chain = Chain("agent", max_parallel=2)

    def waits(ctx: Any) -> None:
        begun.set()
        ctx.token.wait(10)

    chain.step(waits, name="parallel")
    chain.step(lambda ctx: 1 / begun.wait(10) / 0, name="buggy", fallback=1, limit=20)
    chain.step(lambda ctx: None, name="later", needs="parallel")
    with pytest.raises(ZeroDivisionError):
        chain.run()
    ends = {end.step: end for end in only(emitted, StepFinished)}
    assert {name: (end.status, end.reason, end.error_type) for name, end in ends.items()} == {
        "buggy": ("error", None, "ZeroDivisionError"),
        "parallel": ("cancelled", "critical_failed", None),
        "later": ("skipped", "critical_failed", None),
    }
    assert only(emitted, StepFallback) == []
    details = ends["buggy"].details
    assert (details["error_type"], details["budget"], details["attempts"]) == ("ZeroDivisionError", 20, 1)
    assert details["duration"] == ends["buggy"].seconds
    step = {"run": "agent", "step": "buggy", "status": "error", "reason": ""}
    assert registry.get_sample_value("streamguard_step_duration_seconds_count", step) == 1
    run = {"run": "agent", "status": "raised"}
    assert registry.get_sample_value("streamguard_run_duration_seconds_count", run) == 1


def test_an_abandoned_step_is_emitted(emitted: list[Event]) -> None:
    """Its thread has the kind `step`."""
    stop = threading.Event()
    chain = Chain("agent")
    chain.step(lambda ctx: stop.wait(), name="stubborn", limit=0.05)
    chain.run()
    stop.set()
    assert only(emitted, ThreadAbandoned) == [ThreadAbandoned(kind="step")]


@pytest.mark.parametrize("inline", [False, True])
def test_places_are_taken_and_freed(emitted: list[Event], inline: bool) -> None:
    """The pool has the chain's name; after the run no place is taken."""
    chain = Chain("agent")
    for name in ("a", "b"):
        chain.step(lambda ctx: None, name=name, inline=inline)
    chain.run()
    assert only(emitted, ConcurrencyChanged) == [ConcurrencyChanged(pool="agent", in_use=n) for n in (1, 0, 1, 0)]


def test_a_pool_is_one_for_the_process(emitted: list[Event]) -> None:
    """Two holders are two places; freeing one twice frees one."""
    first, second = take_place("p"), take_place("p")
    first()
    first()
    second()
    assert [event.in_use for event in only(emitted, ConcurrencyChanged)] == [1, 2, 1, 0]


def test_the_last_number_is_the_true_one() -> None:
    """With any interleaving of threads and a slow hook, a gauge ends at the number of taken places."""
    registry = CollectorRegistry()
    set_hooks([PrometheusHook(registry)])

    def work() -> None:
        for _ in range(200):
            take_place("p")()

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.get_sample_value("streamguard_concurrency_in_use", {"pool": "p"}) == 0


def test_an_interrupted_run_frees_its_places(emitted: list[Event]) -> None:
    """A Ctrl-C inside a hook leaves the run, and no place stays taken."""

    def interrupting(event: Event) -> None:
        if isinstance(event, StepStarted) and event.step == "second":
            raise KeyboardInterrupt

    append = emitted.append
    set_hooks([append, interrupting])
    stop = threading.Event()
    chain = Chain("agent", max_parallel=2)
    chain.step(lambda ctx: ctx.token.wait(10), name="first")
    chain.step(lambda ctx: stop.wait(), name="second")
    with pytest.raises(KeyboardInterrupt):
        chain.run()
    assert only(emitted, ConcurrencyChanged)[-1].in_use == 0
    assert only(emitted, RunFinished)[0].error_type == "KeyboardInterrupt"


def test_the_spans_of_a_run(streamguard_gateway: Serve) -> None:
    """Run, steps and a step's stream are a tree; the handled error is the step's alone."""
    telemetry = Telemetry()
    gateway = streamguard_gateway("stall", "chat a\nfinish\ndone")
    chain = agent(gateway)

    @chain.step(needs=("policy",))
    def answer(ctx: Any) -> Any:
        return ctx.stream("POST", gateway.url).read()

    chain._steps.pop("policy")
    chain.step(lambda ctx: {"allowed": True}, name="policy")
    assert chain.run(user=1).status == "completed_with_fallback"
    spans = {span.name: span for span in telemetry.spans}
    parents = {name: span.parent.span_id if span.parent else None for name, span in spans.items()}
    ids = {name: span.context.span_id for name, span in spans.items() if span.context}
    assert spans.keys() == {"run agent", "step profile", "step policy", "step answer", "chat"}
    assert parents == {
        "run agent": None,
        "step profile": ids["run agent"],
        "step policy": ids["run agent"],
        "step answer": ids["run agent"],
        "chat": ids["step answer"],
    }
    failed = {name for name, span in spans.items() if span.status.status_code is StatusCode.ERROR}
    assert failed == {"step profile"}
    assert telemetry.hook._spans == {}


def test_a_run_that_was_left_leaves_no_span_open() -> None:
    """A bug in one of two parallel steps: the spans of both end with that of the run."""
    telemetry = Telemetry()
    chain = Chain("agent", max_parallel=2)
    chain.step(lambda ctx: ctx.token.wait(10), name="waiting")
    chain.step(lambda ctx: 1 / 0, name="buggy")
    with pytest.raises(ZeroDivisionError):
        chain.run()
    assert telemetry.hook._spans == {}
    assert telemetry.span("run agent").status.status_code is StatusCode.ERROR


def test_nothing_that_a_run_handles_is_shown(streamguard_gateway: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """URL, header, input, the service's words, the fallback's value, an exception's text: in no log, metric, span."""
    everything = Everything(caplog)
    for script in ("stall", f"headers 500 {SECRET}\nraw {SECRET}", f"body {SECRET}", "reset"):
        agent(streamguard_gateway(script, FINE)).run(user=SECRET)

    def broken(ctx: Any) -> Any:
        raise KeyError(SECRET)

    chain = Chain("agent")
    chain.step(broken, name="broken")
    with pytest.raises(KeyError):
        chain.run(user=SECRET)
    shown = everything.shown()
    assert [place for place, text in shown.items() if SECRET in text] == []
    assert 'streamguard_step_fallbacks_total{reason="http_500",run="agent",step="profile"} 1.0' in shown["prometheus"]
    assert "run agent completed_with_fallback" in shown["log"]
    assert "run agent KeyError" in shown["log"]
    assert '"step profile"' in shown["spans"]


def test_one_info_line_for_each_run(streamguard_gateway: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """At INFO a run is one line and its fallbacks one WARNING each; its calls and steps are not there."""
    caplog.set_level(logging.INFO, "streamguard")
    agent(streamguard_gateway("stall", FINE)).run(user=1)
    ours = [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "streamguard"]
    assert ours == [
        ("WARNING", "step profile fallback after step_limit"),
        ("INFO", "run agent completed_with_fallback"),
    ]


def test_a_cancelled_call_inside_a_run_is_the_runs() -> None:
    """A run under a cancelled token emits a cancelled run, and starts no step."""
    events: list[Event] = []
    set_hooks([events.append])
    token = CancelToken()
    token.cancel("enough")
    chain = Chain("agent")
    chain.step(lambda ctx: bounded_call(lambda: 1), name="never")
    assert chain.run(cancel=token).status == "cancelled"
    assert names(events) == ["RunStarted", "StepFinished", "RunFinished"]
    assert "enough" not in str(events)
