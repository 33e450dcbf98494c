"""OpenCode: which line becomes which event."""

from .frames import brief, part, read


def test_opencode() -> None:
    """The session is reported once, a tool comes with its result, and the exit is the end."""
    done = {"status": "completed", "input": {"c": "ls"}, "output": "a.txt"}
    events = read(
        "opencode",
        part("step_start"),
        part("text", text="One."),
        part("tool_use", tool="bash", callID="c1", state={"status": "running", "input": {}}),
        part("tool_use", tool="bash", callID="c1", state=done),
        part("step_finish", reason="stop"),
        part("text", text="Two."),
    )
    assert brief(events) == [
        ("session", "o1"),
        ("status", "step_start"),
        ("text", "One."),
        ("tool_call", "bash", "c1"),
        ("tool_result", "bash", "c1", "a.txt"),
        ("status", "step_finish"),
        ("text", "\n\nTwo."),
        ("done",),
    ]


def test_opencode_failure() -> None:
    """An error line makes the run fail, whatever the exit code says."""
    line = {"type": "error", "sessionID": "o1", "error": {"name": "APIError", "data": {"message": "no credit"}}}
    assert brief(read("opencode", line, exit_code=0)[2:]) == [
        ("error", "no credit", "provider_error"),
        ("done", "provider_error"),
    ]
