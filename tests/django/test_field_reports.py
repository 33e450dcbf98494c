"""What others have met with streams inside of web frameworks: B121 to B126 of the collected field reports."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.http import StreamingHttpResponse
from django.test import AsyncRequestFactory, RequestFactory

from streamguard import CancelToken, guarded_stream
from streamguard._core.clock import monotonic
from streamguard.django import sse_response
from streamguard.testing import Gateway

from .serving import Visitor, gunicorn

Serve = Callable[..., Gateway]


@pytest.mark.parametrize("worker", ["gthread", "gevent"])
def test_B121_a_disconnect_is_noticed_by_heartbeats(worker: str, streamguard_gateway: Serve) -> None:
    """A view of one's own that writes at each heartbeat notices, in silence, that its client has left."""
    gateway = streamguard_gateway("chat Hello\nstall")
    with gunicorn(worker) as server, Visitor(server, "/pinged", upstream=gateway.url) as visitor:
        visitor.until(b": ping\n\n")
        gateway.wait_step("stall")
        visitor.leave()
        assert gateway.wait_left().during == "stall"


def test_B122_a_streaming_response_closes_its_upstream(streamguard_gateway: Serve) -> None:
    """A stream is content for Django's own response, whose close() closes the stream; so is an unread one."""
    gateway = streamguard_gateway("event one\nstall")
    response = StreamingHttpResponse(guarded_stream("GET", gateway.url, decode="bytes"))
    assert next(iter(response)) == b"data: one\n\n"
    response.close()
    assert gateway.wait_left().during == "stall"

    stream = guarded_stream("GET", gateway.url, decode="bytes")
    StreamingHttpResponse(stream).close()
    assert (stream.report.outcome, len(gateway.requests)) == ("closed", 1)


def test_B123_a_sync_worker_that_is_killed_for_its_time_frees_the_upstream(streamguard_gateway: Serve) -> None:
    """gunicorn kills a sync worker that streams for longer than `--timeout`: the upstream sees the close."""
    gateway = streamguard_gateway("chat Hello\nstall")
    with gunicorn("sync", "--timeout", "1") as server, Visitor(server, "/stream", upstream=gateway.url) as visitor:
        visitor.until(b"Hello")
        assert gateway.wait_left(timeout=15).during == "stall"


@pytest.mark.parametrize("worker", ["gthread", "gevent"])
def test_B124_an_open_stream_does_not_hold_a_worker_up(worker: str, streamguard_gateway: Serve) -> None:
    """A worker that is told to stop cancels the token of its silent streams: clients are told, and it is gone."""
    gateway = streamguard_gateway("chat Hello\nstall")
    options = ("--config", "python:tests.django.stopping", "--graceful-timeout", "60")
    with gunicorn(worker, *options) as server, Visitor(server, "/stream", upstream=gateway.url) as visitor:
        visitor.until(b"Hello")
        gateway.wait_step("stall")
        server.process.terminate()
        assert b'event: error\ndata: {"kind":"cancel"' in visitor.until(b"\r\n0\r\n\r\n")
        assert server.process.wait(20) == 0
    assert gateway.wait_left().during == "stall"


def test_B124_a_token_ends_the_wait_at_once(streamguard_gateway: Serve, rf: RequestFactory) -> None:
    """Cancelled from another thread while the stream is silent, the response ends with an error frame."""
    gateway = streamguard_gateway("chat Hello\nstall")
    token = CancelToken()
    response: Any = sse_response(rf.get("/"), guarded_stream("POST", gateway.url, cancel=token))
    frames: list[bytes] = []
    reader = threading.Thread(target=lambda: frames.extend(response))
    reader.start()
    gateway.wait_step("stall")
    cancelled_at = monotonic()
    token.cancel("worker recycling")
    reader.join(5)
    assert not reader.is_alive()
    assert frames[-1].startswith(b'event: error\ndata: {"kind":"cancel"')
    assert gateway.wait_left().at - cancelled_at < 1
    response.close()


@pytest.mark.parametrize("preload", [[], ["--preload"]], ids=["imported in the worker", "imported before the patches"])
def test_B125_limits_hold_under_gevent(streamguard_gateway: Serve, preload: list[str]) -> None:
    """Under gevent's patches a silent stream ends at its limit, and does not hold up another one."""
    gateway = streamguard_gateway("chat Hello\nstall")
    with (
        gunicorn("gevent", *preload) as server,
        Visitor(server, "/stream", upstream=gateway.url, idle=20) as patient,
        Visitor(server, "/stream", upstream=gateway.url, idle=0.3) as hasty,
    ):
        patient.until(b"Hello")
        assert b'"phase":"idle"' in hasty.until(b"\r\n0\r\n\r\n")
        assert b"event:" not in patient.received


def test_B126_under_asgi_it_is_refused(streamguard_gateway: Serve) -> None:
    """Where Django would collect the whole answer first, the view gets an error that says so, and nothing is asked."""
    gateway = streamguard_gateway("chat Hello\ndone")
    request = AsyncRequestFactory().get("/")
    with pytest.raises(ImproperlyConfigured, match=r"needs WSGI.*docs/django\.md"):
        sse_response(request, guarded_stream("POST", gateway.url))
    assert gateway.requests == []


async def pieces(stream: Any) -> AsyncIterator[str]:
    """Hand a stream on without holding the event loop up: the recipe of docs/django.md."""
    end = object()
    try:
        while (chunk := await asyncio.to_thread(next, stream, end)) is not end:
            yield chunk.text
    finally:
        stream.close()


def test_B126_an_async_wrapper_streams(streamguard_gateway: Serve) -> None:
    """The recipe's pieces arrive one by one under ASGI: the first is here while the upstream is silent."""
    gateway = streamguard_gateway("chat Hello\nstall")

    async def first_piece() -> bytes:
        response = StreamingHttpResponse(pieces(guarded_stream("POST", gateway.url)))
        assert response.is_async
        content: Any = response.streaming_content
        piece: bytes = await anext(content)
        assert gateway.requests[0].left is None
        await content.aclose()
        return piece

    assert asyncio.run(first_piece()) == b"Hello"
    assert gateway.wait_left().during == "stall"
