"""`connect` and `response`: name resolution, pools, proxies, TLS, header blocks and redirects are inside the limits."""

import errno
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import tenacity

import streamguard
import streamguard._stream.failures
from streamguard import (
    DeadlineExceededError,
    StreamCancelledError,
    StreamguardError,
    StreamInactivityTimeoutError,
    TransportTimeoutError,
    guarded_stream,
)

from ..helpers import PROMPT, Serve, wait_until
from ..http.servers import blackhole
from .helpers import consume, failure, has_reader, stream_from


@pytest.fixture
def stuck_dns(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold every name resolution until the event is set, at the latest after the test."""
    answer, resolve = threading.Event(), socket.getaddrinfo

    def getaddrinfo(*args: Any, **kwargs: Any) -> Any:
        answer.wait(30)
        return resolve(*args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield answer
    answer.set()


@pytest.mark.parametrize(
    ("options", "least", "kinds"),
    [
        ({"total": 0.3}, 0.3, DeadlineExceededError),
        ({"connect": 0.2, "retry": None}, 0.2, TransportTimeoutError),
        # Whichever comes first: the deadline, or a pause that would outlast it.
        ({"connect": 0.1, "total": 0.5, "retry": 9}, 0.1, DeadlineExceededError | TransportTimeoutError),
    ],
)
def test_name_resolution_is_inside_the_limits(
    streamguard_gateway: Serve,
    stuck_dns: threading.Event,
    capfd: pytest.CaptureFixture[str],
    options: dict[str, Any],
    least: float,
    kinds: type[StreamguardError],
) -> None:
    """A resolver that hangs does not delay the consumer; its thread is counted, and emits nothing (B003)."""
    gateway = streamguard_gateway("chat late\ndone")
    seen = consume(stream := stream_from(gateway, **options))
    assert isinstance(seen.error, kinds)
    assert seen.error.phase in ("connect", "retry")
    assert least <= seen.elapsed < 0.5 + PROMPT
    assert stream.report.abandoned_threads == stream.report.attempts
    stuck_dns.set()
    wait_until(lambda: not has_reader(stream))
    assert (gateway.connections, stream.text, capfd.readouterr()) == (0, "", ("", ""))


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_name_resolution_can_be_cancelled(streamguard_gateway: Serve, stuck_dns: threading.Event, how: str) -> None:
    """Cancel and close free a consumer that waits for a name (B003)."""
    gateway = streamguard_gateway("chat late\ndone")
    stream = stream_from(gateway)
    threading.Timer(0.1, getattr(stream, how)).start()
    seen = consume(stream)
    assert isinstance(seen.error, StreamCancelledError) == (how == "cancel")
    assert seen.elapsed < PROMPT
    stuck_dns.set()
    wait_until(lambda: not has_reader(stream))
    assert gateway.connections == 0


@pytest.mark.parametrize(("limit", "phase"), [("connect", "connect"), ("total", "connect")])
def test_connect_is_not_paid_once_per_address(monkeypatch: pytest.MonkeyPatch, limit: str, phase: str) -> None:
    """A name with three addresses that do not answer costs one `connect`, and `total` holds as well (B004)."""
    with blackhole() as one, blackhole() as two, blackhole() as three:
        addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in (one, two, three)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: addresses)
        stream = guarded_stream("GET", "http://three-addresses.invalid/", retry=None, **{limit: 0.3})  # type: ignore[call-overload]
        seen = consume(stream)
        assert isinstance(seen.error, TransportTimeoutError | DeadlineExceededError)
        assert seen.error.phase == phase
        assert 0.3 <= seen.elapsed < 0.9
        wait_until(lambda: not has_reader(stream))


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize(("limit", "kind"), [("response", TransportTimeoutError), ("total", DeadlineExceededError)])
def test_a_slow_header_block_is_cut(
    streamguard_gateway: Serve, tls: bool, limit: str, kind: type[StreamguardError]
) -> None:
    """Headers that drip in are one wait: the limit fires on time, and the server sees the close (B005)."""
    gateway = streamguard_gateway("drip-headers 0.03", tls=tls)
    seen = consume(stream := stream_from(gateway, retry=None, **{limit: 0.3}))
    assert isinstance(seen.error, kind)
    assert seen.error.phase == "response"
    assert 0.3 <= seen.elapsed < 0.3 + PROMPT
    gateway.wait_left()
    wait_until(lambda: not has_reader(stream))


def test_connect_covers_the_tls_handshake(streamguard_tls_gateway: Serve) -> None:
    """A server that accepts and never answers the client hello: `connect` fires, is a requests.Timeout, and is retried."""
    gateway = streamguard_tls_gateway("", tls_stall=True)
    once = streamguard.before_first_chunk(1, wait=tenacity.wait_none())
    error = failure(stream_from(gateway, connect=0.2, retry=once))
    assert isinstance(error, TransportTimeoutError)
    assert not isinstance(error, StreamInactivityTimeoutError)
    assert (error.phase, error.limit, error.attempt) == ("connect", 0.2, 2)
    gateway.wait_connections(2, still_open=0)


def test_connect_covers_the_proxy(streamguard_gateway: Serve) -> None:
    """A proxy that never answers CONNECT meets `connect`, not `response`."""
    proxy = streamguard_gateway("stall")
    stream = streamguard.guarded_stream(
        "GET", "https://upstream.invalid/", proxies={"https": proxy.url}, connect=0.2, retry=None
    )
    error = failure(stream)
    assert (error.phase, error.limit, proxy.requests[0].method) == ("connect", 0.2, "CONNECT")
    proxy.wait_left()


def test_connect_covers_the_wait_for_the_pool(streamguard_gateway: Serve) -> None:
    """The wait for a slot of a blocking pool: the error is on time, the thread stays until it gets the slot."""
    gateway = streamguard_gateway("chat a\nstall")
    with requests.Session() as session:
        session.mount("http://", streamguard.Adapter(pool_maxsize=1, pool_block=True))
        with stream_from(gateway, session=session) as holder:
            waiting = stream_from(gateway, session=session, connect=0.2, retry=None)
            error = failure(waiting)
            assert isinstance(error, TransportTimeoutError)
            assert (error.phase, waiting.report.abandoned_threads, has_reader(waiting)) == ("connect", 1, True)
            assert holder.report.outcome == "running"
        wait_until(lambda: not has_reader(waiting))
    assert len(gateway.requests) == 1


@pytest.mark.parametrize("script", ["stall", "wire HTTP/1.1 200 OK\\r\\nX-A: y\nstall", "drip-headers 0.05"])
def test_response_covers_the_whole_header_block(streamguard_gateway: Serve, script: str) -> None:
    """No headers, half of them, or a byte now and then: `response` fires, and the server sees the close."""
    gateway = streamguard_gateway(script)
    seen = consume(stream_from(gateway, response=0.2, retry=None))
    assert isinstance(seen.error, TransportTimeoutError)
    assert isinstance(seen.error, requests.Timeout)
    assert (seen.error.phase, seen.error.limit, seen.error.errno) == ("response", 0.2, errno.ETIMEDOUT)
    assert 0.2 <= seen.elapsed < 0.2 + PROMPT
    gateway.wait_left()


def test_response_restarts_for_each_redirect(streamguard_gateway: Serve) -> None:
    """Three hops that each take more than half of `response` are not a timeout."""
    hop = "wait 0.25\nheaders 307 location: /next; content-length: 0"
    gateway = streamguard_gateway(hop, hop, "wait 0.25\nchat a\ndone", framing="length")
    seen = consume(stream_from(gateway, response=0.45))
    assert (seen.error, seen.texts, len(gateway.requests)) == (None, ["a"], 3)


def test_a_redirect_that_stalls_is_cut(streamguard_gateway: Serve) -> None:
    """The silence of a later hop is in phase `response`, too."""
    gateway = streamguard_gateway("headers 307 location: /next; content-length: 0", "stall", framing="length")
    error = failure(stream_from(gateway, response=0.2, retry=None))
    assert (error.phase, len(gateway.requests)) == ("response", 2)
    gateway.wait_left(2)
