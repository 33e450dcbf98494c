"""Cline: frames recorded from cline 3.0.65 (C237)."""

from typing import Any

from streamguard.dispatch._data.turn_events import Kind

from .frames import answer, brief, read


def agent_event(kind: str, **fields: Any) -> dict[str, Any]:
    return {"ts": "2026-12-01T01:28:22.736Z", "type": "agent_event", "event": {"type": kind, **fields}}


def text(piece: str, whole: str) -> dict[str, Any]:
    return agent_event("content_start", contentType="text", text=piece, accumulated=whole)


def run_result(reason: str, words: str) -> dict[str, Any]:
    return {"type": "run_result", "finishReason": reason, "iterations": 1, "text": words, "usage": {"outputTokens": 2}}


BEGIN = [{"type": "hook_event", "hookEventName": "agent_start"}, agent_event("iteration_start", iteration=1)]
END = [agent_event("content_end", contentType="text", text="Hello world"), agent_event("done", reason="completed")]


def test_an_answer() -> None:
    """Deltas are the answer; the text of the frames that repeat it is not given again; `run_result` ends the run."""
    events = read(
        "cline",
        *BEGIN,
        text("Hello ", "Hello "),
        text("world", "Hello world"),
        *END,
        run_result("completed", "Hello world"),
    )
    assert answer(events) == "Hello world"
    assert brief(events)[-1] == ("done",)
    assert events[-1].data["usage"] == {"outputTokens": 2}


def test_a_tool_between_two_texts() -> None:
    """A call and its result are output; text after it begins a paragraph."""
    call = agent_event(
        "content_start", contentType="tool", toolName="run_commands", toolCallId="c1", input={"commands": ["ls"]}
    )
    output = [{"query": "ls", "result": "a\n", "success": True}, {"query": "pwd", "result": "b", "success": True}]
    ended = agent_event("content_end", contentType="tool", toolName="run_commands", toolCallId="c1", output=output)
    second = agent_event("iteration_start", iteration=2)
    lines = [*BEGIN, text("Look", "Look"), call, ended, second, text("Done", "Done"), run_result("completed", "Done")]
    events = read("cline", *lines)
    assert ("tool_call", "run_commands", "c1") in brief(events)
    assert ("tool_result", "run_commands", "c1", "a\nb") in brief(events)
    assert answer(events) == "Look\n\nDone"


def test_reasoning_is_not_the_answer() -> None:
    """Reasoning is thinking: output, and no part of the answer."""
    thought = agent_event("content_start", contentType="reasoning", text="hm", accumulated="hm")
    events = read("cline", *BEGIN, thought, text("42", "42"), run_result("completed", "42"))
    assert answer(events) == "42"
    assert [event.text for event in events if event.kind is Kind.THINKING] == ["hm"]


def test_a_failure_has_the_servers_words() -> None:
    """An error frame is a diagnostic; the result's text is the failure."""
    error = agent_event("error", error={"name": "Error", "message": "it broke"}, recoverable=False)
    events = read("cline", *BEGIN, error, run_result("error", "it broke"), exit_code=1)
    assert brief(events)[-3:] == [
        ("diagnostic", "it broke"),
        ("error", "it broke", "provider_error"),
        ("done", "provider_error"),
    ]


def test_a_program_that_refuses_its_arguments() -> None:
    """A single error frame and exit code 1: the failure has its words."""
    frame = {"type": "error", "message": "JSON output mode requires a prompt argument or piped stdin"}
    events = read("cline", frame, exit_code=1)
    assert events[-2].error_code == "exit_1"
    assert "requires a prompt argument" in events[-2].text
