"""How a stream ends: every row of the table in the manual, over real sockets."""

import pytest
import requests

import streamguard
import streamguard._stream.failures
from streamguard import (
    EmptyStreamError,
    IncompleteStreamError,
    InStreamError,
    StreamguardError,
    StreamInactivityTimeoutError,
    TransportError,
    guarded_stream,
)
from streamguard.testing.wire import FRAMINGS

from ..helpers import PROMPT, Serve
from .helpers import ask, choice, consume, failure, line, stream_from


@pytest.mark.parametrize(
    "script", ["headers 204", "headers 205 content-length: 0", "", "end", "headers content-length: 0\nend"]
)
def test_nothing_at_all_is_an_empty_stream(streamguard_gateway: Serve, script: str) -> None:
    """No body or an empty body is an EmptyStreamError that says so."""
    framing = "length" if "length" in script else "chunked"
    error = failure(stream_from(streamguard_gateway(script, framing=framing), retry=3))
    assert isinstance(error, EmptyStreamError)
    assert "empty stream" in str(error)


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
    """A chunk or an error after [DONE], even in the same block of bytes, is not part of the stream."""
    tail = 'data: {"error":{"message":"late"}}\\n\\ndata: not json\\n\\n'
    run = ask(streamguard_gateway(f"chat a\nraw data: [DONE]\\n\\n{tail}"))
    assert (run.error, run.texts) == (None, ["a"])


@pytest.mark.parametrize(("ending", "connections"), [("", 1), ("linger", 2), ("chat tail\nlinger", 2)])
def test_a_shared_connection_is_kept_only_if_the_body_ends(
    streamguard_gateway: Serve, ending: str, connections: int
) -> None:
    """After [DONE] the rest is drained for a moment: a body that ends leaves its connection usable, others do not."""
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


def test_the_grace_is_three_seconds_by_default(streamguard_gateway: Serve) -> None:
    """By default three seconds of silence follow the finish reason, even if `idle` is shorter."""
    run = ask(streamguard_gateway("chat a\nfinish\nstall"), idle=0.3)
    assert run.error is None
    assert 3.0 <= run.stream.report.lifetime < 3.0 + PROMPT


def test_no_grace_completes_with_the_finish_reason(streamguard_gateway: Serve) -> None:
    """`end_grace=0` waits for nothing once every choice has its finish reason."""
    run = ask(streamguard_gateway("chat a\nfinish\nstall"), end_grace=0)
    assert (run.error, run.stream.report.outcome) == (None, "completed")
    assert run.stream.report.lifetime < 1.0


def test_without_a_grace_the_idle_limit_applies(streamguard_gateway: Serve) -> None:
    """`end_grace=None`: `idle` completes the stream of a server that keeps the connection open after its finish reason."""
    run = ask(streamguard_gateway("chat a\nfinish\nstall"), end_grace=None, idle=0.2, total=5)
    assert (run.error, run.stream.report.outcome, run.stream.report.ended_by) == (None, "completed", "idle")
    assert 0.2 <= run.stream.report.lifetime < 0.2 + PROMPT


def test_usage_may_follow_the_finish_reason(streamguard_gateway: Serve) -> None:
    """A usage chunk within the grace is returned, and is in the message and in the report."""
    run = ask(streamguard_gateway("chat a\nfinish\nwait 0.1\nusage 3 4\nstall"), end_grace=0.3)
    assert (run.error, len(run.chunks)) == (None, 3)
    assert run.stream.message.usage == run.stream.report.usage == run.chunks[-1].usage
    assert run.stream.report.usage is not None
    assert run.stream.report.usage["total_tokens"] == 7


def test_each_chunk_renews_the_grace(streamguard_gateway: Serve) -> None:
    """The grace measures silence: chunks that follow the finish reason one after another are all returned."""
    gateway = streamguard_gateway("chat a\nfinish\nloop 4\nwait 0.15\nusage 1 1\nendloop\nstall")
    run = ask(gateway, end_grace=0.4)
    assert (run.error, len(run.chunks)) == (None, 6)
    assert run.stream.report.lifetime >= 4 * 0.15 + 0.4


def test_comments_do_not_renew_the_grace(streamguard_gateway: Serve) -> None:
    """Heartbeats after the finish reason do not keep a complete stream open."""
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
    """A stream is complete with the last finish reason, of whichever choice."""
    run = ask(streamguard_gateway([*BOTH, line(choice(finish="length"))]))
    assert (run.error, run.stream.report.outcome) == (None, "completed")
    assert [message.finish_reason for message in run.stream.message.choices] == ["length", "stop"]


def test_a_choice_that_begins_late_takes_the_grace_back(streamguard_gateway: Serve) -> None:
    """If another choice begins after the first one's finish reason, `idle` applies again, not the grace."""
    late = ["wait 0.1", line(choice("b", index=1)), "wait 0.6", line(choice("c", index=1, finish="stop"))]
    run = ask(streamguard_gateway(["chat a", "finish", *late]), end_grace=0.3, idle=5)
    assert (run.error, len(run.chunks)) == (None, 4)
    assert run.stream.message.choices[1].text == "bc"


def test_a_choice_that_begins_late_and_goes_silent(streamguard_gateway: Serve) -> None:
    """The silence of a choice that began after the grace is a timeout, not a completion."""
    late = ["wait 0.1", line(choice("b", index=1)), "stall"]
    run = ask(streamguard_gateway(["chat a", "finish", *late]), end_grace=0.3, idle=0.5)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert run.stream.report.outcome == "timeout"


@pytest.mark.parametrize("framing", FRAMINGS)
def test_an_end_without_a_sign_is_incomplete(streamguard_gateway: Serve, framing: str) -> None:
    """The end of the body with neither [DONE] nor a finish reason raises, after all chunks, and says what to do."""
    run = ask(streamguard_gateway("chat Hello\nchat , world", framing=framing))
    assert run.texts == ["Hello", ", world"]
    assert type(run.error) is IncompleteStreamError
    assert (run.error.partial_text, run.error.chunks) == ("Hello, world", 2)
    assert "partial_text" in str(run.error)
    assert "strict=False" in str(run.error)
    assert (run.stream.report.outcome, run.stream.report.error_type) == ("error", "IncompleteStreamError")


@pytest.mark.parametrize("body", ["chat a", "chat a\nusage 1 1", line(choice("a", index=1)), "end"])
def test_a_lenient_stream_ends_normally(streamguard_gateway: Serve, body: str) -> None:
    """`strict=False` makes this a normal end, also for an empty stream; the report says `incomplete`."""
    run = ask(streamguard_gateway(body), strict=False)
    assert (run.error, run.stream.report.outcome) == (None, "incomplete")


def test_lenient_is_about_the_end_only(streamguard_gateway: Serve) -> None:
    """`strict=False` accepts neither a transport error nor an error of the server."""
    assert isinstance(ask(streamguard_gateway("chat a\nreset"), strict=False).error, TransportError)
    assert isinstance(ask(streamguard_gateway("chat a\nerror no"), strict=False).error, InStreamError)


@pytest.mark.parametrize(
    "body", ["end", "done", "comment hb", "raw retry: 10\\n\\nid: 7\\n\\nevent: ping\\n\\ndata:\\n\\n", "raw \\n\\n\\n"]
)
def test_a_stream_without_a_chunk_is_empty(streamguard_gateway: Serve, body: str) -> None:
    """A stream that ends without a chunk is an EmptyStreamError, with [DONE] or without, and is not retried."""
    gateway = streamguard_gateway(body)
    run = consume(guarded_stream("POST", gateway.url))
    assert type(run.error) is EmptyStreamError
    assert isinstance(run.error, IncompleteStreamError)
    assert len(gateway.requests) == 1


FINISHED = 'data: {"choices":[{"delta":{"content":"b"},"finish_reason":"stop"}]}'


@pytest.mark.parametrize("line_end", ["", "\\n", "\\r", "\\r\\n"])
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_last_event_without_its_blank_line_counts(streamguard_gateway: Serve, framing: str, line_end: str) -> None:
    """A last event without its blank line is returned if its JSON is complete."""
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
    """A last event whose JSON is not complete is dropped, and the stream is incomplete."""
    run = ask(streamguard_gateway(f"chat a\nraw {cut}", framing=framing))
    assert run.texts == ["a"]
    assert type(run.error) is IncompleteStreamError


@pytest.mark.parametrize("steps", ["chat a\ndone", "chat a\nfinish", "chat a", "error no", "event x", "headers 500"])
@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_an_ended_stream_holds_no_socket(streamguard_gateway: Serve, framing: str, steps: str) -> None:
    """The connection is closed even while the ended stream is still referenced."""
    gateway = streamguard_gateway(steps, framing=framing)
    run = ask(gateway)
    assert gateway.wait_left().how == "fin"
    gateway.wait_connections(1, still_open=0)
    assert run.stream.response.status_code == run.stream.report.status_code


NO_END = ["chat a", *['event {"choices":[]}'] * 3, "usage 1 1"]


def test_a_provider_that_never_says_the_end(streamguard_gateway: Serve) -> None:
    """Without finish_reason and [DONE] the stream is incomplete, unless strict=False, and is not retried (B079)."""
    gateway = streamguard_gateway(NO_END)
    run = consume(guarded_stream("POST", gateway.url, retry=3))
    assert type(run.error) is IncompleteStreamError
    assert (len(run.chunks), len(gateway.requests)) == (5, 1)
    lenient = ask(gateway, strict=False)
    assert (lenient.error, lenient.stream.report.outcome, len(lenient.chunks)) == (None, "incomplete", 5)


def test_nothing_but_the_end_marker(streamguard_gateway: Serve) -> None:
    """[DONE] alone is an empty stream, not a transport timeout, and is not retried (B085)."""
    gateway = streamguard_gateway("done")
    run = consume(guarded_stream("POST", gateway.url, retry=3))
    assert type(run.error) is EmptyStreamError
    assert not isinstance(run.error, TimeoutError)
    assert len(gateway.requests) == 1


def test_usage_says_nothing_about_the_end(streamguard_gateway: Serve) -> None:
    """A stream without usage may be complete, one with usage incomplete: end marker and finish reason decide (B089)."""
    assert ask(streamguard_gateway("chat a\nfinish")).stream.report.outcome == "completed"
    assert type(ask(streamguard_gateway("chat a\nusage 1 1")).error) is IncompleteStreamError
    assert type(ask(streamguard_gateway("chat a")).error) is IncompleteStreamError


@pytest.mark.parametrize(
    ("framing", "kind"),
    [
        ("chunked", TransportError),
        ("length", TransportError),
        ("close", IncompleteStreamError),
        ("http10", IncompleteStreamError),
    ],
)
def test_a_stream_that_is_cut_off_is_incomplete(
    streamguard_gateway: Serve, framing: str, kind: type[StreamguardError]
) -> None:
    """A server that closes in the middle: all chunks, then a typed error with its details, and no retry (B021)."""
    lie = {"length": 100_000} if framing == "length" else {}
    gateway = streamguard_gateway("loop 8\ntick\nwait 0.02\nendloop\nclose", framing=framing, **lie)
    policy = streamguard.before_first_chunk(3, on={"ETIMEDOUT", "ECONNRESET", IncompleteStreamError})
    seen = consume(stream_from(gateway, retry=policy))
    assert isinstance(seen.error, kind)
    assert (len(seen.chunks), seen.error.chunks, len(gateway.requests)) == (8, 8, 1)
    assert seen.error.lifetime is not None
    assert seen.error.lifetime >= 0.14
    assert seen.error.partial_text == seen.text


@pytest.mark.parametrize("end", ["", "\\n", "\\r\\n", "\\r"])
def test_a_last_event_without_its_blank_line(streamguard_gateway: Serve, end: str) -> None:
    """It is returned if its JSON is complete, and completes the stream only by what it contains (B068)."""
    finish = ask(streamguard_gateway(f'chat a\nraw data: {{"choices":[{{"delta":{{}},"finish_reason":"stop"}}]}}{end}'))
    assert (finish.error, len(finish.chunks), finish.stream.report.outcome) == (None, 2, "completed")
    text = ask(streamguard_gateway(f'chat a\nraw data: {{"choices":[{{"delta":{{"content":"b"}}}}]}}{end}'))
    assert text.texts == ["a", "b"]
    assert type(text.error) is IncompleteStreamError
    cut = ask(streamguard_gateway(f'chat a\nraw data: {{"choices":[{{"delta":{{"content":"b{end}'))
    assert cut.texts == ["a"]
    assert type(cut.error) is IncompleteStreamError


@pytest.mark.parametrize("end", ["\\n\\r", "\\r\\r", "\\r\\n\\r", "\\n\\n", "\\r\\n\\r\\n"])
@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_lone_cr_at_the_end(streamguard_gateway: Serve, framing: str, end: str) -> None:
    """An event whose blank line ends with a lone CR at the end of the body is complete (B069)."""
    run = ask(streamguard_gateway(f"raw data: x{end}", framing=framing), decode="events")
    assert (run.error, [event.data for event in run.chunks]) == (None, ["x"])


def test_a_choice_that_begins_late_reopens_the_stream(streamguard_gateway: Serve) -> None:
    """If another choice begins after all known ones have finished, its silence is a timeout, not the end."""
    second = '{"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": null}]}'
    gateway = streamguard_gateway(f"chat a\nfinish\nevent {second}\nstall")
    seen = consume(stream := stream_from(gateway, end_grace=0.1, idle=0.3))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert (len(seen.chunks), stream.report.outcome) == (3, "timeout")
