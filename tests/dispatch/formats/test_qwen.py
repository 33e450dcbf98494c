"""Qwen Code: frames recorded from qwen-code 0.15.10 (C237, C233)."""

from typing import Any

import pytest

from streamguard.dispatch._data.turn_events import Kind

from .frames import answer, brief, delta, read, stream_event

INIT = {"type": "system", "subtype": "init", "session_id": "s1", "model": "scripted", "permission_mode": "yolo"}
BLOCK = stream_event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})
START = stream_event({"type": "message_start", "message": {"id": "m1", "role": "assistant", "content": []}})


def assistant(text: str, tokens: int) -> dict[str, Any]:
    content = [{"type": "text", "text": text}]
    usage = {"input_tokens": tokens, "output_tokens": tokens}
    return {"type": "assistant", "message": {"id": "m1", "role": "assistant", "content": content, "usage": usage}}


def result(text: str, **fields: Any) -> dict[str, Any]:
    usage = {"input_tokens": 2, "output_tokens": 4}
    return {"type": "result", "subtype": "success", "is_error": False, "result": text, "usage": usage, **fields}


def text_delta(text: str) -> dict[str, Any]:
    return delta("text_delta", "text", text)


def test_an_answer() -> None:
    """The text comes once, the session is named, and the result line ends the run."""
    lines = [INIT, START, BLOCK, text_delta("Hello "), text_delta("world"), assistant("Hello world", 2)]
    events = read("qwen", *lines, result("Hello world"))
    assert answer(events) == "Hello world"
    assert [event.session_id for event in events if event.kind is Kind.SESSION] == ["s1"]
    assert brief(events)[-1] == ("done",)


@pytest.mark.parametrize("streamed", [True, False], ids=["partial messages", "whole messages"])
def test_a_refused_request_is_a_failure(streamed: bool) -> None:
    """qwen reports `success` with the error as its text (C233): it is a failure with the server's words, and no answer."""
    text = "[API Error: 401 bad key]"
    deltas = [START, BLOCK, text_delta(text)] if streamed else []
    events = read("qwen", INIT, *deltas, assistant(text, 0), result(text))
    assert answer(events) == ""
    assert brief(events)[-2:] == [("error", "401 bad key", "provider_error"), ("done", "provider_error")]


def test_an_error_in_the_middle_of_an_answer_is_a_failure() -> None:
    """The words before it are kept; the run fails with the server's words."""
    deltas = [START, BLOCK, text_delta("Hel"), text_delta("[API Error: overloaded now]")]
    text = "Hel[API Error: overloaded now]"
    events = read("qwen", INIT, *deltas, assistant(text, 0), result(text))
    assert answer(events) == "Hel"
    assert brief(events)[-2:] == [("error", "overloaded now", "provider_error"), ("done", "provider_error")]


def test_a_model_may_quote_an_error() -> None:
    """Text that looks the same is an answer if tokens were used for it."""
    text = "[API Error: 401 bad key]"
    events = read("qwen", INIT, START, BLOCK, text_delta(text), assistant(text, 7), result(text))
    assert answer(events) == text
    assert brief(events)[-1] == ("done",)


def test_an_error_that_was_overcome_is_not_the_result() -> None:
    """The last message decides."""
    error = "[API Error: 503]"
    lines = [START, BLOCK, text_delta(error), assistant(error, 0), START, BLOCK, text_delta("fine"), assistant("fine", 3)]
    assert brief(read("qwen", INIT, *lines, result("fine")))[-1] == ("done",)


def test_an_error_result_has_the_programs_words() -> None:
    """`error.message` of the result frame is the failure's text (C233)."""
    frame = result("", subtype="error_during_execution", is_error=True, error={"message": "no such model"})
    code = "error_during_execution"
    assert brief(read("qwen", INIT, frame, exit_code=1))[-2:] == [("error", "no such model", code), ("done", code)]
