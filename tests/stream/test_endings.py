"""How a stream ends: every row of the table in the manual, over real sockets."""

import json

import pytest
import requests

import streamguard
from streamguard import (
    EmptyStreamError,
    IncompleteStreamError,
    InStreamError,
    MalformedChunkError,
    StreamInactivityTimeoutError,
    TransportError,
    guarded_stream,
)
from streamguard.testing.wire import FRAMINGS

from ..helpers import PROMPT, Serve
from .helpers import ask, choice, consume, line


def test_the_end_marker_completes_at_once(streamguard_gateway: Serve) -> None:
    """[DONE] ends the stream even if the server keeps the connection open, and the server sees the client leave."""
    gateway = streamguard_gateway("chat a\nfinish\ndone\nlinger")
    run = ask(gateway, end_grace=30)
    assert (run.error, run.texts, run.stream.report.outcome) == (None, ["a"], "completed")
    assert run.stream.report.lifetime < PROMPT
    assert gateway.wait_left().during == "linger"


def test_the_end_marker_is_enough(streamguard_gateway: Serve) -> None:
    """A stream with [DONE] is complete without any finish reason."""
    run = ask(streamguard_gateway("chat a\ndone"))
    assert (run.error, run.stream.report.outcome, run.stream.report.finish_reason) == (None, "completed", None)


def test_what_follows_the_end_marker_is_dropped(streamguard_gateway: Serve) -> None:
    """Neither a chunk nor an error behind [DONE], even in the same block of bytes, is part of the stream."""
    tail = 'data: {"error":{"message":"late"}}\\n\\ndata: not json\\n\\n'
    run = ask(streamguard_gateway(f"chat a\nraw data: [DONE]\\n\\n{tail}"))
    assert (run.error, run.texts) == (None, ["a"])


@pytest.mark.parametrize(("ending", "connections"), [("", 1), ("linger", 2), ("chat tail\nlinger", 2)])
def test_a_shared_connection_is_kept_only_if_the_body_ends(
    streamguard_gateway: Serve, ending: str, connections: int
) -> None:
    """Behind [DONE] the rest is drained for a moment: a body that ends leaves its connection usable, others do not."""
    gateway = streamguard_gateway(f"chat a\ndone\n{ending}")
    with requests.Session() as session:
        runs = [ask(gateway, session=session) for _ in range(2)]
    assert [run.error for run in runs] == [None, None]
    assert max(run.stream.report.lifetime for run in runs) < PROMPT
    assert gateway.connections == connections


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_finish_reason_and_the_end_of_the_body_complete(streamguard_gateway: Serve, framing: str) -> None:
    """With the finish reason of every choice the end of the body is the end of the stream, in every framing."""
    run = ask(streamguard_gateway("chat a\nfinish length", framing=framing))
    assert (run.error, run.stream.report.outcome, run.stream.report.finish_reason) == (None, "completed", "length")


def test_a_finish_reason_and_silence_complete(streamguard_gateway: Serve) -> None:
    """With the finish reason of every choice `end_grace` seconds of silence end the stream, and its connection."""
    gateway = streamguard_gateway("chat a\nfinish\nstall")
    run = ask(gateway, end_grace=0.2)
    assert (run.error, run.stream.report.outcome) == (None, "completed")
    assert 0.2 <= run.stream.report.lifetime < 0.2 + PROMPT
    gateway.wait_left()


def test_the_grace_is_one_second_unless_told_otherwise(streamguard_gateway: Serve) -> None:
    """By default a second of silence follows the finish reason, even where `idle` is shorter."""
    run = ask(streamguard_gateway("chat a\nfinish\nstall"), idle=0.3)
    assert run.error is None
    assert 1.0 <= run.stream.report.lifetime < 1.0 + PROMPT


def test_no_grace_completes_with_the_finish_reason(streamguard_gateway: Serve) -> None:
    """`end_grace=0` waits for nothing once every choice has its finish reason."""
    run = ask(streamguard_gateway("chat a\nfinish\nstall"), end_grace=0)
    assert (run.error, run.stream.report.outcome) == (None, "completed")
    assert run.stream.report.lifetime < 1.0


def test_without_a_grace_the_idle_limit_rules(streamguard_gateway: Serve) -> None:
    """`end_grace=None` leaves a server that lingers behind its finish reason to `idle`."""
    run = ask(streamguard_gateway("chat a\nfinish\nstall"), end_grace=None, idle=0.2, total=5)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.error.phase, run.error.chunks) == ("idle", 2)


def test_usage_may_follow_the_finish_reason(streamguard_gateway: Serve) -> None:
    """A usage chunk within the grace is handed over, and is in the message and in the report."""
    run = ask(streamguard_gateway("chat a\nfinish\nwait 0.1\nusage 3 4\nstall"), end_grace=0.3)
    assert (run.error, len(run.chunks)) == (None, 3)
    assert run.stream.message.usage == run.stream.report.usage == run.chunks[-1].usage
    assert run.stream.report.usage is not None
    assert run.stream.report.usage["total_tokens"] == 7


def test_each_chunk_renews_the_grace(streamguard_gateway: Serve) -> None:
    """The grace is silence: chunks that follow the finish reason one after another are all handed over."""
    gateway = streamguard_gateway("chat a\nfinish\nloop 4\nwait 0.15\nusage 1 1\nendloop\nstall")
    run = ask(gateway, end_grace=0.4)
    assert (run.error, len(run.chunks)) == (None, 6)
    assert run.stream.report.lifetime >= 4 * 0.15 + 0.4


def test_comments_do_not_renew_the_grace(streamguard_gateway: Serve) -> None:
    """Heartbeats behind the finish reason do not keep a complete stream open."""
    run = ask(streamguard_gateway("chat a\nfinish\nloop forever\ncomment hb\nwait 0.05\nendloop"), end_grace=0.3)
    assert (run.error, run.stream.report.outcome) == (None, "completed")
    assert 0.3 <= run.stream.report.lifetime < 0.3 + PROMPT


BOTH = [line(choice("a"), choice("b", index=1)), line(choice(index=1, finish="stop"))]


def test_one_of_two_choices_finished_is_not_the_end(streamguard_gateway: Serve) -> None:
    """A stream of two choices is incomplete as long as one has no finish reason."""
    run = ask(streamguard_gateway(BOTH))
    assert isinstance(run.error, IncompleteStreamError)
    assert run.error.partial_text == "a"


def test_all_choices_finished_is_the_end(streamguard_gateway: Serve) -> None:
    """It is complete with the last finish reason, whichever choice that is of."""
    run = ask(streamguard_gateway([*BOTH, line(choice(finish="length"))]))
    assert (run.error, run.stream.report.outcome) == (None, "completed")
    assert [message.finish_reason for message in run.stream.message.choices] == ["length", "stop"]


def test_a_choice_that_begins_late_takes_the_grace_back(streamguard_gateway: Serve) -> None:
    """When another choice begins behind the first one's finish reason, `idle` rules again, not the grace."""
    late = ["wait 0.1", line(choice("b", index=1)), "wait 0.6", line(choice("c", index=1, finish="stop"))]
    run = ask(streamguard_gateway(["chat a", "finish", *late]), end_grace=0.3, idle=5)
    assert (run.error, len(run.chunks)) == (None, 4)
    assert run.stream.message.choices[1].text == "bc"


def test_a_choice_that_begins_late_and_goes_silent(streamguard_gateway: Serve) -> None:
    """The silence of a choice that began behind the grace is a timeout, not a completion."""
    late = ["wait 0.1", line(choice("b", index=1)), "stall"]
    run = ask(streamguard_gateway(["chat a", "finish", *late]), end_grace=0.3, idle=0.5)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert run.stream.report.outcome == "timeout"


@pytest.mark.parametrize("framing", FRAMINGS)
def test_an_end_without_a_sign_is_incomplete(streamguard_gateway: Serve, framing: str) -> None:
    """The end of the body with neither [DONE] nor a finish reason raises, behind all chunks, and says what to do."""
    run = ask(streamguard_gateway("chat Hello\nchat , world", framing=framing))
    assert run.texts == ["Hello", ", world"]
    assert type(run.error) is IncompleteStreamError
    assert (run.error.partial_text, run.error.chunks) == ("Hello, world", 2)
    assert "partial_text" in str(run.error)
    assert "strict=False" in str(run.error)
    assert (run.stream.report.outcome, run.stream.report.error_type) == ("error", "IncompleteStreamError")


@pytest.mark.parametrize("body", ["chat a", "chat a\nusage 1 1", line(choice("a", index=1)), "end"])
def test_a_lenient_stream_ends_normally(streamguard_gateway: Serve, body: str) -> None:
    """`strict=False` makes the same end a normal one, that of an empty stream too; the report says `incomplete`."""
    run = ask(streamguard_gateway(body), strict=False)
    assert (run.error, run.stream.report.outcome) == (None, "incomplete")


def test_lenient_is_about_the_end_only(streamguard_gateway: Serve) -> None:
    """`strict=False` accepts no failure of the transport, and no error of the server's."""
    assert isinstance(ask(streamguard_gateway("chat a\nreset"), strict=False).error, TransportError)
    assert isinstance(ask(streamguard_gateway("chat a\nerror no"), strict=False).error, InStreamError)


@pytest.mark.parametrize(
    "body", ["end", "done", "comment hb", "raw retry: 10\\n\\nid: 7\\n\\nevent: ping\\n\\ndata:\\n\\n", "raw \\n\\n\\n"]
)
def test_a_stream_without_a_chunk_is_empty(streamguard_gateway: Serve, body: str) -> None:
    """A stream that ends without a single chunk is an EmptyStreamError, [DONE] or not, and is not tried again."""
    gateway = streamguard_gateway(body)
    run = consume(guarded_stream("POST", gateway.url))
    assert type(run.error) is EmptyStreamError
    assert isinstance(run.error, IncompleteStreamError)
    assert len(gateway.requests) == 1


FINISHED = 'data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}'


@pytest.mark.parametrize("line_end", ["", "\\n", "\\r", "\\r\\n"])
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_last_event_without_its_blank_line_counts(streamguard_gateway: Serve, framing: str, line_end: str) -> None:
    """An event that the end of the body cut off from its blank line is handed over, if its JSON is whole."""
    run = ask(streamguard_gateway(f"chat a\nraw {FINISHED}{line_end}", framing=framing))
    assert (run.error, run.texts) == (None, ["a", "b"])


@pytest.mark.parametrize("line_end", ["", "\\n", "\\r"])
def test_a_last_end_marker_without_its_blank_line_counts(streamguard_gateway: Serve, line_end: str) -> None:
    """The same holds for [DONE]."""
    run = ask(streamguard_gateway(f"chat a\nraw data: [DONE]{line_end}"))
    assert (run.error, run.stream.report.outcome) == (None, "completed")


@pytest.mark.parametrize("cut", [FINISHED[:-1], FINISHED[:30], "data: {", "data: [DON", "da", 'data: {"error":{"mess'])
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_truncated_last_event_is_never_handed_over(streamguard_gateway: Serve, framing: str, cut: str) -> None:
    """A last event whose JSON is not whole is dropped, and does not hide that the stream is incomplete."""
    run = ask(streamguard_gateway(f"chat a\nraw {cut}", framing=framing))
    assert run.texts == ["a"]
    assert type(run.error) is IncompleteStreamError


def test_a_last_event_may_be_an_error(streamguard_gateway: Serve) -> None:
    """A whole error frame without its blank line is an error still."""
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
    """An error in the stream, in any of its shapes, is raised behind the chunks with all that the server said."""
    run = ask(streamguard_gateway(f"chat a\n{frame}\ndone"))
    error = run.error
    assert run.texts == ["a"]
    assert isinstance(error, InStreamError)
    assert (error.message, error.type, error.code, error.partial_text) == (message, kind, code, "a")
    assert error.body == frame.removeprefix("event ").removeprefix("error | ")
    assert (error.status_code, run.stream.report.outcome) == (200, "error")


def test_a_finish_reason_may_say_error(streamguard_gateway: Serve) -> None:
    """finish_reason "error" is an error of the server's, and keeps the partial text."""
    run = ask(streamguard_gateway("chat a\nfinish error\ndone"))
    assert isinstance(run.error, InStreamError)
    assert run.error.partial_text == "a"


@pytest.mark.parametrize("nothing", ["null", "{}", '""', "false", "[]"])
def test_an_empty_error_is_none(streamguard_gateway: Serve, nothing: str) -> None:
    """An `error` key that holds nothing is no error, beside choices or alone."""
    frames = [f'event {{"choices":[{{"delta":{{"content":"x"}}}}],"error":{nothing}}}', f'event {{"error":{nothing}}}']
    run = ask(streamguard_gateway([*frames, "done"]))
    assert (run.error, run.texts) == (None, ["x"])


def test_talk_about_errors_is_no_error(streamguard_gateway: Serve) -> None:
    """Text that mentions an error, even as JSON, is text."""
    said = '{"error": {"message": "boom"}}'
    run = ask(streamguard_gateway([line(choice(said)), "done"]))
    assert (run.error, run.texts) == (None, [said])


MALFORMED = [
    "event not json",
    'event {"choices":[',
    "event [1,2]",
    'event "text"',
    "event 7",
    "event null",
    "event : OPENROUTER PROCESSING",
    "event <html>502</html>",
    "raw data: \\xff\\xfe\\n\\n",
    "raw data: \\0\\0\\n\\n",
    "event " + "[" * 60_000,
    "event " + "9" * 10_000 + "x",
    "event " + "\u00e9" * 5_000,
    "raw data: " + "\\x01" * 5_000 + "\\n\\n",
]


@pytest.mark.parametrize("frame", MALFORMED, ids=[frame[:30] for frame in MALFORMED])
@pytest.mark.parametrize("decode", ["chat", "json"])
def test_what_is_not_json_is_malformed(streamguard_gateway: Serve, decode: str, frame: str) -> None:
    """A payload that cannot be a chunk raises behind the chunks before it, quoting no more than 200 characters."""
    run = ask(streamguard_gateway(f"chat a\n{frame}\ndone"), decode=decode)
    if decode == "json" and frame in ("event [1,2]", 'event "text"', "event 7", "event null"):
        assert (run.error, run.chunks[1:]) == (None, [json.loads(frame.removeprefix("event "))])
        return
    assert len(run.chunks) == 1
    assert type(run.error) is MalformedChunkError
    assert len(str(run.error)) < 400
    assert run.stream.report.outcome == "error"


FOREIGN = [
    ('event message_start | {"type":"message_start","message":{"id":"m"}}', "Anthropic"),
    ('event {"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"a"}}', "Anthropic"),
    ('event {"type":"response.output_text.delta","delta":"a"}', "Responses"),
    ('event {"candidates":[{"content":{"parts":[{"text":"a"}]}}]}', "Gemini"),
    ('event {"model":"m","message":{"content":"a"},"done":false}', "Ollama"),
]


@pytest.mark.parametrize(("frame", "api"), FOREIGN)
def test_the_frames_of_another_api_are_named(streamguard_gateway: Serve, frame: str, api: str) -> None:
    """A stream of another API is refused as malformed, by that API's name, with the way to read it."""
    run = ask(streamguard_gateway([frame, "done"]))
    assert type(run.error) is MalformedChunkError
    assert api in str(run.error)
    assert "decode=" in str(run.error)


def test_the_error_is_raised_once(streamguard_gateway: Serve) -> None:
    """However a stream ends, it has ended: the error comes once, and then StopIteration."""
    stream = guarded_stream("POST", streamguard_gateway("chat a").url, retry=None)
    assert isinstance(consume(stream).error, IncompleteStreamError)
    assert next(stream, "over") == "over"
    assert (list(stream), stream.text, stream.report.chunks) == ([], "a", 1)


@pytest.mark.parametrize("steps", ["chat a\ndone", "chat a\nfinish", "chat a", "error no", "event x", "headers 500"])
@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_an_ended_stream_holds_no_socket(streamguard_gateway: Serve, framing: str, steps: str) -> None:
    """Where the connection could serve others, it is closed all the same: even while the ended stream is still held."""
    gateway = streamguard_gateway(steps, framing=framing)
    run = ask(gateway)
    assert gateway.wait_left().how == "fin"
    gateway.wait_connections(1, still_open=0)
    assert run.stream.response.status_code == run.stream.report.status_code


def test_every_ending_is_a_streamguard_error(streamguard_gateway: Serve) -> None:
    """Whatever ended the stream carries how far it had come, the caller's name and the report's id."""
    for steps in ("chat a", "chat a\nerror no", "chat a\nevent x", "chat a\nwait 0.1\nreset", "chat a\nstall"):
        run = ask(streamguard_gateway(steps), name="mine", idle=0.3)
        error = run.error
        assert isinstance(error, streamguard.StreamguardError)
        assert (error.chunks, error.partial_text, error.name, error.attempt) == (1, "a", "mine", 1)
        assert (error.id, error.host) == (run.stream.report.id, run.stream.report.host)
        assert error.lifetime is not None
