"""Chat endpoints as members: which events count, the only timer, error codes, and stops."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamguard import Timeouts, UsageError
from streamguard.dispatch import Dispatcher, DispatchOutcome, StreamMember
from streamguard.dispatch._turn.channel import MemberEvent
from streamguard.testing import Gateway

from ...helpers import wait_until
from ..scripted import kinds, of, says

T = 0.4

ANSWER = ["chat Hello", "chat , world", "finish", "usage 5 2", "done"]


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    with Dispatcher() as dispatcher:
        yield dispatcher


def run(dispatcher: Dispatcher, *members: Any, **options: Any) -> tuple[list[MemberEvent], DispatchOutcome]:
    with dispatcher.stream("c", members, "a prompt", **{"output_timeout": T, **options}) as stream:
        return list(stream), stream.outcome


def test_an_answer(dispatcher: Dispatcher, streamguard_gateway: Callable[..., Gateway]) -> None:
    """Text is output, usage is not; `done` has usage and finish reason; the request has the prompt."""
    gateway = streamguard_gateway(["reasoning Hm.", *ANSWER])
    events, outcome = run(dispatcher, StreamMember("a", gateway.url, model="m"))
    thinking, *words, done = [event for event in of(events, "a") if event.kind != "status"]
    assert (thinking.kind, thinking.text) == ("thinking", "Hm.")
    assert [word.text for word in words] == ["Hello", ", world"]
    assert (done.data["usage"]["prompt_tokens"], done.data["finish_reason"]) == (5, "stop")
    assert (outcome["a"].text, outcome["a"].status) == ("Hello, world", "completed")
    assert gateway.requests[0].body == (
        b'{"model": "m", "messages": [{"role": "user", "content": "a prompt"}], "stream": true}'
    )


def test_a_silent_endpoint_is_stopped_and_the_server_sees_it(
    dispatcher: Dispatcher, streamguard_gateway: Callable[..., Gateway]
) -> None:
    """R28: the output timeout closes the connection; the response does not claim that the remote work ended."""
    gateway = streamguard_gateway(["chat Hello", "stall"])
    events, outcome = run(dispatcher, StreamMember("a", gateway.url, model="m"))
    assert (outcome["a"].status, outcome["a"].reason, outcome["a"].text) == ("failed", "timeout", "Hello")
    assert outcome["a"].remote_termination == "unconfirmed"
    assert kinds(of(events, "a"))[-2:] == ["error", "done"]
    wait_until(lambda: gateway.requests[0].left)
    (response,) = dispatcher.records.responses(outcome.execution_id)
    assert response.metadata is not None
    assert response.metadata["remote_termination"] == "unconfirmed"


def test_comments_are_signals_and_no_output(dispatcher: Dispatcher, streamguard_gateway: Callable[..., Gateway]) -> None:
    """R3: heartbeat comments re-arm nothing; they are named in the diagnosis."""
    gateway = streamguard_gateway(["chat Hello", "loop forever", "comment ping", "wait 0.05", "endloop"])
    _, outcome = run(dispatcher, StreamMember("a", gateway.url, model="m", heartbeat=0.1))
    diagnosis = outcome["a"].diagnosis
    assert diagnosis is not None
    assert (diagnosis["last_signal_kind"], diagnosis["uncounted"]["signal"] >= 1) == ("signal", True)
    assert diagnosis["silence"] >= T


def test_there_is_no_second_timer(
    dispatcher: Dispatcher, streamguard_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    """T36: the default limits of streams, and those of the environment, do not fire; there is one request."""
    monkeypatch.setenv("STREAMGUARD_IDLE", "0.1")
    monkeypatch.setenv("STREAMGUARD_TOTAL", "0.2")
    gateway = streamguard_gateway(["wait 0.4", *ANSWER])
    _, outcome = run(dispatcher, StreamMember("a", gateway.url, model="m"), output_timeout=20)
    assert outcome["a"].status == "completed"
    silent = streamguard_gateway(["stall"])
    _, outcome = run(dispatcher, StreamMember("a", silent.url, model="m"))
    assert (outcome["a"].reason, len(silent.requests)) == ("timeout", 1)


def test_explicit_limits_are_the_streams_own(dispatcher: Dispatcher, streamguard_gateway: Callable[..., Gateway]) -> None:
    """T36, C241: limits and retries that are given apply; the reason names the limit, and is not the turn's timeout."""
    gateway = streamguard_gateway(["comment hello", "stall"])
    member = StreamMember("a", gateway.url, model="m", timeouts=Timeouts(idle=0.1, first=0.1), retry=1)
    _, outcome = run(dispatcher, member, output_timeout=20)
    assert (outcome["a"].status, outcome["a"].reason, outcome["a"].signal) == (
        "failed",
        "first_timeout",
        "provider_timeout",
    )
    assert len(gateway.requests) == 2


def test_the_start_up_limit_bounds_each_phase_before_the_first_chunk(
    dispatcher: Dispatcher, streamguard_gateway: Callable[..., Gateway]
) -> None:
    """R26, C241: `first=` has an error code of its own, a timeout, and does not end a stream that has started."""
    gateway = streamguard_gateway(["stall"], ["chat Hello", "wait 0.4", *ANSWER[1:]])
    _, outcome = run(dispatcher, StreamMember("a", gateway.url, model="m"), output_timeout=20, first=0.2)
    assert (outcome["a"].status, outcome["a"].reason, outcome["a"].signal) == (
        "failed",
        "startup_timeout",
        "provider_timeout",
    )
    _, outcome = run(dispatcher, StreamMember("a", gateway.url, model="m"), output_timeout=20, first=0.2)
    assert outcome["a"].status == "completed"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (["headers 503"], "http_503"),
        (["chat Hello", "error overloaded"], "error_in_stream"),
        (["chat Hello"], "incomplete_stream"),
        (["comment only"], "empty_stream"),
        (["chat Hello", "reset"], "ECONNRESET"),
        (["raw data: {nonsense\\n\\n"], "malformed_chunk"),
        (["headers 200 content-type: text/html", "raw <html>"], "not_an_event_stream"),
    ],
)
def test_failures_have_their_own_codes(
    dispatcher: Dispatcher, streamguard_gateway: Callable[..., Gateway], script: list[str], reason: str
) -> None:
    """Each failure has its code, the sentence of the error, one `error` and one `done`."""
    gateway = streamguard_gateway(script)
    events, outcome = run(dispatcher, StreamMember("a", gateway.url, model="m"), says("b", "x"), output_timeout=20)
    assert (outcome["a"].status, outcome["a"].reason, outcome["b"].status) == ("failed", reason, "completed")
    assert kinds(of(events, "a"))[-2:] == ["error", "done"]
    assert kinds(of(events, "a")).count("error") == 1
    assert outcome["a"].message


def test_a_user_stop_cuts_the_connection(dispatcher: Dispatcher, streamguard_gateway: Callable[..., Gateway]) -> None:
    """A user's stop closes the connection; the response is cancelled, without `error`."""
    gateway = streamguard_gateway(["chat Hello", "stall"])
    with dispatcher.stream("c", [StreamMember("a", gateway.url, model="m")], "p") as stream:
        next(stream)
        assert stream.stop("a")
        events = list(stream)
    assert kinds([event.event for event in events])[-1:] == ["done"]
    assert "error" not in kinds([event.event for event in events])
    assert stream.outcome["a"].status == "cancelled"
    wait_until(lambda: gateway.requests[0].left)


def test_pieces_of_tool_calls_are_output(dispatcher: Dispatcher, streamguard_gateway: Callable[..., Gateway]) -> None:
    """Pieces of a tool call's arguments are output, with the tool's name and id."""
    call = '{"index": 0, "id": "t1", "function": {"name": "look", "arguments": "{}"}}'
    gateway = streamguard_gateway([f'event {{"choices": [{{"delta": {{"tool_calls": [{call}]}}}}]}}', *ANSWER[2:]])
    events, _ = run(dispatcher, StreamMember("a", gateway.url, payload=lambda prompt: {"ask": prompt}))
    (piece,) = (event for event in of(events, "a") if event.kind == "tool_call")
    assert (piece.tool, piece.tool_id, piece.text, piece.is_output) == ("look", "t1", "{}", True)
    assert gateway.requests[0].body == b'{"ask": "a prompt"}'


@pytest.mark.parametrize("options", [{}, {"model": "m", "payload": dict}])
def test_exactly_one_of_model_and_payload(options: dict[str, Any]) -> None:
    """Exactly one of `model` and `payload` is needed."""
    with pytest.raises(UsageError):
        StreamMember("a", "http://127.0.0.1:1", **options)
