"""Every kind of stream over HTTP is cut while its reader is blocked; the server is the witness."""

import contextlib
import http.client
import zlib
from typing import Any
from urllib.parse import urlsplit

import pytest

from streamguard import (
    DeadlineExceededError,
    IncompleteStreamError,
    StreamCancelledError,
    StreamInactivityTimeoutError,
    TransportError,
    guard,
)
from streamguard._core.clock import monotonic
from streamguard.testing import Gateway

from ...helpers import Serve
from .clients import CLIENTS, MODELS, PATIENCE, Consumer, assert_blocked, assert_released

LIMIT = 0.25
both_schemes = pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
every_client = pytest.mark.parametrize("client", CLIENTS)


def open_from(gateway: Gateway, client: str, stack: contextlib.ExitStack) -> Any:
    return CLIENTS[client].open(gateway, stack)


@both_schemes
@every_client
def test_silence(streamguard_gateway: Serve, stack: contextlib.ExitStack, client: str, tls: bool) -> None:
    """`idle` fires in a blocked read, on time, though the library's own timeout is shorter; what arrived was delivered."""
    gateway = streamguard_gateway(f"{CLIENTS[client].start}\nstall", tls=tls)
    stream = guard(open_from(gateway, client, stack), idle=LIMIT)
    consumer = Consumer(stream)
    gateway.wait_step("stall")
    stalled = monotonic()
    error = consumer.wait()
    assert isinstance(error, StreamInactivityTimeoutError), error
    assert (error.phase, error.limit) == ("idle", LIMIT)
    assert error.elapsed >= LIMIT
    assert monotonic() - stalled < LIMIT + PATIENCE
    assert len(consumer.items) >= 1
    if client in MODELS:
        assert error.partial_text == "hello"
    assert_released(stream, gateway)
    assert stream.report.outcome == "timeout"


@both_schemes
@every_client
def test_cancel(streamguard_gateway: Serve, stack: contextlib.ExitStack, client: str, tls: bool) -> None:
    """A cancel from another thread frees the consumer, wakes the blocked reader, and the server sees the close."""
    gateway = streamguard_gateway(f"{CLIENTS[client].start}\nstall", tls=tls)
    stream = guard(open_from(gateway, client, stack), idle=60)
    consumer = Consumer(stream)
    gateway.wait_step("stall")
    assert_blocked(stream)
    assert stream.cancel("enough")
    error = consumer.wait()
    assert isinstance(error, StreamCancelledError)
    assert error.reason == "enough"
    assert_released(stream, gateway)


@every_client
def test_close(streamguard_gateway: Serve, stack: contextlib.ExitStack, client: str) -> None:
    """A close from another thread ends the loop quietly, and cuts all the same."""
    gateway = streamguard_gateway(f"{CLIENTS[client].start}\nstall")
    stream = guard(open_from(gateway, client, stack), idle=60)
    consumer = Consumer(stream)
    gateway.wait_step("stall")
    assert_blocked(stream)
    stream.close()
    assert consumer.wait() is None
    assert_released(stream, gateway)
    assert stream.report.outcome == "closed"


@every_client
def test_left_in_the_middle(streamguard_gateway: Serve, stack: contextlib.ExitStack, client: str) -> None:
    """A `break` out of a `with` block frees reader and socket."""
    gateway = streamguard_gateway(f"{CLIENTS[client].start}\nstall")
    with guard(open_from(gateway, client, stack), idle=60) as stream:
        for _ in stream:
            break
        gateway.wait_step("stall")
        assert_blocked(stream)
    assert_released(stream, gateway)


@every_client
def test_total(streamguard_gateway: Serve, stack: contextlib.ExitStack, client: str) -> None:
    """`total` ends a stream that is silent from its first byte."""
    head = CLIENTS[client].start.split("\n")[0] if client == "botocore" else "headers"
    gateway = streamguard_gateway(f"{head}\nstall")
    stream = guard(open_from(gateway, client, stack), total=LIMIT)
    consumer = Consumer(stream)
    error = consumer.wait()
    assert isinstance(error, DeadlineExceededError)
    assert error.scope == "total"
    assert_released(stream, gateway)


@both_schemes
@every_client
def test_complete(streamguard_gateway: Serve, stack: contextlib.ExitStack, client: str, tls: bool) -> None:
    """A stream that ends as it should ends quietly, with its message assembled if it has one."""
    gateway = streamguard_gateway(f"{CLIENTS[client].start}\nwait 0.15\n{CLIENTS[client].end}", tls=tls)
    stream = guard(open_from(gateway, client, stack), idle=10)
    consumer = Consumer(stream)
    assert consumer.wait() is None
    assert stream.report.outcome == "completed"
    assert stream.report.chunks == len(consumer.items) > 0
    assert_released(stream)
    if client in MODELS:
        assert (stream.text, stream.message.text) == ("hello", "hello")
        assert stream.report.finish_reason in ("stop", "completed", "end_turn")


@pytest.mark.parametrize("client", MODELS)
def test_what_breaks_off_is_incomplete(streamguard_gateway: Serve, stack: contextlib.ExitStack, client: str) -> None:
    """A body that ends well framed in the middle of a message is an error, though most SDKs end quietly there."""
    gateway = streamguard_gateway(CLIENTS[client].start)
    consumer = Consumer(guard(open_from(gateway, client, stack)))
    error = consumer.wait()
    assert isinstance(error, IncompleteStreamError)
    assert error.partial_text == "hello"


@pytest.mark.parametrize("client", MODELS)
def test_strict_false_accepts_it(streamguard_gateway: Serve, stack: contextlib.ExitStack, client: str) -> None:
    """`strict=False` accepts a server that never sends an end marker."""
    gateway = streamguard_gateway(CLIENTS[client].start)
    stream = guard(open_from(gateway, client, stack), strict=False)
    assert Consumer(stream).wait() is None
    assert stream.report.outcome == "incomplete"


@pytest.mark.parametrize("size", ["-ffffffffffffffffffff", "-5", "ffffffffffffffffffff", "no size"])
@pytest.mark.parametrize("client", ["requests", "urllib3", "http.client", "urlopen"])
def test_a_chunk_of_an_impossible_size(
    streamguard_gateway: Serve, stack: contextlib.ExitStack, client: str, size: str
) -> None:
    """A fault of the transport, after the chunks: also if Python's own client raises OverflowError."""
    gateway = streamguard_gateway(f"chat hello\nwire {size}\\r\\nabc\\r\\n\nclose")
    consumer = Consumer(guard(open_from(gateway, client, stack)))
    error = consumer.wait()
    assert isinstance(error, TransportError)
    assert error.partial_text == "hello"


@pytest.mark.parametrize("encoding", ["gzip", "gzip-members", "deflate"])
@pytest.mark.parametrize("client", ["requests", "urllib3", "http.client", "urlopen"])
def test_an_encoded_body_is_decoded(
    streamguard_gateway: Serve, stack: contextlib.ExitStack, client: str, encoding: str
) -> None:
    """Every client's encoded body is decoded, also that of Python's own client, which does not decode."""
    gateway = streamguard_gateway("chat hello\nchat  you\nfinish\ndone", encoding=encoding)
    stream = guard(open_from(gateway, client, stack))
    assert Consumer(stream).wait() is None
    assert stream.text == "hello you"


def test_a_body_of_which_some_was_read_is_given_as_it_is(streamguard_gateway: Serve) -> None:
    """It is too late to decode it: the remaining bytes are returned as Python's own client returns them."""
    gateway = streamguard_gateway("chat hello\nfinish\ndone", encoding="gzip")
    connection = http.client.HTTPConnection(urlsplit(gateway.url).netloc)
    connection.request("GET", "/")
    response = connection.getresponse()
    start = response.read(5)
    rest = b"".join(guard(response, decode="bytes"))
    connection.close()
    assert b"hello" in zlib.decompressobj(31).decompress(start + rest)
