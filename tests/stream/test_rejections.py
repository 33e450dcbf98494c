"""Responses that are not a stream: status 400 and above, and a 200 with another body."""

import json
from typing import Any

import pytest
import requests
import urllib3

from streamguard import (
    EmptyStreamError,
    HTTPStatusError,
    IncompleteStreamError,
    MalformedChunkError,
    NotEventStreamError,
    StreamInactivityTimeoutError,
    guarded_stream,
)

from ..helpers import PROMPT, Serve, wait_until
from .helpers import ask, consume, failure, has_reader, rejected, stream_from


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
def test_a_page_is_not_an_event_stream(streamguard_gateway: Serve, script: str, words: list[str], decode: Any) -> None:
    """A 200 with another type: the error has the type and the beginning of the body, and nothing is retried."""
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
    """A huge, stalling or endless page: the read for the message is bounded in size and time."""
    gateway = streamguard_gateway(f"headers content-type: text/html\nraw <html>\n{rest}")
    seen = consume(stream_from(gateway, retry=None))
    assert isinstance(seen.error, NotEventStreamError)
    assert seen.elapsed < 1 + PROMPT
    gateway.wait_left()


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_the_body_of_an_error_is_kept(streamguard_gateway: Serve, status: int) -> None:
    """Status, headers, Retry-After and the server's message are on the error; the connection is free (B050)."""
    body = '{"error": {"message": "no such key", "type": "auth", "code": "invalid_api_key"}}'
    gateway = streamguard_gateway(f"headers {status} retry-after: 7; x-request-id: r-1\nbody {body}")
    error = failure(stream := stream_from(gateway, retry=None))
    assert isinstance(error, HTTPStatusError)
    assert isinstance(error, requests.HTTPError)
    assert (error.status_code, error.retry_after, error.body, error.request_id) == (status, 7, body, "r-1")
    assert "no such key" in str(error)
    assert error.headers["retry-after"] == "7"
    wait_until(lambda: not has_reader(stream))
    gateway.wait_connections(1, still_open=0)


@pytest.mark.parametrize(
    ("script", "options", "most"),
    [
        (f"headers 500\nloop 40\nraw {'x' * 50_000}\nendloop", {}, PROMPT),
        ("headers 500\nraw half an answ\nstall", {}, 1 + PROMPT),
        ("headers 500\nloop forever\nraw drip\nwait 0.05\nendloop", {}, 1 + PROMPT),
        ("headers 500 content-length: 999\nraw short\nclose", {"framing": "length", "length": 999}, PROMPT),
        ("headers 500\nraw cut\nreset", {}, PROMPT),
    ],
    ids=["huge", "stalling", "endless", "short", "reset"],
)
def test_the_read_of_an_error_body_is_bounded(
    streamguard_gateway: Serve, script: str, options: dict[str, Any], most: float
) -> None:
    """A body that is too big, stalls, never ends or breaks costs a second at most, and never the status (B050)."""
    gateway = streamguard_gateway(script, **options)
    seen = consume(stream := stream_from(gateway, retry=None))
    assert isinstance(seen.error, HTTPStatusError)
    assert seen.error.status_code == 500
    assert len(seen.error.body) <= 65_536
    assert seen.elapsed < most
    wait_until(lambda: not has_reader(stream))
    gateway.wait_connections(1, still_open=0)


KIB = 1024

BODIES = [
    ('{"error":{"message":"said","type":"t","code":"c"}}', "said"),
    ('{"error":"said"}', "said"),
    ('{"message":"said"}', "said"),
    ('{"detail":"said"}', "said"),
    ('{"detail":[{"loc":["body"],"msg":"said"}]}', "said"),
    ('{"errors":["said"]}', "said"),
    ('["said"]', "said"),
    ('"said"', "said"),
    ("said", "said"),
    ("<html><h1>said</h1></html>", "<h1>said</h1>"),
    ("\\xff said", "said"),
    ('{"error":{"message":"said', "said"),
]


@pytest.mark.parametrize(("body", "said"), BODIES, ids=[body for body, _ in BODIES])
def test_a_bad_status_says_what_the_body_says(streamguard_gateway: Serve, body: str, said: str) -> None:
    """The error has the body and its message, in every shape."""
    error = rejected(streamguard_gateway(f"headers 422\nbody {body}"))
    assert said in str(error)
    assert said in error.body


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 503, 529, 599])
def test_a_bad_status_is_an_error(streamguard_gateway: Serve, status: int) -> None:
    """The error is a requests.HTTPError, and has status, headers, request id and response."""
    error = rejected(streamguard_gateway(f"headers {status} X-Request-Id: r-1\nbody no"))
    assert isinstance(error, requests.HTTPError)
    assert (error.status_code, error.request_id, error.phase) == (status, "r-1", "response")
    assert str(error).startswith(f"status {status}")
    assert error.headers["X-Request-Id"] == "r-1"
    assert error.response is not None
    assert error.response.status_code == status


@pytest.mark.parametrize("steps", ["headers 500", "headers 500\nbody {}", "headers 500\nbody null", "headers 500\nraw \\n"])
def test_a_bad_status_with_nothing_to_say(streamguard_gateway: Serve, steps: str) -> None:
    """An empty body, or one without a message, is still a status error."""
    assert rejected(streamguard_gateway(steps)).status_code == 500


@pytest.mark.parametrize("body", ["[" * 60_000, "{" * 60_000, '{"a":' * 9_000, "9" * 60_000], ids=["[", "{", "{a", "9"])
def test_a_bad_status_with_a_hostile_body(streamguard_gateway: Serve, body: str) -> None:
    """A body that breaks JSON parsers changes nothing, and the message stays short."""
    error = rejected(streamguard_gateway(f"headers 502\nbody {body}"))
    assert error.status_code == 502
    assert len(str(error)) < 1_000


def test_a_bad_status_with_a_huge_body(streamguard_gateway: Serve) -> None:
    """No more than 64 KiB of the body are kept, however much the server has."""
    gateway = streamguard_gateway(f"headers 500\nloop forever\nraw {'x' * 64 * KIB}\nendloop")
    error = rejected(gateway)
    assert len(error.body) == 64 * KIB
    assert len(str(error)) < 1_000
    gateway.wait_left()


@pytest.mark.parametrize(
    "rest", ["stall", "loop forever\nraw x\nwait 0.05\nendloop", "wire 5\\r\\n\nstall"], ids=["stall", "drip", "chunk"]
)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_bad_status_whose_body_does_not_end(streamguard_gateway: Serve, tls: bool, rest: str) -> None:
    """A body that stalls or drips is read for about a second, and the error has what arrived."""
    gateway = streamguard_gateway(f"headers 503 retry-after: 7\nraw overloaded\n{rest}", tls=tls)
    run = ask(gateway, verify=gateway.ca if tls else True)
    assert isinstance(run.error, HTTPStatusError)
    assert run.error.body.startswith("overloaded")
    assert run.error.retry_after == 7
    assert run.stream.report.lifetime < 2 + PROMPT
    gateway.wait_left()


@pytest.mark.parametrize("rest", ["reset", "close", "wire zz\\r\\n"])
def test_a_bad_status_whose_body_breaks(streamguard_gateway: Serve, rest: str) -> None:
    """A transport error after a bad status does not hide the status."""
    error = rejected(streamguard_gateway(f"headers 500\nraw overloaded\nwait 0.1\n{rest}"))
    assert (error.status_code, error.body) == (500, "overloaded")


@pytest.mark.parametrize("encoding", ["gzip", "gzip-members", "gzip-buffered", "deflate"])
def test_a_bad_status_with_a_compressed_body(streamguard_gateway: Serve, encoding: str) -> None:
    """The body of the error is decompressed."""
    error = rejected(streamguard_gateway('headers 400\nbody {"error":{"message":"said"}}', encoding=encoding))
    assert json.loads(error.body) == {"error": {"message": "said"}}


@pytest.mark.parametrize("framing", ["chunked", "length", "close", "http10"])
@pytest.mark.parametrize("decode", ["chat", "events", "json", "bytes"])
def test_a_bad_status_is_one_for_every_decoder(streamguard_gateway: Serve, framing: str, decode: str) -> None:
    """Even `decode="bytes"`, and even if the body is an event stream."""
    assert rejected(streamguard_gateway("headers 500\nevent no", framing=framing), decode=decode).status_code == 500


def test_an_open_meets_a_bad_status(streamguard_gateway: Serve) -> None:
    """`open()` and `with` raise the status error before anything is iterated."""
    gateway = streamguard_gateway('headers 401\nbody {"error":{"message":"no key"}}')
    with pytest.raises(HTTPStatusError, match="no key"), guarded_stream("POST", gateway.url):
        pytest.fail("the block was entered")
    with pytest.raises(HTTPStatusError, match="no key"):
        guarded_stream("POST", gateway.url).open()
    assert len(gateway.requests) == 2


ACCEPTED = [
    "Content-Type: text/event-stream; charset=utf-8",
    "Content-Type: TEXT/EVENT-STREAM",
    "Content-Type: text/event-stream;charset=ISO-8859-1",
    "Content-Type: text/event-stream, text/event-stream",
    "Content-Type:",
    "Content-Type: text/plain",
    "Content-Type: text/plain; charset=utf-8",
]


@pytest.mark.parametrize("header", ACCEPTED)
@pytest.mark.parametrize(
    "before", ["", "comment hb", "raw \\xef\\xbb\\xbf", "raw \\r\\n\\n", "raw id: 1\\n", "drip 1 0 | : ab\\n"]
)
def test_an_event_stream_by_type_or_by_looks(streamguard_gateway: Serve, header: str, before: str) -> None:
    """The type decides; a missing or plain type is accepted if the body begins like an event stream."""
    run = ask(streamguard_gateway(f"headers {header}\n{before}\nchat \u00e9\ndone"))
    assert (run.error, run.texts) == (None, ["\u00e9"])


REFUSED = [
    ("text/html; charset=utf-8", "<html><h1>Sign in</h1></html>"),
    ("text/plain", "upstream unavailable"),
    ("text/plain", "database unreachable"),
    ("text/plain", "identity unknown: log in"),
    ("text/plain", "retrying: in a while"),
    ("text/plain", "events are down\\n"),
    ("", "<html></html>"),
    ("", '{"a":1}'),
    ("application/octet-stream", "PK: x"),
    ("application/json", '{"data": "x"}'),
    ("application/x-ndjson", '{"a":1}\\n{"a":2}\\n'),
    ("nonsense", "data: x\\n\\n"),
]


@pytest.mark.parametrize(("kind", "body"), REFUSED)
@pytest.mark.parametrize("decode", ["chat", "events", "json"])
def test_a_200_that_is_not_an_event_stream(streamguard_gateway: Serve, decode: str, kind: str, body: str) -> None:
    """Another type, or a plain one whose body does not begin like events, is refused, with a quote of the body."""
    run = ask(streamguard_gateway(f"headers Content-Type: {kind}\nraw {body}"), decode=decode)
    assert type(run.error) is NotEventStreamError
    assert run.error.content_type == (kind or None)
    assert run.error.body == body.replace("\\n", "\n")
    assert body[:10] in str(run.error)
    assert run.stream.report.outcome == "error"


@pytest.mark.parametrize("kind", ["application/octet-stream", "binary/octet-stream", "application/json; charset=utf-8"])
def test_a_good_stream_under_another_type(streamguard_gateway: Serve, kind: str) -> None:
    """C223: such types are judged by how the body begins, as text/plain is."""
    run = ask(streamguard_gateway(f"headers Content-Type: {kind}\nchat a\ndone"))
    assert (run.error, run.texts, run.stream.report.outcome) == (None, ["a"], "completed")


@pytest.mark.parametrize(("coding", "library"), [("br", "brotli"), ("zstd", "zstandard"), ("ZSTD", "zstandard")])
@pytest.mark.parametrize("decode", ["chat", "events", "json"])
def test_a_coding_without_its_library(
    streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch, decode: str, coding: str, library: str
) -> None:
    """C226: a body that nothing can decode is an error that names its encoding, not an empty stream."""
    monkeypatch.setattr(urllib3.HTTPResponse, "CONTENT_DECODERS", ["gzip", "x-gzip", "deflate"])
    lines = f"headers content-type: text/event-stream; content-encoding: {coding}\nraw \\x28\\xb5\\x2f\\xfd\nend"
    run = ask(streamguard_gateway(lines), decode=decode)
    assert type(run.error) is MalformedChunkError
    assert coding.lower() in str(run.error)
    assert library in str(run.error)


UNFRAMED = [
    "<html>\\n<h1>Sign in</h1></html>",
    "upstream connect error",
    '{"id":"x","choices":[]}\\n{"id":"y"}\\n',
    "x: y\\n\\n",
]


@pytest.mark.parametrize("body", UNFRAMED)
@pytest.mark.parametrize("decode", ["chat", "json", "responses", "anthropic"])
@pytest.mark.parametrize("strict", [True, False])
def test_an_event_stream_by_its_type_alone(streamguard_gateway: Serve, strict: bool, decode: str, body: str) -> None:
    """A body without a single field or comment is not an empty stream: the error quotes it."""
    run = ask(streamguard_gateway(f"raw {body}"), decode=decode, strict=strict)
    assert type(run.error) is NotEventStreamError
    assert run.error.body is not None
    assert run.error.body.startswith(body[:4])
    assert run.chunks == []
    assert run.stream.report.outcome == "error"


@pytest.mark.parametrize(("before", "kind"), [("chat a", IncompleteStreamError), ("comment beat", EmptyStreamError)])
def test_unparsed_lines_are_quoted(streamguard_gateway: Serve, before: str, kind: type[Exception]) -> None:
    """The message mentions `.partial_text` only if there is text."""
    run = ask(streamguard_gateway(f"{before}\nraw Internal Server Error\\n"))
    assert type(run.error) is kind
    assert "'Internal Server Error'" in str(run.error)
    assert (".partial_text" in str(run.error)) == (before == "chat a")


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "", "application/problem+json"])
@pytest.mark.parametrize("payload", [None, {"model": "m"}, {"stream": False}, {"stream": True}])
def test_json_instead_of_a_stream(streamguard_gateway: Serve, kind: str, payload: dict[str, Any] | None) -> None:
    """For a JSON body the error asks whether the payload set `"stream": true`."""
    gateway = streamguard_gateway(f'headers Content-Type: {kind}\nraw {{"choices":[{{"message":{{"content":"a"}}}}]}}')
    run = ask(gateway, json=payload)
    assert type(run.error) is NotEventStreamError
    assert '"stream": true' in str(run.error)


@pytest.mark.parametrize("kind", ["text/html", "text/plain", ""])
@pytest.mark.parametrize(
    "rest", ["stall", "reset", f"loop forever\nraw {'y' * 9_999}\nendloop"], ids=["stall", "reset", "huge"]
)
def test_no_event_stream_and_no_end(streamguard_gateway: Serve, kind: str, rest: str) -> None:
    """Whatever follows, at most 512 bytes are quoted, within about a second."""
    gateway = streamguard_gateway(f"headers Content-Type: {kind}\nraw {'x' * 600}\nwait 0.1\n{rest}")
    run = ask(gateway)
    assert type(run.error) is NotEventStreamError
    assert run.error.body == "x" * 512
    assert run.stream.report.lifetime < 2 + PROMPT


def test_a_short_body_that_stalls_is_still_quoted(streamguard_gateway: Serve) -> None:
    """A page of another type that stalls is quoted as far as it arrived."""
    run = ask(streamguard_gateway("headers Content-Type: text/html\nraw <html>\nstall"), response=5)
    assert type(run.error) is NotEventStreamError
    assert run.error.body == "<html>"


@pytest.mark.parametrize("kind", ["text/plain", ""])
def test_silence_after_a_missing_type_is_silence(streamguard_gateway: Serve, kind: str) -> None:
    """Headers without a type are headers: the next phase is `first`, not `response`."""
    run = ask(streamguard_gateway(f"headers Content-Type: {kind}\nstall"), first=0.2, response=30)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert run.error.phase == "first"
    assert run.stream.report.time_to_headers is not None
    assert 0.2 <= run.stream.report.lifetime < 0.2 + PROMPT


@pytest.mark.parametrize("kind", ["text/plain", ""])
def test_judging_a_missing_type_restarts_no_clock(streamguard_gateway: Serve, kind: str) -> None:
    """`first` is measured from the headers, also when the first line of the body came later."""
    run = ask(streamguard_gateway(f"headers Content-Type: {kind}\nwait 0.3\ncomment hb\nstall"), first=0.5)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert run.error.elapsed is not None
    assert run.error.elapsed < 0.75
    assert run.stream.report.time_to_headers is not None
    assert run.stream.report.time_to_headers < 0.3


@pytest.mark.parametrize("status", [201, 202, 203, 206])
def test_any_good_status_is_accepted(streamguard_gateway: Serve, status: int) -> None:
    """An event stream is read under any status below 300."""
    run = ask(streamguard_gateway(f"headers {status}\nchat a\ndone"))
    assert (run.error, run.texts, run.stream.report.status_code) == (None, ["a"], status)


def test_no_content(streamguard_gateway: Serve) -> None:
    """A 204 is a stream without a chunk."""
    assert type(ask(streamguard_gateway("headers 204 Content-Type:")).error) is EmptyStreamError


@pytest.mark.parametrize("interim", ["headers 100", "headers 102", "headers 103 Link: </x>", "headers 100\nheaders 103"])
def test_interim_responses_are_passed_over(streamguard_gateway: Serve, interim: str) -> None:
    """A 1xx before the real headers is not an answer."""
    run = ask(streamguard_gateway(f"{interim}\nheaders 200\nchat a\ndone"))
    assert (run.error, run.texts) == (None, ["a"])


def test_bytes_take_any_type(streamguard_gateway: Serve) -> None:
    """`decode="bytes"` accepts any type."""
    run = ask(streamguard_gateway("headers Content-Type: text/html\nraw <html>"), decode="bytes")
    assert (run.error, b"".join(run.chunks)) == (None, b"<html>")
