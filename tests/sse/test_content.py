"""What counts as content: on our own chunks, on plain frames, on events, and on the objects of SDKs alike."""

import json
from typing import Any

import pytest

from streamguard import has_content
from streamguard._sse import AnthropicChunk, AnthropicDecoder, Chunk, ResponseChunk, ResponsesDecoder, new_event
from streamguard._sse.chat import ChatDecoder


class Model:
    """Looks like a pydantic model of an SDK."""

    def __init__(self, frame: dict[str, Any]) -> None:
        self._frame = frame

    def model_dump(self, **options: Any) -> dict[str, Any]:
        return self._frame


def delta(**fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


WRITTEN = {
    "text": delta(content="a"),
    "text parts": delta(content=[{"type": "text", "text": "a"}]),
    "thinking parts (mistral)": delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]),
    "reasoning_content": delta(reasoning_content="hm"),
    "reasoning": delta(reasoning="hm"),
    "thinking": delta(thinking="hm"),
    "reasoning_details (openrouter)": delta(reasoning_details=[{"type": "reasoning.text", "text": "hm"}]),
    "encrypted reasoning_details": delta(reasoning_details=[{"type": "reasoning.encrypted", "data": "x"}]),
    "audio": delta(audio={"data": "AAAA"}),
    "an audio's transcript": delta(audio={"transcript": "he"}),
    "images": delta(images=[{"type": "image_url", "image_url": {"url": "data:"}}]),
    "annotations": delta(annotations=[{"type": "url_citation"}]),
    "refusal": delta(refusal="no"),
    "a tool call": delta(tool_calls=[{"index": 0, "function": {"arguments": "{"}}]),
    "a response's text": {"type": "response.output_text.delta", "delta": "a"},
    "a response's reasoning": {"type": "response.reasoning_summary_text.delta", "delta": "a"},
    "a response's refusal": {"type": "response.refusal.delta", "delta": "a"},
    "a response's arguments": {"type": "response.function_call_arguments.delta", "delta": "{"},
    "a custom tool's input": {"type": "response.custom_tool_call_input.delta", "delta": "a"},
    "an MCP call's arguments": {"type": "response.mcp_call_arguments.delta", "delta": "{"},
    "an interpreter's code": {"type": "response.code_interpreter_call_code.delta", "delta": "a"},
    "a response's transcript": {"type": "response.output_audio_transcript.delta", "delta": "a"},
    "a partial image": {"type": "response.image_generation_call.partial_image", "partial_image_b64": "AAAA"},
    "an anthropic text": {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a"}},
    "an anthropic citation": {"type": "content_block_delta", "delta": {"type": "citations_delta", "citation": {"a": 1}}},
    "redacted thinking": {"type": "content_block_start", "content_block": {"type": "redacted_thinking", "data": "x"}},
    "a server tool's input": {"type": "content_block_delta", "delta": {"type": "input_json_delta", "partial_json": "{"}},
}
EMPTY = {
    "no choices": {"choices": []},
    "a role": delta(role="assistant"),
    "an empty text": delta(role="assistant", content=""),
    "null everywhere": delta(content=None, reasoning=None, tool_calls=None, audio=None, annotations=[]),
    "an empty part": delta(content=[{"type": "thinking", "thinking": []}]),
    "usage": {"choices": [], "usage": {"total_tokens": 3}},
    "a response in progress": {"type": "response.in_progress", "response": {}},
    "a response's keep-alive": {"type": "response.keep_alive"},
    "a created response": {"type": "response.created", "response": {}},
    "an added message": {"type": "response.output_item.added", "item": {"type": "message"}},
    "an empty delta": {"type": "response.output_text.delta", "delta": ""},
    "an anthropic start": {"type": "message_start", "message": {}},
    "an anthropic stop": {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
    "a ping": {"type": "ping"},
    "a keep-alive": {"type": "keep-alive"},
    "a heartbeat": {"type": "heartbeat"},
}


def faces(frame: dict[str, Any]) -> list[object]:
    """Return the frame as each kind of stream hands it over."""
    kind = str(frame.get("type", ""))
    own = Chunk if "choices" in frame else ResponseChunk if kind.startswith("response.") else AnthropicChunk
    return [frame, own(frame), Model(frame), new_event("", "message", json.dumps(frame), None)]


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_model_wrote_is_content(name: str) -> None:
    """C214: each shape, on each face."""
    assert [has_content(face) for face in faces(WRITTEN[name])] == [True] * 4


@pytest.mark.parametrize("name", EMPTY)
def test_frames_and_heartbeats_are_no_content(name: str) -> None:
    """C215: role-only and empty deltas, usage, life-cycle events and heartbeats, on each face."""
    assert [has_content(face) for face in faces(EMPTY[name])] == [False] * 4


@pytest.mark.parametrize(
    ("name", "data"), [("ping", "1764550000"), ("keep-alive", "null"), ("heartbeat", "x"), ("PING", "{}")]
)
@pytest.mark.parametrize("decoder", [ChatDecoder, ResponsesDecoder, AnthropicDecoder])
def test_named_heartbeats_break_nothing(decoder: Any, name: str, data: str) -> None:
    """C216: events of such a name are skipped by each decoder, whatever their data."""
    assert decoder().decode(new_event("", name, data, None)) is None
    assert not has_content(new_event("", name, data, None))


@pytest.mark.parametrize("data", ["ping", " PING ", '"ping"', "keep-alive", "heartbeat"])
@pytest.mark.parametrize("decoder", [ChatDecoder, ResponsesDecoder, AnthropicDecoder])
def test_unnamed_heartbeats_break_nothing(decoder: Any, data: str) -> None:
    """C215: `data: ping` is no chunk and no malformed one."""
    assert decoder().decode(new_event("", "message", data, None)) is None
    assert not has_content(new_event("", "message", data, None))


@pytest.mark.parametrize(
    ("frame", "reasoning"),
    [
        (delta(thinking="hm"), "hm"),
        (delta(reasoning_details=[{"text": "h"}, {"summary": "m"}]), "hm"),
        (delta(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]), "hm"),
        (delta(content=[{"type": "reasoning", "text": "hm"}]), "hm"),
    ],
)
def test_reasoning_of_other_shapes(frame: dict[str, Any], reasoning: str) -> None:
    """C214: `.reasoning` has the text where it is text; it is no part of the answer's text."""
    assert (Chunk(frame).reasoning, Chunk(frame).text) == (reasoning, "")


@pytest.mark.parametrize(
    "frame",
    [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "usage": {"total_tokens": 3}}]},
        {"choices": [], "x_groq": {"id": "r", "usage": {"total_tokens": 3}}},
        {"choices": [], "usage": {"total_tokens": 3}},
    ],
)
def test_usage_wherever_it_stands(frame: dict[str, Any]) -> None:
    """C225: of the chunk, of a choice, of Groq's extension."""
    assert Chunk(frame).usage == {"total_tokens": 3}


def test_half_a_surrogate_pair_can_be_printed() -> None:
    """C224: text and reasoning of a chunk can be written in UTF-8, whatever came."""
    for made in (Chunk(delta(content="\ud83d")), Chunk(delta(reasoning="\ud83d"))):
        (made.text + made.reasoning).encode()
    ResponseChunk({"type": "response.output_text.delta", "delta": "\ud83d"}).text.encode()
    AnthropicChunk({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "\ud83d"}}).text.encode()
