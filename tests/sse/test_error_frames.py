"""An error is an error wherever it stands: unframed, named, nested, under a vendor's names, before or after content."""

import json
from typing import Any

import pytest

from streamguard import InStreamError
from streamguard._stream.upstream.decode import decoder_of

CONTENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
STOP = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
DONE = b"data: [DONE]\n\n"


def run(body: bytes, decode: str = "chat") -> tuple[list[Any], InStreamError | None]:
    """Decode a body, in one piece and byte by byte; return the chunks and the error, which must be the same."""
    ends = []
    for size in (len(body), 1):
        decoder, chunks, error = decoder_of(decode)(), [], None
        try:
            for start in range(0, len(body), size):
                chunks += decoder.feed(body[start : start + size])
            chunks += decoder.finish()
        except InStreamError as exc:
            error = exc
        ends.append((len(chunks), str(error)))
    assert ends[0][1] == ends[1][1]
    return chunks, error


UNFRAMED = {
    "an object alone on a line": b'{"error":{"message":"overloaded now","code":529}}\n\n',
    "an object right behind an event": b'{"error":{"message":"overloaded now"}}\n',
    "a field": b'error: {"message":"overloaded now","code":529}\n\n',
    "a field of text": b"error: overloaded now\n\n",
    "a flat object": b'{"message":"overloaded now","code":529}\n\n',
}


@pytest.mark.parametrize("after", [DONE, STOP + DONE, b"", CONTENT + STOP + DONE], ids=["done", "stop", "end", "content"])
@pytest.mark.parametrize("name", UNFRAMED)
def test_an_error_without_a_frame(name: str, after: bytes) -> None:
    """C208: never completed, whatever follows."""
    _, error = run(CONTENT + UNFRAMED[name] + after)
    assert error is not None
    assert "overloaded now" in str(error)


@pytest.mark.parametrize("line", [b"error: null\n\n", b"error:\n\n", b'{"choices":[]}\n\n', b"{\n\n", b"errors: []\n\n"])
def test_what_only_looks_like_an_unframed_error(line: bytes) -> None:
    """A field without a value, a chunk without a frame, half an object."""
    assert run(CONTENT + line + STOP + DONE)[1] is None


VENDORS = {
    "flat code and text": ({"error_code": 336100, "error_msg": "try later"}, 336100, "try later"),
    "base_resp": ({"choices": None, "base_resp": {"status_code": 1002, "status_msg": "try later"}}, 1002, "try later"),
    "x_groq": ({"choices": [], "x_groq": {"error": {"message": "try later", "code": "over"}}}, "over", "try later"),
    "x_groq beside content": (
        {"choices": [{"index": 0, "delta": {"content": "a"}}], "x_groq": {"error": "try later"}},
        None,
        "try later",
    ),
}


@pytest.mark.parametrize("name", VENDORS)
def test_vendors_frames(name: str) -> None:
    """C209: with the vendor's code and message."""
    frame, code, message = VENDORS[name]
    _, error = run(CONTENT + b"data: " + json.dumps(frame).encode() + b"\n\n" + DONE)
    assert error is not None
    assert (error.code, message in str(error)) == (code, True)


@pytest.mark.parametrize(
    "frame",
    [
        {"choices": [], "base_resp": {"status_code": 0, "status_msg": ""}},
        {"choices": [], "error_code": 0, "error_msg": ""},
        {"choices": [], "x_groq": {"id": "r", "error": None}},
        {"choices": [], "base_resp": None},
    ],
)
def test_vendors_frames_that_report_no_error(frame: dict[str, Any]) -> None:
    """A code that says success is none."""
    assert run(b"data: " + json.dumps(frame).encode() + b"\n\n" + STOP + DONE)[1] is None


NAMED = b'id:1\nevent:error\ndata:{"code":"Throttling.AllocationQuota","message":"try later"}\n\n'


@pytest.mark.parametrize("decode", ["chat", "json", "responses", "anthropic"])
def test_events_that_are_named_error(decode: str) -> None:
    """C210: in every decoder that reads JSON."""
    _, error = run(NAMED, decode)
    assert error is not None
    assert (error.code, "try later" in str(error)) == ("Throttling.AllocationQuota", True)


def test_objects_of_any_json() -> None:
    """C210: an object whose only key is `error` is one; rows of data may have such a column."""
    assert run(b'data: {"error":{"message":"try later"}}\n\n', "json")[1] is not None
    rows = b'data: {"id":1,"error":"none of yours"}\n\ndata: {"error":null}\n\ndata: {"error":{}}\n\n'
    assert run(rows, "json") == ([{"id": 1, "error": "none of yours"}, {"error": None}, {"error": {}}], None)


def test_events_and_bytes_report_nothing() -> None:
    """They hand over what came."""
    assert run(NAMED, "events")[1] is None
    assert run(NAMED, "bytes")[1] is None


def test_a_lone_surrogate_in_an_error() -> None:
    """C224: `str(error)` can be written."""
    _, error = run(b'data: {"error":{"message":"bad \\ud83d"}}\n\n')
    assert error is not None
    str(error).encode()
