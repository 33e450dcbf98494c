"""A real gRPC server and channel: the server sees the cancel."""

import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest

from streamguard import (
    StreamCancelledError,
    StreamInactivityTimeoutError,
    TransportError,
    TransportTimeoutError,
    before_first_chunk,
    classify,
    guard,
)

from .clients import PATIENCE, Consumer, assert_blocked, assert_released


class Service(grpc.GenericRpcHandler):
    """Answers any call with two messages, and then with silence unless the request is b"short"."""

    def __init__(self) -> None:
        self.silent, self.left = threading.Event(), threading.Event()
        self.calls: list[bytes] = []

    def service(self, details: Any) -> Any:
        return grpc.unary_stream_rpc_method_handler(self._answer)

    def _answer(self, request: bytes, context: Any) -> Iterator[bytes]:
        self.calls.append(request)
        context.add_callback(self.left.set)
        if request == b"fails once" and len(self.calls) == 1:
            context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        yield from (b"one", b"two")
        if request == b"fails late":
            context.abort(grpc.StatusCode.INTERNAL, "boom")
        if request not in (b"short", b"fails once"):
            self.silent.set()
            self.left.wait(10)


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    """Let grpc open what it keeps for the whole process, before any leak check."""
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        grpc.channel_ready_future(channel).result(PATIENCE)
    server.stop(0).wait()


@pytest.fixture
def service() -> Service:
    """Return what the server did."""
    return Service()


@pytest.fixture
def ask(service: Service) -> Iterator[Any]:
    """Start the server; return what makes a call, as a function of the request."""
    with futures.ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, handlers=(service,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel.unary_stream("/test.Service/Talk")
        service.left.set()
        server.stop(0).wait()


def test_messages_come_through(ask: Any) -> None:
    """Messages are returned to the end, which needs no marker; bytes are counted."""
    stream = guard(ask(b"short"))
    assert list(stream) == [b"one", b"two"]
    assert (stream.report.outcome, stream.report.bytes) == ("completed", 6)


def test_silence_is_cut(ask: Any, service: Service) -> None:
    """`idle` fires in a blocked `next()`, and the server sees the cancel."""
    stream = guard(ask(b"long"), idle=0.2)
    consumer = Consumer(stream)
    error = consumer.wait()
    assert isinstance(error, StreamInactivityTimeoutError)
    assert error.elapsed >= 0.2
    assert consumer.items == [b"one", b"two"]
    assert service.left.wait(PATIENCE)
    assert_released(stream)


def test_cancel(ask: Any, service: Service) -> None:
    """A cancel from another thread wakes the blocked reader, and the server sees it."""
    stream = guard(ask(b"long"), idle=60)
    consumer = Consumer(stream)
    assert service.silent.wait(PATIENCE)
    assert_blocked(stream)
    assert not service.left.is_set()
    stream.cancel()
    assert isinstance(consumer.wait(), StreamCancelledError)
    assert service.left.wait(PATIENCE)
    assert_released(stream)


def test_left_in_the_middle(ask: Any, service: Service) -> None:
    """A `break` out of a `with` block cancels the call."""
    with guard(ask(b"long"), idle=60) as stream:
        assert next(stream) == b"one"
    assert service.left.wait(PATIENCE)
    assert_released(stream)


def test_a_status_is_grpcs_own(ask: Any) -> None:
    """A status that is not a transport error propagates unchanged, after the messages."""
    consumer = Consumer(guard(ask(b"fails late")))
    error = consumer.wait()
    assert isinstance(error, grpc.RpcError)
    assert error.code() is grpc.StatusCode.INTERNAL  # type: ignore[attr-defined]
    assert consumer.items == [b"one", b"two"]
    assert classify(error).kind == "unknown"


def test_unavailable_is_a_transport_error(ask: Any, service: Service) -> None:
    """UNAVAILABLE before the first message may be retried, by its code."""
    error = Consumer(guard(lambda: ask(b"fails once"))).wait()
    assert isinstance(error, TransportError)
    assert (error.code, isinstance(error.__cause__, grpc.RpcError)) == ("EIO", True)
    service.calls.clear()
    stream = guard(lambda: ask(b"fails once"), retry=before_first_chunk(on={"EIO"}))
    assert list(stream) == [b"one", b"two"]
    assert stream.report.attempts == 2


def test_grpcs_own_deadline_is_a_timeout(ask: Any) -> None:
    """DEADLINE_EXCEEDED is a TransportTimeoutError."""
    consumer = Consumer(guard(ask(b"long", timeout=0.2), idle=60))
    assert isinstance(consumer.wait(), TransportTimeoutError)
    assert consumer.items == [b"one", b"two"]
