"""What the output of agent programs means: the documented lines, and what is none of them."""

import itertools
import json
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamguard import UsageError
from streamguard.dispatch._data.turn_events import RAW_LIMIT, Event, Kind
from streamguard.dispatch._formats import FORMATS, buffered_output, make_format

JSON_FORMATS = sorted(set(FORMATS) - {"lines"})


def read(name: str, *lines: object, exit_code: int | None = 0, **options: Any) -> list[Event]:
    """Read *lines* (objects, or text as it is) in the format, and the end with *exit_code*."""
    text = "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    reader = make_format(name, **options)
    return [*reader.feed(text.encode()), *reader.close(exit_code)]


def brief(events: list[Event]) -> list[tuple[str, ...]]:
    """Return kind and text, tool, session or code, whichever is there."""
    return [tuple(filter(None, (e.kind, e.tool, e.tool_id, e.session_id, e.text, e.error_code))) for e in events]


def answer(events: list[Event]) -> str:
    return "".join(event.text for event in events if event.kind is Kind.TEXT)


def stream_event(event: dict[str, Any], parent: str | None = None) -> dict[str, Any]:
    return {"type": "stream_event", "event": event, "parent_tool_use_id": parent, "session_id": "s1"}


def delta(kind: str, key: str, text: str, parent: str | None = None) -> dict[str, Any]:
    return stream_event({"type": "content_block_delta", "index": 0, "delta": {"type": kind, key: text}}, parent)


def assistant(message_id: str, *blocks: dict[str, Any], parent: str | None = None) -> dict[str, Any]:
    return {
        "type": "assistant",
        "message": {"id": message_id, "role": "assistant", "content": [*blocks]},
        "parent_tool_use_id": parent,
    }


INIT = {"type": "system", "subtype": "init", "session_id": "s1", "model": "opus", "tools": []}
START = stream_event({"type": "message_start", "message": {"id": "m1"}})
BLOCK = stream_event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
STOP = stream_event({"type": "message_stop"})
SUCCESS = {"type": "result", "subtype": "success", "is_error": False, "num_turns": 1, "result": "Hello", "usage": {"x": 1}}


def words(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def test_claude_with_partial_messages_says_everything_once() -> None:
    """The deltas are the answer; the whole message behind them repeats it, and is status (T21)."""
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
def test_claude_lines_that_are_no_output(line: dict[str, Any]) -> None:
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


def test_claude_words_about_an_error_are_no_answer() -> None:
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


def item(kind: str, stage: str = "completed", **fields: Any) -> dict[str, Any]:
    return {"type": f"item.{stage}", "item": {"id": "i1", "type": kind, **fields}}


def test_codex() -> None:
    """Items are output at their start and completion; a warning item and reconnects are not (T21)."""
    events = read(
        "codex",
        "2025-01-01 WARN something that is no JSON",
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
        ("unknown", "2025-01-01 WARN something that is no JSON"),
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
    """A result that is no success, and the program's own exit codes, say why."""
    failed = {"type": "result", "status": "error", "error": {"type": "x", "message": "quota"}}
    assert brief(read("gemini", failed)) == [("error", "quota", "provider_error"), ("done", "provider_error")]
    codes = {41: "auth", 42: "invalid_input", 52: "invalid_config", 53: "turn_limit", 54: "tool_failed", 130: "interrupted"}
    for number, code in codes.items():
        error, done = read("gemini", exit_code=number)
        assert (error.error_code, done.error_code) == (code, code)
        assert f"exit code {number} ({code})" in error.text


def part(kind: str, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "timestamp": 1, "sessionID": "o1", "part": fields}


def test_opencode() -> None:
    """The session is told once, a tool comes with its result, and the exit is the end."""
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


@pytest.mark.parametrize("name", JSON_FORMATS)
@pytest.mark.parametrize(
    "line", ["no JSON", "[1]", '"text"', "{", "null", '{"type": "novel"}', "{}", '{"type": {}}', "[" * 100_000]
)
def test_noise_is_unknown(name: str, line: str) -> None:
    """What does not parse, is no object, or of no known type, is unknown, bounded, and no output."""
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
    """Bytes that are no UTF-8 become U+FFFD, and nothing is lost around them."""
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
def test_nothing_comes_behind_done(name: str) -> None:
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


def test_lines() -> None:
    """A line is text, and keeps its end; what is unfinished comes at once, as a piece."""
    reader = make_format("lines")
    assert [(e.text, e.delta) for e in reader.feed(b"a\nb\rc")] == [("a\n", False), ("b\r", False), ("c", True)]
    assert [(e.text, e.delta) for e in reader.feed(b"d\ne\n")] == [("d\n", True), ("e\n", False)]
    assert brief([*reader.close(0)]) == [("done",)]


def test_lines_that_nobody_reads_are_not_split() -> None:
    """`split=False` gives what comes as it comes, unless a pattern needs lines."""
    assert [e.text for e in make_format("lines", split=False).feed(b"a\nb\nc")] == ["a\nb\nc"]
    assert [e.text for e in make_format("lines", split=False, ignore="x").feed(b"a\nb\nc")] == ["a\n", "b\n"]


def test_lines_put_together_are_the_output() -> None:
    """Whatever the pieces, even within a character, the texts are the output."""
    data = "é\r\n€\r👋\nlast".encode()
    reader = make_format("lines")
    events = [event for byte in data for event in reader.feed(bytes([byte]))]
    assert answer([*events, *reader.close(0)]) == data.decode()


def test_ignored_lines_are_status() -> None:
    """Heartbeat lines do not count, and are still given (B153)."""
    events = read("lines", "[12s] agent still running", "news", ignore=r"still running$")
    assert brief(events) == [("status", "[12s] agent still running\n"), ("text", "news\n"), ("done",)]
    (event, *_) = read("claude", '{"type": "assistant", "heartbeat": 1}', ignore="heartbeat")
    assert event.kind is Kind.STATUS


def test_an_ignored_line_whose_end_comes_in_two_pieces() -> None:
    """The line is given at once, and the `\\n` of a `\\r\\n` never counts by itself."""
    reader = make_format("lines", ignore="^beat")
    assert brief([*reader.feed(b"beat\r")]) == [("status", "beat\r")]
    assert brief([*reader.feed(b"\nbeat\r\n")]) == [("status", "\n"), ("status", "beat\r\n")]


def test_a_final_line_that_a_return_ends_is_not_waited_for() -> None:
    """A program that says DONE with a `\\r` and lingers is complete: nothing need follow."""
    reader = make_format("lines", final="^DONE$")
    assert brief([*reader.feed(b"50%\rDONE\r")]) == [("text", "50%\r"), ("text", "DONE\r"), ("done",)]
    assert brief([*reader.feed(b"\n")]) == [("text", "\n")]  # its end is whole
    assert [*reader.feed(b"\nmore\n")] == []


def test_the_final_line_ends_the_run() -> None:
    """`final=` is what completes it; without that line it is incomplete, in spite of exit code 0 (B139)."""
    assert brief(read("lines", "work", "ALL DONE", "more", final="^ALL DONE$")) == [
        ("text", "work\n"),
        ("text", "ALL DONE\n"),
        ("done",),
    ]
    assert brief(read("lines", "work", final="^ALL DONE$"))[-1] == ("done", "incomplete")


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("cobol", {}, "format= must be one of claude.*got 'cobol'"),
        ("lines", {"ignore": "("}, "ignore= must be a regular expression"),
        ("lines", {"final": ["ok", "*"]}, "final= must be a regular expression"),
        ("codex", {"final": "x"}, "final= is for"),
    ],
)
def test_wrong_formats_are_refused(name: str, options: dict[str, Any], complaint: str) -> None:
    """An unknown name, a wrong expression, and final= where it means nothing, are errors."""
    with pytest.raises(UsageError, match=complaint.replace("(", r"\(")):
        make_format(name, **options)


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["claude", "-p", "--output-format", "json"], "--output-format json"),
        (["claude", "--output-format=text"], "--output-format=text"),
        (["gemini", "-o", "json", "x"], "-o json"),
        (["claude", "--output-format", "stream-json"], None),
        (["sort", "-o", "file"], None),
        (["x", "--output-format"], None),
    ],
)
def test_buffered_output_is_noticed(argv: list[str], found: str | None) -> None:
    """Options that have a program print only at its end are known (B141)."""
    assert buffered_output(argv) == found


@pytest.mark.parametrize("odd", [["text"], {"text": "text"}, 5, None], ids=str)
def test_an_odd_type_within_a_line_costs_nothing_but_itself(odd: object) -> None:
    """What a reader does not expect is no fault of the run: the result line behind it is read."""
    events = read("claude", assistant("m", words("first"), {"type": odd, "text": "x"}), SUCCESS)
    assert answer(events).startswith("first")
    assert events[-1] == Event.done(data=events[-1].data)


def test_a_line_that_breaks_its_reader_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a reader raises, the line becomes `unknown`, and the next one is read."""
    reader = make_format("gemini")
    monkeypatch.setattr(reader, "_readers", lambda: {"init": lambda message: [message["nothing"]]})
    assert brief([*reader.feed(b'{"type": "init"}\n{"type": "init"}\n')]) == [("unknown", "init")] * 2


def test_a_byte_order_mark_is_no_noise() -> None:
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
def test_an_error_that_is_plain_text_is_told(name: str, line: dict[str, Any]) -> None:
    """An error may be an object with a message, or the message itself."""
    assert "boom" in [event.text for event in read(name, line)]


def test_content_that_is_plain_text_is_the_answer() -> None:
    """Claude's content may be a text in place of a list of blocks."""
    line = {"type": "assistant", "message": {"id": "m", "content": "plain"}}
    assert answer(read("claude", line, {"type": "result", "subtype": "success"})) == "plain"
