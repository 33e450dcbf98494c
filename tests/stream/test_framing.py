"""Events over real sockets: any framing of the body, any cut, characters, control fields, comments."""

import json

import pytest

from streamguard import (
    StreamInactivityTimeoutError,
    guarded_stream,
)
from streamguard.testing.wire import FRAMINGS

from ..helpers import PROMPT, Serve
from .helpers import ask, choice

UNFINISHED = {"chunked": {}, "close": {}, "http10": {}, "length": {"length": 100_000}}
"""Options for a body that stalls: one whose length is announced must announce more than it sends."""


@pytest.mark.parametrize("step", ["raw ", "drip 1 0.001 | "])
@pytest.mark.parametrize("one", ["\\r\\n", "\\n", "\\r"])
@pytest.mark.parametrize("other", ["\\r\\n", "\\n", "\\r"])
def test_a_crlf_split_over_two_chunks(streamguard_gateway: Serve, other: str, one: str, step: str) -> None:
    """CR, LF and CRLF, in any mixture and chunking, make one event of two data lines (B055)."""
    body = f"event: m{one}data: 1{other}data: 2{one}{one}event: n{other}data: 3{other}{other}"
    run = ask(streamguard_gateway(f"{step}{body}"), decode="events")
    assert (run.error, run.events) == (None, [("m", "1\n2"), ("n", "3")])


def test_no_empty_items_at_chunk_ends(streamguard_gateway: Serve) -> None:
    """Lines that end with their chunk yield their data, and no empty items (B056)."""
    run = ask(streamguard_gateway("raw data: a\\n\nraw data: b\\n\nraw \\n\nraw data: c\\n\\n"), decode="events")
    assert run.events == [("message", "a\nb"), ("message", "c")]


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("end", ["\\n\\n", "\\r\\n\\r\\n", "\\r\\r"])
def test_no_event_lags_behind(streamguard_gateway: Serve, framing: str, end: str) -> None:
    """The last event before a silence is returned before the silence, in every framing and with every line end (B057)."""
    body = "\n".join(f"raw data: {number}{end}" for number in range(3))
    gateway = streamguard_gateway(f"{body}\nstall", framing=framing, **UNFINISHED[framing])
    with guarded_stream("GET", gateway.url, decode="events", idle=10) as stream:
        assert [next(stream).data for _ in range(3)] == ["0", "1", "2"]
        assert stream.report.lifetime < PROMPT


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_an_unframed_body_is_not_one_blob(streamguard_gateway: Serve, framing: str, tls: bool) -> None:
    """Each event is returned before the server goes on to the next (B058)."""
    gateway = streamguard_gateway("event 1\nwait 0.4\nevent 2\nwait 0.4\nevent 3", framing=framing, tls=tls)
    stream = guarded_stream("GET", gateway.url, decode="events", verify=gateway.ca if tls else True)
    sent = [gateway.requests[0].reached["event"] for _ in stream]
    assert len(sent) == 3
    assert all(count <= number for number, count in enumerate(sent, 1))  # a step counts a moment after it was sent


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_large_events_take_linear_time(streamguard_gateway: Serve, framing: str) -> None:
    """A line of 400 kB, one of 1 MB in small pieces, and 1 MB of 20-byte events take little time (B059)."""
    small = "data: 0123456789ab\\n\\n" * 1_000
    pieces = f"raw data: \nloop 1000\nraw {'y' * 1_000}\nendloop\nraw \\n\\n"
    script = f"raw data: {'x' * 400_000}\\n\\n\n{pieces}\nloop 50\nraw {small}\nendloop"
    run = ask(streamguard_gateway(script, framing=framing), decode="events")
    assert [len(event.data) for event in run.chunks[:2]] == [400_000, 1_000_000]
    assert len(run.chunks) == 2 + 50_000
    assert run.stream.report.lifetime < 10


TEXT = "h\u00e9\u4f60\U0001f600"


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_characters_split_over_chunks(streamguard_gateway: Serve, framing: str) -> None:
    """Multi-byte characters survive a body that arrives byte by byte (B060)."""
    frame = json.dumps({"choices": [choice(TEXT)]}, ensure_ascii=False)
    run = ask(streamguard_gateway(f"drip 1 0 | data: {frame}\\n\\n\ndone", framing=framing))
    assert (run.error, run.texts) == (None, [TEXT])


@pytest.mark.parametrize("bad", ["\\xff", "\\xe4\\xbd", "\\xc3", "\\xed\\xa0\\x80"])
def test_invalid_bytes_are_replaced(streamguard_gateway: Serve, bad: str) -> None:
    """Bytes that are not UTF-8 become U+FFFD, and the stream goes on (B060)."""
    run = ask(streamguard_gateway(f'raw data: {{"choices":[{{"delta":{{"content":"a{bad}b"}}}}]}}\\n\\n\nchat c\ndone'))
    assert run.error is None
    assert run.texts[0].strip("\ufffd") != run.texts[0] or "\ufffd" in run.texts[0]
    assert (run.texts[0][0], run.texts[0][-1], run.texts[1]) == ("a", "b", "c")


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_read_that_begins_inside_a_character(streamguard_gateway: Serve, cut: int) -> None:
    """A block that ends inside a character, with an event before it and one after it, loses nothing (B062)."""
    data = "data: 1\n\ndata: \U0001f600\n\ndata: 2\n\n".encode()
    at = data.index("\U0001f600".encode()) + cut
    first, rest = ("".join(f"\\x{byte:02x}" for byte in part) for part in (data[:at], data[at:]))
    run = ask(streamguard_gateway(f"raw {first}\nwait 0.1\nraw {rest}"), decode="events")
    assert [event.data for event in run.chunks] == ["1", "\U0001f600", "2"]


def test_data_without_a_space(streamguard_gateway: Serve) -> None:
    """One space after the colon is removed if there is one, and no more than one (B063)."""
    run = ask(streamguard_gateway("raw data:a\\n\\ndata: b\\n\\ndata:  c\\n\\n"), decode="events")
    assert [event.data for event in run.chunks] == ["a", "b", " c"]
    run = ask(streamguard_gateway('raw data:{"choices":[{"delta":{"content":"x"}}]}\\n\\ndata:[DONE]\\n\\n'))
    assert (run.error, run.texts) == (None, ["x"])


@pytest.mark.parametrize(
    "marker",
    ["data:[DONE]\\n\\n", "data: [DONE]\\r\\n\\r\\n", "data: [DONE]  \\n\\n", "data:\\t[DONE]\\n\\n", "data: [DONE]\\r\\r"],
)
def test_the_end_marker_with_any_blanks(streamguard_gateway: Serve, marker: str) -> None:
    """The end marker is detected with any blanks around it (B064)."""
    run = ask(streamguard_gateway(f"chat a\nraw {marker}\nlinger"))
    assert (run.error, run.stream.report.outcome) == (None, "completed")


def test_no_letter_of_the_payload_is_stripped(streamguard_gateway: Serve) -> None:
    """Payloads that begin with letters of `data` are complete (B064)."""
    run = ask(streamguard_gateway("event data: at\nevent at: dad\nevent : tad"), decode="events")
    assert [event.data for event in run.chunks] == ["data: at", "at: dad", ": tad"]


CONTROL = "raw retry: 1000\\n\\nid: 7\\n\\nevent: ping\\n\\ndata:\\n\\ndata\\n\\n"


@pytest.mark.parametrize("decode", ["chat", "json"])
def test_control_events_are_not_chunks(streamguard_gateway: Serve, decode: str) -> None:
    """Events that only set a time, an id or a name, or have empty data, are neither returned nor parsed (B065)."""
    run = ask(streamguard_gateway(f'{CONTROL}\nevent {{"choices":[]}}\n{CONTROL}\ndone'), decode=decode)
    assert (run.error, run.chunks) == (None, [{"choices": []}])


def test_control_events_are_not_progress(streamguard_gateway: Serve) -> None:
    """Control events do not restart `idle` (B065)."""
    run = ask(streamguard_gateway(f"chat a\nloop forever\n{CONTROL}\nwait 0.05\nendloop"), idle=0.4)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.error.phase, run.error.chunks) == ("idle", 1)


def test_several_data_lines_are_joined(streamguard_gateway: Serve) -> None:
    """The data lines of an event are joined by line feeds: all of them count (B066)."""
    run = ask(streamguard_gateway('raw data: {\\ndata: "a":\\ndata\\ndata: 1}\\n\\n'), decode="json")
    assert run.chunks == [{"a": 1}]


def test_a_chunk_that_begins_with_a_newline(streamguard_gateway: Serve) -> None:
    """The boundaries of chunks have no meaning (B067)."""
    run = ask(streamguard_gateway("raw data: {\nwait 0.05\nraw \\ndata: }\nwait 0.05\nraw \\n\nraw \\n"), decode="json")
    assert run.chunks == [{}]


def test_comments_everywhere(streamguard_gateway: Serve) -> None:
    """Comments before, between and in front of data are counted, never returned; unknown fields are ignored (B070)."""
    data = 'data: {"choices":[{"delta":{"content":"b"}}]}'
    comment = ": OPENROUTER PROCESSING"
    run = ask(
        streamguard_gateway(f"raw {comment}\\n\\n\nchat a\nraw {comment}\\n{data}\\n{comment}\\nfoo: bar\\n:\\n\\n\ndone")
    )
    assert (run.error, run.texts, run.stream.report.comments) == (None, ["a", "b"], 4)


def test_extra_blank_lines(streamguard_gateway: Serve) -> None:
    """Blank lines without data dispatch nothing, and merge nothing (B073)."""
    body = "\\n\\nevent: hello\\ndata: 1\\n\\n\\n\\n\\nevent: hello\\ndata: 2\\n\\n\\n"
    run = ask(streamguard_gateway(f"raw {body}"), decode="events")
    assert run.events == [("hello", "1"), ("hello", "2")]


def test_events_are_those_of_the_standard(streamguard_gateway: Serve) -> None:
    """The standard ignores lines that are not fields: `decode="events"` returns no event, and no error."""
    run = ask(streamguard_gateway("raw upstream connect error"), decode="events")
    assert (run.error, run.chunks) == (None, [])


@pytest.mark.parametrize("decode", ["chat", "events", "json"])
def test_lines_that_the_standard_ignores_do_no_harm(streamguard_gateway: Serve, decode: str) -> None:
    """Unknown fields next to known ones, and anything after the end marker, are ignored."""
    gateway = streamguard_gateway('raw x: y\\n\\n\nchat a\nraw {"error":\\n\nfinish\ndone\nraw {"error":"late"}')
    run = ask(gateway, decode=decode)
    assert run.error is None
    assert len(run.chunks) >= 2
