"""Bad input, from the caller and from the server: a clear error that names what is wrong; no hang, no leak, no loss."""

import datetime
import io
import ssl
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import requests
import tenacity
import trustme

import streamguard
from streamguard import (
    DeadlineExceededError,
    EmptyStreamError,
    IncompleteStreamError,
    MalformedChunkError,
    NotEventStreamError,
    StreamguardError,
    Timeouts,
    TransportError,
    UsageError,
    classify,
    guarded_stream,
)
from streamguard.testing import Gateway

from ..helpers import PROMPT, Serve
from ..http.servers import Peer, Server
from .helpers import consume, failure, stream_from

URL = "http://127.0.0.1:9/"


# From the caller: refused at the call, by name, before anything is sent


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [
        ("connect", b"10"),
        ("response", [1]),
        ("first", True),
        ("idle", b"5"),
        ("dead", {"seconds": 1}),
        ("total", object()),
        ("total", 1j),
        ("timeouts", 5),
        ("timeouts", {"idle": 5}),
        ("heartbeat", b"5s"),
        ("end_grace", False),
        ("counts", "text"),
        ("cancel", threading.Event()),
        ("name", 5),
        ("session", requests),
        ("session", requests.Session),
        ("retry", "2"),
        ("retry", True),
        ("retry", 1.5),
        ("retry", tenacity.stop_after_attempt(3)),
        ("headers", 5),
        ("headers", "Accept: x"),
        ("headers", [("Accept", "x")]),
        ("proxies", "http://localhost:1"),
        ("cookies", 5),
        ("cookies", "a=b"),
        ("auth", "user:password"),
        ("auth", ("user",)),
        ("auth", 5),
        ("hooks", len),
        ("files", 5),
        ("params", 5),
        ("verify", 5),
        ("cert", 5),
        ("cert", True),
    ],
)
def test_a_wrong_type_is_a_type_error_that_names_the_argument(argument: str, wrong: object) -> None:
    """An argument of a type that it cannot have."""
    with pytest.raises(TypeError, match=f"{argument}="):
        guarded_stream("POST", URL, **{argument: wrong})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"idle": float("nan")}, "idle="),
        ({"total": float("nan")}, "total="),
        ({"heartbeat": float("nan")}, "heartbeat="),
        ({"idle": 10, "total": 5}, "idle=10 .* total=5"),
        ({"idle": 10, "first": 5, "dead": 20}, "dead=20 .* first=5 .* idle=10"),
        ({"timeouts": Timeouts(total=5), "idle": 10}, "idle=10 .* total=5"),
        ({"retry": -1}, "max_retries="),
        ({"decode": "xml"}, "decode="),
        ({"decode": None}, "decode="),
        ({"decode": 5}, "decode="),
        ({"timeout": 5}, "idle= is silence, total= the whole call"),
        ({"timeout": None}, "timeout="),
        ({"timeout": (3, 5)}, "timeout="),
        ({"stream": True}, "stream="),
        ({"stream": False}, "stream="),
        ({"verify": "/no/such/bundle.pem"}, "verify="),
        ({"cert": "/no/such/cert.pem"}, "cert="),
        ({"cert": ("/no/such/cert.pem", "/no/such/key.pem")}, "cert="),
    ],
)
def test_a_wrong_value_is_a_usage_error_that_names_the_argument(options: dict[str, Any], words: str) -> None:
    """Values that no limit can have, pairs that contradict each other, keywords that do not belong here."""
    with pytest.raises(UsageError, match=words):
        guarded_stream("POST", URL, **options)  # type: ignore[call-overload]


@pytest.mark.parametrize("typo", ["idel", "max_retries", "read_timeout", "chunk_size", "decode_unicode"])
def test_an_unknown_keyword_is_named(typo: str) -> None:
    """A misspelt or a foreign keyword never passes silently."""
    with pytest.raises(TypeError, match=f"unexpected keyword argument '{typo}'"):
        guarded_stream("POST", URL, **{typo: 5})  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "example.com/v1/chat",
        "localhost:8000/v1",
        "127.0.0.1:8000",
        "//example.com/v1",
        "/v1/chat",
        "http:/example.com",
        "http:example.com",
        "https//example.com",
        "://example.com",
        "http://",
        "http:///v1",
        "http://:8000/",
        "http://user:key@/v1",
        "http://[::1/",
        "http://host:port/",
        "http://host:99999/",
        "http://host:-1/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "wss://example.com/",
        "unix:///run/x.sock",
    ],
)
def test_a_url_that_cannot_be_requested_is_refused_at_the_call(url: str) -> None:
    """No scheme, no host, a port that is none, a scheme of another protocol: refused by the name of the argument."""
    with pytest.raises(UsageError, match=r"^url= "):
        guarded_stream("POST", url)


@pytest.mark.parametrize("url", ["http://*.example/", "http://a b/", "http://./", "http://exa\0mple/"])
def test_a_host_that_requests_refuses_is_named_at_the_start(url: str) -> None:
    """What only requests can judge is a UsageError as well, with requests' own error behind it."""
    error = failure(guarded_stream("POST", url, retry=3))
    if isinstance(error, TransportError):
        assert error.code == "EAI_NONAME"  # older versions of requests leave the judgement to the resolver
        return
    assert isinstance(error, UsageError)
    assert "url=" in str(error)
    assert isinstance(error.__cause__, requests.exceptions.InvalidURL)


@pytest.mark.parametrize("url", [None, 5, b"http://localhost/", ["http://localhost/"]])
def test_a_url_is_a_str(url: Any) -> None:
    """Anything else is a TypeError."""
    with pytest.raises(TypeError, match=r"^url= takes a str"):
        guarded_stream("POST", url)


@pytest.mark.parametrize("method", ["", "GE T", "GET\n", "POST /x HTTP/1.1\r\nHost: evil", "PÖST", ":"])
def test_a_method_is_a_token(method: str) -> None:
    """What is no HTTP method never reaches the wire."""
    with pytest.raises(UsageError, match=r"^method= "):
        guarded_stream(method, URL)


@pytest.mark.parametrize("method", [None, 5, b"GET"])
def test_a_method_is_a_str(method: Any) -> None:
    """Anything else is a TypeError."""
    with pytest.raises(TypeError, match=r"^method= takes a str"):
        guarded_stream(method, URL)


def test_no_message_holds_a_secret_of_the_url() -> None:
    """A password in a URL that is refused is not in the error."""
    for url in ("http://user:hunter2@host:port/", "http://user:hunter2@", "http://u:hunt/er2@host/", "x://u:hunter2@h/"):
        with pytest.raises(UsageError) as caught:
            guarded_stream("POST", url)
        assert "hunt" not in str(caught.value)


# From the caller: what only shows when the request is made


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"headers": {"X-A": "a\nb"}}, "headers="),
        ({"headers": {"X-A\n": "a"}}, "headers="),
        ({"headers": {"X-A": 5}}, "headers="),
        ({"headers": {"X-A": "日本"}}, "header"),
        ({"headers": {"é": "a"}}, "header"),
        ({"data": "\ud800"}, "UTF-8"),
        ({"json": float("nan")}, "json="),
    ],
)
def test_what_requests_refuses_is_a_usage_error(streamguard_gateway: Serve, options: dict[str, Any], words: str) -> None:
    """Nothing is sent, nothing is retried, the argument is named, and its value is not repeated."""
    gateway = streamguard_gateway("chat a\ndone")
    error = failure(guarded_stream("POST", gateway.url, retry=3, **options))
    assert isinstance(error, UsageError)
    assert words in str(error)
    assert "日本" not in str(error)
    assert gateway.requests == []
    assert classify(error).diagnosis == "fail-fast"


@pytest.mark.parametrize("options", [{"json": object()}, {"json": {"a": b"x"}}, {"data": 5}, {"data": object()}])
def test_a_body_that_cannot_be_sent_is_a_type_error(streamguard_gateway: Serve, options: dict[str, Any]) -> None:
    """The original TypeError comes out, once."""
    gateway = streamguard_gateway("chat a\ndone")
    stream = guarded_stream("POST", gateway.url, **options)
    with pytest.raises(TypeError):
        next(stream)
    assert (next(stream, "over"), gateway.requests, stream.report.outcome) == ("over", [], "error")


@pytest.mark.parametrize("total", [0, -1, -0.0])
def test_a_spent_total_raises_before_anything_connects(streamguard_gateway: Serve, total: float) -> None:
    """Through `next()`, `open()` and `with` alike."""
    gateway = streamguard_gateway("chat a\ndone")
    for start in (next, lambda stream: stream.open(), lambda stream: stream.__enter__(), lambda stream: stream.read()):
        with pytest.raises(DeadlineExceededError):
            start(stream_from(gateway, total=total))
    assert gateway.connections == 0


BODIES: dict[str, Callable[[], dict[str, Any]]] = {
    "generator": lambda: {"data": (part for part in (b"a", b"b"))},
    "iterator": lambda: {"data": iter([b"a", b"b"])},
    "file": lambda: {"data": io.BytesIO(b"ab")},
    "upload": lambda: {"files": {"file": io.BytesIO(b"ab")}},
    "named upload": lambda: {"files": [("file", ("name.txt", io.BytesIO(b"ab"), "text/plain"))]},
}


@pytest.mark.parametrize("kind", BODIES)
def test_a_body_that_can_be_read_only_once_is_not_sent_twice(streamguard_gateway: Serve, kind: str) -> None:
    """The first need of a retry is a clear error, with the original behind it, never a second, empty request."""
    gateway = streamguard_gateway("stall", "chat a\ndone")
    error = failure(guarded_stream("POST", gateway.url, response=0.1, **BODIES[kind]()))
    assert isinstance(error, UsageError)
    assert ("data=" if "data" in BODIES[kind]() else "files=") in str(error)
    assert "retry=None" in str(error)
    assert isinstance(error.__cause__, streamguard.TransportTimeoutError)
    assert len(gateway.requests) == 1
    assert b"ab" in gateway.requests[0].body or gateway.requests[0].body == b"ab"


@pytest.mark.parametrize("kind", BODIES)
def test_such_a_body_is_sent_once_without_complaint(streamguard_gateway: Serve, kind: str) -> None:
    """Where no retry is needed, or none is wanted, any body will do."""
    gateway = streamguard_gateway("chat a\ndone", "stall")
    assert consume(guarded_stream("POST", gateway.url, **BODIES[kind]())).text == "a"
    error = failure(guarded_stream("POST", gateway.url, response=0.1, retry=None, **BODIES[kind]()))
    assert isinstance(error, streamguard.TransportTimeoutError)


@pytest.mark.parametrize("data", [b"ab", "ab", {"a": "b"}, [("a", "b")], (("a", "b"),), bytearray(b"ab"), None])
def test_a_body_that_can_be_sent_again_is(streamguard_gateway: Serve, data: Any) -> None:
    """The same body in each attempt."""
    gateway = streamguard_gateway("stall", "chat a\ndone")
    once = streamguard.before_first_chunk(1, wait=tenacity.wait_none())
    assert consume(guarded_stream("POST", gateway.url, response=0.3, data=data, retry=once)).text == "a"
    assert gateway.requests[0].body == gateway.requests[1].body


@pytest.mark.parametrize("value", ["", "soon", "-5", "nan", "1 2", "5 minutes", "0x10", "1e3", "inf", "5s5"])
@pytest.mark.parametrize("variable", ["STREAMGUARD_IDLE", "STREAMGUARD_TOTAL"])
def test_a_malformed_environment_is_ignored_with_a_warning_that_names_it(
    streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    """The call goes on with the default."""
    monkeypatch.setenv(variable, value)
    with pytest.warns(UserWarning, match=variable):
        stream = stream_from(streamguard_gateway("chat a\ndone"))
    assert consume(stream).text == "a"


@pytest.mark.parametrize("value", ["90", "90s", "1.5m", "90000ms", "1m30s", " 90 "])
def test_a_good_environment_warns_of_nothing(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    """All spellings of a duration."""
    monkeypatch.setenv("STREAMGUARD_IDLE", value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Timeouts().idle == 90


# From the server: what is no stream


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("headers content-type: text/html\nbody <!doctype html><title>Sign in</title>", ["text/html", "<!doctype html>"]),
        ("headers content-type: TEXT/HTML; charset=utf-8\nbody <html>", ["<html>"]),
        ('body {"choices": [{"message": {"content": "all at once"}}]}', ["application/json", '"stream": true']),
        ('headers content-type: text/plain\nbody {"a": 1}', ['"stream": true']),
        ("headers content-type:\nbody [1, 2]", ['"stream": true']),
        ("headers content-type: text/plain\nbody <html>", ["text/plain", "<html>"]),
        ("headers content-type: application/x-ndjson\nbody {}", ["x-ndjson"]),
        (r"headers content-type: image/png" + "\n" + r"raw \x89PNG\r\n\x1a\n\0\0", ["image/png"]),
    ],
)
@pytest.mark.parametrize("decode", ["chat", "events", "json"])
def test_a_page_is_no_event_stream(streamguard_gateway: Serve, script: str, words: list[str], decode: Any) -> None:
    """A 200 that is something else: the error has its type and its beginning, and nothing is retried."""
    gateway = streamguard_gateway(script)
    error = failure(stream := stream_from(gateway, decode=decode, retry=3))
    assert isinstance(error, NotEventStreamError)
    for word in words:
        assert word in str(error)
    assert len(error.body) <= 512
    assert (len(gateway.requests), stream.report.status_code) == (1, 200)
    gateway.wait_connections(1, still_open=0)


@pytest.mark.parametrize(
    "rest", [f"loop 100\nraw {'<p>' * 20_000}\nendloop", "stall", "loop forever\nraw <p>\nwait 0.02\nendloop"]
)
def test_a_page_without_end_costs_no_more_than_a_second(streamguard_gateway: Serve, rest: str) -> None:
    """Huge, stalling or endless: the read for the message is bounded in size and in time."""
    gateway = streamguard_gateway(f"headers content-type: text/html\nraw <html>\n{rest}")
    seen = consume(stream_from(gateway, retry=None))
    assert isinstance(seen.error, NotEventStreamError)
    assert seen.elapsed < 1 + PROMPT
    gateway.wait_left()


@pytest.mark.parametrize(
    "script", ["headers 204", "headers 205 content-length: 0", "", "end", "headers content-length: 0\nend"]
)
def test_nothing_at_all_is_an_empty_stream(streamguard_gateway: Serve, script: str) -> None:
    """No body, an empty body: an error of its own, that says so."""
    framing = "length" if "length" in script else "chunked"
    error = failure(stream_from(streamguard_gateway(script, framing=framing), retry=3))
    assert isinstance(error, EmptyStreamError)
    assert "empty stream" in str(error)


# From the server: what is no chunk


WHOLE = '{"choices": [{"index": 0, "delta": {"content": "whole"}}]}'
HALF = '{"choices": [{"index": 0, "delta": {"content": "ha'


@pytest.mark.parametrize("framing", ["chunked", "close", "http10"])
@pytest.mark.parametrize(
    "half", [f"raw data: {HALF}", rf"raw data: {HALF}\n", "raw da", "raw data:", rf"raw data: {HALF}\r"]
)
def test_half_a_frame_is_not_delivered(streamguard_gateway: Serve, framing: str, half: str) -> None:
    """The chunk before it is; the stream ends as incomplete."""
    seen = consume(stream_from(streamguard_gateway(f"event {WHOLE}\n{half}\nend", framing=framing)))
    assert isinstance(seen.error, IncompleteStreamError)
    assert (seen.texts, seen.error.partial_text) == (["whole"], "whole")


@pytest.mark.parametrize("half", [f"raw data: {HALF}", rf"raw data: {HALF}\n", "raw :", "raw data: {}"])
@pytest.mark.parametrize("end", ["close", "reset", "stall"])
def test_half_a_frame_before_a_fault_is_not_delivered(streamguard_gateway: Serve, half: str, end: str) -> None:
    """Cut off, reset or silent behind it: what was complete is delivered, what was not is not."""
    gateway = streamguard_gateway(f"event {WHOLE}\nwait 0.05\n{half}\nwait 0.05\n{end}")
    seen = consume(stream_from(gateway, idle=0.2))
    assert isinstance(seen.error, TransportError)
    assert seen.texts == ["whole"]


BAD_PAYLOADS = ["not json", "{", '{"a": }', "[1, 2]", "5", "null", '"text"', "<html>", "[DONE", "DONE", "{} {}", "\N{BOMB}"]


@pytest.mark.parametrize("payload", BAD_PAYLOADS)
def test_a_payload_that_is_no_chunk_is_quoted(streamguard_gateway: Serve, payload: str) -> None:
    """The chunks before it, also those of the same packet, come first; the error quotes what was there."""
    gateway = streamguard_gateway(f"raw data: {WHOLE}\\n\\ndata: {payload}\\n\\n\nstall")
    seen = consume(stream_from(gateway, idle=5))
    assert isinstance(seen.error, MalformedChunkError)
    assert (seen.texts, seen.error.chunks) == (["whole"], 1)
    assert payload.strip("\"'") in str(seen.error)
    gateway.wait_left()


def test_the_quote_of_a_long_payload_is_short(streamguard_gateway: Serve) -> None:
    """At most 200 characters of it are in the message."""
    error = failure(stream_from(streamguard_gateway(f"event {'x' * 50_000}\ndone")))
    assert isinstance(error, MalformedChunkError)
    assert str(error).count("x") < 220


@pytest.mark.parametrize(
    "payload",
    [r'{"choices": [{"index": 0, "delta": {"content": "a\0b"}}]}', r"\0", r"\0\0{}"],
)
def test_nul_bytes_are_no_json(streamguard_gateway: Serve, payload: str) -> None:
    """NUL bytes in a chat payload are a malformed chunk, behind the good ones."""
    gateway = streamguard_gateway(f"event {WHOLE}\nraw data: {payload}\\n\\n\ndone")
    seen = consume(stream_from(gateway))
    assert isinstance(seen.error, MalformedChunkError)
    assert seen.texts == ["whole"]


def test_nul_bytes_are_data_of_an_event(streamguard_gateway: Serve) -> None:
    """As events they pass, as the standard has it; an id with one is ignored."""
    gateway = streamguard_gateway(r"raw id: a\0b\ndata: x\0y\n\n" + "\nend")
    (event,) = consume(stream_from(gateway, decode="events")).chunks
    assert (event.data, event.id) == ("x\0y", "")


@pytest.mark.parametrize("decode", ["chat", "events", "json"])
@pytest.mark.parametrize("start", ["raw data: ", "raw :", "raw "])
def test_sixteen_mebibytes_without_an_end_are_refused(streamguard_gateway: Serve, decode: Any, start: str) -> None:
    """An endless line, data or comment, is stopped at the cap, in no time, whatever it would have been."""
    gateway = streamguard_gateway(f"event {WHOLE}\n{start}x\nloop forever\nraw {'x' * 1_000_000}\nendloop")
    seen = consume(stream_from(gateway, decode=decode, total=30))
    assert isinstance(seen.error, MalformedChunkError)
    assert len(seen.chunks) == 1
    assert "16 MiB" in str(seen.error)
    assert seen.elapsed < 10
    gateway.wait_left()


def test_a_hundred_thousand_data_lines_are_one_event(streamguard_gateway: Serve) -> None:
    """Time is linear in the lines: they are joined, and delivered as one event."""
    gateway = streamguard_gateway("loop 100\nraw " + r"data: x\n" * 1000 + "\nendloop\n" + r"raw \n" + "\nend")
    seen = consume(stream_from(gateway, decode="events"))
    assert [len(event.data) for event in seen.chunks] == [199_999]
    assert seen.elapsed < 10


def test_a_hundred_thousand_data_lines_of_json_are_one_chunk(streamguard_gateway: Serve) -> None:
    """The same for a chat chunk that is spread over as many lines."""
    lines = [r"raw data: {\"choices\": [],\ndata: \"a\": [".replace('\\"', '"')]
    lines += ["loop 100", "raw " + r"\ndata: 1," * 1000, "endloop", r"raw \ndata: 1]}\n\n", "done"]
    seen = consume(stream_from(streamguard_gateway("\n".join(lines)), strict=False))
    assert (seen.error, [len(chunk["a"]) for chunk in seen.chunks]) == (None, [100_001])


def test_an_event_just_below_the_cap_is_delivered(streamguard_gateway: Serve) -> None:
    """Sixteen mebibytes less a little are a big event, and nothing else."""
    gateway = streamguard_gateway(f"raw data: \nloop 16\nraw {'x' * 1_000_000}\nendloop\n" + r"raw \n\n" + "\nend")
    seen = consume(stream_from(gateway, decode="events"))
    assert [len(event.data) for event in seen.chunks] == [16_000_000]


# From the server: faults of the wire


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
    """Broken chunking, status lines and headers: one typed error, no hang, the original behind it."""
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
    """It is no UsageError: the caller's arguments were right."""
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


# Certificates


def _context(*names: str, authority: trustme.CA | None = None, not_after: Any = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (authority or trustme.CA()).issue_cert(*names, not_after=not_after).configure_cert(context)
    return context


def test_an_unknown_authority_is_named(streamguard_tls_gateway: Serve) -> None:
    """A certificate that nobody trusts: ECERT with the library's words; not retried, nothing sent."""
    gateway = streamguard_tls_gateway("chat a\ndone")
    error = failure(guarded_stream("POST", gateway.url, retry=3))
    assert isinstance(error, TransportError)
    assert (error.code, error.phase, error.attempt, error.errno) == ("ECERT", "connect", 1, None)
    assert "certificate" in str(error)
    assert classify(error).diagnosis == "fail-fast"
    assert gateway.requests == []


@pytest.mark.parametrize("fault", ["wrong name", "expired"])
def test_a_certificate_that_does_not_hold_is_named(tmp_path: Any, fault: str) -> None:
    """The wrong host, or out of date, under an authority that is trusted."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    late = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) if fault == "expired" else None
    name = "elsewhere.example" if fault == "wrong name" else "127.0.0.1"
    with Server(lambda peer: None, tls=_context(name, authority=authority, not_after=late)) as server:
        error = failure(guarded_stream("GET", server.url, verify=str(tmp_path / "ca.pem"), retry=3))
    assert (error.code, error.attempt) == ("ECERT", 1)
    assert ("not valid" if fault == "wrong name" else "expired") in str(error)


def test_a_bundle_that_is_none_is_a_transport_error(tmp_path: Any) -> None:
    """A file without any certificate in it."""
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("no certificate here")
    with Gateway("", tls=True) as gateway:
        error = failure(guarded_stream("GET", gateway.url, verify=str(bundle), retry=3))
    assert isinstance(error, StreamguardError)


def test_a_missing_bundle_of_the_environment_is_named(
    streamguard_tls_gateway: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`REQUESTS_CA_BUNDLE` that points to nothing: requests' own words, which name the path."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/bundle.pem")
    error = failure(guarded_stream("GET", streamguard_tls_gateway("chat a\ndone").url, retry=3))
    assert "/no/such/bundle.pem" in str(error)


def test_https_to_a_plain_port_is_a_transport_error() -> None:
    """TLS spoken to a server that answers it with plain text: at once, typed, not retried."""

    def answer(peer: Peer) -> None:
        peer.sock.recv(1000)
        peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with Server(answer) as server:
        error = failure(guarded_stream("GET", server.url.replace("http://", "https://"), total=10))
    assert isinstance(error, TransportError)
    assert (error.code, error.phase, server.connections) == ("EPROTO", "connect", 1)


def test_http_to_a_tls_port_is_a_transport_error(streamguard_tls_gateway: Serve) -> None:
    """The other way round: the server closes."""
    gateway = streamguard_tls_gateway("chat a\ndone")
    error = failure(guarded_stream("GET", gateway.url.replace("https://", "http://"), total=10))
    assert isinstance(error, TransportError)
    assert error.code in ("EPROTO", "ECONNRESET")
