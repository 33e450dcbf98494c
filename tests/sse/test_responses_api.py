"""The Responses decoder: chunks, how a stream ends, errors in it, and the message that it makes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard._sse import (
    Event,
    EventClient,
    Message,
    ResponseChunk,
    ResponsesAssembler,
    ResponsesDecoder,
    ToolCall,
    has_content,
)
from streamguard.errors import InStreamError, MalformedChunkError

from .pieces import bytewise, cut

CREATED = {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress", "error": None}}
USAGE = {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8}
COMPLETED: dict[str, Any] = {
    "type": "response.completed",
    "response": {"id": "resp_1", "status": "completed", "error": None, "output": [], "usage": USAGE},
}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "weather", "arguments": ""}


def text(delta: str) -> dict[str, Any]:
    return {"type": "response.output_text.delta", "item_id": "msg_1", "output_index": 0, "content_index": 0, "delta": delta}


def arguments(delta: str, index: int = 1) -> dict[str, Any]:
    kind = "response.function_call_arguments.delta"
    return {"type": kind, "item_id": f"fc_{index}", "output_index": index, "delta": delta}


def added(item: dict[str, Any], index: int = 1, kind: str = "added") -> dict[str, Any]:
    return {"type": f"response.output_item.{kind}", "output_index": index, "item": item}


def wire(*frames: dict[str, Any]) -> bytes:
    return b"".join(f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n".encode() for frame in frames)


def event(data: str, name: str = "message") -> Event:
    made = Event()
    made.event, made.data = name, data
    return made


def decoded(stream: bytes) -> tuple[list[ResponseChunk], ResponsesDecoder]:
    client, decoder = EventClient(), ResponsesDecoder()
    chunks = [decoder.decode(made) for made in client.feed(stream)]
    return [chunk for chunk in chunks if chunk is not None], decoder


def message(*frames: dict[str, Any], complete: bool = True) -> Message:
    assembler = ResponsesAssembler()
    for frame in frames:
        assembler.add(frame)
    return assembler.message(complete)


def test_a_stream_from_bytes_to_the_end() -> None:
    """Every event is handed over unchanged, the last one too; what comes behind it is not."""
    frames = [CREATED, text("Hel"), text("lo"), COMPLETED]
    chunks, decoder = decoded(wire(*frames, text("late")))
    assert chunks == frames
    assert "".join(chunk.text for chunk in chunks) == "Hello"
    assert (decoder.done, chunks[-1].finish_reason, chunks[-1].usage) == (True, "completed", USAGE)


def test_it_is_open_until_its_last_event() -> None:
    """Neither the end of a text nor that of an item ends a stream: only the event with the whole response does."""
    part = {"type": "response.output_text.done", "text": "Hello"}
    _, decoder = decoded(wire(CREATED, text("Hello"), part, added({"type": "message"}, 0, "done")))
    assert (decoder.done, decoder.finished) == (False, False)


@pytest.mark.parametrize("kind", ["ping", "keepalive"])
def test_a_keep_alive_is_no_chunk(kind: str) -> None:
    """It is neither handed over nor does it end anything, with a type or as the event's name only."""
    decoder = ResponsesDecoder()
    assert decoder.decode(event(json.dumps({"type": kind, "sequence_number": 3}))) is None
    assert decoder.decode(event("{}", kind)) is None
    assert not decoder.done


def test_the_events_name_stands_in_for_a_missing_type() -> None:
    """A gateway that names the event but drops `type` is understood."""
    decoder = ResponsesDecoder()
    assert decoder.decode(event('{"response":{}}', "response.completed")) == {"response": {}}
    assert decoder.done


def test_an_incomplete_response_ends_the_stream() -> None:
    """It is no error: the chunk says why, and the message says that it was cut short."""
    frame = {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}}
    chunks, decoder = decoded(wire(text("Hel"), frame))
    assert (decoder.done, chunks[-1].finish_reason) == (True, "max_output_tokens")
    whole = message(text("Hel"), added({**CALL, "arguments": "{}"}, 1, "done"), frame)
    assert (whole.text, whole.finish_reason, whole.tool_calls) == ("Hel", "max_output_tokens", ())
    assert [call.name for call in whole.invalid_tool_calls] == ["weather"]


@pytest.mark.parametrize(
    ("frame", "said", "code"),
    [
        (
            {"type": "response.failed", "response": {"error": {"code": "server_error", "message": "boom"}}},
            "boom",
            "server_error",
        ),
        ({"type": "response.failed", "response": {"error": None}}, "the response failed", None),
        ({"type": "response.cancelled", "response": {"status": "cancelled"}}, "was cancelled", None),
        ({"type": "error", "code": "rate_limit_exceeded", "message": "slow", "param": None}, "slow", "rate_limit_exceeded"),
        ({"type": "error", "error": {"type": "server_error", "code": None, "message": "nested"}}, "nested", None),
        ({"error": {"message": "gateway", "code": 502}}, "gateway", 502),
    ],
)
def test_errors(frame: dict[str, Any], said: str, code: object) -> None:
    """A failed or cancelled response, and every shape of an error frame, is an InStreamError."""
    with pytest.raises(InStreamError, match=said) as caught:
        ResponsesDecoder().decode(event(json.dumps(frame)))
    assert (caught.value.code, caught.value.body) == (code, json.dumps(frame))


def test_an_event_called_error_is_one() -> None:
    """Whatever its data looks like."""
    for data in ('{"reason":"x"}', "overloaded", '"overloaded"'):
        with pytest.raises(InStreamError):
            ResponsesDecoder().decode(event(data, "error"))


@pytest.mark.parametrize(
    ("frame", "decode"),
    [
        ({"choices": [{"index": 0, "delta": {"content": "x"}}]}, "chat"),
        ({"type": "message_start", "message": {}}, "anthropic"),
        ({"candidates": []}, "json"),
    ],
)
def test_frames_of_other_apis_are_named(frame: dict[str, Any], decode: str) -> None:
    """The error says what was expected, and which `decode=` reads what came."""
    with pytest.raises(MalformedChunkError, match=f'Responses API, but.*decode="{decode}"'):
        ResponsesDecoder().decode(event(json.dumps(frame)))


@pytest.mark.parametrize("data", ["<html>", "[1]", "17", "null", '{"type":'])
def test_what_is_no_json_object_is_malformed(data: str) -> None:
    """The error says what was expected instead."""
    with pytest.raises(MalformedChunkError, match="an event of the OpenAI Responses API, which is a JSON object"):
        ResponsesDecoder().decode(event(data))


def test_an_unknown_object_is_handed_over() -> None:
    """The API grows: a new kind of event breaks nobody."""
    assert ResponsesDecoder().decode(event('{"type":"response.hologram.delta","delta":7}')) is not None
    assert ResponsesDecoder().decode(event('{"a":1}')) == {"a": 1}


def test_the_end_marker_of_chat_ends_it_too() -> None:
    """Some gateways send it behind every stream."""
    decoder = ResponsesDecoder()
    assert decoder.decode(event("[DONE]")) is None
    assert decoder.done


def test_a_last_event_without_its_blank_line() -> None:
    """It counts if its JSON is whole, and is never handed over truncated."""
    data = json.dumps(COMPLETED)
    assert ResponsesDecoder().decode_last(event(data)) == COMPLETED
    assert all(ResponsesDecoder().decode_last(event(data[:length])) is None for length in range(len(data)))


def test_properties_tell_the_deltas_apart() -> None:
    """Text, reasoning, its summary, a refusal, and nothing."""
    chunk = ResponseChunk
    assert (chunk(text("a")).text, chunk(text("a")).reasoning) == ("a", "")
    for kind in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
        assert (chunk(type=kind, delta="b").reasoning, chunk(type=kind, delta="b").text) == ("b", "")
    assert chunk(type="response.refusal.delta", delta="c").refusal == "c"
    assert chunk(type="response.output_text.done", text="all").text == ""
    assert chunk(added(CALL)).tool_calls[0]["function"]["name"] == "weather"
    assert chunk(arguments("{")).tool_calls[0]["function"]["arguments"] == "{"
    assert (chunk().type, chunk().text, chunk().tool_calls, chunk().finish_reason, chunk().usage) == (
        "",
        "",
        [],
        None,
        None,
    )


def test_has_content_tells_what_a_model_wrote() -> None:
    """Frames of items and of the response are none."""
    for frame in (text("a"), arguments("{"), added(CALL)):
        assert has_content(ResponseChunk(frame))
        assert has_content(frame)
    for frame in (CREATED, COMPLETED, text(""), added({"type": "message"})):
        assert not has_content(ResponseChunk(frame))


def test_the_message() -> None:
    """Text, reasoning, refusal, calls in their order, usage and finish reason."""
    whole = message(
        CREATED,
        {"type": "response.reasoning_summary_text.delta", "delta": "hm"},
        text("Hel"),
        text("lo"),
        added(CALL),
        arguments('{"city":'),
        arguments('"Rome"}'),
        added({**CALL, "arguments": '{"city":"Rome"}'}, kind="done"),
        {"type": "response.refusal.delta", "delta": "no"},
        COMPLETED,
    )
    assert whole == Message(
        text="Hello",
        reasoning="hm",
        refusal="no",
        tool_calls=(ToolCall("call_1", "weather", '{"city":"Rome"}'),),
        finish_reason="completed",
        usage=USAGE,
    )


def test_calls_side_by_side_do_not_mix() -> None:
    """Pieces belong together by their output index."""
    other = {**CALL, "id": "fc_2", "call_id": "call_2", "name": "time"}
    whole = message(added(CALL), added(other, 2), arguments('{"n":1}'), arguments('{"n":2}', 2), COMPLETED)
    assert [(call.name, call.arguments) for call in whole.tool_calls] == [("weather", '{"n":1}'), ("time", '{"n":2}')]


def test_what_no_delta_told_comes_from_the_whole() -> None:
    """A gateway that sends the items at once, or the response only, is read too; nothing is taken twice."""
    call = {**CALL, "arguments": '{"n":1}'}
    part = {"type": "message", "content": [{"type": "output_text", "text": "Hello"}, {"type": "refusal"}, None]}
    whole = {"type": "response.completed", "response": {"output": [part, call], "usage": USAGE}}
    expected = ("Hello", [("weather", '{"n":1}')])
    for frames in (
        [whole],
        [text("Hello"), added(call, kind="done"), whole],
        [text("Hello"), added(CALL), arguments('{"n":1}'), whole],
    ):
        made = message(*frames)
        assert (made.text, [(one.name, one.arguments) for one in made.tool_calls]) == expected


def test_an_incomplete_message_offers_no_calls() -> None:
    """Of a stream that broke off the text is what had come; its calls must not be made."""
    broken = message(text("Hel"), added(CALL), arguments("{}"), complete=False)
    assert (broken.text, broken.tool_calls, len(broken.invalid_tool_calls)) == ("Hel", (), 1)


def test_clear_begins_anew() -> None:
    """Behind it nothing of the first attempt is left."""
    assembler = ResponsesAssembler()
    for frame in (text("a"), added(CALL), arguments('{"n":1}'), COMPLETED):
        assembler.add(frame)
    assembler.clear()
    assert (assembler.text, assembler.usage, assembler.finish_reason) == ("", None, None)
    assert assembler.message(complete=True) == Message()


@given(st.lists(st.integers(0, 400), max_size=30))
def test_any_cut_gives_the_same_chunks(offsets: list[int]) -> None:
    """How the bytes arrive changes nothing."""
    stream = wire(CREATED, text("Hé"), added(CALL), arguments('{"a":1}'), COMPLETED)
    expected, _ = decoded(stream)
    for pieces in (cut(stream, sorted(min(offset, len(stream)) for offset in offsets)), bytewise(stream)):
        client, decoder = EventClient(), ResponsesDecoder()
        made = [decoder.decode(each) for piece in pieces for each in client.feed(piece)]
        assert made == expected


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KINDS = st.sampled_from(
    [
        CREATED["type"],
        text("")["type"],
        arguments("")["type"],
        "response.output_item.added",
        "response.output_item.done",
        "response.completed",
        "response.incomplete",
    ]
)
KEYS = st.sampled_from(["delta", "item", "output_index", "response"])


@given(
    st.lists(
        st.builds(
            lambda kind, rest: {**rest, "type": kind}, KINDS, st.dictionaries(KEYS, JSON | st.just(CALL), max_size=4)
        ),
        max_size=6,
    )
)
def test_misshapen_frames_never_raise(frames: list[dict[str, Any]]) -> None:
    """Whatever a good type carries: properties and message read it as nothing, or as what it is."""
    assembler = ResponsesAssembler()
    for frame in frames:
        chunk = ResponseChunk(frame)
        assert isinstance(chunk.text + chunk.reasoning + chunk.refusal, str)
        assert isinstance(chunk.tool_calls, list)
        assembler.add(frame)
    assert isinstance(assembler.message(complete=True).text, str)
