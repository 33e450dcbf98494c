"""Codex: which line becomes which event."""

from typing import Any

import pytest

from streamguard.dispatch._data.turn_events import Event

from .frames import brief, item, read


def test_codex() -> None:
    """Items are output at their start and completion; a warning item and reconnects are not (T21)."""
    events = read(
        "codex",
        "2025-01-01 WARN something that is not JSON",
        {"type": "thread.started", "thread_id": "th1"},
        item("error", message="no metadata for this model"),
        {"type": "turn.started"},
        item("reasoning", text="hm"),
        item("command_execution", "started", command="ls", aggregated_output="", status="in_progress"),
        item("command_execution", "updated", command="ls", aggregated_output=""),
        item("command_execution", command="ls", aggregated_output="a.txt", exit_code=0),
        item("todo_list", "started", items=[]),
        item("web_search", query="x"),
        item("agent_message", text="One."),
        {"type": "error", "message": "Reconnecting... 1/5"},
        item("agent_message", text="Two."),
        {"type": "turn.completed", "usage": {"input_tokens": 1}},
        exit_code=1,
    )
    assert brief([event for event in events if event.is_output]) == [
        ("thinking", "hm"),
        ("tool_call", "command_execution", "i1", "ls"),
        ("tool_result", "command_execution", "i1", "a.txt"),
        ("text", "One."),
        ("text", "\n\nTwo."),
    ]
    assert brief(events)[:3] == [
        ("unknown", "2025-01-01 WARN something that is not JSON"),
        ("session", "th1"),
        ("diagnostic", "no metadata for this model"),
    ]
    assert ("status", "Reconnecting... 1/5") in brief(events)
    assert events[-1] == Event.done(data={"usage": {"input_tokens": 1}})


@pytest.mark.parametrize("failed", [{"error": {"message": "stream lost"}}, {}])
def test_codex_failure(failed: dict[str, Any]) -> None:
    """`turn.failed` ends the turn, with its own message or the one of the error line before it."""
    events = read("codex", {"type": "error", "message": "stream lost"}, {"type": "turn.failed", **failed}, exit_code=1)
    assert brief(events) == [
        ("diagnostic", "stream lost"),
        ("error", "stream lost", "provider_error"),
        ("done", "provider_error"),
    ]
