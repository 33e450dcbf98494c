"""Payloads that are not chunks, frames of another API, and events above the cap."""

import json
from typing import Any

import pytest

from streamguard import (
    MalformedChunkError,
    StreamInactivityTimeoutError,
)

from ..helpers import Serve
from .helpers import ask, choice, consume, failure, line, stream_from

WHOLE = '{"choices": [{"index": 0, "delta": {"content": "whole"}}]}'
BAD_PAYLOADS = ["not json", "{", '{"a": }', "[1, 2]", "5", "null", '"text"', "<html>", "[DONE", "DONE", "{} {}", "\N{BOMB}"]


@pytest.mark.parametrize("payload", BAD_PAYLOADS)
def test_a_payload_that_is_not_a_chunk_is_quoted(streamguard_gateway: Serve, payload: str) -> None:
    """The chunks before it, also those of the same packet, are returned first; the error quotes the payload."""
    gateway = streamguard_gateway(f"raw data: {WHOLE}\\n\\ndata: {payload}\\n\\n\nstall")
    seen = consume(stream_from(gateway, idle=5))
    assert isinstance(seen.error, MalformedChunkError)
    assert (seen.texts, seen.error.chunks) == (["whole"], 1)
    assert payload.strip("\"'") in str(seen.error)
    gateway.wait_left()


def test_the_quote_of_a_long_payload_is_short(streamguard_gateway: Serve) -> None:
    """At most 200 characters of it are in the message."""
    error = failure(stream_from(streamguard_gateway(f"event {'x' * 50_000}\ndone")))
    assert isinstance(error, MalformedChunkError)
    assert str(error).count("x") < 220


@pytest.mark.parametrize(
    "payload",
    [r'{"choices": [{"index": 0, "delta": {"content": "a\0b"}}]}', r"\0", r"\0\0{}"],
)
def test_nul_bytes_are_not_json(streamguard_gateway: Serve, payload: str) -> None:
    """NUL bytes in a chat payload are a malformed chunk, after the good ones."""
    gateway = streamguard_gateway(f"event {WHOLE}\nraw data: {payload}\\n\\n\ndone")
    seen = consume(stream_from(gateway))
    assert isinstance(seen.error, MalformedChunkError)
    assert seen.texts == ["whole"]


def test_nul_bytes_are_data_of_an_event(streamguard_gateway: Serve) -> None:
    """As events they are accepted, by the standard; an id with one is ignored."""
    gateway = streamguard_gateway(r"raw id: a\0b\ndata: x\0y\n\n" + "\nend")
    (event,) = consume(stream_from(gateway, decode="events")).chunks
    assert (event.data, event.id) == ("x\0y", "")


@pytest.mark.parametrize("decode", ["chat", "events", "json"])
@pytest.mark.parametrize("start", ["raw data: ", "raw :", "raw "])
def test_sixteen_mebibytes_without_an_end_are_refused(streamguard_gateway: Serve, decode: Any, start: str) -> None:
    """An endless line, data or comment, is stopped at the cap, in little time."""
    gateway = streamguard_gateway(f"event {WHOLE}\n{start}x\nloop forever\nraw {'x' * 1_000_000}\nendloop")
    seen = consume(stream_from(gateway, decode=decode, total=30))
    assert isinstance(seen.error, MalformedChunkError)
    assert len(seen.chunks) == 1
    assert "16 MiB" in str(seen.error)
    assert seen.elapsed < 10
    gateway.wait_left()


def test_a_hundred_thousand_data_lines_are_one_event(streamguard_gateway: Serve) -> None:
    """They are joined, in linear time, and delivered as one event."""
    gateway = streamguard_gateway("loop 100\nraw " + r"data: x\n" * 1000 + "\nendloop\n" + r"raw \n" + "\nend")
    seen = consume(stream_from(gateway, decode="events"))
    assert [len(event.data) for event in seen.chunks] == [199_999]
    assert seen.elapsed < 10


def test_a_hundred_thousand_data_lines_of_json_are_one_chunk(streamguard_gateway: Serve) -> None:
    """The same for a chat chunk that is spread over as many lines."""
    lines = [r"raw data: {\"choices\": [],\ndata: \"a\": [".replace('\\"', '"')]
    lines += ["loop 100", "raw " + r"\ndata: 1," * 1000, "endloop", r"raw \ndata: 1]}\n\n", "done"]
    seen = consume(stream_from(streamguard_gateway("\n".join(lines)), strict=False))
    assert (seen.error, [len(chunk["a"]) for chunk in seen.chunks]) == (None, [100_001])


def test_an_event_just_below_the_cap_is_delivered(streamguard_gateway: Serve) -> None:
    """An event just below sixteen mebibytes is delivered like any other."""
    gateway = streamguard_gateway(f"raw data: \nloop 16\nraw {'x' * 1_000_000}\nendloop\n" + r"raw \n\n" + "\nend")
    seen = consume(stream_from(gateway, decode="events"))
    assert [len(event.data) for event in seen.chunks] == [16_000_000]


MIB = 1 << 20

ENDLESS = {
    "line": "x" * MIB,
    "data-lines": "data: xxxxxxxx\\n" * 50_000,
    "comments": ": xxxxxxxxxxxxxxx\\n" * 50_000,
}


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("decode", ["chat", "events"])
def test_an_event_without_end_is_malformed(streamguard_gateway: Serve, kind: str, decode: str) -> None:
    """An event above 16 MiB ends the stream with an error, and the server sees the client leave."""
    gateway = streamguard_gateway(f"chat a\nloop forever\nraw {ENDLESS[kind]}\nendloop")
    run = ask(gateway, decode=decode, idle=20)
    assert len(run.chunks) == 1
    assert type(run.error) is MalformedChunkError
    assert "MiB" in str(run.error) or "lines" in str(run.error)
    assert 8 * MIB < run.stream.report.bytes < 24 * MIB
    gateway.wait_left()


def test_an_event_below_the_cap_is_handed_over(streamguard_gateway: Serve) -> None:
    """An event of 15 MiB is a chunk like any other, in linear time."""
    run = ask(streamguard_gateway([line(choice("x" * 15 * MIB)), "done"]), idle=20)
    assert run.error is None
    assert len(run.chunks[0].text) == 15 * MIB
    assert run.stream.report.lifetime < 10


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
    """A payload that cannot be a chunk raises after the chunks before it, quoting at most 200 characters."""
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
    """A stream of another API is malformed; the message names the API and the `decode=` for it."""
    run = ask(streamguard_gateway([frame, "done"]))
    assert type(run.error) is MalformedChunkError
    assert api in str(run.error)
    assert "decode=" in str(run.error)


def test_a_comment_that_became_data(streamguard_gateway: Serve) -> None:
    """A comment that a gateway turned into data is malformed, and the error quotes at most 200 characters (B071)."""
    run = ask(streamguard_gateway(f"chat a\nraw data: : OPENROUTER PROCESSING {'x' * 5_000}\\n\\n\nchat b\ndone"))
    assert type(run.error) is MalformedChunkError
    assert ": OPENROUTER PROCESSING" in str(run.error)
    assert len(str(run.error)) < 400
    assert run.texts == ["a"]


def test_a_server_without_blank_lines(streamguard_gateway: Serve) -> None:
    """Data lines that never complete an event are not progress: `first` fires, though bytes arrive (B072)."""
    run = ask(streamguard_gateway("loop forever\nraw data: {}\\n\nwait 0.02\nendloop"), first=0.4)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.error.phase, run.error.chunks) == ("first", 0)
    assert run.error.bytes


def test_an_event_above_the_cap(streamguard_gateway: Serve) -> None:
    """Sent fast enough, they are an event above the cap (B072)."""
    lines = "data: {}\\n" * 20_000
    run = ask(streamguard_gateway(f"loop forever\nraw {lines}\nendloop"), first=30)
    assert type(run.error) is MalformedChunkError
