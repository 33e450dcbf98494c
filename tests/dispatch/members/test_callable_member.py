"""Functions as members: their timeouts, and the streams that they open."""

import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from streamguard import Session, StreamguardError, bounded_call, deadline, guarded_stream
from streamguard.dispatch import CallableMember, Dispatcher, TurnContext, TurnOutcome
from streamguard.testing import Gateway

ANSWER = ["chat Hello", "finish", "done"]


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    with Dispatcher() as dispatcher:
        yield dispatcher


def turn_of(dispatcher: Dispatcher, run: Callable[[], object], **options: Any) -> TurnOutcome:
    """Return the outcome of a member that calls *run*, and returns its result as text."""
    member = CallableMember("a", lambda prompt, context: str(run()))
    return dispatcher.dispatch("c", [member], "p", **{"output_timeout": 20, **options})["a"]


def four(turn: TurnOutcome) -> tuple[str, str, str, str]:
    return turn.reason, turn.turn_reason, turn.queue_status, turn.signal


def raises(error: BaseException) -> Callable[[], object]:
    def run() -> object:
        raise error

    return run


def wraps(cause: BaseException) -> Callable[[], object]:
    def run() -> object:
        raise RuntimeError("the agent failed") from cause

    return run


@pytest.mark.parametrize(
    "run",
    [
        raises(TimeoutError("too slow")),
        raises(requests.ReadTimeout("too slow")),
        wraps(requests.ConnectTimeout("too slow")),
        lambda: subprocess.run(["sleep", "20"], timeout=0.1, check=False),
    ],
    ids=["TimeoutError", "requests.ReadTimeout", "its cause", "subprocess.TimeoutExpired"],
)
def test_a_timeout_inside_a_function_is_a_timeout(dispatcher: Dispatcher, run: Callable[[], object]) -> None:
    """C240: a timeout of another library's call is a failure with a timeout reason, and signals `provider_timeout`."""
    turn = turn_of(dispatcher, run)
    assert turn.status == "failed"
    assert four(turn) == ("call_timeout", "call_timeout", "failed", "provider_timeout")
    assert not turn.timed_out


def test_a_limit_of_streamguard_inside_a_function_is_named(
    dispatcher: Dispatcher, streamguard_gateway: Callable[..., Gateway]
) -> None:
    """C240: the reason names the limit of an inner stream, call or session that fired."""
    gateway = streamguard_gateway(["chat Hello", "stall"], ["chat Hello", "stall"], ["stall"])

    def read(**limits: float) -> str:
        with guarded_stream("GET", gateway.url, **limits) as stream:
            return str(stream.read())

    def get() -> object:
        with Session() as session:
            return session.get(gateway.url, timeout=0.1)

    runs: dict[str, Callable[[], object]] = {
        "idle_timeout": lambda: read(idle=0.1),
        "total_timeout": lambda: read(total=0.1),
        "step_timeout": lambda: bounded_call(subprocess.run, ["sleep", "0.3"], limit=0.1, grace=5),
    }
    for reason, run in runs.items():
        assert four(turn_of(dispatcher, run)) == (reason, reason, "failed", "provider_timeout")
    assert turn_of(dispatcher, get).signal == "provider_timeout"


def test_a_surrounding_deadline_inside_a_function(dispatcher: Dispatcher) -> None:
    """C240: a surrounding `deadline()` is `deadline_exceeded`, and signals `provider_timeout`."""
    with deadline(0.1):
        turn = turn_of(dispatcher, lambda: bounded_call(subprocess.run, ["sleep", "0.3"], grace=5))
    assert four(turn) == ("deadline_exceeded", "deadline_exceeded", "failed", "provider_timeout")


def test_another_error_inside_a_function_is_not_a_timeout(
    dispatcher: Dispatcher, streamguard_gateway: Callable[..., Gateway]
) -> None:
    """Errors of inner streams have the codes that a StreamMember gives them; others have none."""
    gateway = streamguard_gateway(["headers 503"], ["chat Hello"])

    def read() -> str:
        with guarded_stream("GET", gateway.url) as stream:
            return str(stream.read())

    assert turn_of(dispatcher, read).signal == "http_503"
    assert turn_of(dispatcher, read).signal == "incomplete_stream"
    assert four(turn_of(dispatcher, raises(ValueError("no")))) == (
        "provider_error",
        "provider_execution_failed",
        "failed",
        "provider_error",
    )


def test_streams_inside_a_turn_have_no_default_limits_and_no_retry(
    dispatcher: Dispatcher, streamguard_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C240: neither the environment's limits nor the default retry apply to a stream that a member opens."""
    monkeypatch.setenv("STREAMGUARD_FIRST", "0.1")
    monkeypatch.setenv("STREAMGUARD_IDLE", "0.1")
    slow = streamguard_gateway(["wait 0.4", "chat Hello", "wait 0.4", *ANSWER[1:]])

    def read(gateway: Gateway, **options: Any) -> str:
        with guarded_stream("GET", gateway.url, **options) as stream:
            return str(stream.read())

    assert turn_of(dispatcher, lambda: read(slow)).text == "Hello"
    silent = streamguard_gateway(["headers", "stall"])
    assert turn_of(dispatcher, lambda: read(silent, idle=0.2)).reason == "first_timeout"
    assert len(silent.requests) == 1
    assert turn_of(dispatcher, lambda: read(silent, first=0.1, retry=1)).reason == "first_timeout"
    assert len(silent.requests) == 3
    assert turn_of(dispatcher, lambda: read(silent), output_timeout=0.3).reason == "timeout"
    with pytest.raises(StreamguardError):  # outside of a turn the defaults apply
        read(silent, retry=None)


def test_streams_in_a_call_inside_a_turn_have_no_default_limits(
    dispatcher: Dispatcher, streamguard_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch
) -> None:
    """C240: threads of streamguard inside a member are inside its turn, and generators too."""
    monkeypatch.setenv("STREAMGUARD_IDLE", "0.1")
    gateway = streamguard_gateway(["chat Hello", "wait 0.4", *ANSWER[1:]])

    def read(prompt: str, context: TurnContext) -> Iterator[str]:
        def inner() -> str:
            with guarded_stream("GET", gateway.url) as stream:
                return str(stream.read())

        yield bounded_call(inner, limit=10)
        with guarded_stream("GET", gateway.url) as stream:
            for chunk in stream:
                yield chunk.text

    assert dispatcher.dispatch("c", [CallableMember("a", read)], "p", output_timeout=20)["a"].text == "HelloHello"
