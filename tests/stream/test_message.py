"""`.read()`, `.text` and `.message`: the text, the tool calls and the usage of a chat."""

import pytest

from streamguard import (
    IncompleteStreamError,
    StreamCancelledError,
    UsageError,
    guarded_stream,
)

from ..helpers import Serve
from .helpers import ask, choice, line

WITH_USAGE = "chat a\nchat b\nfinish\nusage 1 2\ndone"


def test_read_returns_all_of_the_text(streamguard_gateway: Serve) -> None:
    """`.read()` consumes the rest and returns the whole text, including the text of earlier chunks."""
    stream = guarded_stream("POST", streamguard_gateway(WITH_USAGE).url)
    next(stream)
    assert (stream.text, stream.read(), stream.text, stream.read()) == ("a", "ab", "ab", "ab")


def test_read_of_other_decoders(streamguard_gateway: Serve) -> None:
    """For `decode="bytes"` it is the bytes from here, for others the list of the chunks from here."""
    url = streamguard_gateway("event 1\nevent 2").url
    assert guarded_stream("GET", url, decode="bytes").read() == b"data: 1\n\ndata: 2\n\n"
    assert guarded_stream("GET", url, decode="json").read() == [1, 2]
    assert guarded_stream("GET", url, decode=lambda event: event.data).read() == ["1", "2"]
    stream = guarded_stream("GET", url, decode="json")
    next(stream)
    assert (stream.read(), stream.read()) == ([2], [])


def test_read_of_nothing(streamguard_gateway: Serve) -> None:
    """For an empty body the result is empty, and of the right type."""
    url = streamguard_gateway("end").url
    assert guarded_stream("GET", url, decode="bytes").read() == b""
    assert guarded_stream("GET", url, decode="events").read() == []
    assert guarded_stream("GET", url, strict=False).read() == ""


def test_read_leaves_heartbeats_out(streamguard_gateway: Serve) -> None:
    """`.read()` returns no heartbeats."""
    url = streamguard_gateway("event 1\nwait 0.3\nevent 2").url
    assert guarded_stream("GET", url, decode="json", heartbeat=0.05).read() == [1, 2]


def test_read_raises_what_iterating_would(streamguard_gateway: Serve) -> None:
    """`.read()` raises the error, and the text so far is kept."""
    stream = guarded_stream("POST", streamguard_gateway("chat a").url)
    with pytest.raises(IncompleteStreamError):
        stream.read()
    assert (stream.text, stream.message.text) == ("a", "a")


def test_the_message_is_assembled(streamguard_gateway: Serve) -> None:
    """`.message` has text, reasoning, tool calls, finish reason and usage; the report has the last two."""
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"x":'}}
    steps = [line(choice("a", reasoning_content="r")), line(choice("b", tool_calls=[call]))]
    rest = [line(choice(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}])), "finish tool_calls", "usage 1 2"]
    run = ask(streamguard_gateway([*steps, *rest, "done"]))
    message, report = run.stream.message, run.stream.report
    assert (message.text, message.reasoning, message.finish_reason) == ("ab", "r", "tool_calls")
    assert [(call.id, call.name, call.parse()) for call in message.tool_calls] == [("c", "f", {"x": 1})]
    assert (report.finish_reason, report.usage) == (message.finish_reason, message.usage)


def test_the_message_while_it_is_written(streamguard_gateway: Serve) -> None:
    """`.text` and `.message` may be read at any time, never block, and offer tool calls only at the end."""
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    stream = guarded_stream("POST", streamguard_gateway(["chat a", line(choice(tool_calls=[call])), "stall"]).url)
    assert (stream.text, stream.message.text, stream.report.outcome) == ("", "", "running")
    next(stream)
    next(stream)
    assert (stream.text, stream.message.text, stream.message.tool_calls) == ("a", "a", ())
    stream.close()


def test_only_chat_has_a_message(streamguard_gateway: Serve) -> None:
    """Other decoders have no text, and `.message` raises a UsageError that says so."""
    stream = guarded_stream("GET", streamguard_gateway("event 1").url, decode="events")
    assert len(list(stream)) == 1
    assert stream.text == ""
    with pytest.raises(UsageError, match="decode="):
        _ = stream.message


USAGE = ["chat a", "finish", "usage 3 4"]


def test_a_usage_chunk_without_choices(streamguard_gateway: Serve) -> None:
    """The usage chunk has no text, is recorded, and is returned in every mode (B074)."""
    run = ask(streamguard_gateway([*USAGE, "done"]))
    assert [chunk.text for chunk in run.chunks] == ["a", "", ""]
    assert run.stream.report.usage == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}
    assert (run.stream.text, run.stream.message.finish_reason) == ("a", "stop")
    raw = ask(streamguard_gateway([*USAGE, "done"]), decode="json")
    assert [chunk["choices"] for chunk in raw.chunks][-1] == []


def test_no_usage_when_the_stream_is_left(streamguard_gateway: Serve) -> None:
    """A stream that was cancelled has no usage, rather than 0; its chunks are counted (B078)."""
    gateway = streamguard_gateway("chat a\nchat b\nchat c\nstall")
    stream = guarded_stream("POST", gateway.url)
    for _, chunk in zip(range(3), stream, strict=False):
        assert chunk.text
    stream.cancel("enough")
    with pytest.raises(StreamCancelledError) as caught:
        next(stream)
    assert (stream.report.usage, stream.message.usage, stream.report.chunks, caught.value.chunks) == (None, None, 3, 3)


CALL = [
    line(choice(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "rm", "arguments": '{"path": "/tm'}}])),
    line(choice(tool_calls=[{"index": 0, "function": {"arguments": 'p/x"}'}}])),
]


@pytest.mark.parametrize("sent", [1, 2])
@pytest.mark.parametrize("strict", [True, False])
def test_truncated_tool_calls_are_not_offered(streamguard_gateway: Serve, sent: int, strict: bool) -> None:
    """A stream that was cut offers no tool call, not even one with complete arguments (B087)."""
    run = ask(streamguard_gateway(CALL[:sent]), strict=strict)
    assert run.stream.message.tool_calls == ()
    assert [call.name for call in run.stream.message.invalid_tool_calls] == ["rm"]


@pytest.mark.parametrize(
    ("ending", "offered"), [("finish tool_calls", 1), ("finish stop", 1), ("finish length", 0), ("done", 0)]
)
def test_a_finish_reason_decides_about_tool_calls(streamguard_gateway: Serve, ending: str, offered: int) -> None:
    """Complete calls are offered with a finish reason, not with "length" or none; the reason is given (B087)."""
    run = ask(streamguard_gateway([*CALL, ending]))
    message = run.stream.message
    assert (run.error, len(message.tool_calls)) == (None, offered)
    assert message.finish_reason == (None if ending == "done" else ending.removeprefix("finish "))
    if offered:
        assert message.tool_calls[0].parse() == {"path": "/tmp/x"}


def test_arguments_are_validated(streamguard_gateway: Serve) -> None:
    """A complete stream with half the arguments offers no call (B087)."""
    run = ask(streamguard_gateway([CALL[0], "finish tool_calls", "done"]))
    assert (run.error, run.stream.message.tool_calls) == (None, ())
    assert run.stream.message.invalid_tool_calls[0].arguments == '{"path": "/tm'
