"""Fixtures of the http tests: a certificate authority, and a server for each scheme."""

import contextlib
import ssl
from collections.abc import Callable, Iterator

import pytest

from .servers import Authority, Handler, Server

Serve = Callable[..., Server]


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Sign certificates for loopback."""
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(params=["http", "https"])
def tls(request: pytest.FixtureRequest, authority: Authority) -> ssl.SSLContext | None:
    """Run the test over http and over https."""
    return authority.server_side if request.param == "https" else None


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers that end with the test."""
    with contextlib.ExitStack() as stack:

        def start(handler: Handler, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> Server:
            return stack.enter_context(Server(handler, tls=tls, host=host))

        yield start
