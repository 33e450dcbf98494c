"""Text to body bytes: server-sent events and OpenAI-compatible chunks, as a scripted server sends them. Pure."""

import json
import re
from typing import Any

_ESCAPE = re.compile(r"\\(?:([nrt0\\])|x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))")
_CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}


def unescape(text: str) -> str:
    r"""Return *text* with `\n \r \t \0 \\ \xHH \uHHHH \UHHHHHHHH` replaced (`\xHH` is a character), others kept."""
    return _ESCAPE.sub(_character, text)


def unescape_bytes(text: str) -> bytes:
    r"""Return *text* as UTF-8 with the same escapes, except that `\xHH` is that very byte, valid UTF-8 or not."""
    parts: list[bytes] = []
    end = 0
    for match in _ESCAPE.finditer(text):
        parts += (_utf8(text[end : match.start()]), _escaped_bytes(match))
        end = match.end()
    return b"".join((*parts, _utf8(text[end:])))


def event(data: str, name: str | None = None) -> bytes:
    """Return one event with a single data line, and an event line if it has a *name*."""
    return _utf8(f"event: {name}\ndata: {data}\n\n" if name else f"data: {data}\n\n")


def comment(text: str) -> bytes:
    """Return a comment block, the heartbeat of gateways."""
    return _utf8(f": {text}\n\n")


def chat_chunk(delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
    """Return an OpenAI-compatible chat chunk with one choice that holds *delta*."""
    return _chunk([{"index": 0, "delta": delta, "finish_reason": finish_reason}])


def usage_chunk(prompt: int, completion: int) -> bytes:
    """Return the chunk without choices that reports the tokens used."""
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return _chunk([], usage=usage)


def error_frame(message: str) -> bytes:
    """Return the frame with which a server reports an error in a stream that began with status 200."""
    return event(_json({"error": {"message": message, "type": "server_error", "code": None}}))


def done() -> bytes:
    """Return the end marker of an OpenAI-compatible stream."""
    return event("[DONE]")


def _chunk(choices: list[dict[str, Any]], **more: Any) -> bytes:
    head = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
    return event(_json({**head, "choices": choices, **more}))


def _json(value: Any) -> str:
    # Not ASCII: the wire needs multi-byte characters, so that a piece may end inside one.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _character(match: re.Match[str]) -> str:
    control, *codes = match.groups()
    return _CONTROLS[control] if control else chr(int(next(filter(None, codes)), 16))


def _escaped_bytes(match: re.Match[str]) -> bytes:
    return bytes.fromhex(match[2]) if match[2] else _utf8(_character(match))
