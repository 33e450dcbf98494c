"""What the tests of guard() share."""

import contextlib
from collections.abc import Iterator

import pytest


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """Close the clients behind the test."""
    with contextlib.ExitStack() as clients:
        yield clients
