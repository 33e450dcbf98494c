"""An end of a body that its framing cannot vouch for is complete only if the protocol's own end came before it."""

import base64
import contextlib
import json
from typing import Any

import pytest

from streamguard import EmptyStreamError, IncompleteStreamError, guard, guarded_stream
from streamguard.testing import Gateway

from ..helpers import Serve
from .helpers import Run, consume, script
from .sources import wire
from .sources.clients import CLIENTS

EVENTS = 'event {"a": 1}\nevent {"a": 2}'


def ask(gateway: Gateway, **options: Any) -> Run:
    verify = {"verify": gateway.ca} if gateway.url.startswith("https") else {}
    return consume(guarded_stream("GET", gateway.url, retry=None, **verify, **options))


@pytest.mark.parametrize("framing", ["close", "http10"])
@pytest.mark.parametrize("decode", ["events", "json", "bytes", "chat"])
@pytest.mark.parametrize("body", [EVENTS, "chat a\nchat b"])
def test_a_tls_body_that_is_cut(streamguard_tls_gateway: Serve, framing: str, decode: str, body: str) -> None:
    """C206: without a length, a FIN without close_notify is not the end: RFC 9112, section 9.8."""
    gateway = streamguard_tls_gateway(f"{body}\nclose", framing=framing)
    run = ask(gateway, decode=decode)
    assert type(run.error) is IncompleteStreamError
    assert "close_notify" in str(run.error)
    assert run.chunks
    accepted = ask(gateway, decode=decode, strict=False).stream.report
    assert (accepted.outcome, accepted.ended_by) == ("incomplete", "eof")


@pytest.mark.parametrize("framing", ["close", "http10"])
@pytest.mark.parametrize("decode", ["events", "json", "bytes"])
def test_a_tls_body_that_ends(streamguard_tls_gateway: Serve, framing: str, decode: str) -> None:
    """C206: with close_notify the end of the connection is the end of the body."""
    run = ask(streamguard_tls_gateway(f"{EVENTS}\nend", framing=framing), decode=decode)
    assert (run.error, run.stream.report.outcome, run.stream.report.ended_by) == (None, "completed", "eof")


@pytest.mark.parametrize("framing", ["close", "http10"])
@pytest.mark.parametrize("decode", ["events", "json", "bytes"])
def test_without_tls_the_close_is_the_end(streamguard_gateway: Serve, framing: str, decode: str) -> None:
    """C206: a FIN of a plain connection is a good end of such a body: RFC 9112, section 8."""
    run = ask(streamguard_gateway(f"{EVENTS}\nclose", framing=framing), decode=decode)
    assert (run.error, run.stream.report.outcome) == (None, "completed")


@pytest.mark.parametrize(
    ("lines", "decode"),
    [
        ("chat a\nfinish", "chat"),
        ("chat a\ndone", "chat"),
        ("chat a\ndone", "json"),
        (f"{wire.ANTHROPIC_START}\n{wire.ANTHROPIC_END}", "anthropic"),
        (f"{wire.RESPONSES_START}\n{wire.RESPONSES_END}", "responses"),
    ],
)
def test_the_protocols_own_end_is_enough(streamguard_tls_gateway: Serve, lines: str, decode: str) -> None:
    """C206: servers that never send close_notify complete their streams by what they say."""
    run = ask(streamguard_tls_gateway(f"{lines}\nclose", framing="close"), decode=decode)
    assert (run.error, run.stream.report.outcome) == (None, "completed")


def test_a_tls_body_that_is_cut_before_its_first_byte(streamguard_tls_gateway: Serve) -> None:
    """C206: such a body may not even be empty."""
    run = ask(streamguard_tls_gateway("headers\nclose", framing="close"), decode="events")
    assert type(run.error) is EmptyStreamError


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_tls_body_that_is_cut(streamguard_tls_gateway: Serve, encoding: str) -> None:
    """C206: a content encoding changes nothing about it."""
    gateway = streamguard_tls_gateway(f"{EVENTS}\nclose", framing="close", encoding=encoding)
    run = ask(gateway, decode="events", headers={"Accept-Encoding": encoding})
    assert isinstance(run.error, IncompleteStreamError)


@pytest.mark.parametrize("name", ["requests", "urllib3", "http.client", "httpx", "httpx2"])
def test_a_cut_tls_body_that_another_library_reads(streamguard_tls_gateway: Serve, name: str) -> None:
    """C206: guard() judges it in the same way, and takes a finish reason for an end."""
    for lines, kind in (("chat a\nclose", IncompleteStreamError), ("chat a\nfinish\nclose", type(None))):
        with contextlib.ExitStack() as stack:
            response = CLIENTS[name].open(streamguard_tls_gateway(lines, framing="close"), stack)
            assert type(consume(guard(response)).error) is kind


@pytest.mark.parametrize("name", ["openai-chat", "openai-responses", "anthropic"])
def test_a_cut_tls_body_that_an_sdk_reads(streamguard_tls_gateway: Serve, name: str) -> None:
    """C206: through an SDK too."""
    client = CLIENTS[name]
    with contextlib.ExitStack() as stack:
        gateway = streamguard_tls_gateway(f"{client.start}\nclose", framing="close")
        assert isinstance(consume(guard(client.open(gateway, stack))).error, IncompleteStreamError)


BLOCK = wire.bedrock("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": " you"}})
CUT = BLOCK[: len("raw ") + 4 * 30]
USAGE = wire.bedrock("metadata", {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}, "metrics": {}})


def converse(gateway: Gateway, **options: Any) -> Run:
    with contextlib.ExitStack() as stack:
        return consume(guard(CLIENTS["botocore"].open(gateway, stack), **options))


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
@pytest.mark.parametrize("tail", ["", CUT, CUT[:16], BLOCK, f"{BLOCK}\n{CUT}"])
def test_an_aws_event_stream_that_stops(streamguard_gateway: Serve, framing: str, tail: str) -> None:
    """C205: before its last message, or in the middle of one, which botocore itself drops."""
    run = converse(streamguard_gateway(script(wire.BEDROCK_START, tail, "end"), framing=framing))
    assert isinstance(run.error, IncompleteStreamError)
    assert run.stream.report.outcome == "error"


@pytest.mark.parametrize("tail", ["", USAGE, USAGE[: len("raw ") + 4 * 30]])
def test_an_aws_event_stream_that_has_stopped(streamguard_gateway: Serve, tail: str) -> None:
    """C205: `messageStop` is its end; the usage after it may be missing."""
    run = converse(streamguard_gateway(script(wire.BEDROCK_START, wire.BEDROCK_END, tail, "end")))
    assert (run.error, run.stream.report.outcome) == (None, "completed")


def test_an_aws_event_stream_that_lingers(streamguard_gateway: Serve) -> None:
    """C205: after `messageStop` the grace runs; the usage ends it at once."""
    head = f"{wire.BEDROCK_START}\n{wire.BEDROCK_END}"
    assert converse(streamguard_gateway(f"{head}\nlinger"), end_grace=0.2).stream.report.ended_by == "end_grace"
    assert converse(streamguard_gateway(f"{head}\n{USAGE}\nlinger"), end_grace=30).stream.report.ended_by == "done"


def invoke(gateway: Gateway) -> Run:
    with contextlib.ExitStack() as stack:
        client = wire.bedrock_client(gateway, stack)
        return consume(guard(client.invoke_model_with_response_stream(modelId="m", body=b"{}")["body"]))


def piece(frame: dict[str, Any]) -> str:
    return wire.bedrock("chunk", {"bytes": base64.b64encode(json.dumps(frame).encode()).decode()})


@pytest.mark.parametrize(
    ("frames", "complete"),
    [
        ([{"type": "message_start", "message": {}}], False),
        ([{"type": "message_start", "message": {}}, {"type": "message_stop"}], True),
        ([{"outputText": "a"}, {"outputText": "", "amazon-bedrock-invocationMetrics": {}}], True),
    ],
)
def test_a_model_that_bedrock_invokes(streamguard_gateway: Serve, frames: list[dict[str, Any]], complete: bool) -> None:
    """C205: the frames inside the messages of InvokeModelWithResponseStream say when they end."""
    headers = "headers content-type: application/vnd.amazon.eventstream"
    run = invoke(streamguard_gateway(script(headers, map(piece, frames), "end")))
    assert (run.error is None) is complete
    cut = invoke(streamguard_gateway(script(headers, piece({"outputText": "a"}), CUT, "end")))
    assert isinstance(cut.error, IncompleteStreamError)
