"""Chunks: what the properties read, and what counts as content."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard._sse import Chunk, Event, has_content


def chunk(delta: Any, **choice: Any) -> Chunk:
    return Chunk(choices=[{"index": 0, "delta": delta, "finish_reason": None, **choice}])


def event(data: str, name: str = "message") -> Event:
    made = Event()
    made.event, made.data = name, data
    return made


WITHOUT_CHOICES = [{}, {"choices": None}, {"choices": []}, {"choices": {}}, {"choices": "text"}, {"choices": [None, 1, []]}]
WITHOUT_DELTA = [{"choices": [{}]}, *[{"choices": [{"delta": delta}]} for delta in (None, {}, [], "x", 1)]]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("hi", "hi"),
        ("", ""),
        (None, ""),
        (7, ""),
        ({"text": "x"}, ""),
        ([], ""),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "image_url", "text": "no"}, {"text": "a"}, "b", None, {"type": "text", "text": None}], "ab"),
        ([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}], ""),
    ],
)
def test_text_is_a_string_or_a_list_of_text_parts(content: Any, text: str) -> None:
    """Other parts and other types read as no text."""
    assert chunk({"content": content}).text == text


@pytest.mark.parametrize("value", [*WITHOUT_CHOICES, *WITHOUT_DELTA])
def test_misshapen_chunks_read_as_nothing(value: dict[str, Any]) -> None:
    """null, missing and wrong types never raise, in any property (B074)."""
    made = Chunk(value)
    assert (made.text, made.reasoning, made.tool_calls, made.finish_reason, made.usage) == ("", "", [], None, None)
    assert not has_content(made)
    assert made == value


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
DELTAS = JSON | st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(["content", "reasoning", "reasoning_content", "refusal", "tool_calls", "function_call"], JSON),
)
CHOICES = JSON | st.fixed_dictionaries(
    {}, optional={"index": JSON, "delta": DELTAS, "text": JSON, "finish_reason": JSON, "error": JSON}
)
CHUNKS = st.fixed_dictionaries({}, optional={"choices": JSON | st.lists(CHOICES, max_size=3), "usage": JSON})


@given(CHUNKS)
def test_no_property_ever_raises(value: dict[str, Any]) -> None:
    """Whatever JSON stands where, each property has its own type."""
    made = Chunk(value)
    assert isinstance(made.text, str)
    assert isinstance(made.reasoning, str)
    assert isinstance(made.tool_calls, list)
    assert made.finish_reason is None or isinstance(made.finish_reason, str)
    assert made.usage is None or isinstance(made.usage, dict)
    assert isinstance(has_content(made), bool)


def test_properties_speak_of_choice_zero() -> None:
    """With n > 1 the text of the other choices does not mix in, wherever choice 0 stands."""
    other = {"index": 1, "delta": {"content": "B", "reasoning": "R", "tool_calls": [{}]}, "finish_reason": "stop"}
    assert Chunk(choices=[other, {"index": 0, "delta": {"content": "A"}}]).text == "A"
    alone = Chunk(choices=[other])
    assert (alone.text, alone.reasoning, alone.tool_calls, alone.finish_reason) == ("", "", [], None)
    assert has_content(alone)


@pytest.mark.parametrize("choice", [{}, {"index": None}, {"index": "x"}, {"index": 0}])
def test_a_missing_index_is_zero(choice: dict[str, Any]) -> None:
    """Servers that leave it out have one choice."""
    assert Chunk(choices=[{**choice, "delta": {"content": "A"}}]).text == "A"


def test_legacy_completions_have_text() -> None:
    """`choices[0].text` of the completions API reads as text and counts as content."""
    made = Chunk(choices=[{"index": 0, "text": "hi", "finish_reason": "stop"}])
    assert (made.text, made.finish_reason, has_content(made)) == ("hi", "stop", True)


@pytest.mark.parametrize(
    ("delta", "reasoning"),
    [
        ({"reasoning_content": "a"}, "a"),
        ({"reasoning": "b"}, "b"),
        ({"reasoning_content": "a", "reasoning": "a"}, "a"),
        ({"reasoning_content": None, "reasoning": "b"}, "b"),
        ({"reasoning": {"summary": "c"}}, "c"),
        ({"reasoning_content": ["c"]}, "c"),
    ],
)
def test_reasoning_has_two_names(delta: dict[str, Any], reasoning: str) -> None:
    """Only strings count, and text that is sent under both names is read once."""
    assert chunk(delta).reasoning == reasoning


def test_finish_reason_and_usage_of_the_last_chunks() -> None:
    """An empty finish reason is none; an empty usage is unknown."""
    assert chunk({}, finish_reason="stop").finish_reason == "stop"
    assert chunk({}, finish_reason="").finish_reason is None
    assert chunk({}, finish_reason=1).finish_reason is None
    assert Chunk(choices=[], usage={"total_tokens": 3}).usage == {"total_tokens": 3}
    assert Chunk(choices=[], usage={}).usage is None


@pytest.mark.parametrize(
    "delta",
    [
        {"content": " "},
        {"content": [{"type": "text", "text": "x"}]},
        {"reasoning_content": "x"},
        {"reasoning": "x"},
        {"refusal": "no"},
        {"tool_calls": [{"index": 0, "function": {"arguments": "{"}}]},
        {"function_call": {"arguments": "{"}},
    ],
)
def test_what_a_model_wrote_is_content(delta: dict[str, Any]) -> None:
    """Text, reasoning, refusals and tool calls count, in any choice."""
    assert has_content(chunk(delta))
    assert has_content(Chunk(choices=[{"delta": {}}, {"index": 1, "delta": delta}]))


@pytest.mark.parametrize(
    "delta",
    [
        {},
        {"role": "assistant"},
        {"role": "assistant", "content": ""},
        {"content": None, "refusal": None, "tool_calls": None},
        {"content": "", "reasoning_content": "", "tool_calls": []},
        {"tool_calls": [{}, None]},
        {"content": [{"type": "text", "text": ""}]},
        {"function_call": {}},
    ],
)
def test_empty_and_role_only_deltas_are_no_content(delta: dict[str, Any]) -> None:
    """They keep a connection alive, not a conversation."""
    assert not has_content(chunk(delta))
    assert not has_content(chunk(delta, finish_reason="stop"))


@pytest.mark.parametrize("frame", [{}, {"type": "ping"}, {"usage": {"total_tokens": 1}, "choices": []}, {"unknown": 1}])
def test_frames_without_choices_are_no_content(frame: dict[str, Any]) -> None:
    """Heartbeats, usage and unknown objects do not count."""
    assert not has_content(Chunk(frame))


@pytest.mark.parametrize("item", [b"x", "x", [0], {"a": 1}, 7, object(), event("x"), event("{}x", "delta")])
def test_other_items_count_if_there_is_something_in_them(item: object) -> None:
    """`counts=` meets events, bytes and any JSON as well."""
    assert has_content(item)


@pytest.mark.parametrize(
    "item",
    [
        b"",
        "",
        [],
        {},
        0,
        None,
        {"type": "ping"},
        {"choices": [{"delta": {}}]},
        event(""),
        event(" "),
        event("{}"),
        event("x", "ping"),
        event('{"type": "ping"}'),
    ],
)
def test_empty_items_and_pings_do_not_count(item: object) -> None:
    """Neither do pings, as events or as JSON."""
    assert not has_content(item)
