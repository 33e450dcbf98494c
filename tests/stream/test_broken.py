"""Streams that break: resets, short bodies, bad framing, events without end."""

import errno
from typing import Any

import pytest

from streamguard import (
    IncompleteStreamError,
    MalformedChunkError,
    StreamguardError,
    TransportError,
)
from streamguard.testing.wire import FRAMINGS

from ..helpers import Serve
from .helpers import ask, choice, line

HALF = "raw data: {\\x22choices\\x22:[{\\x22del"
BROKEN: dict[str, tuple[str, dict[str, Any]]] = {
    "reset": (f"chat a\nchat b\n{HALF}\nwait 0.2\nreset", {}),
    "reset-length": (f"chat a\nchat b\n{HALF}\nwait 0.2\nreset", {"framing": "length", "length": 9_999}),
    "reset-close": (f"chat a\nchat b\n{HALF}\nwait 0.2\nreset", {"framing": "close"}),
    "reset-gzip": ("chat a\nchat b\nwait 0.2\nreset", {"encoding": "gzip"}),
    "short-length": (f"chat a\nchat b\n{HALF}\nclose", {"framing": "length", "length": 9_999}),
    "no-last-chunk": (f"chat a\nchat b\n{HALF}\nclose", {}),
    "fin-in-chunk": ("chat a\nchat b\nwire 400\\r\\ndata: {\\x22cho\nclose", {}),
    "fin-in-chunk-size": ("chat a\nchat b\nwire 40\nclose", {}),
    "no-chunk-size": ("chat a\nchat b\nwire zz\\r\\n\nclose", {}),
    "negative-chunk-size": ("chat a\nchat b\nwire -5\\r\\ndata:\\r\\n\nclose", {}),
    "html-in-chunked": ("chat a\nchat b\nwire <html>bad gateway</html>\\r\\n\nclose", {}),
}


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_broken_transport_loses_no_complete_event(streamguard_gateway: Serve, tls: bool, broken: str) -> None:
    """A reset, a short body, broken chunking: what had arrived complete is handed over first, and nothing partial."""
    steps, options = BROKEN[broken]
    gateway = streamguard_gateway(steps, tls=tls, **options)
    run = ask(gateway, verify=gateway.ca if tls else True)
    assert run.texts == ["a", "b"]
    assert type(run.error) in (TransportError, IncompleteStreamError if tls and broken == "reset-close" else None)
    assert isinstance(run.error, StreamguardError)
    assert (run.error.partial_text, run.error.chunks) == ("ab", 2)
    assert run.stream.report.outcome == "error"


def test_the_fault_has_its_name(streamguard_gateway: Serve) -> None:
    """A transport error says which fault it was, by code and errno, and keeps the original as its cause."""
    error = ask(streamguard_gateway("chat a\nwait 0.1\nreset")).error
    assert isinstance(error, TransportError)
    assert isinstance(error, OSError)
    assert (error.code, error.errno) == ("ECONNRESET", errno.ECONNRESET)
    assert error.__cause__ is not None


def test_data_that_is_not_compressed_as_announced(streamguard_gateway: Serve) -> None:
    """A body that is not in the encoding that its header names is a transport error, not a hang and not text."""
    run = ask(streamguard_gateway("headers content-encoding: gzip\nchat a\ndone"))
    assert isinstance(run.error, TransportError)
    assert (run.error.code, run.chunks) == ("EPROTO", [])


def test_no_answer_at_all(streamguard_gateway: Serve) -> None:
    """A connection that closes instead of answering is a reset, and the message says that no byte came."""
    run = ask(streamguard_gateway("close"))
    assert isinstance(run.error, TransportError)
    assert (run.error.code, run.error.phase) == ("ECONNRESET", "response")
    assert "not one byte" in str(run.error)


@pytest.mark.parametrize("sent", ["HTTP/1.1 200 OK\\r\\n", "HTTP/1.1 200 OK\\r\\nContent-Type: text/event-stream\\r\\n"])
@pytest.mark.parametrize("rest", ["", "Content-Ty", "X: y", "X: y\\r", "X: y\\r\\n"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_header_block_without_its_end(streamguard_gateway: Serve, tls: bool, rest: str, sent: str) -> None:
    """A connection that closes within the headers is a transport error, not an empty response."""
    gateway = streamguard_gateway(f"wire {sent}{rest}\nclose", tls=tls)
    for decode in ("chat", "events", "bytes"):
        run = ask(gateway, decode=decode, verify=gateway.ca if tls else True)
        assert isinstance(run.error, TransportError)
        assert (run.error.code, run.error.phase) == ("ECONNRESET", "response")
        assert "not one byte" not in str(run.error)


@pytest.mark.parametrize("head", ["HTTP/9 what\\r\\n\\r\\n", "SSH-2.0-OpenSSH\\r\\n", "HTTP/1.1 2x0 OK\\r\\n\\r\\n"])
def test_an_answer_that_is_not_http(streamguard_gateway: Serve, head: str) -> None:
    """A server that speaks something else is a TransportError, not an exception of http.client's."""
    run = ask(streamguard_gateway(f"wire {head}\nclose"))
    assert isinstance(run.error, TransportError)


@pytest.mark.parametrize("decode", ["events", "json"])
@pytest.mark.parametrize("framing", FRAMINGS)
def test_events_end_with_any_whole_body(streamguard_gateway: Serve, decode: str, framing: str) -> None:
    """`decode="events"` and `"json"` know no end marker that must come: a well-framed end is complete."""
    run = ask(streamguard_gateway("event 1\nevent 2", framing=framing), decode=decode)
    assert (run.error, len(run.chunks), run.stream.report.outcome) == (None, 2, "completed")


@pytest.mark.parametrize("decode", ["events", "json", "bytes"])
def test_events_end_only_with_a_whole_body(streamguard_gateway: Serve, decode: str) -> None:
    """A body that is cut short is an error for every decoder."""
    run = ask(streamguard_gateway("event 1\nevent 2\nclose"), decode=decode)
    assert isinstance(run.error, TransportError)
    assert run.chunks


def test_events_without_an_event(streamguard_gateway: Serve) -> None:
    """An event stream without events is complete: only chat knows what should have come."""
    run = ask(streamguard_gateway("comment hb"), decode="events")
    assert (run.error, run.stream.report.outcome, run.stream.report.comments) == (None, "completed", 1)


MIB = 1 << 20
ENDLESS = {
    "line": "x" * MIB,
    "data-lines": "data: xxxxxxxx\\n" * 50_000,
    "comments": ": xxxxxxxxxxxxxxx\\n" * 50_000,
}


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("decode", ["chat", "events"])
def test_an_event_without_end_is_malformed(streamguard_gateway: Serve, kind: str, decode: str) -> None:
    """An event above 16 MiB ends the stream with an error, and the server sees the client leave."""
    gateway = streamguard_gateway(f"chat a\nloop forever\nraw {ENDLESS[kind]}\nendloop")
    run = ask(gateway, decode=decode, idle=20)
    assert len(run.chunks) == 1
    assert type(run.error) is MalformedChunkError
    assert "MiB" in str(run.error) or "lines" in str(run.error)
    assert 8 * MIB < run.stream.report.bytes < 24 * MIB
    gateway.wait_left()


def test_an_event_below_the_cap_is_handed_over(streamguard_gateway: Serve) -> None:
    """An event of 15 MiB is a chunk like any other, in linear time."""
    run = ask(streamguard_gateway([line(choice("x" * 15 * MIB)), "done"]), idle=20)
    assert run.error is None
    assert len(run.chunks[0].text) == 15 * MIB
    assert run.stream.report.lifetime < 10
