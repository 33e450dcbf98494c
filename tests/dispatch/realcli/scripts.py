"""What a scripted gateway says to each agent program, in the words of its API. Pure."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["SCRIPTS"]

SHELL_COMMAND = "sleep 8.25"
"""What the model asks the tool to run; the seconds are odd, so that the process can be told from others."""

PATIENT_COMMAND = "tail -f /dev/null --pid $$ & sleep 8.25"
"""The same for qwen, which refuses a command that begins with a sleep of more than two seconds."""

Script = list[str]
PINGS = ["loop forever", "comment ping", "wait 0.1", "endloop"]
STALL = ["stall"]


def _event(name: str, **fields: Any) -> str:
    return f"event {name} | {json.dumps({'type': name, **fields})}"


def _claude(words: Sequence[str], ending: Iterable[str] | None = None, *, tool: str | None = None) -> Script:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
    block = call if tool else {"type": "text", "text": ""}
    deltas = [{"type": "text_delta", "text": word} for word in words]
    if tool:
        deltas = [{"type": "input_json_delta", "partial_json": json.dumps({"command": tool, "description": "wait"})}]
    lines = [_event("message_start", message=message), _event("content_block_start", index=0, content_block=block)]
    lines += [_event("content_block_delta", index=0, delta=delta) for delta in deltas]
    if ending is not None:
        return [*lines, *ending]
    stop = {"stop_reason": "tool_use" if tool else "end_turn", "stop_sequence": None}
    return [
        *lines,
        _event("content_block_stop", index=0),
        _event("message_delta", delta=stop, usage={"output_tokens": 5}),
        _event("message_stop"),
    ]


def _codex(*items: dict[str, Any], ending: Iterable[str] | None = None) -> Script:
    usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None}
    lines = [_event("response.created", response={"id": "r1"})]
    lines += [_event("response.output_item.done", item=item) for item in items]
    if ending is not None:
        return [*lines, *ending]
    return [*lines, _event("response.completed", response={"id": "r1", "usage": {**usage, "total_tokens": 2}})]


def _said(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "id": "msg_1", "content": [{"type": "output_text", "text": text}]}


def _codex_call(command: str) -> dict[str, Any]:
    arguments = json.dumps({"cmd": command, "yield_time_ms": 30_000})
    return {"type": "function_call", "call_id": "c1", "name": "exec_command", "arguments": arguments}


def _chat(*deltas: dict[str, Any], reason: str = "stop", ending: Iterable[str] | None = None) -> Script:
    """Return an answer of the chat completions API, which opencode, qwen and cline use."""

    def chunk(choices: list[dict[str, Any]], **fields: Any) -> str:
        head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
        return f"event {json.dumps({**head, 'choices': choices, **fields})}"

    lines = [chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    if ending is not None:
        return [*lines, *ending]
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    return [*lines, chunk([{"index": 0, "delta": {}, "finish_reason": reason}]), chunk([], usage=usage), "done"]


def _chat_tool(name: str, arguments: dict[str, Any]) -> Script:
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    return _chat({"role": "assistant", "content": None, "tool_calls": [call]}, reason="tool_calls")


def _chat_scenes(tool: Script) -> dict[str, list[Script]]:
    """Return the scenes of a program that uses the chat API; what comes after the answer is for requests of its own."""
    answer = _chat({"role": "assistant", "content": "Hello "}, {"content": "world"})
    done = _chat({"role": "assistant", "content": "done"})
    begun = {"role": "assistant", "content": "Hel"}
    refused = ["headers 400 content-type: application/json", 'body {"error": {"message": "it broke", "code": "bad"}}']
    return {
        "answer": [answer] * 3,
        "pings": [_chat(begun, ending=PINGS)] * 3,
        "stall": [_chat(begun, ending=STALL)] * 3,
        "error": [refused] * 3,
        "tool": [tool, done, done, done],
        "two turns": [_chat({"role": "assistant", "content": text}) for text in ("one", "two", "two", "two")],
    }


def _gemini(*parts: dict[str, Any], ending: Iterable[str] | None = None) -> Script:
    usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
    candidates = [{"content": {"role": "model", "parts": [part]}, "index": 0} for part in parts]
    chunks = [{"candidates": [candidate], "usageMetadata": usage} for candidate in candidates]
    chunks[-1:] = [*chunks[-1:], {"candidates": [{"finishReason": "STOP", "index": 0}], "usageMetadata": usage}]
    lines = [f"event {json.dumps(chunk)}" for chunk in chunks]
    return lines if ending is None else [*lines[:-1], *ending]


WORDS = ["Hel", "lo ", "wor", "ld"]
GEMINI_CALL = {"functionCall": {"name": "run_shell_command", "args": {"command": SHELL_COMMAND}}}
CLAUDE_ERROR = _event("error", error={"type": "overloaded_error", "message": "Overloaded"})
CODEX_ERROR = _event("response.failed", response={"id": "r1", "error": {"code": "server_error", "message": "it broke"}})
HELLO: Script = ["headers 200", "end"]
"""What answers the HEAD request that claude begins with."""

SCRIPTS: dict[str, dict[str, list[Script]]] = {
    "claude": {
        "answer": [HELLO, _claude(WORDS)],
        "pings": [HELLO, _claude(WORDS, ["loop forever", _event("ping"), "wait 0.1", "endloop"])],
        "stall": [HELLO, _claude(WORDS, STALL)],
        "error": [HELLO, _claude(WORDS, [CLAUDE_ERROR])],
        "tool": [HELLO, _claude([], tool=SHELL_COMMAND), _claude(["done"])],
        "two turns": [HELLO, _claude(["one"]), HELLO, _claude(["two"])],
    },
    "codex": {
        "answer": [_codex(_said("Hello world"))],
        "pings": [_codex(ending=PINGS)],
        "stall": [_codex(ending=STALL)],
        "error": [[CODEX_ERROR]],
        "tool": [_codex(_codex_call(SHELL_COMMAND)), _codex(_said("done"))],
        "two turns": [_codex(_said("one")), _codex(_said("two"))],
    },
    "gemini": {
        "answer": [_gemini({"text": "Hello "}, {"text": "world"})],
        "pings": [_gemini({"text": "Hello"}, ending=PINGS)],
        "stall": [_gemini({"text": "Hello"}, ending=STALL)],
        "error": [["headers 400 content-type: application/json", 'body {"error": {"code": 400, "message": "it broke"}}']],
        "tool": [_gemini(GEMINI_CALL), _gemini({"text": "done"})],
    },
    "opencode": _chat_scenes(_chat_tool("bash", {"command": SHELL_COMMAND, "description": "wait"})),
    "qwen": _chat_scenes(_chat_tool("run_shell_command", {"command": PATIENT_COMMAND, "is_background": False})),
    "cline": _chat_scenes(_chat_tool("run_commands", {"commands": [SHELL_COMMAND]})),
}
