"""What a finish reason is worth: it may stand in every chunk, come twice, or before the real answer."""

import contextlib
from typing import Any

import pytest

from streamguard import IncompleteStreamError, StreamInactivityTimeoutError, guard, guarded_stream, has_content
from streamguard.testing import Gateway

from ..helpers import PROMPT, Serve
from .helpers import Run, ask, choice, consume, line, script
from .sources import wire

CALL = {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
EVERYWHERE = script(
    line(choice(finish="stop", role="assistant", reasoning_content="hm")),
    "wait 1.5",
    line(choice("42", finish="stop")),
    "done",
)


def through_openai(gateway: Gateway, **options: Any) -> Run:
    """Run a chat stream through openai's client and guard()."""
    with contextlib.ExitStack() as stack:
        client = wire.openai_client(gateway, stack)
        answer = client.chat.completions.create(model="m", messages=wire.QUESTION, stream=True)
        return consume(guard(answer, **options))


@pytest.mark.parametrize("play", [ask, through_openai])
def test_a_finish_reason_in_every_chunk(streamguard_gateway: Serve, play: Any) -> None:
    """C201: pauses above the grace between chunks that all have a finish reason do not end the stream."""
    run = play(streamguard_gateway(EVERYWHERE), idle=10, end_grace=0.3)
    assert (run.error, run.stream.text, run.stream.report.outcome) == (None, "42", "completed")


@pytest.mark.parametrize(
    "first",
    [choice(finish="stop", role="assistant"), choice("", finish="stop", role="assistant"), choice("a", finish="length")],
)
def test_the_first_chunk_has_the_finish_reason_already(streamguard_gateway: Serve, first: dict[str, Any]) -> None:
    """C201: neither an announced role nor a text with a finish reason starts the grace."""
    gateway = streamguard_gateway(script(line(first), "wait 0.6", line(choice("b", finish="stop")), "done"))
    run = ask(gateway, idle=10, end_grace=0.2)
    assert (run.error, run.texts[-1:], run.stream.report.ended_by) == (None, ["b"], "done")


def test_the_grace_stays_off(streamguard_gateway: Serve) -> None:
    """C201: content after a finish reason turns the grace off: a later finish reason without content starts none."""
    lines = [line(choice(finish="stop")), line(choice("b")), line(choice(finish="stop"))]
    gateway = streamguard_gateway(script("chat a", lines, "wait 0.6", line(choice("c", finish="stop")), "done"))
    run = ask(gateway, idle=10, end_grace=0.2)
    assert (run.error, run.texts, run.stream.report.ended_by) == (None, ["a", "b", "c"], "done")


def test_a_tool_round_of_the_servers_own(streamguard_gateway: Serve) -> None:
    """C202: the real answer that follows the finish reason of a tool call is part of the stream."""
    head = [line(choice(tool_calls=[CALL])), line(choice(finish="tool_calls"))]
    gateway = streamguard_gateway(script(head, "wait 1.5", line(choice("final")), line(choice(finish="stop")), "done"))
    run = ask(gateway)
    assert (run.error, run.texts, run.stream.report.ended_by) == (None, ["final"], "done")


@pytest.mark.parametrize("end", ["end", "stall"])
def test_an_answer_that_goes_on_needs_another_finish_reason(streamguard_gateway: Serve, end: str) -> None:
    """C202: what is cut in the middle of the real answer is not complete by the finish reason before it."""
    gateway = streamguard_gateway(script("chat a", line(choice(finish="tool_calls")), line(choice("fin")), end))
    run = ask(gateway, idle=0.4, end_grace=0.1)
    assert isinstance(run.error, IncompleteStreamError | StreamInactivityTimeoutError)
    assert run.stream.report.ended_by == "error"


def test_usage_comes_late(streamguard_gateway: Serve) -> None:
    """C203: usage that is flushed a second and a half after the finish reason is in the report."""
    run = ask(streamguard_gateway("chat a\nfinish\nwait 1.5\nusage 3 4\ndone"))
    assert (run.error, run.stream.report.ended_by) == (None, "done")
    assert run.stream.report.usage is not None


def test_a_server_that_lingers(streamguard_gateway: Serve) -> None:
    """C204: without [DONE], the grace completes the stream, and the report says so."""
    run = ask(streamguard_gateway("chat a\nfinish\nlinger"), idle=60)
    report = run.stream.report
    assert (run.error, report.outcome, report.ended_by) == (None, "completed", "end_grace")
    assert 3.0 <= report.lifetime < 3.0 + PROMPT
    assert report.to_dict()["ended_by"] == "end_grace"


@pytest.mark.parametrize(
    ("tail", "options"),
    [
        ([line(choice("b", finish="stop")), "stall"], {}),
        (["finish", line(choice("b", finish="stop")), "stall"], {}),
        (["finish", "stall"], {"end_grace": None}),
        (["finish", "loop forever\ncomment hb\nwait 0.05\nendloop"], {"end_grace": None}),
        ([line(choice("b", finish="stop")), "stall"], {"counts": has_content, "first": 0.4}),
        ([line(choice("b", finish="stop")), "stall"], {"idle": 30, "dead": 0.4}),
    ],
)
def test_silence_completes_where_no_grace_runs(
    streamguard_gateway: Serve, tail: list[str], options: dict[str, Any]
) -> None:
    """C201: after the finish reason of every choice, the end of `idle` is not a timeout."""
    run = ask(streamguard_gateway(script("chat a", tail)), **{"idle": 0.4, "end_grace": 0.1, **options})
    report = run.stream.report
    assert (run.error, report.outcome, report.ended_by, report.error_type) == (None, "completed", "idle", None)
    assert report.lifetime >= 0.4
    assert report.max_gap is not None
    assert report.max_gap >= 0.4


TWO = {"stream": True, "n": 2}
FIRST = script(line(choice("a")), line(choice(finish="stop")))
SECOND = script(line(choice("b", index=1)), line(choice(index=1, finish="stop")))


def test_every_choice_that_was_asked_for(streamguard_gateway: Serve) -> None:
    """C201: with `n`, the grace waits for choices of which nothing has come yet."""
    run = ask(streamguard_gateway(f"{FIRST}\nwait 0.5\n{SECOND}\nlinger"), json=TWO, idle=5, end_grace=0.2)
    assert (run.error, run.stream.report.ended_by) == (None, "end_grace")
    assert [message.text for message in run.stream.message.choices] == ["a", "b"]


@pytest.mark.parametrize(("end", "kind"), [("end", IncompleteStreamError), ("stall", StreamInactivityTimeoutError)])
def test_a_choice_that_never_comes(streamguard_gateway: Serve, end: str, kind: type[Exception]) -> None:
    """C201: an end without one of the choices that were asked for is not complete; [DONE] says that it is."""
    run = ask(streamguard_gateway(f"{FIRST}\n{end}"), json=TWO, idle=0.3, end_grace=0.1)
    assert isinstance(run.error, kind)
    assert ask(streamguard_gateway(f"{FIRST}\ndone"), json=TWO).error is None


@pytest.mark.parametrize("number", [True, "2", 0, -1, 1, None, 2.0])
def test_a_number_of_choices_that_says_nothing(streamguard_gateway: Serve, number: object) -> None:
    """C201: an `n` that is not a whole number above one is left to the server."""
    run = ask(streamguard_gateway(f"{FIRST}\nend"), json={"n": number})
    assert (run.error, run.stream.report.ended_by) == (None, "eof")


def test_a_block_after_the_stop_reason(streamguard_gateway: Serve) -> None:
    """C202: a message of the Messages API that goes on after its stop reason is not complete by it."""
    stop = wire.event(type="message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 9})
    more = wire.anthropic_text("final")
    gateway = streamguard_gateway(f"{wire.ANTHROPIC_START}\n{stop}\nwait 0.4\n{more}\n{wire.ANTHROPIC_END}")
    run = ask(gateway, decode="anthropic", end_grace=5)
    assert (run.error, run.stream.text, run.stream.report.ended_by) == (None, "hellofinal", "done")
    run = ask(streamguard_gateway(f"{wire.ANTHROPIC_START}\n{stop}\n{more}\nend"), decode="anthropic")
    assert isinstance(run.error, IncompleteStreamError)


def test_what_ended_a_stream(streamguard_gateway: Serve) -> None:
    """C203: done, eof, closed, cancelled and error are in the report; while it runs there is nothing."""
    gateway = streamguard_gateway("chat a\nchat b\nend")
    assert ask(gateway, strict=False).stream.report.ended_by == "eof"
    assert ask(gateway, strict=True).stream.report.ended_by == "error"
    assert ask(gateway, decode="events").stream.report.ended_by == "eof"


@pytest.mark.parametrize("word", ["close", "cancel"])
def test_what_the_caller_ended(streamguard_gateway: Serve, word: str) -> None:
    """C203: a close and a cancel of the caller's are in the report."""
    stream = guarded_stream("POST", streamguard_gateway("chat a\nstall").url)
    next(stream)
    assert stream.report.ended_by is None
    getattr(stream, word)()
    consume(stream)
    assert stream.report.ended_by == {"close": "closed", "cancel": "cancelled"}[word]


def test_the_silence_that_ended_it_is_a_gap(streamguard_gateway: Serve) -> None:
    """`max_gap` has the silence of a timeout, which no chunk ends."""
    run = ask(streamguard_gateway("chat a\nchat b\nstall"), idle=0.3)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert run.stream.report.max_gap is not None
    assert run.stream.report.max_gap >= 0.3
    assert ask(streamguard_gateway("headers\nstall"), first=0.2).stream.report.max_gap is None
