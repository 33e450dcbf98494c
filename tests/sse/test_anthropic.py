"""The Messages decoder: chunks, how a stream ends, errors in it, and the message that it makes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard._sse import (
    AnthropicAssembler,
    AnthropicChunk,
    AnthropicDecoder,
    Event,
    EventClient,
    Message,
    ToolCall,
    has_content,
)
from streamguard.errors import InStreamError, MalformedChunkError

from .pieces import bytewise, cut

START = {
    "type": "message_start",
    "message": {"id": "msg_1", "content": [], "usage": {"input_tokens": 3, "output_tokens": 1}},
}
STOP = {"type": "message_stop"}
PING = {"type": "ping"}


def begin(block: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int = 0, **what: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": what}


def text(piece: str, index: int = 0) -> dict[str, Any]:
    return delta(index, type="text_delta", text=piece)


def given_json(piece: str, index: int = 1) -> dict[str, Any]:
    return delta(index, type="input_json_delta", partial_json=piece)


def ended(reason: str | None = "end_turn") -> dict[str, Any]:
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 9}}


TEXT_BLOCK = begin({"type": "text", "text": ""})
TOOL_BLOCK = begin({"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}}, 1)


def wire(*frames: dict[str, Any]) -> bytes:
    return b"".join(f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n".encode() for frame in frames)


def event(data: str, name: str = "message") -> Event:
    made = Event()
    made.event, made.data = name, data
    return made


def decoded(stream: bytes) -> tuple[list[AnthropicChunk], AnthropicDecoder]:
    client, decoder = EventClient(), AnthropicDecoder()
    chunks = [decoder.decode(made) for made in client.feed(stream)]
    return [chunk for chunk in chunks if chunk is not None], decoder


def message(*frames: dict[str, Any], complete: bool = True) -> Message:
    assembler = AnthropicAssembler()
    for frame in frames:
        assembler.add(frame)
    return assembler.message(complete)


def test_a_stream_from_bytes_to_the_end() -> None:
    """Every event but a ping is handed over unchanged, `message_stop` too; what comes behind that is not."""
    frames = [START, TEXT_BLOCK, text("Hel"), text("lo"), {"type": "content_block_stop", "index": 0}, ended(), STOP]
    chunks, decoder = decoded(wire(*frames[:2], PING, *frames[2:], text("late")))
    assert chunks == frames
    assert "".join(chunk.text for chunk in chunks) == "Hello"
    assert decoder.done


def test_a_ping_is_no_chunk() -> None:
    """Nor is the event of that name without a type."""
    decoder = AnthropicDecoder()
    assert decoder.decode(event(json.dumps(PING), "ping")) is None
    assert decoder.decode(event("{}", "ping")) is None
    assert (decoder.done, decoder.finished) == (False, False)


def test_the_stop_reason_says_that_only_the_end_is_missing() -> None:
    """As a finish reason does in a chat: `message_stop` may be left out. One that is null says nothing."""
    assert decoded(wire(START, text("x"), ended()))[1].finished
    assert not decoded(wire(START, text("x"), ended(None)))[1].finished
    assert not decoded(wire(START, text("x"), {"type": "content_block_stop", "index": 0}))[1].finished


def test_the_events_name_stands_in_for_a_missing_type() -> None:
    """A gateway that names the event but drops `type` is understood."""
    decoder = AnthropicDecoder()
    assert decoder.decode(event("{}", "message_stop")) == {}
    assert decoder.done


@pytest.mark.parametrize(
    ("frame", "said", "kind"),
    [
        (
            {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}},
            "Overloaded",
            "overloaded_error",
        ),
        ({"error": {"message": "gateway", "type": "api_error"}}, "gateway", "api_error"),
        ({"type": "error", "message": "flat"}, "flat", "error"),
        ({"type": "response.failed", "response": {"error": {"message": "m"}}}, "m", "response.failed"),
    ],
)
def test_errors(frame: dict[str, Any], said: str, kind: str) -> None:
    """Every shape of an error frame is an InStreamError."""
    with pytest.raises(InStreamError, match=said) as caught:
        AnthropicDecoder().decode(event(json.dumps(frame)))
    assert (caught.value.type, caught.value.body) == (kind, json.dumps(frame))


def test_an_event_called_error_is_one() -> None:
    """Whatever its data looks like."""
    for data in ('{"reason":"x"}', "overloaded", '"overloaded"'):
        with pytest.raises(InStreamError):
            AnthropicDecoder().decode(event(data, "error"))


@pytest.mark.parametrize(
    ("frame", "decode"),
    [({"choices": []}, "chat"), ({"type": "response.created", "response": {}}, "responses"), ({"candidates": []}, "json")],
)
def test_frames_of_other_apis_are_named(frame: dict[str, Any], decode: str) -> None:
    """The error says what was expected, and which `decode=` reads what came."""
    with pytest.raises(MalformedChunkError, match=f'Messages API, but.*decode="{decode}"'):
        AnthropicDecoder().decode(event(json.dumps(frame)))


@pytest.mark.parametrize("data", ["<html>", "[1]", "17", "null", '{"type":'])
def test_what_is_no_json_object_is_malformed(data: str) -> None:
    """The error says what was expected instead."""
    with pytest.raises(MalformedChunkError, match="an event of the Anthropic Messages API, which is a JSON object"):
        AnthropicDecoder().decode(event(data))


def test_an_unknown_object_is_handed_over() -> None:
    """The API grows, and says that clients must bear it: a new kind of event breaks nobody."""
    assert AnthropicDecoder().decode(event('{"type":"hologram_delta","delta":7}')) is not None


def test_a_last_event_without_its_blank_line() -> None:
    """It counts if its JSON is whole, and is never handed over truncated."""
    data = json.dumps(ended())
    assert AnthropicDecoder().decode_last(event(data)) == ended()
    assert all(AnthropicDecoder().decode_last(event(data[:length])) is None for length in range(len(data)))


def test_properties_tell_the_events_apart() -> None:
    """Text, thinking, pieces of a tool call, the stop reason, usage, and nothing."""
    chunk = AnthropicChunk
    assert (chunk(text("a")).text, chunk(text("a")).reasoning) == ("a", "")
    assert chunk(delta(type="thinking_delta", thinking="b")).reasoning == "b"
    assert chunk(begin({"type": "text", "text": "c"})).text == "c"
    assert chunk(begin({"type": "thinking", "thinking": "d"})).reasoning == "d"
    assert chunk(delta(type="signature_delta", signature="s")).reasoning == ""
    assert chunk(TOOL_BLOCK).tool_calls[0]["function"]["name"] == "weather"
    assert chunk(given_json("{")).tool_calls[0]["function"]["arguments"] == "{"
    assert (chunk(ended()).finish_reason, chunk(ended()).usage) == ("end_turn", {"output_tokens": 9})
    assert chunk(START).usage == {"input_tokens": 3, "output_tokens": 1}
    assert (chunk().type, chunk().text, chunk().tool_calls, chunk().finish_reason, chunk().usage) == (
        "",
        "",
        [],
        None,
        None,
    )


def test_has_content_tells_what_a_model_wrote() -> None:
    """What frames a message or a block of it is none."""
    for frame in (text("a"), delta(type="thinking_delta", thinking="b"), TOOL_BLOCK, given_json("{")):
        assert has_content(AnthropicChunk(frame))
        assert has_content(frame)
    for frame in (START, TEXT_BLOCK, text(""), ended(), STOP, delta(type="signature_delta", signature="s")):
        assert not has_content(AnthropicChunk(frame))


def test_the_message() -> None:
    """Text of all blocks, thinking, the calls, the usage of both ends, the stop reason."""
    whole = message(
        START,
        begin({"type": "thinking", "thinking": ""}),
        delta(type="thinking_delta", thinking="hm"),
        text("Hel"),
        text("lo"),
        TOOL_BLOCK,
        given_json('{"city":'),
        given_json('"Rome"}'),
        ended("tool_use"),
        STOP,
    )
    assert whole == Message(
        text="Hello",
        reasoning="hm",
        tool_calls=(ToolCall("toolu_1", "weather", '{"city":"Rome"}'),),
        finish_reason="tool_use",
        usage={"input_tokens": 3, "output_tokens": 9},
    )


def test_a_call_without_input_has_no_arguments() -> None:
    """The empty object at its start stands for "to come", not for arguments to put before them."""
    (call,) = message(TOOL_BLOCK, ended("tool_use"), STOP).tool_calls
    assert (call.arguments, call.parse()) == ("", {})


def test_input_that_comes_at_once_is_taken() -> None:
    """Some gateways send the whole input with the block's start."""
    block = begin({"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}, 1)
    (call,) = message(block, ended("tool_use"), STOP).tool_calls
    assert call.parse() == {"a": 1}


def test_tools_of_the_server_are_no_calls_to_make() -> None:
    """Their blocks, and the pieces of their input, are left out."""
    searched = begin({"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}}, 1)
    whole = message(START, searched, given_json('{"query":"x"}'), text("found"), ended(), STOP)
    assert (whole.text, whole.tool_calls, whole.invalid_tool_calls) == ("found", (), ())


@pytest.mark.parametrize("reason", ["max_tokens", "model_context_window_exceeded", "refusal"])
def test_a_message_that_was_cut_short_offers_no_calls(reason: str) -> None:
    """Complete as a stream, its calls may be half."""
    whole = message(TOOL_BLOCK, given_json("{}"), ended(reason), STOP)
    assert (whole.finish_reason, whole.tool_calls, len(whole.invalid_tool_calls)) == (reason, (), 1)


def test_an_incomplete_message_offers_no_calls() -> None:
    """Of a stream that broke off the text is what had come; its calls must not be made."""
    broken = message(text("Hel"), TOOL_BLOCK, given_json("{}"), complete=False)
    assert (broken.text, broken.tool_calls, len(broken.invalid_tool_calls)) == ("Hel", (), 1)


def test_clear_begins_anew() -> None:
    """Behind it nothing of the first attempt is left."""
    assembler = AnthropicAssembler()
    for frame in (START, text("a"), TOOL_BLOCK, given_json("[1]"), ended()):
        assembler.add(frame)
    assembler.clear()
    assert (assembler.text, assembler.usage, assembler.finish_reason) == ("", None, None)
    assembler.add(given_json("[1]"))
    assert assembler.message(complete=True) == Message()


@given(st.lists(st.integers(0, 600), max_size=30))
def test_any_cut_gives_the_same_chunks(offsets: list[int]) -> None:
    """How the bytes arrive changes nothing."""
    stream = wire(START, PING, TEXT_BLOCK, text("Hé"), TOOL_BLOCK, given_json('{"a":1}'), ended(), STOP)
    expected, _ = decoded(stream)
    for pieces in (cut(stream, sorted(min(offset, len(stream)) for offset in offsets)), bytewise(stream)):
        client, decoder = EventClient(), AnthropicDecoder()
        made = [decoder.decode(each) for piece in pieces for each in client.feed(piece)]
        assert [chunk for chunk in made if chunk is not None] == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KINDS = st.sampled_from([frame["type"] for frame in (START, TEXT_BLOCK, text(""), ended(), STOP)])
KEYS = st.sampled_from(["delta", "content_block", "index", "message", "usage"])
PARTS = st.sampled_from([TOOL_BLOCK["content_block"], given_json("x")["delta"], text("x")["delta"]])


@given(
    st.lists(
        st.builds(lambda kind, rest: {**rest, "type": kind}, KINDS, st.dictionaries(KEYS, JSON | PARTS, max_size=4)),
        max_size=6,
    )
)
def test_misshapen_frames_never_raise(frames: list[dict[str, Any]]) -> None:
    """Whatever a good type carries: properties, decoder and message read it as nothing, or as what it is."""
    assembler, decoder = AnthropicAssembler(), AnthropicDecoder()
    for frame in frames:
        chunk = decoder.take(frame, "")
        assert isinstance(chunk.text + chunk.reasoning, str)
        assert isinstance(chunk.tool_calls, list)
        assembler.add(frame)
    assert isinstance(assembler.message(complete=True).text, str)
