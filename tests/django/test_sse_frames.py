"""Frames, as a client's decoder reads them."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard import (
    DeadlineExceededError,
    EmptyStreamError,
    HTTPStatusError,
    IncompleteStreamError,
    InStreamError,
    MalformedChunkError,
    StreamCancelledError,
    StreamInactivityTimeoutError,
    TransportError,
    TransportTimeoutError,
)
from streamguard._sse import Chunk
from streamguard._sse.event_stream.event_parser import Event, EventClient
from streamguard.django.client_errors import failure_of, failure_response, status_of
from streamguard.django.sse_frames import PING, data_frame, default_render, error_frame

SECRET = "http://user:hush@host/path"


def read(frame: bytes) -> list[Any]:
    return list(EventClient([frame]).events())


@given(st.text(st.characters(exclude_characters="\r", exclude_categories=["Cs"])))
def test_text_arrives_as_it_was(text: str) -> None:
    """Any text survives, line ends included; only CR and CRLF, which end lines as well, arrive as LF."""
    (event,) = read(data_frame(text)) or [Event(data="")]
    assert event.data == text


@pytest.mark.parametrize("line_end", ["\r\n", "\r", "\n"])
def test_no_line_end_smuggles_a_field_in(line_end: str) -> None:
    """Text that looks like fields stays data, whatever ends its lines."""
    (event,) = read(data_frame(f"a{line_end}event: error{line_end}{line_end}data: b"))
    assert (event.event, event.data) == ("message", "a\nevent: error\n\ndata: b")


def test_what_is_no_text_is_json() -> None:
    """Anything else is JSON, in one line and in the letters it has; half a surrogate pair does no harm."""
    assert data_frame({"text": "né\n"}) == 'data: {"text":"né\\n"}\n\n'.encode()
    assert read(data_frame(["\ud83d"]))[0].data == '["?"]'


@pytest.mark.parametrize("data", [b"bytes", object(), {"x": float("nan")}, [float("inf")]])
def test_what_cannot_be_sent_is_refused(data: object) -> None:
    """Bytes and objects need a `render=`; NaN is no JSON, and no browser would read it."""
    with pytest.raises((TypeError, ValueError)):
        data_frame(data)


def test_a_ping_is_no_event() -> None:
    """A decoder skips it."""
    assert read(PING + data_frame("x"))[0].data == "x"


class SDKChunk:
    """A chunk as the openai SDK hands it over: an object that can tell what it was made of."""

    def __init__(self, text: str) -> None:
        self._text = text

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return {"choices": [{"index": 0, "delta": {"content": self._text}}]}


@pytest.mark.parametrize(
    ("chunk", "rendered"),
    [
        (Chunk(choices=[{"index": 0, "delta": {"content": "Hi"}}]), {"text": "Hi"}),
        (Chunk(choices=[{"index": 0, "delta": {"role": "assistant"}}]), None),
        (SDKChunk("Hi"), {"text": "Hi"}),
        (SDKChunk(""), None),
        ({"type": "content_block_delta", "delta": {"type": "text_delta", "text": "Hi"}}, {"text": "Hi"}),
        (Event(data="x", event="delta"), "x"),
        ({"any": "thing"}, {"any": "thing"}),
        ("text", "text"),
    ],
)
def test_the_default_rendering(chunk: Any, rendered: Any) -> None:
    """Chat chunks become their text, events their data, and anything else stays."""
    assert default_render(chunk) == rendered


FAILURES = [
    (StreamInactivityTimeoutError(SECRET, phase="first"), 504, "transport", "did not answer in time"),
    (StreamInactivityTimeoutError(SECRET, phase="idle", partial_text=SECRET), 504, "transport", "went silent"),
    (TransportTimeoutError(SECRET, phase="connect"), 504, "transport", "did not answer in time"),
    (DeadlineExceededError(SECRET), 504, "deadline", "too long"),
    (StreamCancelledError(SECRET, reason=SECRET), 503, "cancel", "cancelled"),
    (TransportError(SECRET, code="ECONNRESET"), 502, "transport", "connection"),
    (HTTPStatusError(SECRET, status_code=429, body=SECRET), 502, "http", "refused"),
    (InStreamError(SECRET, type="overloaded_error", body=SECRET), 502, "server", "reported an error"),
    (IncompleteStreamError(SECRET), 502, "protocol", "cut off"),
    (EmptyStreamError(SECRET), 502, "protocol", "cut off"),
    (MalformedChunkError(SECRET), 502, "protocol", "unreadable"),
    (ZeroDivisionError(SECRET), 502, "internal", "failed"),
]


@pytest.mark.parametrize(("error", "status", "kind", "words"), FAILURES, ids=lambda value: type(value).__name__)
def test_what_a_client_is_told(error: Exception, status: int, kind: str, words: str) -> None:
    """Each failure has its status, its kind, and a sentence of ours; no text of the exception's goes out."""
    told = failure_of(error)
    assert (status_of(error), told["kind"]) == (status, kind)
    assert words in told["message"]
    (event,) = read(error_frame(error))
    assert (event.event, json.loads(event.data)) == ("error", told)
    response = failure_response(error)
    assert (response.status_code, json.loads(response.content)) == (status, {"error": told})
    assert b"hush" not in response.content + error_frame(error)
