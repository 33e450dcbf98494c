"""The Prometheus adapter, with the real library and its own registry."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from streamguard import StreamguardError, before_first_chunk, guarded_stream
from streamguard.telemetry import emit, set_hooks
from streamguard.telemetry.prometheus import PrometheusHook
from streamguard.testing import Gateway

from .samples import DISPATCH, RUN

Serve = Callable[..., Gateway]

ROOT = Path(__file__).parent.parent.parent
CONTRACT = {
    "streamguard_stream_duration_seconds": ("histogram", ("outcome",)),
    "streamguard_stream_time_to_first_chunk_seconds": ("histogram", ()),
    "streamguard_stream_max_gap_seconds": ("histogram", ()),
    "streamguard_stream_stalls": ("counter", ("phase",)),
    "streamguard_stream_retries": ("counter", ("error_type",)),
    "streamguard_run_duration_seconds": ("histogram", ("run", "status")),
    "streamguard_step_duration_seconds": ("histogram", ("run", "step", "status", "reason")),
    "streamguard_step_fallbacks": ("counter", ("run", "step", "reason")),
    "streamguard_step_retries": ("counter", ("run", "step", "error_type")),
    "streamguard_step_budget_reduced": ("counter", ("run", "step")),
    "streamguard_member_turns": ("counter", ("member", "status", "reason")),
    "streamguard_member_silence_seconds": ("histogram", ("member",)),
    "streamguard_concurrency_in_use": ("gauge", ("pool",)),
    "streamguard_abandoned_threads": ("counter", ("kind",)),
}


@pytest.fixture
def registry() -> CollectorRegistry:
    """A registry with our metrics, whose hook is the only one."""
    registry = CollectorRegistry()
    set_hooks([PrometheusHook(registry)])
    return registry


def samples(registry: CollectorRegistry) -> dict[str, float]:
    """Return the counts, sums of counters and gauges of a scrape: no buckets, no times of creation."""
    text = generate_latest(registry).decode()
    pairs = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {key: float(value) for key, value in pairs if not re.search(r"_(bucket|sum|created)\b", key)}


def read(gateway: Gateway, **options: Any) -> None:
    options.setdefault("retry", None)
    with contextlib.suppress(StreamguardError):
        guarded_stream("POST", gateway.url, **options).read()


def test_the_metrics_are_those_of_the_contract(registry: CollectorRegistry) -> None:
    """Names, types and labels: dashboards depend on them, so they only grow."""
    found = {metric.name: metric.type for metric in registry.collect()}
    assert found == {name: kind for name, (kind, _) in CONTRACT.items()}
    hook = PrometheusHook(CollectorRegistry())
    labels = {metric._name: metric._labelnames for metric in vars(hook).values()}
    assert labels == {name: labels for name, (_, labels) in CONTRACT.items()}


def test_the_contract_is_documented() -> None:
    """docs/telemetry.md has a row for each metric, with its labels."""
    rows = re.findall(r"^\| `(streamguard_\w+)` \| (.*?) \|", (ROOT / "docs/telemetry.md").read_text(), re.MULTILINE)
    documented = {name.removesuffix("_total"): tuple(re.findall(r"`(\w+)`", labels)) for name, labels in rows}
    assert documented == {name: labels for name, (_, labels) in CONTRACT.items()}


def test_a_good_stream(streamguard_gateway: Serve, registry: CollectorRegistry) -> None:
    """Its duration by outcome, its first chunk and its longest gap."""
    read(streamguard_gateway("chat a\nwait 0.05\nchat b\nfinish\ndone"))
    assert {key: value for key, value in samples(registry).items() if value} == {
        'streamguard_stream_duration_seconds_count{outcome="completed"}': 1,
        "streamguard_stream_time_to_first_chunk_seconds_count": 1,
        "streamguard_stream_max_gap_seconds_count": 1,
    }
    total = registry.get_sample_value("streamguard_stream_duration_seconds_sum", {"outcome": "completed"})
    assert total is not None
    assert 0.05 <= total < 5


def test_a_stall_and_a_retry(streamguard_gateway: Serve, registry: CollectorRegistry) -> None:
    """Only limits that fired are stalls, by phase, not the warnings before; retries by type of error."""
    gateway = streamguard_gateway("headers\nstall", "headers\nstall")
    read(gateway, first=0.1, retry=before_first_chunk(1, wait=lambda state: 0.0))
    assert {key: value for key, value in samples(registry).items() if value} == {
        'streamguard_stream_duration_seconds_count{outcome="timeout"}': 1,
        'streamguard_stream_stalls_total{phase="first"}': 2,
        'streamguard_stream_retries_total{error_type="StreamInactivityTimeoutError"}': 1,
    }


def test_a_run(registry: CollectorRegistry) -> None:
    """Runs by name and status; steps by run, name, status and reason; fallbacks, retries and short budgets by run, step."""
    for event in RUN:
        emit(event)
    assert {key: value for key, value in samples(registry).items() if value} == {
        'streamguard_run_duration_seconds_count{run="agent",status="completed_with_fallback"}': 1,
        'streamguard_step_duration_seconds_count{reason="step_limit",run="agent",status="timeout",step="profile"}': 1,
        'streamguard_step_duration_seconds_count{reason="",run="agent",status="ok",step="policy"}': 1,
        'streamguard_step_fallbacks_total{reason="step_limit",run="agent",step="profile"}': 1,
        'streamguard_step_retries_total{error_type="TransportError",run="agent",step="profile"}': 1,
        'streamguard_step_budget_reduced_total{run="agent",step="profile"}': 1,
    }


def test_a_dispatch(registry: CollectorRegistry) -> None:
    """Turns by member, status and reason; their silence; the places in use; abandoned threads."""
    for event in DISPATCH:
        emit(event)
    assert {key: value for key, value in samples(registry).items() if value} == {
        'streamguard_member_turns_total{member="claude",reason="timeout",status="failed"}': 1,
        'streamguard_member_turns_total{member="codex",reason="",status="succeeded"}': 1,
        'streamguard_member_silence_seconds_count{member="claude"}': 1,
        'streamguard_abandoned_threads_total{kind="turn"}': 1,
    }
    assert registry.get_sample_value("streamguard_concurrency_in_use", {"pool": "dispatch"}) == 0
    emit(DISPATCH[0])
    assert registry.get_sample_value("streamguard_concurrency_in_use", {"pool": "dispatch"}) == 2


def test_a_registry_has_one_hook(registry: CollectorRegistry) -> None:
    """A second hook on the same registry is the library's own ValueError, not a double count."""
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        PrometheusHook(registry)


def test_minutes_of_silence_have_buckets(registry: CollectorRegistry) -> None:
    """595 seconds, a common timeout of gateways, has a bucket with a bound above it."""
    emit(DISPATCH[1])
    below = registry.get_sample_value("streamguard_member_silence_seconds_bucket", {"member": "claude", "le": "327.68"})
    within = registry.get_sample_value("streamguard_member_silence_seconds_bucket", {"member": "claude", "le": "655.36"})
    assert (below, within) == (0, 1)
