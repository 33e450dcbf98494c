"""The server that the fuzzed responses come from."""

import pytest

from . import wire


@pytest.fixture(scope="session", autouse=True)
def _echo() -> None:
    """Start it before the first test, so that it is not a leak: it serves until the process ends."""
    wire.echo()
