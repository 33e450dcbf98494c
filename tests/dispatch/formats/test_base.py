"""What all formats of JSON lines share."""

import itertools
import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamguard.dispatch._data.turn_events import RAW_LIMIT, Event, Kind
from streamguard.dispatch._formats import FORMATS, make_format

from .frames import (
    BLOCK,
    JSON_FORMATS,
    START,
    SUCCESS,
    answer,
    assistant,
    brief,
    delta,
    item,
    read,
    words,
)


@pytest.mark.parametrize("name", JSON_FORMATS)
@pytest.mark.parametrize(
    "line", ["not JSON", "[1]", '"text"', "{", "null", '{"type": "novel"}', "{}", '{"type": {}}', "[" * 100_000]
)
def test_noise_is_unknown(name: str, line: str) -> None:
    """A line that is not a JSON object of a known type is `unknown`: bounded, and not output."""
    (event,) = read(name, line, exit_code=None)
    assert event.kind is Kind.UNKNOWN
    assert not event.is_output
    assert len(event.text) <= RAW_LIMIT
    assert len(event.raw) <= RAW_LIMIT


WRONG = [None, 3, "x", [], {}, [None], {"content": 3}, {"content": [None, 3, {}]}, {"type": []}, {"id": {}}]


KEYS = [
    "message",
    "event",
    "item",
    "part",
    "result",
    "error",
    "subtype",
    "session_id",
    "sessionID",
    "role",
    "status",
    "delta",
]


TYPES = {
    "claude": ["system", "stream_event", "assistant", "user", "result", "rate_limit_event"],
    "codex": ["thread.started", "item.started", "item.updated", "item.completed", "turn.completed", "turn.failed", "error"],
    "gemini": ["init", "message", "tool_use", "tool_result", "error", "result"],
    "opencode": ["step_start", "text", "reasoning", "tool_use", "error", "step_finish"],
    "qwen": ["system", "stream_event", "assistant", "user", "result"],
    "cline": ["agent_event", "hook_event", "run_result", "error"],
}


@given(data=st.data(), name=st.sampled_from(JSON_FORMATS))
def test_known_types_with_wrong_insides_raise_nothing(data: st.DataObject, name: str) -> None:
    """A field of the wrong type never raises, and there is at most one done."""
    kinds = st.sampled_from(TYPES[name])
    objects = st.builds(
        lambda kind, fields: {**fields, "type": kind}, kinds, st.dictionaries(st.sampled_from(KEYS), st.sampled_from(WRONG))
    )
    events = read(name, *data.draw(st.lists(objects, max_size=5)))
    assert [event.kind for event in events].count(Kind.DONE) == 1
    assert events[-1].kind is Kind.DONE


@given(cuts=st.lists(st.integers(0, 2000), max_size=10))
def test_chunking_does_not_matter(cuts: list[int]) -> None:
    """However the bytes are cut, the events are the same, multi-byte characters included."""
    lines = [START, BLOCK, delta("text_delta", "text", "Grüße 👋"), assistant("m1", words("Grüße 👋")), SUCCESS]
    data = "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in lines).encode()
    reader = make_format("claude")
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    pieces = [data[begin:end] for begin, end in itertools.pairwise(places)]
    events = [event for piece in pieces for event in reader.feed(piece)]
    assert [*events, *reader.close(0)] == [*make_format("claude").feed(data)]


def test_a_half_line_at_the_end_is_read() -> None:
    """The last line needs no line end."""
    reader = make_format("claude")
    assert [*reader.feed(json.dumps(SUCCESS).encode())] == []
    assert [event.kind for event in reader.close(None)] == [Kind.TEXT, Kind.DONE]


def test_a_line_of_300_kb() -> None:
    """A long line is one event."""
    text = "x" * 300_000
    assert answer(read("claude", assistant("m1", words(text)), SUCCESS)) == text


def test_bad_bytes_survive() -> None:
    """Bytes that are not UTF-8 become U+FFFD, and nothing is lost around them."""
    reader = make_format("codex")
    line = json.dumps(item("agent_message", text="a@b")).encode().replace(b"@", b"\xff")
    assert answer([*reader.feed(line + b"\n")]) == "a\ufffdb"


@pytest.mark.parametrize("name", ["claude", "codex", "gemini"])
def test_exit_without_the_result_line_is_incomplete(name: str) -> None:
    """Exit code 0 does not make a run complete whose last line is missing (B139)."""
    known = {"type": TYPES[name][0]}
    error, done = read(name, known)[1:]
    assert (error.kind, done.error_code) == (Kind.ERROR, "incomplete")
    assert "ended without" in error.text


@pytest.mark.parametrize("name", JSON_FORMATS)
def test_a_format_that_never_speaks_json(name: str) -> None:
    """If no line at all is JSON, the error says so, and asks for the flag."""
    error, done = read(name, "Hello", "World")[2:]
    assert done.error_code == "not_json"
    assert f"read 2 lines, none of them JSON of format={name}" in error.text


@pytest.mark.parametrize("name", JSON_FORMATS)
def test_nothing_comes_after_done(name: str) -> None:
    """There is one done, and it is the last event."""
    ending: dict[str, Any] = {"claude": SUCCESS, "gemini": {"type": "result"}, "codex": {"type": "turn.completed"}}.get(
        name, {}
    )
    events = read(name, *([ending] * 3 if ending else []), exit_code=3 if not ending else 0)
    assert [event.kind for event in events].count(Kind.DONE) == 1
    assert events[-1].kind is Kind.DONE


@pytest.mark.parametrize(("exit_code", "code"), [(3, "exit_3"), (-9, "signal_9")])
@pytest.mark.parametrize("name", FORMATS)
def test_a_failing_exit_is_an_error(name: str, exit_code: int, code: str) -> None:
    """Without a result, the exit code or the signal is the reason."""
    error, done = read(name, exit_code=exit_code)
    assert (error.error_code, done.error_code) == (code, code)


@pytest.mark.parametrize("odd", [["text"], {"text": "text"}, 5, None], ids=str)
def test_an_odd_type_within_a_line_costs_nothing_but_itself(odd: object) -> None:
    """Unexpected content in a line does not end the run: the result line after it is read."""
    events = read("claude", assistant("m", words("first"), {"type": odd, "text": "x"}), SUCCESS)
    assert answer(events).startswith("first")
    assert events[-1] == Event.done(data=events[-1].data)


def test_a_line_that_breaks_its_reader_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a reader raises, the line becomes `unknown`, and the next one is read."""
    reader = make_format("gemini")
    monkeypatch.setattr(reader, "_readers", lambda: {"init": lambda message: [message["nothing"]]})
    assert brief([*reader.feed(b'{"type": "init"}\n{"type": "init"}\n')]) == [("unknown", "init")] * 2


def test_a_byte_order_mark_is_not_noise() -> None:
    """UTF-8 with a mark at its beginning is read as without it."""
    assert brief(read("claude", "\ufeff" + json.dumps(SUCCESS))) == [("text", "Hello"), ("done",)]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("codex", {"type": "turn.failed", "error": "boom"}),
        ("codex", {"type": "error", "error": "boom"}),
        ("gemini", {"type": "result", "status": "error", "error": "boom"}),
        ("gemini", {"type": "error", "error": "boom"}),
        ("opencode", {"type": "error", "error": "boom"}),
    ],
)
def test_an_error_that_is_plain_text_is_reported(name: str, line: dict[str, Any]) -> None:
    """An error may be an object with a message, or the message itself."""
    assert "boom" in [event.text for event in read(name, line)]
