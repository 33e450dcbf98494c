"""Tell the error frames, and the frames of other APIs, that turn up where a chat chunk was expected."""

import json
from collections.abc import Iterator
from typing import Any, Final

from .._text import storable
from ..errors import InStreamError, MalformedChunkError
from .chunk import finish_reason_of

_MAX_BODY_BYTES: Final = 64 * 1024
_MAX_QUOTE: Final = 200
_SUCCESS_CODES: Final = (0, 200, "", "0", "200", "ok", "OK", "success")
_MESSAGE_KEYS: Final = ("message", "msg", "detail", "error_description", "description", "title", "error")
_STATUS_KEYS: Final = ("status", "status_code", "statusCode")
_NO_ERROR: Final = ("", "null", "none", "false", "0", "{}", "[]", '""')
_VENDOR_KEYS: Final = frozenset({"error_code", "base_resp", "x_groq"})
FAILED_RESPONSES: Final = ("response.failed", "response.cancelled")
ANTHROPIC_TYPES: Final = (
    "message_start",
    "message_delta",
    "message_stop",
    "content_block_start",
    "content_block_delta",
    "content_block_stop",
)


def frame_error(frame: dict[str, Any], body: str) -> InStreamError | None:
    """Return the error that *frame* reports outside its choices, or None.

    Known shapes: `{"error": {...}}`, `{"error": "text"}` and `{"errors": [...]}`; `response.failed`;
    `{"object": "error"}` and `{"type": "error"}`, flat or nested; and, without choices, `{"detail": ...}` alone,
    `{"message": ..., "code": ...}` and a message beside a status that says error. An `error` that is null, false or
    empty is none.
    """
    choices = frame.get("choices")
    for key in ("error", "errors"):
        if _is_error(frame.get(key), beside=choices):
            return in_stream_error(frame[key], frame, body)
    if frame.get("type") in FAILED_RESPONSES:
        return in_stream_error(_response_error(frame), frame, body)
    if "error" in (frame.get("object"), frame.get("type")) or (not choices and _is_flat_error(frame)):
        return in_stream_error(frame, frame, body)
    return None if not frame.keys() & _VENDOR_KEYS else _vendor_error(frame, body)


def lone_error(value: object, body: str, name: str = "message") -> InStreamError | None:
    """Return the error in an event of a stream of any JSON: one named `error`, or an object whose only key is `error`.

    Rows of data may have a column `error`, so that other objects with that key are data.
    """
    if name == "error":
        return in_stream_error(value, value if isinstance(value, dict) else {}, body)
    if isinstance(value, dict) and value.keys() == {"error"} and _is_error(value["error"], beside=None):
        return in_stream_error(value["error"], value, body)
    return None


def unframed_error(line: bytes) -> InStreamError | None:
    """Return the error in a line that is not part of an event: a JSON object that reports one, or `error: {...}`."""
    text = line.decode("utf-8", "replace").strip()
    name, _, rest = text.partition(":")
    if name.strip().lower() in ("error", "errors"):
        text = rest.strip()
        frame = _object(text)
        return None if text.lower() in _NO_ERROR else in_stream_error(frame or text, frame or {}, text)
    frame = _object(text) if text.startswith("{") else None
    return None if frame is None else frame_error(frame, text)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _vendor_error(frame: dict[str, Any], body: str) -> InStreamError | None:
    """Return the error that a vendor's own fields report: `error_code` and `error_msg`, `base_resp`, `x_groq.error`."""
    code = frame.get("error_code")
    if code not in _SUCCESS_CODES and code is not None:
        text = next((frame[key] for key in ("error_msg", "error_message") if isinstance(frame.get(key), str)), "")
        return in_stream_error({"message": text, "code": code}, frame, body)
    base = frame.get("base_resp")
    if isinstance(base, dict) and base.get("status_code") not in (*_SUCCESS_CODES, None):
        return in_stream_error({"message": base.get("status_msg"), "code": base["status_code"]}, frame, body)
    for key, extension in frame.items():
        if key.startswith("x_") and isinstance(extension, dict) and _is_error(extension.get("error"), beside=True):
            return in_stream_error(extension["error"], frame, body)
    return None


def choice_error(choice: dict[str, Any], frame: dict[str, Any], body: str) -> InStreamError | None:
    """Return the error that one of the frame's choices reports: an `error` of its own, or that finish reason."""
    error = choice.get("error")
    if _is_error(error, beside=choice.get("delta")):
        return in_stream_error(error, frame, body)
    if finish_reason_of(choice) == "error":
        return InStreamError("the server ended the stream with finish_reason 'error'", body=_cut(body))
    return None


def in_stream_error(error: object, frame: dict[str, Any], body: str) -> InStreamError:
    """Build the error from its object, list or text, and from what stands beside it in the frame.

    The message is the server's own; its type and code stay as they came. *body* is kept up to 64 KiB.
    """
    if isinstance(error, list):
        error = error[0] if error else ""
    source = error if isinstance(error, dict) else {}
    message = _message_of(source)
    if not isinstance(error, dict):
        said = error if isinstance(error, str) else ""
        beside = _message_of({key: value for key, value in frame.items() if key != "error"})
        message = ": ".join(text for text in (said.strip(), beside) if text)
    code = error if type(error) is int else _code_of(source, frame)
    message = message or body.strip() or "the server sent an error event without data"
    return InStreamError(storable(_cut(message)), type=_type_of(source, frame), code=code, body=_cut(body))


def foreign_frame(
    frame: dict[str, Any], body: str, *, own: str = "chat", expected: str = "expected a chat chunk"
) -> MalformedChunkError | None:
    """Return an error that names the API, if *frame* is one of another streaming API's than `decode=own` reads."""
    name, decode = _api_of(frame) or ("", own)
    if decode == own:
        return None
    return MalformedChunkError(
        f"{expected}, but this is a frame of {name}; "
        f'decode="{decode}" reads such a stream, decode="events" any: {_quote(body)}'
    )


def not_an_object(body: str, kind: str, expected: str = "expected a chat chunk") -> MalformedChunkError:
    """Return the error for data that is not a JSON object; *kind* says what it is instead."""
    return MalformedChunkError(
        f"{expected}, which is a JSON object, but the event's data is {kind}; "
        f'decode="events" hands over any event: {_quote(body)}'
    )


def _is_error(error: object, *, beside: object) -> bool:
    if isinstance(error, str):
        return bool(error.strip())
    if isinstance(error, dict) and beside:
        # Some servers put {"message": null, "code": null} into every good chunk.
        return any(error.values())
    return bool(error)


def _is_flat_error(frame: dict[str, Any]) -> bool:
    if frame.keys() == {"detail"}:
        return bool(frame["detail"])
    message = frame.get("message", frame.get("msg"))
    if isinstance(message, str) and "code" in frame:
        code = frame["code"]
        return code not in _SUCCESS_CODES and bool(message.strip() or code)
    return bool(_message_of(frame)) and (frame.get("status") == "error" or _status_of(frame) is not None)


def _status_of(frame: dict[str, Any]) -> int | None:
    statuses = (frame.get(key) for key in _STATUS_KEYS)
    return next((status for status in statuses if isinstance(status, int) and status >= 400), None)


def _response_error(frame: dict[str, Any]) -> object:
    response = frame.get("response")
    error = response.get("error") if isinstance(response, dict) else None
    return error or {
        "message": "the response failed" if frame["type"] == "response.failed" else "the response was cancelled"
    }


def _message_of(error: dict[str, Any]) -> str:
    for value in _message_values(error):
        if isinstance(value, str) and value.strip():
            return value
        nested = value[0] if isinstance(value, list) and value else value
        if isinstance(nested, dict):
            texts = (text for text in _message_values(nested) if isinstance(text, str) and text.strip())
            return next(texts, "")
    return ""


def _message_values(error: dict[str, Any]) -> Iterator[object]:
    return (error[key] for key in _MESSAGE_KEYS if error.get(key))


def _type_of(error: dict[str, Any], frame: dict[str, Any]) -> str | None:
    candidates = [source.get(key) for source in (error, frame) for key in ("type", "error_type", "status")]
    named = [value for value in candidates if isinstance(value, str) and value]
    # "error" only says that it is one.
    return next((value for value in named if value != "error"), named[0] if named else None)


def _code_of(error: dict[str, Any], frame: dict[str, Any]) -> str | int | None:
    for source in (error, frame):
        code = source.get("code")
        if isinstance(code, str | int) and not isinstance(code, bool) and code != "":
            return code
        if (status := _status_of(source)) is not None:
            return status
    return None


def _api_of(frame: dict[str, Any]) -> tuple[str, str] | None:
    """Return the name of the API that *frame* belongs to, and the `decode=` that reads it."""
    kind = frame.get("type")
    if kind in ANTHROPIC_TYPES:
        return "the Anthropic Messages API", "anthropic"
    if isinstance(kind, str) and kind.startswith("response."):
        return "the OpenAI Responses API", "responses"
    if isinstance(frame.get("choices"), list):
        return "the OpenAI Chat Completions API", "chat"
    if isinstance(frame.get("candidates"), list) or isinstance(frame.get("promptFeedback"), dict):
        return "the Gemini API", "json"
    if isinstance(frame.get("done"), bool) and ("message" in frame or "response" in frame):
        return "Ollama's native API", "json"
    return None


def _quote(text: str) -> str:
    quoted = repr(text[:_MAX_QUOTE])
    return quoted if len(quoted) <= _MAX_QUOTE else quoted[: _MAX_QUOTE - 1] + "…"


def _cut(text: str) -> str:
    if len(text) * 4 <= _MAX_BODY_BYTES:
        return text
    return text.encode("utf-8", "replace")[:_MAX_BODY_BYTES].decode("utf-8", "ignore")
