"""pytest fixtures, found by their entry point once streamguard is installed.

    def test_client(streamguard_gateway, streamguard_leak_check):
        gateway = streamguard_gateway("event hello", "headers 503 retry-after: 1")
        ...

Limits
    The leak check sees whatever appears between its own setup and teardown. Ask for it first, so that what other
    fixtures open is closed again before it looks; a longer-lived fixture that first starts inside the test is reported.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from .gateway import Gateway
    from .leaks import LeakCheck

__all__ = ["streamguard_gateway", "streamguard_leak_check", "streamguard_tls_gateway"]


@pytest.fixture
def streamguard_gateway() -> Iterator["Callable[..., Gateway]"]:
    """Return a factory with `Gateway`'s arguments; what it starts is stopped behind the test."""
    from .gateway import Gateway

    with ExitStack() as gateways:
        yield lambda *scripts, **options: gateways.enter_context(Gateway(*scripts, **options))


@pytest.fixture
def streamguard_tls_gateway(streamguard_gateway: "Callable[..., Gateway]") -> "Callable[..., Gateway]":
    """Return the same factory with tls=True."""
    return lambda *scripts, **options: streamguard_gateway(*scripts, **{"tls": True, **options})


@pytest.fixture
def streamguard_leak_check() -> Iterator["LeakCheck"]:
    """Fail the test if it leaves a thread or a descriptor behind."""
    from .leaks import no_leaks

    with no_leaks() as check:
        yield check
