"""Compression, proxies and iterators that hold events back."""

import itertools
import threading

import pytest

from streamguard import (
    StreamInactivityTimeoutError,
    guarded_stream,
)
from streamguard.testing.wire import FRAMINGS

from ..helpers import PROMPT, Serve
from .helpers import ask, stream_from


@pytest.mark.parametrize("framing", ["chunked", "close", "http10"])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_gzip_stream_flushed_per_event(streamguard_gateway: Serve, encoding: str, framing: str) -> None:
    """Each event of a compressed stream is returned after its flush, before the server goes on (B093)."""
    gateway = streamguard_gateway("chat a\nwait 0.3\nchat b\nwait 0.3\nchat c\ndone", encoding=encoding, framing=framing)
    stream = guarded_stream("POST", gateway.url)
    sent = [gateway.requests[0].reached["chat"] for _ in stream]
    assert len(sent) == 3
    assert all(count <= number for number, count in enumerate(sent, 1))  # a step counts a moment after it was sent
    assert gateway.requests[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_compression_that_is_never_flushed(streamguard_gateway: Serve, framing: str) -> None:
    """Silence after the headers hints at buffering and compression; the client asked for identity (B094)."""
    gateway = streamguard_gateway("chat a\nchat b\nstall", encoding="gzip-buffered", framing=framing)
    run = ask(gateway, idle=0.3)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert "buffering" in str(run.error)
    assert "compression" in str(run.error)
    assert gateway.requests[0].headers["Accept-Encoding"] == "identity"


def test_no_hint_if_bytes_came(streamguard_gateway: Serve) -> None:
    """The hint is given only if no byte arrived (B094)."""
    run = ask(streamguard_gateway("comment hb\nstall"), idle=0.2)
    assert "buffering" not in str(run.error)


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_each_chunk_its_own_gzip_member(streamguard_gateway: Serve, framing: str) -> None:
    """A body of several gzip members is one stream, and prompt (B095)."""
    gateway = streamguard_gateway("chat a\nwait 0.3\nchat b\nchat c\ndone", encoding="gzip-members", framing=framing)
    stream = guarded_stream("POST", gateway.url)
    first = next(stream)
    assert (first.text, gateway.requests[0].reached["chat"] <= 1) == ("a", True)
    assert [chunk.text for chunk in stream] == ["b", "c"]


BURST = "headers\nwait 0.5\nloop 20\nchat x\nendloop\ndone"


def test_a_proxy_that_holds_the_whole_stream(streamguard_gateway: Serve) -> None:
    """Events in one burst are accepted within `first`; the report shows the wait and the burst (B096)."""
    run = ask(streamguard_gateway(BURST), idle=0.2, first=5)
    report = run.stream.report
    assert (run.error, report.chunks) == (None, 20)
    assert report.time_to_headers is not None
    assert report.time_to_first_byte is not None
    assert report.time_to_first_byte - report.time_to_headers >= 0.45
    assert (report.max_gap or 0.0) < 0.2


def test_a_recording_proxy_trips_first(streamguard_gateway: Serve) -> None:
    """The same burst with a shorter `first` is a timeout of that phase, not of `idle` (B097)."""
    run = ask(streamguard_gateway(BURST), idle=5, first=0.2)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.error.phase, run.error.limit) == ("first", 0.2)


def test_the_scripted_gateway_streams(streamguard_gateway: Serve) -> None:
    """The gateway has not sent the last event when the first is returned (B097)."""
    gateway = streamguard_gateway("chat a\nwait 0.3\nchat b\ndone")
    stream = guarded_stream("POST", gateway.url)
    next(stream)
    assert gateway.requests[0].reached["chat"] <= 1
    assert stream.read() == "ab"


def test_the_public_iterator_is_prompt(streamguard_gateway: Serve) -> None:
    """The consumer has each chunk while the server is still waiting to send the next: it waits for the consumer (B099)."""
    gateway = streamguard_gateway("chat a\nstall")
    stream = guarded_stream("POST", gateway.url, idle=10)
    got = threading.Event()

    def read() -> None:
        next(stream)
        got.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert got.wait(PROMPT)
    reader.join()
    stream.close()


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize(
    ("framing", "encoding"), list(itertools.product(FRAMINGS, [None, "gzip", "gzip-members", "deflate"]))
)
def test_each_event_is_seen_before_the_next_is_sent(
    streamguard_gateway: Serve, framing: str, encoding: str | None, tls: bool
) -> None:
    """In every framing and encoding an event is returned while the server still waits to send another (B130)."""
    lie = {"length": 100_000} if framing == "length" else {}
    gateway = streamguard_gateway("chat one\nstall", framing=framing, encoding=encoding, tls=tls, **lie)
    with stream_from(gateway) as stream:
        assert next(stream).text == "one"
        gateway.wait_step("stall")
