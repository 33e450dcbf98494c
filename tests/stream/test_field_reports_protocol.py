"""Behaviours met in public bug reports: the protocol, truncation, proxies, compression. Named by the reports' ids."""

import threading

import pytest
import requests

from streamguard import (
    EmptyStreamError,
    IncompleteStreamError,
    InStreamError,
    StreamCancelledError,
    StreamInactivityTimeoutError,
    TransportError,
    guarded_stream,
    has_content,
)

from ..helpers import PROMPT, Serve
from .helpers import ask, choice, consume, line

USAGE = ["chat a", "finish", "usage 3 4"]


def test_B074_a_usage_chunk_without_choices(streamguard_gateway: Serve) -> None:
    """The usage chunk has no text, is recorded, and is handed over in every mode."""
    run = ask(streamguard_gateway([*USAGE, "done"]))
    assert [chunk.text for chunk in run.chunks] == ["a", "", ""]
    assert run.stream.report.usage == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert (run.stream.text, run.stream.message.finish_reason) == ("a", "stop")
    raw = ask(streamguard_gateway([*USAGE, "done"]), decode="json")
    assert [chunk["choices"] for chunk in raw.chunks][-1] == []


@pytest.mark.parametrize(
    "odd",
    ['{"choices":[]}', "{}", '{"choices":null}', '{"choices":[{}]}', '{"choices":[{"delta":null}]}', '{"choices":[null]}'],
)
def test_B075_odd_chunks_are_no_text(streamguard_gateway: Serve, odd: str) -> None:
    """Chunks with empty or missing parts read as nothing: no exception, and no exception's text, is in the answer."""
    run = ask(streamguard_gateway(f"chat a\nevent {odd}\nchat b\nfinish\ndone"))
    assert (run.error, run.texts, run.stream.text, run.stream.message.text) == (None, ["a", "b"], "ab", "ab")


def test_B078_no_usage_when_the_stream_is_left(streamguard_gateway: Serve) -> None:
    """A stream that was cancelled has no usage, rather than 0; its chunks are counted."""
    gateway = streamguard_gateway("chat a\nchat b\nchat c\nstall")
    stream = guarded_stream("POST", gateway.url)
    for _, chunk in zip(range(3), stream, strict=False):
        assert chunk.text
    stream.cancel("enough")
    with pytest.raises(StreamCancelledError) as caught:
        next(stream)
    assert (stream.report.usage, stream.message.usage, stream.report.chunks, caught.value.chunks) == (None, None, 3, 3)


NO_END = ["chat a", *['event {"choices":[]}'] * 3, "usage 1 1"]


def test_B079_a_provider_that_never_says_the_end(streamguard_gateway: Serve) -> None:
    """Neither finish_reason nor [DONE] is incomplete unless the caller is lenient, and is not tried again."""
    gateway = streamguard_gateway(NO_END)
    run = consume(guarded_stream("POST", gateway.url, retry=3))
    assert type(run.error) is IncompleteStreamError
    assert (len(run.chunks), len(gateway.requests)) == (5, 1)
    lenient = ask(gateway, strict=False)
    assert (lenient.error, lenient.stream.report.outcome, len(lenient.chunks)) == (None, "incomplete", 5)


def test_B081_an_error_before_the_end_marker(streamguard_gateway: Serve) -> None:
    """An error frame in front of [DONE] is an error, with its type and code."""
    run = ask(streamguard_gateway('event {"error":{"message":"TimeoutError","type":"GatewayTimeout","code":504}}\ndone'))
    assert isinstance(run.error, InStreamError)
    assert (run.error.message, run.error.type, run.error.code) == ("TimeoutError", "GatewayTimeout", 504)


@pytest.mark.parametrize(
    "shape",
    [
        '{"error":"m"}',
        '{"object":"error","message":"m"}',
        '{"detail":"m"}',
        '{"error":{"detail":"m"}}',
        '{"code":1,"msg":"m"}',
    ],
)
def test_B082_other_shapes_of_errors(streamguard_gateway: Serve, shape: str) -> None:
    """Each shape in use is recognised, also as the only event."""
    run = ask(streamguard_gateway(f"event {shape}\ndone"))
    assert isinstance(run.error, InStreamError)
    assert run.error.message == "m"


def test_B082_an_unknown_payload_is_handed_over(streamguard_gateway: Serve) -> None:
    """A JSON object that is nothing known comes as it is."""
    run = ask(streamguard_gateway('event {"progress":0.5,"message":"working"}\nchat a\ndone'))
    assert (run.error, run.chunks[0]) == (None, {"progress": 0.5, "message": "working"})


def test_B083_choices_and_an_error(streamguard_gateway: Serve) -> None:
    """A chunk with both, or with finish_reason "error", raises, and what had come stays."""
    frame = '{"error":{"code":502,"message":"m"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}'
    for last in (f"event {frame}", "finish error"):
        run = ask(streamguard_gateway(f"chat par\nchat tial\n{last}\ndone"))
        assert isinstance(run.error, InStreamError)
        assert (run.error.partial_text, run.stream.text) == ("partial", "partial")


@pytest.mark.parametrize("nothing", ["null", "{}", '""'])
def test_B084_an_empty_error_is_no_error(streamguard_gateway: Serve, nothing: str) -> None:
    """null, an empty object and an empty string are no error; nor is text about one."""
    frame = f'{{"choices":[{{"delta":{{"content":"error: x"}}}}],"error":{nothing}}}'
    run = ask(streamguard_gateway(f"event {frame}\nfinish\ndone"))
    assert (run.error, run.texts) == (None, ["error: x"])


def test_B085_nothing_but_the_end_marker(streamguard_gateway: Serve) -> None:
    """[DONE] alone is an empty stream, which is no transport timeout and is not tried again."""
    gateway = streamguard_gateway("done")
    run = consume(guarded_stream("POST", gateway.url, retry=3))
    assert type(run.error) is EmptyStreamError
    assert not isinstance(run.error, TimeoutError)
    assert len(gateway.requests) == 1


CALL = [
    line(choice(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "rm", "arguments": '{"path": "/tm'}}])),
    line(choice(tool_calls=[{"index": 0, "function": {"arguments": 'p/x"}'}}])),
]


@pytest.mark.parametrize("sent", [1, 2])
@pytest.mark.parametrize("strict", [True, False])
def test_B087_truncated_tool_calls_are_not_offered(streamguard_gateway: Serve, sent: int, strict: bool) -> None:
    """A stream that was cut offers no tool call, not even one whose arguments happen to be whole."""
    run = ask(streamguard_gateway(CALL[:sent]), strict=strict)
    assert run.stream.message.tool_calls == ()
    assert [call.name for call in run.stream.message.invalid_tool_calls] == ["rm"]


@pytest.mark.parametrize(
    ("ending", "offered"), [("finish tool_calls", 1), ("finish stop", 1), ("finish length", 0), ("done", 0)]
)
def test_B087_a_finish_reason_decides_about_tool_calls(streamguard_gateway: Serve, ending: str, offered: int) -> None:
    """Whole calls are offered with a finish reason, not with "length" or none; the reason is told."""
    run = ask(streamguard_gateway([*CALL, ending]))
    message = run.stream.message
    assert (run.error, len(message.tool_calls)) == (None, offered)
    assert message.finish_reason == (None if ending == "done" else ending.removeprefix("finish "))
    if offered:
        assert message.tool_calls[0].parse() == {"path": "/tmp/x"}


def test_B087_arguments_are_validated(streamguard_gateway: Serve) -> None:
    """A complete stream with half the arguments offers no call."""
    run = ask(streamguard_gateway([CALL[0], "finish tool_calls", "done"]))
    assert (run.error, run.stream.message.tool_calls) == (None, ())
    assert run.stream.message.invalid_tool_calls[0].arguments == '{"path": "/tm'


def test_B089_usage_says_nothing_about_the_end(streamguard_gateway: Serve) -> None:
    """A stream without usage may be complete, one with usage cut: the end marker and the finish reason decide."""
    assert ask(streamguard_gateway("chat a\nfinish")).stream.report.outcome == "completed"
    assert type(ask(streamguard_gateway("chat a\nusage 1 1")).error) is IncompleteStreamError
    assert type(ask(streamguard_gateway("chat a")).error) is IncompleteStreamError


@pytest.mark.parametrize("decode", ["chat", "events", "json", "bytes"])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_B091_a_short_body(streamguard_gateway: Serve, decode: str, tls: bool) -> None:
    """A body shorter than its Content-Length is an error in every mode, behind what had come."""
    gateway = streamguard_gateway('event {"choices":[]}\nclose', framing="length", length=500, tls=tls)
    run = ask(gateway, decode=decode, verify=gateway.ca if tls else True)
    assert isinstance(run.error, TransportError)
    assert len(run.chunks) == 1


def test_B091_the_length_is_the_encoded_one(streamguard_gateway: Serve) -> None:
    """An encoded body whose decoded size differs from its Content-Length is complete."""
    run = ask(streamguard_gateway("chat a\nchat b\ndone", framing="length", encoding="gzip"), decode="bytes")
    assert run.error is None
    assert b"".join(run.chunks).endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("framing", ["chunked", "close", "http10"])
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_B093_a_gzip_stream_flushed_per_event(streamguard_gateway: Serve, encoding: str, framing: str) -> None:
    """Each event of a compressed stream is there with its flush, before the server goes on."""
    gateway = streamguard_gateway("chat a\nwait 0.3\nchat b\nwait 0.3\nchat c\ndone", encoding=encoding, framing=framing)
    stream = guarded_stream("POST", gateway.url)
    sent = [gateway.requests[0].reached["chat"] for _ in stream]
    assert len(sent) == 3
    assert all(count <= number for number, count in enumerate(sent, 1))  # a step counts a moment after it was sent
    assert gateway.requests[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_B094_compression_that_is_never_flushed(streamguard_gateway: Serve, framing: str) -> None:
    """Silence behind the headers hints at buffering and compression; the client had asked for identity."""
    gateway = streamguard_gateway("chat a\nchat b\nstall", encoding="gzip-buffered", framing=framing)
    run = ask(gateway, idle=0.3)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert "buffering" in str(run.error)
    assert "compression" in str(run.error)
    assert gateway.requests[0].headers["Accept-Encoding"] == "identity"


def test_B094_no_hint_where_bytes_came(streamguard_gateway: Serve) -> None:
    """The hint is for a line on which nothing came at all."""
    run = ask(streamguard_gateway("comment hb\nstall"), idle=0.2)
    assert "buffering" not in str(run.error)


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_B095_each_chunk_its_own_gzip_member(streamguard_gateway: Serve, framing: str) -> None:
    """A body of several gzip members is one stream, and prompt."""
    gateway = streamguard_gateway("chat a\nwait 0.3\nchat b\nchat c\ndone", encoding="gzip-members", framing=framing)
    stream = guarded_stream("POST", gateway.url)
    first = next(stream)
    assert (first.text, gateway.requests[0].reached["chat"] <= 1) == ("a", True)
    assert [chunk.text for chunk in stream] == ["b", "c"]


BURST = "headers\nwait 0.5\nloop 20\nchat x\nendloop\ndone"


def test_B096_a_proxy_that_holds_the_whole_stream(streamguard_gateway: Serve) -> None:
    """Events that come in one burst are fine as long as `first` allows; the report shows the wait and the burst."""
    run = ask(streamguard_gateway(BURST), idle=0.2, first=5)
    report = run.stream.report
    assert (run.error, report.chunks) == (None, 20)
    assert report.time_to_headers is not None
    assert report.time_to_first_byte is not None
    assert report.time_to_first_byte - report.time_to_headers >= 0.45
    assert (report.max_gap or 0.0) < 0.2


def test_B097_a_recording_proxy_trips_first(streamguard_gateway: Serve) -> None:
    """The same burst behind a shorter `first` is a timeout of that phase, not of `idle`."""
    run = ask(streamguard_gateway(BURST), idle=5, first=0.2)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.error.phase, run.error.limit) == ("first", 0.2)


def test_B097_the_scripted_gateway_streams(streamguard_gateway: Serve) -> None:
    """Our own server has not even sent the last event when the first is here."""
    gateway = streamguard_gateway("chat a\nwait 0.3\nchat b\ndone")
    stream = guarded_stream("POST", gateway.url)
    next(stream)
    assert gateway.requests[0].reached["chat"] <= 1
    assert stream.read() == "ab"


def test_B098_a_system_proxy_catches_loopback(streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's proxy is used, as by requests; a Session with trust_env=False, or no_proxy, goes past it."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    gateway = streamguard_gateway("chat a\ndone")
    caught = ask(gateway)
    assert isinstance(caught.error, TransportError)
    assert caught.error.code == "ECONNREFUSED"
    with requests.Session() as session:
        session.trust_env = False
        assert ask(gateway, session=session).texts == ["a"]
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert ask(gateway).texts == ["a"]


def test_B099_the_public_iterator_is_prompt(streamguard_gateway: Serve) -> None:
    """The consumer has each chunk while the server is still waiting to send the next: it waits for the consumer."""
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


def test_has_content_for_reports(streamguard_gateway: Serve) -> None:
    """With `counts=has_content` the first chunk that counts is the first with text, whatever came before."""
    run = ask(streamguard_gateway([line(choice(role="assistant")), "wait 0.2", "chat a", "done"]), counts=has_content)
    report = run.stream.report
    assert report.time_to_first_byte is not None
    assert report.time_to_first_chunk is not None
    assert report.time_to_first_chunk - report.time_to_first_byte >= 0.15
