"""The assembled message: text, reasoning, choices, usage, and tool calls only when they may be called."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard._sse import Chunk, Message, MessageAssembler, ToolCall
from tests.sse.test_chunk import CHUNKS


def chunk(delta: Any = None, *, index: Any = 0, **choice: Any) -> Chunk:
    return Chunk(choices=[{"index": index, "delta": {} if delta is None else delta, "finish_reason": None, **choice}])


def piece(arguments: Any = "", *, index: Any = 0, **more: Any) -> dict[str, Any]:
    function = {key: more.pop(key) for key in ("name",) if key in more}
    made = {"index": index, "function": {**function, "arguments": arguments}, **more}
    return {key: value for key, value in made.items() if key != "index" or value is not None}


def calls(*pieces: dict[str, Any]) -> Chunk:
    return chunk({"tool_calls": list(pieces)})


def assemble(*chunks: dict[str, Any], complete: bool = True) -> Message:
    assembler = MessageAssembler()
    for made in chunks:
        assembler.add(made)
    return assembler.message(complete)


def called(*chunks: dict[str, Any], finish_reason: Any = "tool_calls", complete: bool = True) -> Message:
    return assemble(*chunks, chunk(finish_reason=finish_reason), complete=complete)


WEATHER = (calls(piece(id="c1", name="weather")), calls(piece('{"city":')), calls(piece('"Oslo"}')))


def test_nothing_makes_an_empty_message() -> None:
    """No chunk: no text, no reason, and usage unknown rather than zero (B078)."""
    assert assemble(complete=False) == Message()
    assert Message().usage is None


def test_pieces_are_joined_in_order() -> None:
    """Text, reasoning and refusal each in their own field."""
    message = assemble(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning_content": "h"}),
        chunk({"reasoning": "m"}),
        chunk({"content": "a"}),
        chunk({"content": [{"type": "text", "text": "b"}], "refusal": "n"}),
        chunk({"content": "c", "refusal": "o"}),
        chunk({"content": None}, finish_reason="stop"),
    )
    assert message == Message(text="abc", reasoning="hm", refusal="no", finish_reason="stop")


def test_legacy_completions_are_joined() -> None:
    """`choices[].text` is text as well."""
    assert assemble(*(Chunk(choices=[{"text": text}]) for text in "ab")).text == "ab"


def test_text_so_far_is_there_at_any_time() -> None:
    """Also before anything came."""
    assembler = MessageAssembler()
    seen = [assembler.text]
    for text in "abc":
        assembler.add(chunk({"content": text}))
        seen.append(assembler.text)
    assert seen == ["", "a", "ab", "abc"]


def test_a_character_in_two_chunks_is_one() -> None:
    """JSON writes some as pairs of surrogates, and servers cut between them; half of one becomes U+FFFD."""
    assert assemble(chunk({"content": "a\ud83d"}), chunk({"content": "\ude00b"})).text == "a\U0001f600b"
    assert assemble(chunk({"content": "a\ud83d"})).text == "a\ufffd"
    assert assemble(chunk({"reasoning": "\ud83d"}), chunk({"reasoning": "\ude00"})).reasoning == "\U0001f600"


def test_a_message_instead_of_a_delta() -> None:
    """Some servers put the whole message into one frame; beside or behind deltas it is a repetition."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    whole = Chunk(choices=[{"message": {"content": "all", "tool_calls": [call]}, "finish_reason": "tool_calls"}])
    message = assemble(whole)
    assert (message.text, [made.name for made in message.tool_calls]) == ("all", ["f"])
    both = Chunk(choices=[{"delta": {"content": "b"}, "message": {"content": "ab"}}])
    assert assemble(chunk({"content": "a"}), both).text == "ab"
    assert assemble(chunk({"content": "al"}), chunk({"content": "l"}), whole).text == "all"
    piece = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    behind = assemble(chunk({"tool_calls": [piece]}), whole)
    assert ([made.arguments for made in behind.tool_calls], behind.invalid_tool_calls) == (["{}"], ())


@given(st.lists(CHUNKS, max_size=5), st.booleans())
def test_no_chunk_breaks_the_message(chunks: list[dict[str, Any]], complete: bool) -> None:
    """Any JSON where a chunk was expected adds what can be read of it."""
    message = assemble(*chunks, complete=complete)
    assert isinstance(message.text, str)
    assert complete or message.tool_calls == ()


@given(st.lists(st.tuples(st.integers(0, 2), st.text(max_size=3)), max_size=20))
def test_the_message_is_the_sum_of_the_chunks(parts: list[tuple[int, str]]) -> None:
    """The chunks' texts, joined, are the message's; each choice has its own."""
    chunks = [chunk({"content": text}, index=index) for index, text in parts]
    message = assemble(*chunks)
    assert message.text == "".join(made.text for made in chunks)
    for made, index in zip(message.choices, sorted({index for index, _ in parts}), strict=bool(message.choices)):
        assert made.text == "".join(text for at, text in parts if at == index)


def test_several_choices_are_kept_apart() -> None:
    """With n > 1 there is a message per choice, by index; the fields are choice 0's."""
    message = assemble(
        Chunk(choices=[{"index": 1, "delta": {"content": "b"}}, {"index": 0, "delta": {"content": "a"}}]),
        chunk({}, index=1, finish_reason="length"),
        chunk({}, index=0, finish_reason="stop"),
        Chunk(choices=[], usage={"total_tokens": 9}),
    )
    first, second = Message(text="a", finish_reason="stop"), Message(text="b", finish_reason="length")
    assert message == Message(text="a", finish_reason="stop", usage={"total_tokens": 9}, choices=(first, second))


def test_one_choice_needs_no_list() -> None:
    """`choices` is empty for the ordinary case, and names the only choice if its index is not 0."""
    assert assemble(chunk({"content": "a"})).choices == ()
    assert [made.text for made in assemble(chunk({"content": "a"}, index=3)).choices] == ["a"]


@pytest.mark.parametrize("usage", [None, {}, [], 0, "x"])
def test_usage_is_the_last_real_one_or_unknown(usage: Any) -> None:
    """null and empty usage do not wipe out what was reported, and never become zero."""
    assert assemble(chunk({"content": "a"}), Chunk(choices=[], usage=usage)).usage is None
    assert assemble(Chunk(usage={"total_tokens": 1}), Chunk(usage={"total_tokens": 2}), Chunk(usage=usage)).usage == {
        "total_tokens": 2
    }


def test_the_last_finish_reason_counts() -> None:
    """Some servers stamp a reason on each chunk, or go on after a tool round of their own (C201, C202)."""
    assert assemble(chunk(finish_reason="stop"), chunk(finish_reason="length")).finish_reason == "length"
    assert assemble(chunk(finish_reason=""), chunk(finish_reason="stop")).finish_reason == "stop"
    assert assemble(chunk({"content": "x"}, finish_reason="stop")).finish_reason == "stop"


def test_tool_calls_are_put_together() -> None:
    """The pieces of one index become one call, and its arguments can be read."""
    message = called(*WEATHER)
    assert message.tool_calls == (ToolCall("c1", "weather", '{"city":"Oslo"}'),)
    assert message.tool_calls[0].parse() == {"city": "Oslo"}
    assert message.invalid_tool_calls == ()


@pytest.mark.parametrize("finish_reason", ["stop", "tool_calls", "function_call"])
def test_any_proper_end_offers_the_calls(finish_reason: str) -> None:
    """Some servers end a message with calls by "stop"."""
    assert len(called(*WEATHER, finish_reason=finish_reason).tool_calls) == 1


@pytest.mark.parametrize(
    ("finish_reason", "complete", "why"),
    [
        ("length", True, "finish_reason: length"),
        ("content_filter", True, "finish_reason: content_filter"),
        ("pause_turn", True, "finish_reason: pause_turn"),
        (None, True, "no_finish_reason"),
        ("", True, "no_finish_reason"),
        ("tool_calls", False, "incomplete_answer"),
        (None, False, "incomplete_answer"),
    ],
)
def test_a_message_that_was_cut_offers_no_calls(finish_reason: str | None, complete: bool, why: str) -> None:
    """Not even those whose arguments happen to be whole: they are listed as not to be made (B087)."""
    message = called(*WEATHER, finish_reason=finish_reason, complete=complete)
    assert message.tool_calls == ()
    assert message.invalid_tool_calls == (ToolCall("c1", "weather", '{"city":"Oslo"}', invalid_reason=why),)


@pytest.mark.parametrize("arguments", ['{"city":', '{"a":1}{"b":2}', "city=Oslo", "{'a': 1}", "[" * 100_000])
def test_unreadable_arguments_are_kept_apart(arguments: str) -> None:
    """The good call is offered, the bad one is not."""
    message = called(*WEATHER, calls(piece(arguments, index=1, id="c2", name="bad")))
    assert [call.id for call in message.tool_calls] == ["c1"]
    assert message.invalid_tool_calls == (ToolCall("c2", "bad", arguments, invalid_reason="incomplete_arguments"),)
    with pytest.raises(ValueError, match=r"."):
        message.invalid_tool_calls[0].parse()


@pytest.mark.parametrize("arguments", ["", " ", None])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    """A function without parameters is called with `{}`."""
    (call,) = called(calls(piece(arguments, id="c1", name="now"))).tool_calls
    assert call.parse() == {}


def test_a_call_without_a_name_cannot_be_made() -> None:
    """It is listed as invalid."""
    message = called(calls(piece("{}", id="c1")))
    assert message.tool_calls == ()
    assert message.invalid_tool_calls == (ToolCall("c1", "", "{}", invalid_reason="no_name"),)


PARALLEL = (ToolCall("c1", "f", '{"x":1}'), ToolCall("c2", "g", '{"y":2}'))


@pytest.mark.parametrize(
    "chunks",
    [
        # by index, interleaved
        [
            calls(piece(id="c1", name="f"), piece(index=1, id="c2", name="g")),
            calls(piece('{"y":', index=1), piece('{"x":')),
            calls(piece("1}")),
            calls(piece("2}", index=1)),
        ],
        # no index: by id
        [
            calls(piece('{"x":', index=None, id="c1", name="f"), piece('{"y":', index=None, id="c2", name="g")),
            calls(piece("1}", index=None, id="c1")),
            calls(piece("2}", index=None, id="c2")),
        ],
        # no index, the id only in the first piece: the last call goes on
        [
            calls(piece(index=None, id="c1", name="f")),
            calls(piece('{"x":', index=None)),
            calls(piece("1}", index=None)),
            calls(piece('{"y":', index=None, id="c2", name="g")),
            calls(piece("2}", index=None)),
        ],
        # every call has index 0, whole, with an id of its own
        [calls(piece('{"x":1}', id="c1", name="f")), calls(piece('{"y":2}', id="c2", name="g"))],
        # id and name are repeated with every piece
        [
            calls(piece('{"x":', id="c1", name="f"), piece('{"y":', index=1, id="c2", name="g")),
            calls(piece("1}", id="c1", name="f"), piece("2}", index=1, id="c2", name="g")),
        ],
        # arguments as an object
        [calls(piece({"x": 1}, id="c1", name="f"), piece({"y": 2}, index=1, id="c2", name="g"))],
    ],
    ids=["index", "id", "last", "all-zero", "repeated", "objects"],
)
def test_the_ways_in_which_servers_number_parallel_calls(chunks: list[Chunk]) -> None:
    """Every one of them gives the same two calls."""
    message = called(*chunks)
    assert [(call.id, call.name, call.parse()) for call in message.tool_calls] == [
        (call.id, call.name, call.parse()) for call in PARALLEL
    ]


def test_calls_without_index_and_id_begin_with_a_name() -> None:
    """A new name behind arguments is a new call."""
    message = called(calls(piece("{}", index=None, name="f")), calls(piece("{}", index=None, name="g")))
    assert message.tool_calls == (ToolCall("", "f", "{}"), ToolCall("", "g", "{}"))


def test_ids_that_change_with_every_piece_do_not_tear_a_call_apart() -> None:
    """Only an id that comes with a name begins a call anew; the first id stays."""
    message = called(
        calls(piece(id="c1", name="f")), calls(piece('{"x":', id="c7")), calls(piece("1}", id="c8")), calls(piece(id=None))
    )
    assert message.tool_calls == PARALLEL[:1]


def test_a_name_in_pieces_is_joined() -> None:
    """Though nearly every server sends it whole."""
    for index in (0, None):
        message = called(calls(piece(index=index, name="get_")), calls(piece("{}", index=index, name="time")))
        assert message.tool_calls == (ToolCall("", "get_time", "{}"),)


@pytest.mark.parametrize("broken", [None, {}, 1, "x", [], {"index": 0}, {"index": 0, "function": None}])
def test_broken_pieces_are_skipped(broken: Any) -> None:
    """null, empty and misshapen pieces neither raise nor add a call."""
    assert called(WEATHER[0], calls(broken), *WEATHER[1:]).tool_calls == called(*WEATHER).tool_calls
    assert called(calls(broken)) == Message(finish_reason="tool_calls")


def test_the_function_call_of_old_is_a_tool_call() -> None:
    """Deltas of the time before `tool_calls` are read as one call without an id."""
    message = called(
        chunk({"function_call": {"name": "f", "arguments": ""}}),
        chunk({"function_call": {"arguments": '{"x":1}'}}),
        finish_reason="function_call",
    )
    assert message.tool_calls == (ToolCall("", "f", '{"x":1}'),)


def test_each_choice_has_its_own_calls() -> None:
    """The calls of a choice that was cut by length are not offered, those of the other are."""
    message = assemble(
        *(chunk({"tool_calls": [piece("{}", id=f"c{n}", name="f")]}, index=n) for n in (0, 1)),
        chunk(finish_reason="length"),
        chunk(index=1, finish_reason="tool_calls"),
    )
    assert [len(made.tool_calls) for made in message.choices] == [0, 1]
    assert message.tool_calls == ()


@pytest.mark.parametrize(
    "made", [chunk({"content": "x" * 50}), calls(piece("x" * 50, id="c1", name="f"))], ids=["text", "call"]
)
def test_adding_is_linear(made: Chunk) -> None:
    """A hundred thousand pieces, 5 MB, take a fraction of a second; copying all of it each time would take minutes."""
    assembler = MessageAssembler()
    start = time.process_time()
    for _ in range(100_000):
        assembler.add(made)
    message = assembler.message(complete=True)
    assert len(message.text) + sum(len(call.arguments) for call in message.invalid_tool_calls) == 5_000_000
    assert time.process_time() - start < 10
