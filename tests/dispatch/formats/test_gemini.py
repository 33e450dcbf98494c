"""Gemini CLI: which line becomes which event."""

from .frames import brief, read


def test_gemini() -> None:
    """The assistant's words are output, the echoed prompt is not, and an error line is not fatal."""
    events = read(
        "gemini",
        {"type": "init", "session_id": "g1", "model": "flash"},
        {"type": "message", "role": "user", "content": "the prompt"},
        {"type": "message", "role": "assistant", "content": "Hel", "delta": True},
        {"type": "message", "role": "assistant", "content": "lo", "delta": True},
        {"type": "tool_use", "tool_name": "ls", "tool_id": "t1", "parameters": {}},
        {"type": "tool_result", "tool_id": "t1", "status": "success", "output": "a"},
        {"type": "error", "severity": "warning", "message": "loop detected"},
        {"type": "result", "status": "success", "stats": {"n": 1}},
    )
    assert brief(events) == [
        ("session", "g1"),
        ("status", "message"),
        ("text", "Hel"),
        ("text", "lo"),
        ("tool_call", "ls", "t1"),
        ("tool_result", "t1", "a"),
        ("diagnostic", "loop detected"),
        ("done",),
    ]


def test_gemini_failure_and_exit_codes() -> None:
    """An unsuccessful result and the program's own exit codes say why."""
    failed = {"type": "result", "status": "error", "error": {"type": "x", "message": "quota"}}
    assert brief(read("gemini", failed)) == [("error", "quota", "provider_error"), ("done", "provider_error")]
    codes = {41: "auth", 42: "invalid_input", 52: "invalid_config", 53: "turn_limit", 54: "tool_failed", 130: "interrupted"}
    for number, code in codes.items():
        error, done = read("gemini", exit_code=number)
        assert (error.error_code, done.error_code) == (code, code)
        assert f"exit code {number} ({code})" in error.text
