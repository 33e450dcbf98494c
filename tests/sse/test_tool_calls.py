"""Which tool calls are offered: once each, complete, and only if the answer ended well."""

import itertools
import json
import logging
import sys
from typing import Any

import pytest

from streamguard._sse import AnthropicAssembler, Chunk, Message, MessageAssembler, ResponsesAssembler, ToolCall
from streamguard._sse.finish_reasons import ENDED_WELL

ARGUMENTS = '{"f":"fax"}'


def piece(
    arguments: object = None, *, index: int | None = None, id: str | None = None, name: str | None = None
) -> dict[str, Any]:
    made: dict[str, Any] = {"function": {}}
    if index is not None:
        made["index"] = index
    if id is not None:
        made["id"] = id
    if name is not None:
        made["function"]["name"] = name
    if arguments is not None:
        made["function"]["arguments"] = arguments
    return made


def chunk(delta: dict[str, Any], reason: str | None = None) -> Chunk:
    return Chunk(choices=[{"index": 0, "delta": delta, "finish_reason": reason}])


def answer(*pieces: dict[str, Any], reason: str | None = "tool_calls", complete: bool = True) -> Message:
    assembler = MessageAssembler()
    for each in pieces:
        assembler.add(chunk({"tool_calls": [each]}))
    assembler.add(chunk({}, reason))
    return assembler.message(complete)


def offered(message: Message) -> list[tuple[str, str, str]]:
    return [(call.id, call.name, call.arguments) for call in message.tool_calls]


@pytest.mark.parametrize("reason", [*sorted(ENDED_WELL), "STOP", "Tool_Calls", "END_TURN"])
def test_an_answer_that_ended_well_offers_its_calls(reason: str) -> None:
    """The words of all APIs, compared without case."""
    message = answer(piece("{}", index=0, id="c1", name="f"), reason=reason)
    assert (offered(message), message.invalid_tool_calls) == ([("c1", "f", "{}")], ())


@pytest.mark.parametrize(
    "reason", ["length", "content_filter", "pause_turn", "MAX_TOKENS", "novel", "insufficient_system_resource"]
)
def test_any_other_word_offers_none_and_is_named(reason: str, caplog: pytest.LogCaptureFixture) -> None:
    """The reason names the word; an unknown one is logged once as a WARNING."""
    assembler = MessageAssembler()
    assembler.add(chunk({"tool_calls": [piece("{}", index=0, id="c1", name="f")]}, reason))
    with caplog.at_level(logging.WARNING):
        made = next(assembler.message(True) for _ in range(3))
    assert made.tool_calls == ()
    assert [call.invalid_reason for call in made.invalid_tool_calls] == [f"finish_reason: {reason}"]
    assert len(caplog.records) == (reason in ("novel", "insufficient_system_resource"))


def test_an_end_marker_without_a_reason_offers_none() -> None:
    """`[DONE]` alone does not say that the calls are whole."""
    message = answer(piece("{}", index=0, id="c1", name="f"), reason=None)
    assert [call.invalid_reason for call in message.invalid_tool_calls] == ["no_finish_reason"]


@pytest.mark.parametrize("arguments", ["[1]", "1", '"text"', "null", "true", '{"a":', "nonsense", '{"a":1}}'])
def test_arguments_that_are_not_a_whole_object(arguments: str) -> None:
    """A call takes a JSON object: anything else is not offered."""
    message = answer(piece(arguments, index=0, id="c1", name="f"))
    assert [call.invalid_reason for call in message.invalid_tool_calls] == ["incomplete_arguments"]


PIECES = {
    "counting indexes (C220)": (
        [piece("", index=0, id="c", name="f"), piece('{"f":"fa', index=1), piece('x"}', index=2)],
        [("c", "f", ARGUMENTS)],
    ),
    "the last piece under another index (C220)": (
        [piece("", index=0, id="c", name="f"), piece('{"f":', index=0), piece("1}", index=1)],
        [("c", "f", '{"f":1}')],
    ),
    "no index but the id": (
        [piece("", id="a", name="f"), piece("", id="b", name="g"), piece("{}", id="b"), piece('{"x":1}', id="a")],
        [("a", "f", '{"x":1}'), ("b", "g", "{}")],
    ),
    "the id wins over the index": (
        [piece("", index=0, id="a", name="f"), piece("", index=1, id="b", name="g"), piece('{"y":1}', index=0, id="b")],
        [("a", "f", ""), ("b", "g", '{"y":1}')],
    ),
    "the last frame repeats the whole call (C221)": (
        [
            piece("", index=0, id="c", name="f"),
            piece('{"f":"fa', index=0),
            piece('x"}', index=0),
            piece(ARGUMENTS, index=0, id="c", name="f"),
        ],
        [("c", "f", ARGUMENTS)],
    ),
    "repeated as an object, with other blanks": (
        [piece('{"a": 1}', index=0, id="c", name="f"), piece('{"a":1}', index=0, id="c", name="f")],
        [("c", "f", '{"a": 1}')],
    ),
    "repeated without id": (
        [piece(ARGUMENTS, index=0, name="f"), piece(ARGUMENTS, index=0, name="f")],
        [("", "f", ARGUMENTS)],
    ),
    "from the start each time": (
        [
            piece('{"a"', index=0, id="c", name="f"),
            piece('{"a":1', index=0, id="c", name="f"),
            piece('{"a":1}', index=0, id="c", name="f"),
        ],
        [("c", "f", '{"a":1}')],
    ),
    "every call under index 0, without ids": (
        [piece('{"x":1}', index=0, name="f"), piece('{"x":2}', index=0, name="f"), piece("{}", index=0, name="g")],
        [("", "f", '{"x":1}'), ("", "f", '{"x":2}'), ("", "g", "{}")],
    ),
    "every call under index 0, with ids": (
        [piece('{"x":1}', index=0, id="a", name="f"), piece('{"x":1}', index=0, id="b", name="f")],
        [("a", "f", '{"x":1}'), ("b", "f", '{"x":1}')],
    ),
    "a name with each piece": (
        [piece('{"x"', index=0, id="a", name="f"), piece(":1}", index=0, id="a", name="f")],
        [("a", "f", '{"x":1}')],
    ),
    "a fresh id with each nameless piece": (
        [piece("", index=0, id="a", name="f"), piece('{"x"', index=0, id="b"), piece(":1}", index=0, id="c")],
        [("a", "f", '{"x":1}')],
    ),
    "arguments as an object": ([piece({"x": 1}, index=0, id="a", name="f")], [("a", "f", '{"x": 1}')]),
}


@pytest.mark.parametrize("name", PIECES)
def test_one_call_is_offered_once(name: str) -> None:
    """Each piece finds its call, whatever the server calls it by; a repetition is no second call."""
    pieces, expected = PIECES[name]
    message = answer(*pieces)
    assert (offered(message), message.invalid_tool_calls) == (expected, ())


def test_calls_before_more_text_are_answered_by_the_server() -> None:
    """C202: the server ran its own tool round; the answer after it is the answer, and the call is none to run."""
    assembler = MessageAssembler()
    assembler.add(chunk({"tool_calls": [piece("{}", index=0, id="c1", name="search")]}, "tool_calls"))
    assembler.add(chunk({"content": "final"}, "stop"))
    message = assembler.message(True)
    assert (message.text, message.tool_calls, message.finish_reason) == ("final", (), "stop")
    assert [(call.name, call.invalid_reason) for call in message.invalid_tool_calls] == [("search", "answered_by_server")]


def test_pieces_after_a_finish_reason_go_on_with_the_call() -> None:
    """A reason in each chunk cuts nothing off."""
    assembler = MessageAssembler()
    for arguments in ('{"a"', ":1}"):
        assembler.add(chunk({"tool_calls": [piece(arguments, index=0, id="c1", name="f")]}, "tool_calls"))
    assert offered(assembler.message(True)) == [("c1", "f", '{"a":1}')]


def test_custom_calls_of_a_chat() -> None:
    """Their input is free text."""
    custom = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "sql", "input": "select 1"}}
    (call,) = answer(custom).tool_calls
    assert (call.kind, call.name, call.arguments) == ("custom", "sql", "select 1")


def response(*frames: dict[str, Any], end: dict[str, Any] | None = None) -> Message:
    assembler = ResponsesAssembler()
    for frame in (*frames, end or {"type": "response.completed", "response": {"output": []}}):
        assembler.add(frame)
    return assembler.message(True)


def item(kind: str, which: str = "added", index: int = 0, **fields: Any) -> dict[str, Any]:
    whole = {"type": kind, "id": f"item_{index}", "call_id": f"call_{index}", "name": "f", **fields}
    return {"type": f"response.output_item.{which}", "output_index": index, "item": whole}


def test_custom_tool_calls_of_a_response() -> None:
    """C217: the call is offered with its input, and its kind is visible."""
    delta = {"type": "response.custom_tool_call_input.delta", "item_id": "item_0", "output_index": 0}
    message = response(
        item("custom_tool_call", input=""),
        {**delta, "delta": "select"},
        {**delta, "delta": " 1"},
        item("custom_tool_call", "done", input="select 1"),
    )
    assert [(call.kind, call.id, call.arguments) for call in message.tool_calls] == [("custom", "call_0", "select 1")]


@pytest.mark.parametrize("details", [{"reason": "max_tool_calls"}, None, {}])
def test_a_begun_call_of_an_incomplete_response(details: Any) -> None:
    """C218: not offered, and the reason names why the response is incomplete."""
    end = {"type": "response.incomplete", "response": {"incomplete_details": details, "output": []}}
    message = response(item("function_call", arguments=""), end=end)
    assert message.tool_calls == ()
    word = (details or {}).get("reason", "incomplete")
    assert [call.invalid_reason for call in message.invalid_tool_calls] == [f"finish_reason: {word}"]


DONE = {"type": "response.function_call_arguments.done", "item_id": "item_0", "output_index": 0}
WHOLE = {"type": "response.completed"} | {"response": {"output": [item("function_call", arguments='{"a":1}')["item"]]}}
LATE = {
    "only in the whole response": [
        item("function_call", arguments=""),
        {**DONE, "arguments": ""},
        item("function_call", "done", arguments=""),
    ],
    "only in the whole response, done alone": [{**DONE, "arguments": ""}],
    "only in the done event": [item("function_call", arguments=""), {**DONE, "arguments": '{"a":1}'}],
    "only in the done item": [item("function_call", "done", arguments='{"a":1}')],
    "everywhere": [
        item("function_call", arguments=""),
        {"type": "response.function_call_arguments.delta", "item_id": "item_0", "output_index": 0, "delta": '{"a":1}'},
        {**DONE, "arguments": '{"a":1}'},
        item("function_call", "done", arguments='{"a":1}'),
    ],
}


@pytest.mark.parametrize("name", LATE)
def test_arguments_that_come_late(name: str) -> None:
    """C219: one call, with the full arguments, wherever they come."""
    message = response(*LATE[name], end=WHOLE)
    assert (offered(message), message.invalid_tool_calls) == ([("call_0", "f", '{"a":1}')], ())


@pytest.mark.parametrize("kind", ["computer_call", "local_shell_call", "apply_patch_call", "mcp_approval_request"])
def test_calls_of_other_kinds_do_not_vanish(kind: str) -> None:
    """The client is to answer them, in a way of their own: they are not among the calls to run, and not lost."""
    message = response(item(kind, "done", action={"type": "click"}, arguments="{}", operation={"type": "create"}))
    assert message.tool_calls == ()
    assert [(call.kind, call.invalid_reason) for call in message.invalid_tool_calls] == [(kind, "unsupported_kind")]


def test_calls_that_the_server_answers_are_left_out() -> None:
    """A web search of a response, a server's tool of a message."""
    message = response(item("web_search_call", "done"), item("mcp_call", "done", index=1, arguments="{}"))
    assert (message.tool_calls, message.invalid_tool_calls) == ((), ())
    assembler = AnthropicAssembler()
    assembler.add({"type": "content_block_start", "index": 0, "content_block": {"type": "server_tool_use", "id": "s"}})
    assert assembler.message(True).invalid_tool_calls == ()


def test_an_anthropic_pause_offers_none() -> None:
    """`pause_turn`: the server goes on with the turn."""
    assembler = AnthropicAssembler()
    block = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    assembler.add({"type": "content_block_start", "index": 0, "content_block": block})
    assembler.add({"type": "message_delta", "delta": {"stop_reason": "pause_turn"}})
    assert [call.invalid_reason for call in assembler.message(True).invalid_tool_calls] == ["finish_reason: pause_turn"]


def calls_made(make: Any, size: int) -> int:
    """Return how many functions are called, in Python and in C, for the pieces that *make* makes."""
    assembler = MessageAssembler()
    chunks = [chunk({"tool_calls": [each]}) for each in make(size)]
    count = 0

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        for each in chunks:
            assembler.add(each)
        assembler.message(True)
    finally:
        sys.setprofile(None)
    return count


STRUCTURES = {
    "thousands of calls without an index": lambda n: [piece("{}", id=f"c{k}", name="f") for k in range(n)],
    "a name in thousands of pieces": lambda n: [piece(index=0, name=f"n{k}") for k in range(n)],
    "a name with each of many pieces": lambda n: [piece('{"a":' if k == 0 else "1", index=0, name="f") for k in range(n)],
    "one call, repeated": lambda n: [piece(json.dumps({"a": "x" * 50}), index=0, id="c", name="f") for _ in range(n)],
    "no keys at all": lambda n: [piece("1") for _ in range(n)],
    "one index, other arguments": lambda n: [piece(json.dumps({"a": k}), index=0, name="f") for k in range(n)],
}


@pytest.mark.parametrize("name", STRUCTURES)
def test_the_work_is_linear_in_the_structure(name: str) -> None:
    """Eight times the pieces take about eight times the calls of functions (H3): quadratic work would take sixty-four."""
    make = STRUCTURES[name]
    assert calls_made(make, 2_000) < 10 * calls_made(make, 250)


def test_a_tool_call_is_a_value() -> None:
    """Equal calls are equal; a call of our own making needs its three fields only."""
    assert ToolCall("a", "f", "{}") == ToolCall("a", "f", "{}", "function", None)
    assert ToolCall("a", "f", "{}").usable
    assert not ToolCall("a", "f", "[]").usable
    assert not any(ToolCall(*texts).usable for texts in itertools.product(("a",), ("",), ("{}", "")))
