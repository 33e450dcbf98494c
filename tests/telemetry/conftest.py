"""Hooks belong to the process: each test starts and ends with the default ones."""

from collections.abc import Iterator

import pytest

from streamguard.telemetry import Event, flush, set_hooks


@pytest.fixture(autouse=True)
def _default_hooks(_no_leak: None) -> Iterator[None]:
    """Drop what earlier tests deferred; restore the default hooks after the test."""
    set_hooks([])
    flush()
    set_hooks(None)
    yield
    set_hooks(None)


@pytest.fixture
def emitted() -> list[Event]:
    """Every event of the test, in order."""
    events: list[Event] = []
    set_hooks([events.append])
    return events
