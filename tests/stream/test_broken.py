"""Streams that break: resets, short bodies, bad framing, redirects that cannot be followed."""

import errno
from typing import Any

import pytest

from streamguard import (
    IncompleteStreamError,
    StreamguardError,
    TransportError,
    classify,
)

from ..helpers import Serve
from .helpers import ask, consume, failure, stream_from

WHOLE = '{"choices": [{"index": 0, "delta": {"content": "whole"}}]}'
HALF_CHUNK = '{"choices": [{"index": 0, "delta": {"content": "ha'


@pytest.mark.parametrize("framing", ["chunked", "close", "http10"])
@pytest.mark.parametrize(
    "half", [f"raw data: {HALF_CHUNK}", rf"raw data: {HALF_CHUNK}\n", "raw da", "raw data:", rf"raw data: {HALF_CHUNK}\r"]
)
def test_half_a_frame_is_not_delivered(streamguard_gateway: Serve, framing: str, half: str) -> None:
    """The chunk before it is; the stream ends as incomplete."""
    seen = consume(stream_from(streamguard_gateway(f"event {WHOLE}\n{half}\nend", framing=framing)))
    assert isinstance(seen.error, IncompleteStreamError)
    assert (seen.texts, seen.error.partial_text) == (["whole"], "whole")


@pytest.mark.parametrize("half", [f"raw data: {HALF_CHUNK}", rf"raw data: {HALF_CHUNK}\n", "raw :", "raw data: {}"])
@pytest.mark.parametrize("end", ["close", "reset", "stall"])
def test_half_a_frame_before_a_fault_is_not_delivered(streamguard_gateway: Serve, half: str, end: str) -> None:
    """After it the connection is cut, reset or silent: complete frames are delivered, the half one is not."""
    gateway = streamguard_gateway(f"event {WHOLE}\nwait 0.05\n{half}\nwait 0.05\n{end}")
    seen = consume(stream_from(gateway, idle=0.2))
    assert isinstance(seen.error, TransportError)
    assert seen.texts == ["whole"]


@pytest.mark.parametrize(
    "wire",
    [
        r"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\nzz\r\n",
        r"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\n-5\r\nabc\r\n",
        r"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: text/event-stream\r\n\r\nffff\r\nshort",
        r"HTTP/1.1 OK\r\n\r\n",
        r"SSH-2.0-OpenSSH_9.6\r\n",
        r"\0\0\0\0",
        r"HTTP/1.1 99999 OK\r\n\r\n",
        r"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nshort",
        "HTTP/1.1 200 OK\\r\\n" + "X-A: b\\r\\n" * 150,
        "HTTP/1.1 200 OK\\r\\nX-A: " + "b" * 70_000,
    ],
    ids=["size", "negative", "short", "status", "ssh", "nul", "number", "lengths", "headers", "line"],
)
def test_a_broken_response_is_a_transport_error(streamguard_gateway: Serve, wire: str) -> None:
    """Broken chunking, status lines and headers: one typed error, no hang, the original as its cause."""
    seen = consume(stream_from(streamguard_gateway(f"wire {wire}\nclose"), retry=None, total=10))
    assert isinstance(seen.error, TransportError)
    assert seen.error.code in ("EPROTO", "ECONNRESET")
    assert seen.error.__cause__ is not None


@pytest.mark.parametrize(
    "location",
    [
        *("ftp://example.com/", "mailto:a@example.com", "http://host:99999/", "http://[::1/", "http://u:p@[::1/"),
        *("/\\xe9", "http://\\xe9.example/", "http://.example/", f"http://{'a' * 70}.invalid/"),
    ],
)
def test_a_redirect_to_nowhere_is_the_servers_fault(streamguard_gateway: Serve, location: str) -> None:
    """It is a TransportError, not a UsageError: the caller's arguments were right."""
    gateway = streamguard_gateway(f"wire HTTP/1.1 302 Found\\r\\nLocation: {location}\\r\\nContent-Length: 0\\r\\n\\r\\n")
    error = failure(stream_from(gateway, retry=None))
    assert isinstance(error, TransportError)
    assert (error.code, error.phase, len(gateway.requests)) == ("EPROTO", "response", 1)
    assert "redirect" in str(error)


def test_a_redirect_loop_ends(streamguard_gateway: Serve) -> None:
    """requests' own bound, as a typed error that is not retried."""
    gateway = streamguard_gateway("headers 307 location: /again; content-length: 0", framing="length")
    error = failure(stream_from(gateway, retry=3))
    assert isinstance(error, TransportError)
    assert (error.code, classify(error).diagnosis) == ("ELOOP", "fail-fast")
    assert len(gateway.requests) == 31


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
    """A reset, a short body, broken chunking: complete events are returned first, partial ones are not."""
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
    """A connection that closes instead of answering is a reset, and the message says that no byte arrived."""
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
    """A server that does not speak HTTP is a TransportError, not an exception of http.client."""
    run = ask(streamguard_gateway(f"wire {head}\nclose"))
    assert isinstance(run.error, TransportError)


@pytest.mark.parametrize("decode", ["chat", "events", "json", "bytes"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_short_body(streamguard_gateway: Serve, decode: str, tls: bool) -> None:
    """A body shorter than its Content-Length is an error in every mode, after the chunks (B091)."""
    gateway = streamguard_gateway('event {"choices":[]}\nclose', framing="length", length=500, tls=tls)
    run = ask(gateway, decode=decode, verify=gateway.ca if tls else True)
    assert isinstance(run.error, TransportError)
    assert len(run.chunks) == 1


def test_the_length_is_the_encoded_one(streamguard_gateway: Serve) -> None:
    """An encoded body whose decoded size differs from its Content-Length is complete (B091)."""
    run = ask(streamguard_gateway("chat a\nchat b\ndone", framing="length", encoding="gzip"), decode="bytes")
    assert run.error is None
    assert b"".join(run.chunks).endswith(b"data: [DONE]\n\n")


def test_a_redirect_to_nonsense(streamguard_gateway: Serve) -> None:
    """A redirect to a URL that cannot be requested is the server's fault, not the caller's."""
    run = ask(streamguard_gateway("headers 302 location: gopher://x/"))
    assert isinstance(run.error, TransportError)
