"""What a stream hands over: `decode=`, `counts=`, `.read()`, `.text`, `.message`, and heartbeats."""

import copy
import pickle
import time
from typing import Any

import pytest
import sseclient

from streamguard import (
    HEARTBEAT,
    Chunk,
    HTTPStatusError,
    IncompleteStreamError,
    MalformedChunkError,
    StreamInactivityTimeoutError,
    UsageError,
    guarded_stream,
    has_content,
)
from streamguard.testing.wire import ENCODINGS, FRAMINGS

from ..helpers import PROMPT, Serve
from .helpers import ask, choice, consume, line

GOOD = "chat a\nchat b\nfinish\nusage 1 2\ndone"


def test_chat_chunks_are_dicts(streamguard_gateway: Serve) -> None:
    """`decode="chat"`, the default, hands over the server's objects, with properties for what one mostly wants."""
    run = ask(streamguard_gateway([line(choice("a", reasoning_content="hm"), id="x"), "finish", "done"]))
    first, last = run.chunks
    assert isinstance(first, dict)
    assert isinstance(first, Chunk)
    assert first["id"] == "x"
    assert (first.text, first.reasoning, first.tool_calls, first.finish_reason, first.usage) == ("a", "hm", [], None, None)
    assert last.finish_reason == "stop"


def test_events_are_those_of_sseclient(streamguard_gateway: Serve) -> None:
    """`decode="events"` hands over sseclient's events, [DONE] included, up to the end of the body."""
    run = ask(streamguard_gateway("raw id: 7\\nevent: e\\nretry: 9\\ndata: 1\\n\\n\ndone\nevent 2"), decode="events")
    assert all(isinstance(event, sseclient.Event) for event in run.chunks)
    assert [(event.event, event.data, event.id, event.retry) for event in run.chunks] == [
        ("e", "1", "7", 9),
        ("message", "[DONE]", "7", None),
        ("message", "2", "7", None),
    ]


def test_an_unfinished_event_is_discarded(streamguard_gateway: Serve) -> None:
    """In `decode="events"` the standard's rule holds: an event without its blank line is none."""
    run = ask(streamguard_gateway("event 1\nraw data: 2\\n"), decode="events")
    assert (run.error, [event.data for event in run.chunks]) == (None, ["1"])


def test_json_is_the_data_of_each_event(streamguard_gateway: Serve) -> None:
    """`decode="json"` hands over each event's value, whatever it is, up to [DONE]."""
    run = ask(
        streamguard_gateway('event {"a":1}\nevent [2]\nevent "x"\nevent 0\nraw data:\\n\\n\ndone\nevent no'), decode="json"
    )
    assert (run.error, run.chunks) == (None, [{"a": 1}, [2], "x", 0])


@pytest.mark.parametrize("options", [{}, {"heartbeat": 5}, {"counts": bool}])
def test_null_is_a_value(streamguard_gateway: Serve, options: dict[str, Any]) -> None:
    """`null`, `false` and `""` are values, handed over whatever other options there are."""
    run = ask(streamguard_gateway('event null\nevent false\nevent ""\ndone'), decode="json", **options)
    assert (run.error, run.chunks, run.stream.report.chunks) == (None, [None, False, ""], 3)


def test_json_that_is_none(streamguard_gateway: Serve) -> None:
    """What is no JSON is malformed, behind what came before."""
    run = ask(streamguard_gateway("event 1\nevent {1}\nevent 2"), decode="json")
    assert type(run.error) is MalformedChunkError
    assert run.chunks == [1]


def test_a_last_json_event_without_its_blank_line(streamguard_gateway: Serve) -> None:
    """It is handed over if it is whole, and dropped if not."""
    assert ask(streamguard_gateway('event 1\nraw data: {"a":2}'), decode="json").chunks == [1, {"a": 2}]
    assert ask(streamguard_gateway('event 1\nraw data: {"a":'), decode="json").chunks == [1]
    assert ask(streamguard_gateway("event 1\nraw data: 12"), decode="json").chunks == [1], "it may have begun 123"
    assert ask(streamguard_gateway("event 1\nraw data: 12\\n"), decode="json").chunks == [1, 12]
    assert ask(streamguard_gateway("event 1\nraw data: 12\\r\\nid: 4"), decode="json").chunks == [1, 12]


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_bytes_are_the_decoded_body(streamguard_gateway: Serve, framing: str, encoding: str | None) -> None:
    """`decode="bytes"` hands over the body as it comes, decompressed, in every framing and encoding."""
    gateway = streamguard_gateway("raw \\x00\\xffab\nraw \\r\\n\nraw cd", framing=framing, encoding=encoding)
    run = ask(gateway, decode="bytes")
    assert (run.error, b"".join(run.chunks)) == (None, b"\x00\xffab\r\ncd")
    assert all(isinstance(chunk, bytes) and chunk for chunk in run.chunks)
    assert run.stream.report.bytes == 8


def test_a_callable_decodes_events(streamguard_gateway: Serve) -> None:
    """A callable gets each event, and its result is the chunk; None is skipped, other empty values are not."""
    results = {"1": "one", "2": None, "3": "", "4": 0}
    run = ask(streamguard_gateway("event 1\nevent 2\nevent 3\nevent 4"), decode=lambda event: results[event.data])
    assert (run.error, run.chunks, run.stream.report.chunks) == (None, ["one", "", 0], 3)


@pytest.mark.parametrize("error", [KeyError("mine"), ValueError("mine"), StopIteration("mine")])
def test_a_callable_that_fails(streamguard_gateway: Serve, error: Exception) -> None:
    """Its exception ends the stream as it is (StopIteration as a RuntimeError), and the server sees the client leave."""

    def decode(event: sseclient.Event) -> str:
        if event.data == "2":
            raise error
        return event.data

    gateway = streamguard_gateway("event 1\nevent 2\nstall")
    run = ask(gateway, decode=decode)
    assert type(run.error) is (RuntimeError if isinstance(error, StopIteration) else type(error))
    assert (run.chunks, run.stream.report.outcome) == (["1"], "error")
    assert next(run.stream, "over") == "over"
    gateway.wait_left()


@pytest.mark.parametrize("wrong", ["text", "", None, 5, b"chat"])
def test_what_is_no_decode(wrong: Any) -> None:
    """Anything else is refused by its name."""
    with pytest.raises(UsageError, match="decode="):
        guarded_stream("GET", "http://127.0.0.1:9/", decode=wrong)


@pytest.mark.parametrize("wrong", ["text", 5, [has_content]])
def test_what_is_no_counts(wrong: Any) -> None:
    """`counts=` takes a predicate."""
    with pytest.raises(TypeError, match="counts="):
        guarded_stream("GET", "http://127.0.0.1:9/", counts=wrong)


KEEPALIVE = line(choice(""))


def test_counts_narrows_what_is_progress(streamguard_gateway: Serve) -> None:
    """Chunks that do not count are handed over all the same, and re-arm nothing."""
    gateway = streamguard_gateway(f"chat a\nloop forever\n{KEEPALIVE}\nwait 0.05\nendloop")
    run = ask(gateway, counts=has_content, idle=0.4)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.error.phase, run.texts) == ("idle", ["a"])
    assert len(run.chunks) > 2


def test_counts_narrows_what_ends_first(streamguard_gateway: Serve) -> None:
    """Until a chunk counts, `first` rules."""
    gateway = streamguard_gateway(f"loop forever\n{KEEPALIVE}\nwait 0.05\nendloop")
    run = ask(gateway, counts=has_content, first=0.4, idle=0.1)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert run.error.phase == "first"
    assert run.stream.report.time_to_first_chunk is None


def test_counts_sees_what_is_handed_over(streamguard_gateway: Serve) -> None:
    """The predicate gets the chunk as the consumer does: converted by the caller's decode."""
    seen: list[str] = []
    run = ask(streamguard_gateway("event 1\nevent 2"), decode=lambda event: f"<{event.data}>", counts=seen.append)
    assert run.chunks == seen == ["<1>", "<2>"]


def test_a_predicate_that_fails(streamguard_gateway: Serve) -> None:
    """Its exception ends the stream as it is."""
    run = ask(streamguard_gateway("chat a\nstall"), counts=lambda chunk: chunk["nothing"])
    assert type(run.error) is KeyError
    assert run.stream.report.outcome == "error"


def test_read_returns_all_of_the_text(streamguard_gateway: Serve) -> None:
    """`.read()` consumes the rest and returns the whole text, what was iterated before included."""
    stream = guarded_stream("POST", streamguard_gateway(GOOD).url)
    next(stream)
    assert (stream.text, stream.read(), stream.text, stream.read()) == ("a", "ab", "ab", "ab")


def test_read_of_other_decoders(streamguard_gateway: Serve) -> None:
    """For `decode="bytes"` it is the bytes from here, for others the list of the chunks from here."""
    url = streamguard_gateway("event 1\nevent 2").url
    assert guarded_stream("GET", url, decode="bytes").read() == b"data: 1\n\ndata: 2\n\n"
    assert guarded_stream("GET", url, decode="json").read() == [1, 2]
    assert guarded_stream("GET", url, decode=lambda event: event.data).read() == ["1", "2"]
    stream = guarded_stream("GET", url, decode="json")
    next(stream)
    assert (stream.read(), stream.read()) == ([2], [])


def test_read_of_nothing(streamguard_gateway: Serve) -> None:
    """Of an empty body it is empty, and of the right type."""
    url = streamguard_gateway("end").url
    assert guarded_stream("GET", url, decode="bytes").read() == b""
    assert guarded_stream("GET", url, decode="events").read() == []
    assert guarded_stream("GET", url, strict=False).read() == ""


def test_read_leaves_heartbeats_out(streamguard_gateway: Serve) -> None:
    """Heartbeats are no chunks."""
    url = streamguard_gateway("event 1\nwait 0.3\nevent 2").url
    assert guarded_stream("GET", url, decode="json", heartbeat=0.05).read() == [1, 2]


def test_read_raises_what_iterating_would(streamguard_gateway: Serve) -> None:
    """An error on the way is raised, and the text so far stays."""
    stream = guarded_stream("POST", streamguard_gateway("chat a").url)
    with pytest.raises(IncompleteStreamError):
        stream.read()
    assert (stream.text, stream.message.text) == ("a", "a")


def test_the_message_is_assembled(streamguard_gateway: Serve) -> None:
    """`.message` has text, reasoning, tool calls, finish reason and usage; so has the report what it shares with it."""
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"x":'}}
    steps = [line(choice("a", reasoning_content="r")), line(choice("b", tool_calls=[call]))]
    rest = [line(choice(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}])), "finish tool_calls", "usage 1 2"]
    run = ask(streamguard_gateway([*steps, *rest, "done"]))
    message, report = run.stream.message, run.stream.report
    assert (message.text, message.reasoning, message.finish_reason) == ("ab", "r", "tool_calls")
    assert [(call.id, call.name, call.parse()) for call in message.tool_calls] == [("c", "f", {"x": 1})]
    assert (report.finish_reason, report.usage) == (message.finish_reason, message.usage)


def test_the_message_while_it_is_written(streamguard_gateway: Serve) -> None:
    """`.text` and `.message` may be read at any time, never block, and offer tool calls only at the end."""
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
    stream = guarded_stream("POST", streamguard_gateway(["chat a", line(choice(tool_calls=[call])), "stall"]).url)
    assert (stream.text, stream.message.text, stream.report.outcome) == ("", "", "running")
    next(stream)
    next(stream)
    assert (stream.text, stream.message.text, stream.message.tool_calls) == ("a", "a", ())
    stream.close()


def test_only_chat_has_a_message(streamguard_gateway: Serve) -> None:
    """Other decoders have no text, and asking for the message says so."""
    stream = guarded_stream("GET", streamguard_gateway("event 1").url, decode="events")
    assert len(list(stream)) == 1
    assert stream.text == ""
    with pytest.raises(UsageError, match="decode="):
        _ = stream.message


def test_heartbeats_come_in_every_phase(streamguard_gateway: Serve) -> None:
    """After so many seconds of nothing `next()` returns HEARTBEAT, which says the phase and how long it is silent."""
    stream = guarded_stream("POST", streamguard_gateway("wait 0.5\nheaders\nwait 0.5\nchat a\nstall").url, heartbeat=0.15)
    phases: list[str] = []
    chunk: Any
    for chunk in stream:
        if chunk is HEARTBEAT:
            assert (HEARTBEAT.text, bool(HEARTBEAT), HEARTBEAT.silence > 0) == ("", False, True)
            phases.append(HEARTBEAT.phase)
            if HEARTBEAT.phase == "idle":
                break
    stream.close()
    assert list(dict.fromkeys(phases)) == ["response", "first", "idle"]
    assert stream.report.chunks == 1


def test_heartbeats_do_not_delay_a_limit(streamguard_gateway: Serve) -> None:
    """They are silence: the limit fires when it would have without them."""
    run = ask(streamguard_gateway("chat a\nstall"), heartbeat=0.05, idle=0.4)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert 0.4 <= run.stream.report.lifetime < 0.4 + PROMPT
    assert sum(chunk is HEARTBEAT for chunk in run.chunks) >= 3
    assert (run.error.chunks, run.error.partial_text) == (1, "a")


def test_heartbeats_only_in_silence(streamguard_gateway: Serve) -> None:
    """While chunks come there are none; comments of the server's do not suppress them."""
    run = ask(streamguard_gateway("loop 10\nwait 0.02\ntick\nendloop\ndone"), heartbeat=1)
    assert HEARTBEAT not in run.chunks
    run = ask(streamguard_gateway("loop 10\nwait 0.05\ncomment hb\nendloop\nchat a\ndone"), heartbeat=0.2)
    assert any(chunk is HEARTBEAT for chunk in run.chunks)


@pytest.mark.parametrize("off", [None, 0, -1])
def test_no_heartbeats(streamguard_gateway: Serve, off: float | None) -> None:
    """They are off by default, and with None or nothing positive."""
    run = ask(streamguard_gateway("wait 0.2\nchat a\ndone"), heartbeat=off)
    assert len(run.chunks) == 1


@pytest.mark.parametrize("until", ["headers", "first"])
def test_open_neither_returns_nor_spins_for_heartbeats(streamguard_gateway: Serve, until: Any) -> None:
    """`open()` waits through heartbeats, without burning the processor."""
    stream = guarded_stream("POST", streamguard_gateway("wait 0.5\nchat a\ndone").url, heartbeat=0.05)
    before = time.thread_time()
    stream.open(until=until)
    assert time.thread_time() - before < 0.2
    assert stream.read() == "a"


def test_open_until_the_headers(streamguard_gateway: Serve) -> None:
    """`open()` returns the stream itself when the headers are here, before any chunk."""
    gateway = streamguard_gateway("headers x-request-id: r-9\nwait 0.3\nchat a\ndone")
    stream = guarded_stream("POST", gateway.url)
    assert stream.open() is stream
    assert (stream.response.status_code, stream.response.headers["x-request-id"]) == (200, "r-9")
    assert (stream.report.request_id, stream.report.chunks, gateway.requests[0].reached["chat"]) == ("r-9", 0, 0)
    assert stream.read() == "a"


def test_open_until_the_first_chunk(streamguard_gateway: Serve) -> None:
    """`open(until="first")` returns when a chunk is here, and takes none away; again, it changes nothing."""
    stream = guarded_stream("POST", streamguard_gateway("wait 0.2\nchat a\nstall").url)
    stream.open(until="first")
    assert (stream.report.chunks, stream.text) == (0, "")
    assert stream.open(until="first").open() is stream
    assert next(stream).text == "a"
    assert stream.open(until="first") is stream
    stream.close()
    assert stream.open(until="first") is stream


def test_open_raises_what_came_instead(streamguard_gateway: Serve) -> None:
    """Where next() would raise, so does open(), once."""
    with pytest.raises(HTTPStatusError):
        guarded_stream("POST", streamguard_gateway("headers 429").url).open()
    with pytest.raises(StreamInactivityTimeoutError):
        guarded_stream("POST", streamguard_gateway("headers\nstall").url, retry=None, first=0.1).open(until="first")
    stream = guarded_stream("POST", streamguard_gateway("event no").url, retry=None)
    with pytest.raises(MalformedChunkError):
        stream.open(until="first")
    assert list(stream) == []
    with pytest.raises(UsageError, match="until="):
        stream.open(until="later")  # type: ignore[arg-type]


def test_open_until_the_first_of_an_empty_stream(streamguard_gateway: Serve) -> None:
    """An empty stream that is fine has no first chunk: open() returns, and the loop ends."""
    run = consume(guarded_stream("GET", streamguard_gateway("end").url, decode="events").open(until="first"))
    assert (run.error, run.chunks, run.stream.report.outcome) == (None, [], "completed")


def test_a_heartbeat_is_the_one_wherever_it_goes() -> None:
    """Copied, or sent to another process."""
    assert copy.deepcopy([HEARTBEAT])[0] is HEARTBEAT
    assert pickle.loads(pickle.dumps(HEARTBEAT)) is HEARTBEAT
