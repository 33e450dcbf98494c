"""Errors that the server reports inside a 200 stream, in all their shapes."""

import pytest

from streamguard import (
    HTTPStatusError,
    InStreamError,
    before_first_chunk,
    classify,
    guarded_stream,
)

from ..helpers import Serve
from .helpers import GOOD, NOW, ask, choice, consume, failure, line, stream_from


def test_a_last_event_may_be_an_error(streamguard_gateway: Serve) -> None:
    """A complete error frame without its blank line is an error."""
    run = ask(streamguard_gateway('chat a\nraw data: {"error":{"message":"m"}}'))
    assert isinstance(run.error, InStreamError)


ERRORS: list[tuple[str, str, str | None, object]] = [
    ('event {"error":{"message":"m","type":"t","code":504}}', "m", "t", 504),
    ('event {"error":{"message":"m","type":"t","code":"c"},"choices":[]}', "m", "t", "c"),
    ('event error | {"message":"m","type":"t","code":7}', "m", "t", 7),
    ('event error | {"error":{"message":"m","type":"overloaded_error"}}', "m", "overloaded_error", None),
    ("event error | m", "m", None, None),
    ('event error | "m"', "m", None, None),
    ('event {"error":"m"}', "m", None, None),
    ('event {"error":"m","code":429}', "m", None, 429),
    ('event {"errors":[{"message":"m","code":3}]}', "m", None, 3),
    ('event {"object":"error","message":"m","type":"t","code":40303}', "m", "t", 40303),
    ('event {"type":"error","error":{"type":"overloaded_error","message":"m"}}', "m", "overloaded_error", None),
    ('event {"type":"error","message":"m","code":"c"}', "m", "error", "c"),
    ('event {"type":"response.failed","response":{"error":{"code":"c","message":"m"}}}', "m", "response.failed", "c"),
    ('event {"detail":"m"}', "m", None, None),
    ('event {"message":"m","code":500}', "m", None, 500),
    ('event {"status_code":503,"message":"m"}', "m", None, 503),
    ('event {"error":{"code":502,"message":"m"},"choices":[{"delta":{},"finish_reason":"error"}]}', "m", None, 502),
    ('event {"choices":[{"delta":{"content":""},"error":{"code":502,"message":"m"}}]}', "m", None, 502),
]


@pytest.mark.parametrize(("frame", "message", "kind", "code"), ERRORS, ids=[frame for frame, *_ in ERRORS])
def test_an_error_frame_is_raised(
    streamguard_gateway: Serve, frame: str, message: str, kind: str | None, code: object
) -> None:
    """An error in the stream, in any shape, is raised after the chunks, with the server's details."""
    run = ask(streamguard_gateway(f"chat a\n{frame}\ndone"))
    error = run.error
    assert run.texts == ["a"]
    assert isinstance(error, InStreamError)
    assert (error.message, error.type, error.code, error.partial_text) == (message, kind, code, "a")
    assert error.body == frame.removeprefix("event ").removeprefix("error | ")
    assert (error.status_code, run.stream.report.outcome) == (200, "error")


def test_a_finish_reason_may_say_error(streamguard_gateway: Serve) -> None:
    """finish_reason "error" is an error of the server, and keeps the partial text."""
    run = ask(streamguard_gateway("chat a\nfinish error\ndone"))
    assert isinstance(run.error, InStreamError)
    assert run.error.partial_text == "a"


@pytest.mark.parametrize("nothing", ["null", "{}", '""', "false", "[]"])
def test_an_empty_error_is_ignored(streamguard_gateway: Serve, nothing: str) -> None:
    """An `error` key without a value is not an error, with choices or alone."""
    frames = [f'event {{"choices":[{{"delta":{{"content":"x"}}}}],"error":{nothing}}}', f'event {{"error":{nothing}}}']
    run = ask(streamguard_gateway([*frames, "done"]))
    assert (run.error, run.texts) == (None, ["x"])


def test_text_about_errors_is_text(streamguard_gateway: Serve) -> None:
    """Text that mentions an error, even as JSON, is text."""
    said = '{"error": {"message": "boom"}}'
    run = ask(streamguard_gateway([line(choice(said)), "done"]))
    assert (run.error, run.texts) == (None, [said])


def test_an_error_before_the_end_marker(streamguard_gateway: Serve) -> None:
    """An error frame before [DONE] is an error, with its type and code (B081)."""
    run = ask(streamguard_gateway('event {"error":{"message":"TimeoutError","type":"GatewayTimeout","code":504}}\ndone'))
    assert isinstance(run.error, InStreamError)
    assert (run.error.message, run.error.type, run.error.code) == ("TimeoutError", "GatewayTimeout", 504)


@pytest.mark.parametrize(
    "shape",
    [
        '{"error":"m"}',
        '{"object":"error","message":"m"}',
        '{"detail":"m"}',
        '{"error":{"detail":"m"}}',
        '{"code":1,"msg":"m"}',
    ],
)
def test_other_shapes_of_errors(streamguard_gateway: Serve, shape: str) -> None:
    """Each shape in use is detected, also as the only event (B082)."""
    run = ask(streamguard_gateway(f"event {shape}\ndone"))
    assert isinstance(run.error, InStreamError)
    assert run.error.message == "m"


def test_choices_and_an_error(streamguard_gateway: Serve) -> None:
    """A chunk with both, or with finish_reason "error", raises, and the text before it is kept (B083)."""
    frame = '{"error":{"code":502,"message":"m"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}'
    for last in (f"event {frame}", "finish error"):
        run = ask(streamguard_gateway(f"chat par\nchat tial\n{last}\ndone"))
        assert isinstance(run.error, InStreamError)
        assert (run.error.partial_text, run.stream.text) == ("partial", "partial")


@pytest.mark.parametrize("nothing", ["null", "{}", '""'])
def test_an_empty_error_is_not_an_error(streamguard_gateway: Serve, nothing: str) -> None:
    """null, an empty object and an empty string are not errors; nor is text about one (B084)."""
    frame = f'{{"choices":[{{"delta":{{"content":"error: x"}}}}],"error":{nothing}}}'
    run = ask(streamguard_gateway(f"event {frame}\nfinish\ndone"))
    assert (run.error, run.texts) == (None, ["error: x"])


def test_overload_in_a_200_stream(streamguard_gateway: Serve) -> None:
    """An error frame is retried before the first chunk only if the policy says so (B086)."""
    frame = 'event {"error":{"type":"overloaded_error","message":"busy"}}'
    gateway = streamguard_gateway(frame, GOOD)
    run = consume(guarded_stream("POST", gateway.url))
    assert isinstance(run.error, InStreamError)
    assert (classify(run.error).diagnosis, len(gateway.requests)) == ("retryable", 1)
    gateway = streamguard_gateway(frame, GOOD)
    run = ask(gateway, retry=before_first_chunk(1, on={InStreamError}, wait=NOW))
    assert (run.error, run.texts) == (None, ["a", "b"])


def test_an_error_frame_keeps_its_details(streamguard_gateway: Serve) -> None:
    """The exception has the server's message, type, code and raw body (B052)."""
    body = '{"error":{"message":"m","type":"t","code":"c"}}'
    seen = consume(stream_from(streamguard_gateway(f"chat a\nevent {body}\nstall")))
    assert isinstance(seen.error, InStreamError)
    assert (seen.error.message, seen.error.type, seen.error.code, seen.error.body) == ("m", "t", "c", body)
    assert (seen.text, seen.error.partial_text) == ("a", "a")


def test_an_error_in_the_stream_is_not_its_status(streamguard_gateway: Serve) -> None:
    """The status 200 says nothing about the error: its class and `.type` are classified (B053)."""
    frame = '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'
    error = failure(stream := stream_from(streamguard_gateway(f"event error | {frame}\nstall")))
    assert isinstance(error, InStreamError)
    assert not isinstance(error, HTTPStatusError)
    assert (error.type, stream.report.status_code) == ("overloaded_error", 200)
    assert (classify(error).kind, classify(error).diagnosis) == ("server", "retryable")


@pytest.mark.parametrize(
    "before", ["", "raw : beat\\n\\n\n", "chat a\n", "raw event: error\\n\n"], ids=["alone", "beat", "chunk", "name"]
)
@pytest.mark.parametrize(
    "body",
    [
        '{"error":{"message":"no quota"}}',
        '{\\n "error": {\\n  "message": "no quota"\\n }\\n}\\n',
        '{"error":"no quota"}\\n\\n',
    ],
)
def test_an_error_object_without_a_frame(streamguard_gateway: Serve, before: str, body: str) -> None:
    """An error object without a frame is raised as an error of the server."""
    run = ask(streamguard_gateway(f"{before}raw {body}"))
    assert isinstance(run.error, InStreamError)
    assert "no quota" in str(run.error)
    assert run.error.partial_text == ("a" if before.startswith("chat") else "")
