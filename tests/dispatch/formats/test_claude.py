"""Claude Code: which line becomes which event."""

from typing import Any

import pytest

from streamguard.dispatch._data.turn_events import Event, Kind

from .frames import BLOCK, INIT, START, STOP, SUCCESS, answer, assistant, brief, delta, read, stream_event, words


def test_claude_with_partial_messages_says_everything_once() -> None:
    """The deltas are the answer; the whole message after them repeats it, and is status (T21)."""
    events = read(
        "claude",
        INIT,
        START,
        BLOCK,
        delta("text_delta", "text", "Hel"),
        delta("text_delta", "text", "lo"),
        assistant("m1", words("Hello")),
        STOP,
        SUCCESS,
    )
    assert answer(events) == "Hello"
    assert [event.kind for event in events if event.is_output] == [Kind.TEXT, Kind.TEXT]
    assert brief(events)[0] == ("session", "s1")
    assert events[-1] == Event.done(data={"num_turns": 1, "usage": {"x": 1}, "total_cost_usd": None})


def test_claude_without_partial_messages() -> None:
    """Whole messages are the answer; one message may come in several lines, one block in each."""
    tool = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
    thought = {"type": "thinking", "thinking": "Let me see."}
    done = {"type": "tool_result", "tool_use_id": "t1", "content": [words("a.txt")]}
    events = read(
        "claude",
        INIT,
        assistant("m1", thought),
        assistant("m1", words("I look.")),
        assistant("m1", tool),
        {"type": "user", "message": {"role": "user", "content": [done]}},
        assistant("m2", words("Done.")),
        SUCCESS,
    )
    assert brief(events)[1:-1] == [
        ("thinking", "Let me see."),
        ("text", "I look."),
        ("tool_call", "Bash", "t1"),
        ("tool_result", "Bash", "t1", "a.txt"),
        ("text", "\n\nDone."),
    ]
    assert answer(events) == "I look.\n\nDone."


def test_claude_thinking_and_tool_input_are_output() -> None:
    """Thinking and tool-input deltas are output; signatures, starts and stops are not (T21)."""
    tool = {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "name": "Edit", "id": "t"}}
    events = read(
        "claude",
        START,
        delta("thinking_delta", "thinking", "hm"),
        delta("signature_delta", "signature", "abc"),
        stream_event(tool),
        delta("input_json_delta", "partial_json", ""),
        delta("input_json_delta", "partial_json", '{"a"'),
        STOP,
        SUCCESS,
    )
    assert [(e.kind, e.text, e.delta, e.tool) for e in events if e.is_output and e.kind is not Kind.TEXT] == [
        (Kind.THINKING, "hm", True, None),
        (Kind.TOOL_CALL, '{"a"', True, "Edit"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        {"type": "system", "subtype": "status"},
        {"type": "system", "subtype": "compact_boundary"},
        {"type": "system", "subtype": "hook_started"},
        {"type": "rate_limit_event"},
        {"type": "user", "message": {"role": "user", "content": "the prompt"}},
        stream_event({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
        stream_event({"type": "ping"}),
        INIT,
    ],
)
def test_claude_lines_that_are_not_output(line: dict[str, Any]) -> None:
    """Session starts, status, rate limits, pings and the prompt's echo do not re-arm."""
    (event,) = read("claude", line, exit_code=None)
    assert event.kind in (Kind.STATUS, Kind.SIGNAL, Kind.SESSION)
    assert not event.is_output


def test_claude_sub_agents_are_output_and_not_the_answer() -> None:
    """What a sub-agent says re-arms, as rich blocks, and does not mix with the answer."""
    events = read(
        "claude",
        START,
        BLOCK,
        delta("text_delta", "text", "I ask."),
        delta("text_delta", "text", "sub", parent="t1"),
        assistant("m7", words("whole sub"), parent="t1"),
        delta("text_delta", "text", " Now."),
        SUCCESS,
    )
    assert [e.text for e in events if e.kind is Kind.RICH] == ["sub", "whole sub"]
    assert answer(events) == "I ask. Now."


def test_claude_text_about_an_error_is_not_the_answer() -> None:
    """What the program itself says in place of the model is a diagnostic: no output, and no part of the answer."""
    line = assistant("m1", words("API Error: lost"))
    line["message"]["model"] = "<synthetic>"
    (event,) = read("claude", line, exit_code=None)
    assert (event.kind, event.text, event.is_output) == (Kind.DIAGNOSTIC, "API Error: lost", False)


@pytest.mark.parametrize(
    ("result", "text", "code"),
    [
        ({"subtype": "success", "is_error": True, "result": "API Error: 529"}, "API Error: 529", "provider_error"),
        ({"subtype": "error_max_turns", "is_error": False}, "error_max_turns", "error_max_turns"),
        ({"subtype": "error_during_execution", "is_error": True}, "error_during_execution", "error_during_execution"),
    ],
)
def test_claude_results_that_are_failures(result: dict[str, Any], text: str, code: str) -> None:
    """A result with is_error, or an error subtype, is an error and a done with its code."""
    assert brief(read("claude", {"type": "result", **result})) == [("error", text, code), ("done", code)]


def test_claude_result_text_stands_in_for_words_that_never_came() -> None:
    """Where no message had words, those of the result are the answer."""
    assert answer(read("claude", INIT, SUCCESS)) == "Hello"


def test_content_that_is_plain_text_is_the_answer() -> None:
    """Claude's content may be a text in place of a list of blocks."""
    line = {"type": "assistant", "message": {"id": "m", "content": "plain"}}
    assert answer(read("claude", line, {"type": "result", "subtype": "success"})) == "plain"
