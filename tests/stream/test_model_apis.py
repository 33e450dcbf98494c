"""`decode="responses"` and `decode="anthropic"`: how these streams end."""

import json
from typing import Any

import pytest

from streamguard import (
    AnthropicChunk,
    EmptyStreamError,
    IncompleteStreamError,
    InStreamError,
    MalformedChunkError,
    Message,
    ResponseChunk,
    StreamInactivityTimeoutError,
)

from ..helpers import PROMPT, Serve
from .helpers import ask, script


def event(**frame: Any) -> str:
    """Return the script line of an event that is named by its type."""
    return f"event {frame['type']} | {json.dumps(frame)}"


PING = event(type="ping")
RESPONSE_TEXT = event(type="response.output_text.delta", output_index=0, delta="hello")
COMPLETED = event(type="response.completed", response={"output": [], "usage": {"output_tokens": 5}})
MESSAGE_TEXT = event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": "hello"})
MESSAGE_END = event(type="message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 5})
STOP = event(type="message_stop")

APIS = {
    "responses": (ResponseChunk, RESPONSE_TEXT, [COMPLETED], "completed"),
    "anthropic": (AnthropicChunk, MESSAGE_TEXT, [MESSAGE_END, STOP], "end_turn"),
}

both = pytest.mark.parametrize("api", APIS)


@both
def test_its_last_event_completes_it(streamguard_gateway: Serve, api: str) -> None:
    """It ends the stream at once, though the connection stays open; the message is assembled, the report has the usage."""
    kind, text, end, reason = APIS[api]
    gateway = streamguard_gateway(script(text, end, "linger"))
    run = ask(gateway, decode=api, idle=30)
    assert run.error is None
    assert all(type(chunk) is kind for chunk in run.chunks)
    assert (run.texts, len(run.chunks)) == (["hello"], 1 + len(end))
    assert run.stream.message == Message(text="hello", finish_reason=reason, usage={"output_tokens": 5})
    assert (run.stream.report.outcome, run.stream.report.finish_reason) == ("completed", reason)
    assert gateway.wait_left(timeout=PROMPT).during == "linger"


@both
def test_an_end_without_it_is_incomplete(streamguard_gateway: Serve, api: str) -> None:
    """It raises after the chunks, and says what is missing. `strict=False` accepts it."""
    gateway = streamguard_gateway(APIS[api][1])
    run = ask(gateway, decode=api)
    assert isinstance(run.error, IncompleteStreamError)
    assert (run.texts, run.error.partial_text) == (["hello"], "hello")
    assert {"responses": "without response.completed", "anthropic": "neither message_stop"}[api] in run.error.message
    assert ask(gateway, decode=api, strict=False).stream.report.outcome == "incomplete"


@both
def test_a_stream_of_pings_is_empty(streamguard_gateway: Serve, api: str) -> None:
    """Pings are not chunks."""
    run = ask(streamguard_gateway(script(PING, PING)), decode=api)
    assert isinstance(run.error, EmptyStreamError)
    assert run.chunks == []


@both
def test_pings_do_not_rearm_idle(streamguard_gateway: Serve, api: str) -> None:
    """Pings are bytes: they restart `dead`, not `idle`."""
    gateway = streamguard_gateway(script(APIS[api][1], "loop forever", PING, "wait 0.02", "endloop"))
    run = ask(gateway, decode=api, idle=0.3, dead=0.2)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.error.phase, run.texts) == ("idle", ["hello"])
    assert gateway.requests[0].reached["wait"] > 2


@both
def test_an_error_frame_is_raised(streamguard_gateway: Serve, api: str) -> None:
    """It raises after the chunks, with the server's message."""
    error = event(type="error", error={"type": "overloaded_error", "message": "Overloaded"})
    run = ask(streamguard_gateway(script(APIS[api][1], error)), decode=api)
    assert isinstance(run.error, InStreamError)
    assert (run.error.type, run.error.partial_text) == ("overloaded_error", "hello")


@both
def test_a_chat_is_not_one_of_them(streamguard_gateway: Serve, api: str) -> None:
    """The error names the API and the `decode=` that reads it."""
    run = ask(streamguard_gateway("chat hello\ndone"), decode=api)
    assert isinstance(run.error, MalformedChunkError)
    assert 'decode="chat"' in run.error.message


def test_a_stop_reason_leaves_a_second_of_grace(streamguard_gateway: Serve) -> None:
    """A server that omits `message_stop` is complete after `end_grace`, or at the end of the body."""
    silent = ask(streamguard_gateway(script(MESSAGE_TEXT, MESSAGE_END, "stall")), decode="anthropic", end_grace=0.1)
    closed = ask(streamguard_gateway(script(MESSAGE_TEXT, MESSAGE_END)), decode="anthropic")
    assert [(run.error, run.stream.report.outcome) for run in (silent, closed)] == [(None, "completed")] * 2


def test_a_response_that_is_incomplete_has_ended(streamguard_gateway: Serve) -> None:
    """It reached its limit of tokens: the stream is complete."""
    cut = event(type="response.incomplete", response={"incomplete_details": {"reason": "max_output_tokens"}})
    run = ask(streamguard_gateway(script(RESPONSE_TEXT, cut, "linger")), decode="responses", idle=30)
    assert (run.error, run.stream.report.finish_reason) == (None, "max_output_tokens")
    assert run.stream.report.to_log()["finish_reason"] == "max_output_tokens"
