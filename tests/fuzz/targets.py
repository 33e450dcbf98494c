"""All that is fuzzed, by name, and inputs to begin with."""

import base64
import json
from collections.abc import Callable
from pathlib import Path

from streamguard.testing import payloads

from ..http.servers import head
from . import decoding, wire

__all__ = ["FOUND", "TARGETS", "TOKENS", "found", "seeds"]

TARGETS: dict[str, Callable[[bytes], None]] = decoding.TARGETS | wire.TARGETS

HERE = Path(__file__).parent
FOUND = HERE / "found"
"""A directory for each target: the inputs that once were findings."""

WHOLE = b"\0\0"
"""What stands before an input that comes in one piece."""

CHAT = (
    payloads.chat_chunk({"content": "hé"})
    + payloads.comment("ping")
    + payloads.chat_chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]})
    + payloads.chat_chunk({}, "stop")
    + payloads.usage_chunk(1, 2)
)
OTHER_CHAT = b'data: {"choices":[{"index":1,"delta":{"reasoning_content":"a","content":[{"type":"text","text":"b"}]}}]}\n\n'
RESPONSES = (
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","item_id":"i","delta":"x"}\n\n'
    b'data: {"type":"response.completed","response":{"status":"completed","output":[],"usage":{"input_tokens":1}}}\n\n'
)
ANTHROPIC = (
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":1}}}\n\n'
    b'data: {"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"f"}}\n\n'
    b'data: {"type":"content_block_delta","index":0,"delta":{"type":"input_json_delta","partial_json":"{}"}}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"tool_use"},"usage":{"output_tokens":1}}\n\n'
    b'data: {"type":"message_stop"}\n\n'
)
LINES = (
    b'{"type":"system","subtype":"init","session_id":"s"}\n',
    b'{"type":"assistant","message":{"content":[{"type":"text","text":"x"},{"type":"tool_use","id":"t","name":"f"}]}}\n',
    b'{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":[{"text":"y"}]}]}}\n',
    b'{"type":"result","subtype":"success","result":"x","is_error":false}\n',
    b'{"type":"thread.started","thread_id":"s"}\n{"type":"item.completed","item":{"type":"agent_message","text":"x"}}\n',
    b'{"type":"turn.completed","usage":{}}\n{"type":"turn.failed","error":{"message":"m"}}\n',
    b'{"type":"message","role":"assistant","content":"x","delta":true}\n{"type":"error","message":"m"}\n',
    b'{"type":"text","sessionID":"s","part":{"text":"x"}}\n{"type":"step_finish","part":{"reason":"stop"}}\n',
    b"plain\r\n\xff\xfe\n\n",
)
WORDS = (b"120", b"Wed, 21 Oct 2015 07:28:00 GMT", b"1m30s", b'{"error":{"message":"m"}}', b"loop 2\nchat x\nendloop\ndone")
CHUNKED = b"5\r\ndata:\r\n4;x=y\r\n 1\n\n\r\n0\r\n\r\n"

TOKENS = (
    *(b"data: ", b"event: ", b"id: ", b"retry: ", b": ping", b"\n\n", b"\r\n", b"\r", b"\0", b"\xef\xbb\xbf", b"\xff"),
    *(b"[DONE]", b"null", b"{}", b"[]", b'""', b"1e999", b"NaN", b"-0", b'"\\ud800"', b"true"),
    *(b'"choices":[{', b'"delta":', b'"content":', b'"finish_reason":', b'"error":', b'"type":', b'"index":'),
    *(b'"tool_calls":[{', b'"function":', b'"arguments":', b'"usage":', b'"object":"error"', b'"code":', b'"status":'),
    *(b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 429 X\r\n", b"HTTP/1.0 204\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", b"\r\n\r\n"),
    *(b"Transfer-Encoding: chunked\r\n", b"Content-Length: 5\r\n", b"Content-Encoding: gzip\r\n", b"Location: /\r\n"),
    *(b"Content-Type: text/event-stream\r\n", b"Content-Type: application/json\r\n", b"0\r\n\r\n", b"ffff\r\n"),
)
"""What random bytes would take long to come upon."""


def seeds(name: str) -> list[bytes]:
    """Return good and bad inputs of the kind that a target takes."""
    return [*_SEEDS[name](), *found(name).values()]


def found(name: str) -> dict[str, bytes]:
    """Return the kept inputs of a target by their file's name."""
    return {path.name: path.read_bytes() for path in sorted((FOUND / name).glob("*"))}


def _cases() -> list[bytes]:
    cases = json.loads((HERE.parent / "data" / "sse.json").read_text("utf-8"))
    return [WHOLE + base64.b64decode(case["input_base64"]) for case in cases]


def _responses() -> list[bytes]:
    framed = b"%x\r\n%b\r\n0\r\n\r\n" % (len(CHAT), CHAT)
    error = b'HTTP/1.1 500 X\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n{"error":"e"}'
    return [
        b"\0" + WHOLE + head("chunked") + framed,
        b"\1" + WHOLE + head("close") + CHAT,
        b"\2" + WHOLE + head("length", length=len(CHAT)) + CHAT,
        b"\3\1\2" + head("http10") + b"data: 1\n\ndata: x\n\n",
        b"\7" + WHOLE + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        b"\0" + WHOLE + error,
        b"\0" + WHOLE + CHUNKED,
    ]


_SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "events": _cases,
    "chat": lambda: [WHOLE + CHAT + payloads.done(), WHOLE + OTHER_CHAT, WHOLE + payloads.error_frame("m"), *_cases()],
    "responses": lambda: [WHOLE + RESPONSES],
    "anthropic": lambda: [WHOLE + ANTHROPIC],
    "lines": lambda: [WHOLE + line for line in LINES],
    "words": lambda: [*WORDS],
    "body": lambda: [bytes((framing, encoding, 1)) + CHUNKED for framing in range(4) for encoding in range(2)],
    "response": _responses,
}
