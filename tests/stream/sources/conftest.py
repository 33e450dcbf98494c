"""What the tests of guard() share."""

import contextlib
from collections.abc import Iterator

import pytest

from streamguard import guard
from streamguard.testing import Gateway

from . import wire
from .clients import CLIENTS


@pytest.fixture(scope="session", autouse=True)
def _models_are_built() -> None:
    """Let the SDKs build their models, at the first event of a kind: that may take longer than our limits."""
    script = f"{CLIENTS['openai-responses'].start}\n{wire.RESPONSES_END}\nclose"
    with Gateway(script) as gateway, contextlib.ExitStack() as clients, contextlib.suppress(Exception):
        for _ in guard(CLIENTS["openai-responses"].open(gateway, clients), idle=30):
            pass


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    """Close the clients after the test."""
    with contextlib.ExitStack() as clients:
        yield clients
