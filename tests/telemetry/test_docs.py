"""docs/telemetry.md and docs/api.md name every event with its fields, and docs/api.md all that the package exports."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

import streamguard.telemetry
from streamguard.telemetry.otel import OpenTelemetryHook
from streamguard.telemetry.prometheus import PrometheusHook

from .test_events import KINDS

DOCS = Path(__file__).parent.parent.parent / "docs"
OTHER_NAMES = sorted(set(streamguard.telemetry.__all__) - {kind.__name__ for kind in KINDS})


def page(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def test_all_is_sorted_and_complete() -> None:
    """Each kind of event is exported, once, and the names are in order."""
    names = streamguard.telemetry.__all__
    assert {kind.__name__ for kind in KINDS} <= set(names)
    assert len(set(names)) == len(names)
    assert all(hasattr(streamguard.telemetry, name) for name in names)


@pytest.mark.parametrize("name", ["api.md", "telemetry.md"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_event_has_a_row_with_its_fields(kind: Any, name: str) -> None:
    """The table of events names each kind, and each of its fields."""
    row = next(line for line in page(name).splitlines() if line.startswith(f"| `{kind.__name__}` |"))
    named = set(re.findall(r"`(\w+)`", row))
    assert {field.name for field in dataclasses.fields(kind)} <= named


@pytest.mark.parametrize("name", [*OTHER_NAMES, PrometheusHook.__name__, OpenTelemetryHook.__name__])
def test_every_other_name_is_explained(name: str) -> None:
    """All other exported names are in the section on telemetry of api.md."""
    section = page("api.md").split("\n## streamguard.telemetry\n")[1].split("\n## ")[0]
    assert re.search(rf"`{name}\b", section)


def test_every_name_of_opentelemetry_is_documented() -> None:
    """Each attribute and metric of the conventions that the adapter sets is in telemetry.md, or has our prefix."""
    source = Path(streamguard.telemetry.__file__).with_name("otel.py").read_text(encoding="utf-8")
    names = set(re.findall(r'"((?:gen_ai|server|error)\.[\w.]+)"', source))
    assert {"error.type", "server.port", "gen_ai.request.model"} <= names
    assert {name for name in names if name not in page("telemetry.md")} == set()
