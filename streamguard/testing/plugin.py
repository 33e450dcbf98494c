"""pytest fixtures, found by their entry point when streamguard is installed.

    def test_client(streamguard_gateway, streamguard_leak_check):
        gateway = streamguard_gateway("event hello", "headers 503 retry-after: 1")
        ...

Limits
    The leak check reports everything that appears between its setup and its teardown. Name it before other fixtures, so
    that they are closed before it checks. A longer-lived fixture that starts during the test is reported.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .gateway import Gateway
    from .leaks import LeakCheck


@pytest.fixture
def streamguard_gateway() -> Iterator["Callable[..., Gateway]"]:
    """Return a factory with `Gateway`'s arguments; what it starts is stopped after the test."""
    from .gateway import Gateway

    with ExitStack() as gateways:
        yield lambda *scripts, **options: gateways.enter_context(Gateway(*scripts, **options))


@pytest.fixture
def streamguard_tls_gateway(streamguard_gateway: "Callable[..., Gateway]") -> "Callable[..., Gateway]":
    """Return the same factory with tls=True."""
    return lambda *scripts, **options: streamguard_gateway(*scripts, **{"tls": True, **options})


@pytest.fixture
def streamguard_leak_check() -> Iterator["LeakCheck"]:
    """Fail the test if a thread or a descriptor of it remains."""
    from .leaks import no_leaks

    with no_leaks() as check:
        yield check
