"""What `decode=` returns: chunks, events, JSON, bytes, or what a callable makes of events."""

from typing import Any

import pytest
import sseclient

from streamguard import (
    Chunk,
    MalformedChunkError,
    TransportError,
    has_content,
)
from streamguard.testing.wire import ENCODINGS, FRAMINGS

from ...helpers import Serve
from ..helpers import ask, choice, line


@pytest.mark.parametrize("decode", ["events", "json"])
@pytest.mark.parametrize("framing", FRAMINGS)
def test_events_end_with_any_whole_body(streamguard_gateway: Serve, decode: str, framing: str) -> None:
    """`decode="events"` and `"json"` need no end marker: a well-framed end is complete."""
    run = ask(streamguard_gateway("event 1\nevent 2", framing=framing), decode=decode)
    assert (run.error, len(run.chunks), run.stream.report.outcome) == (None, 2, "completed")


@pytest.mark.parametrize("decode", ["events", "json", "bytes"])
def test_events_end_only_with_a_whole_body(streamguard_gateway: Serve, decode: str) -> None:
    """A body that is cut short is an error for every decoder."""
    run = ask(streamguard_gateway("event 1\nevent 2\nclose"), decode=decode)
    assert isinstance(run.error, TransportError)
    assert run.chunks


def test_events_without_an_event(streamguard_gateway: Serve) -> None:
    """An event stream without events is complete, except for chat."""
    run = ask(streamguard_gateway("comment hb"), decode="events")
    assert (run.error, run.stream.report.outcome, run.stream.report.comments) == (None, "completed", 1)


def test_chat_chunks_are_dicts(streamguard_gateway: Serve) -> None:
    """`decode="chat"`, the default, returns the server's objects, with properties for the common values."""
    run = ask(streamguard_gateway([line(choice("a", reasoning_content="hm"), id="x"), "finish", "done"]))
    first, last = run.chunks
    assert isinstance(first, dict)
    assert isinstance(first, Chunk)
    assert first["id"] == "x"
    assert (first.text, first.reasoning, first.tool_calls, first.finish_reason, first.usage) == ("a", "hm", [], None, None)
    assert last.finish_reason == "stop"


def test_events_are_those_of_sseclient(streamguard_gateway: Serve) -> None:
    """`decode="events"` returns sseclient's events, [DONE] included, up to the end of the body."""
    run = ask(streamguard_gateway("raw id: 7\\nevent: e\\nretry: 9\\ndata: 1\\n\\n\ndone\nevent 2"), decode="events")
    assert all(isinstance(event, sseclient.Event) for event in run.chunks)
    assert [(event.event, event.data, event.id, event.retry) for event in run.chunks] == [
        ("e", "1", "7", 9),
        ("message", "[DONE]", "7", None),
        ("message", "2", "7", None),
    ]


def test_an_unfinished_event_is_discarded(streamguard_gateway: Serve) -> None:
    """`decode="events"` follows the standard: an event without its blank line is discarded."""
    run = ask(streamguard_gateway("event 1\nraw data: 2\\n"), decode="events")
    assert (run.error, [event.data for event in run.chunks]) == (None, ["1"])


def test_json_is_the_data_of_each_event(streamguard_gateway: Serve) -> None:
    """`decode="json"` returns each event's value, whatever it is, up to [DONE]."""
    run = ask(
        streamguard_gateway('event {"a":1}\nevent [2]\nevent "x"\nevent 0\nraw data:\\n\\n\ndone\nevent no'), decode="json"
    )
    assert (run.error, run.chunks) == (None, [{"a": 1}, [2], "x", 0])


@pytest.mark.parametrize("options", [{}, {"heartbeat": 5}, {"counts": bool}])
def test_null_is_a_value(streamguard_gateway: Serve, options: dict[str, Any]) -> None:
    """`null`, `false` and `""` are values, returned with every option."""
    run = ask(streamguard_gateway('event null\nevent false\nevent ""\ndone'), decode="json", **options)
    assert (run.error, run.chunks, run.stream.report.chunks) == (None, [None, False, ""], 3)


def test_data_that_is_not_json(streamguard_gateway: Serve) -> None:
    """Data that is not JSON is malformed, after the values before it."""
    run = ask(streamguard_gateway("event 1\nevent {1}\nevent 2"), decode="json")
    assert type(run.error) is MalformedChunkError
    assert run.chunks == [1]


def test_a_last_json_event_without_its_blank_line(streamguard_gateway: Serve) -> None:
    """It is returned if it is complete, and dropped if not."""
    assert ask(streamguard_gateway('event 1\nraw data: {"a":2}'), decode="json").chunks == [1, {"a": 2}]
    assert ask(streamguard_gateway('event 1\nraw data: {"a":'), decode="json").chunks == [1]
    assert ask(streamguard_gateway("event 1\nraw data: 12"), decode="json").chunks == [1], "it may have begun 123"
    assert ask(streamguard_gateway("event 1\nraw data: 12\\n"), decode="json").chunks == [1, 12]
    assert ask(streamguard_gateway("event 1\nraw data: 12\\r\\nid: 4"), decode="json").chunks == [1, 12]


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_bytes_are_the_decoded_body(streamguard_gateway: Serve, framing: str, encoding: str | None) -> None:
    """`decode="bytes"` returns the body as it arrives, decompressed, in every framing and encoding."""
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
    """Its exception ends the stream unchanged (StopIteration as a RuntimeError), and the server sees the client leave."""

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


@pytest.mark.parametrize(
    "odd",
    ['{"choices":[]}', "{}", '{"choices":null}', '{"choices":[{}]}', '{"choices":[{"delta":null}]}', '{"choices":[null]}'],
)
def test_odd_chunks_have_no_text(streamguard_gateway: Serve, odd: str) -> None:
    """Chunks with empty or missing parts add nothing to the text, and raise nothing (B075)."""
    run = ask(streamguard_gateway(f"chat a\nevent {odd}\nchat b\nfinish\ndone"))
    assert (run.error, run.texts, run.stream.text, run.stream.message.text) == (None, ["a", "b"], "ab", "ab")


def test_an_unknown_payload_is_handed_over(streamguard_gateway: Serve) -> None:
    """An unknown JSON object is returned unchanged (B082)."""
    run = ask(streamguard_gateway('event {"progress":0.5,"message":"working"}\nchat a\ndone'))
    assert (run.error, run.chunks[0]) == (None, {"progress": 0.5, "message": "working"})


def test_has_content_for_reports(streamguard_gateway: Serve) -> None:
    """With `counts=has_content` the first chunk that counts is the first with text."""
    run = ask(streamguard_gateway([line(choice(role="assistant")), "wait 0.2", "chat a", "done"]), counts=has_content)
    report = run.stream.report
    assert report.time_to_first_byte is not None
    assert report.time_to_first_chunk is not None
    assert report.time_to_first_chunk - report.time_to_first_byte >= 0.15
