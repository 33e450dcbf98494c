"""Hooks are those of the process: each test begins and ends with the default ones."""

from collections.abc import Iterator

import pytest

from streamguard.telemetry import Event, flush, set_hooks


@pytest.fixture(autouse=True)
def _default_hooks(_no_leak: None) -> Iterator[None]:
    """Forget what earlier tests left to tell; take this test's hooks away behind it."""
    set_hooks([])
    flush()
    set_hooks(None)
    yield
    set_hooks(None)


@pytest.fixture
def told() -> list[Event]:
    """Every event that the test causes, in order."""
    events: list[Event] = []
    set_hooks([events.append])
    return events
