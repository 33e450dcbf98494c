"""`.open()` and `.response`: an early failure is raised before the first chunk."""

import time
from typing import Any

import pytest

import streamguard
from streamguard import (
    HTTPStatusError,
    MalformedChunkError,
    StreamInactivityTimeoutError,
    UsageError,
    guarded_stream,
)

from ..helpers import Serve
from .helpers import COMPLETE, ask, consume


@pytest.mark.parametrize("until", ["headers", "first"])
def test_open_neither_returns_nor_spins_for_heartbeats(streamguard_gateway: Serve, until: Any) -> None:
    """`open()` waits through heartbeats, without burning the processor."""
    stream = guarded_stream("POST", streamguard_gateway("wait 0.5\nchat a\ndone").url, heartbeat=0.05)
    before = time.thread_time()
    stream.open(until=until)
    assert time.thread_time() - before < 0.2
    assert stream.read() == "a"


def test_open_until_the_headers(streamguard_gateway: Serve) -> None:
    """`open()` returns the stream itself when the headers are here, before any chunk."""
    gateway = streamguard_gateway("headers x-request-id: r-9\nwait 0.3\nchat a\ndone")
    stream = guarded_stream("POST", gateway.url)
    assert stream.open() is stream
    assert (stream.response.status_code, stream.response.headers["x-request-id"]) == (200, "r-9")
    assert (stream.report.request_id, stream.report.chunks, gateway.requests[0].reached["chat"]) == ("r-9", 0, 0)
    assert stream.read() == "a"


def test_open_until_the_first_chunk(streamguard_gateway: Serve) -> None:
    """`open(until="first")` returns when a chunk is here, and takes none; a second call changes nothing."""
    stream = guarded_stream("POST", streamguard_gateway("wait 0.2\nchat a\nstall").url)
    stream.open(until="first")
    assert (stream.report.chunks, stream.text) == (0, "")
    assert stream.open(until="first").open() is stream
    assert next(stream).text == "a"
    assert stream.open(until="first") is stream
    stream.close()
    assert stream.open(until="first") is stream


def test_open_raises_what_came_instead(streamguard_gateway: Serve) -> None:
    """open() raises what next() would raise, once."""
    with pytest.raises(HTTPStatusError):
        guarded_stream("POST", streamguard_gateway("headers 429").url).open()
    with pytest.raises(StreamInactivityTimeoutError):
        guarded_stream("POST", streamguard_gateway("headers\nstall").url, retry=None, first=0.1).open(until="first")
    stream = guarded_stream("POST", streamguard_gateway("event no").url, retry=None)
    with pytest.raises(MalformedChunkError):
        stream.open(until="first")
    assert list(stream) == []
    with pytest.raises(UsageError, match="until="):
        stream.open(until="later")  # type: ignore[arg-type]


def test_open_until_the_first_of_an_empty_stream(streamguard_gateway: Serve) -> None:
    """A complete stream without a chunk: open() returns, and the loop ends."""
    run = consume(guarded_stream("GET", streamguard_gateway("end").url, decode="events").open(until="first"))
    assert (run.error, run.chunks, run.stream.report.outcome) == (None, [], "completed")


def test_the_response_is_there_when_its_headers_are() -> None:
    """`.response` before the start is a UsageError that says how to start."""
    stream = guarded_stream("GET", "http://127.0.0.1:9/")
    with pytest.raises(UsageError, match="next"):
        _ = stream.response
    stream.close()


def test_the_response_is_that_of_the_last_attempt(streamguard_gateway: Serve) -> None:
    """After a retry `.response` and the report's request_id are those of the attempt that was read."""
    gateway = streamguard_gateway("headers 503 x-request-id: one", f"headers x-request-id: two\n{COMPLETE}")
    retry = streamguard.before_first_chunk(1, status={503}, wait=lambda state: 0)
    run = ask(gateway, retry=retry)
    assert (run.stream.response.status_code, run.stream.report.request_id, run.stream.report.status_code) == (
        200,
        "two",
        200,
    )
