"""Behaviours met in public bug reports: framing and decoding. Each test is named by its report's id."""

import json

import pytest

from streamguard import (
    IncompleteStreamError,
    MalformedChunkError,
    StreamInactivityTimeoutError,
    guarded_stream,
)
from streamguard.testing.wire import FRAMINGS

from ..helpers import PROMPT, Serve
from .helpers import Run, ask, choice

UNFINISHED = {"chunked": {}, "close": {}, "http10": {}, "length": {"length": 100_000}}
"""Options for a body that stalls: one whose length is announced must announce more than it sends."""


def events(run: Run) -> list[tuple[str, str]]:
    """Return name and data of each event that came."""
    return [(event.event, event.data) for event in run.chunks]


@pytest.mark.parametrize("step", ["raw ", "drip 1 0.001 | "])
@pytest.mark.parametrize("one", ["\\r\\n", "\\n", "\\r"])
@pytest.mark.parametrize("other", ["\\r\\n", "\\n", "\\r"])
def test_B055_a_crlf_split_over_two_chunks(streamguard_gateway: Serve, other: str, one: str, step: str) -> None:
    """CR, LF and CRLF, in any mixture and chunking, make one event of two data lines."""
    body = f"event: m{one}data: 1{other}data: 2{one}{one}event: n{other}data: 3{other}{other}"
    run = ask(streamguard_gateway(f"{step}{body}"), decode="events")
    assert (run.error, events(run)) == (None, [("m", "1\n2"), ("n", "3")])


def test_B056_no_empty_items_at_chunk_ends(streamguard_gateway: Serve) -> None:
    """Lines that end with their chunk yield what they hold, and nothing between."""
    run = ask(streamguard_gateway("raw data: a\\n\nraw data: b\\n\nraw \\n\nraw data: c\\n\\n"), decode="events")
    assert events(run) == [("message", "a\nb"), ("message", "c")]


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("end", ["\\n\\n", "\\r\\n\\r\\n", "\\r\\r"])
def test_B057_no_event_lags_behind(streamguard_gateway: Serve, framing: str, end: str) -> None:
    """The last event before a silence is handed over before the silence, in every framing and with every line end."""
    body = "\n".join(f"raw data: {number}{end}" for number in range(3))
    gateway = streamguard_gateway(f"{body}\nstall", framing=framing, **UNFINISHED[framing])
    with guarded_stream("GET", gateway.url, decode="events", idle=10) as stream:
        assert [next(stream).data for _ in range(3)] == ["0", "1", "2"]
        assert stream.report.lifetime < PROMPT


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_B058_an_unframed_body_is_no_single_blob(streamguard_gateway: Serve, framing: str, tls: bool) -> None:
    """Each event is handed over before the server goes on to the next."""
    gateway = streamguard_gateway("event 1\nwait 0.4\nevent 2\nwait 0.4\nevent 3", framing=framing, tls=tls)
    stream = guarded_stream("GET", gateway.url, decode="events", verify=gateway.ca if tls else True)
    sent = [gateway.requests[0].reached["event"] for _ in stream]
    assert len(sent) == 3
    assert all(count <= number for number, count in enumerate(sent, 1))  # a step counts a moment after it was sent


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_B059_large_events_take_linear_time(streamguard_gateway: Serve, framing: str) -> None:
    """A line of 400 kB, one of 1 MB in small pieces, and 1 MB of 20-byte events are a matter of moments."""
    small = "data: 0123456789ab\\n\\n" * 1_000
    pieces = f"raw data: \nloop 1000\nraw {'y' * 1_000}\nendloop\nraw \\n\\n"
    script = f"raw data: {'x' * 400_000}\\n\\n\n{pieces}\nloop 50\nraw {small}\nendloop"
    run = ask(streamguard_gateway(script, framing=framing), decode="events")
    assert [len(event.data) for event in run.chunks[:2]] == [400_000, 1_000_000]
    assert len(run.chunks) == 2 + 50_000
    assert run.stream.report.lifetime < 10


TEXT = "h\u00e9\u4f60\U0001f600"


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_B060_characters_split_over_chunks(streamguard_gateway: Serve, framing: str) -> None:
    """Multi-byte characters survive a body that comes byte by byte."""
    frame = json.dumps({"choices": [choice(TEXT)]}, ensure_ascii=False)
    run = ask(streamguard_gateway(f"drip 1 0 | data: {frame}\\n\\n\ndone", framing=framing))
    assert (run.error, run.texts) == (None, [TEXT])


@pytest.mark.parametrize("bad", ["\\xff", "\\xe4\\xbd", "\\xc3", "\\xed\\xa0\\x80"])
def test_B060_invalid_bytes_are_replaced(streamguard_gateway: Serve, bad: str) -> None:
    """Bytes that are no UTF-8 become U+FFFD, and the stream goes on."""
    run = ask(streamguard_gateway(f'raw data: {{"choices":[{{"delta":{{"content":"a{bad}b"}}}}]}}\\n\\n\nchat c\ndone'))
    assert run.error is None
    assert run.texts[0].strip("\ufffd") != run.texts[0] or "\ufffd" in run.texts[0]
    assert (run.texts[0][0], run.texts[0][-1], run.texts[1]) == ("a", "b", "c")


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_B062_a_read_that_begins_inside_a_character(streamguard_gateway: Serve, cut: int) -> None:
    """A block that ends inside a character, with an event before it and one behind it, loses nothing."""
    data = "data: 1\n\ndata: \U0001f600\n\ndata: 2\n\n".encode()
    at = data.index("\U0001f600".encode()) + cut
    first, rest = ("".join(f"\\x{byte:02x}" for byte in part) for part in (data[:at], data[at:]))
    run = ask(streamguard_gateway(f"raw {first}\nwait 0.1\nraw {rest}"), decode="events")
    assert [event.data for event in run.chunks] == ["1", "\U0001f600", "2"]


def test_B063_data_without_a_space(streamguard_gateway: Serve) -> None:
    """One blank behind the colon is taken away if there is one, and no more than one."""
    run = ask(streamguard_gateway("raw data:a\\n\\ndata: b\\n\\ndata:  c\\n\\n"), decode="events")
    assert [event.data for event in run.chunks] == ["a", "b", " c"]
    run = ask(streamguard_gateway('raw data:{"choices":[{"delta":{"content":"x"}}]}\\n\\ndata:[DONE]\\n\\n'))
    assert (run.error, run.texts) == (None, ["x"])


@pytest.mark.parametrize(
    "marker",
    ["data:[DONE]\\n\\n", "data: [DONE]\\r\\n\\r\\n", "data: [DONE]  \\n\\n", "data:\\t[DONE]\\n\\n", "data: [DONE]\\r\\r"],
)
def test_B064_the_end_marker_with_any_blanks(streamguard_gateway: Serve, marker: str) -> None:
    """The end marker is known whatever stands around it."""
    run = ask(streamguard_gateway(f"chat a\nraw {marker}\nlinger"))
    assert (run.error, run.stream.report.outcome) == (None, "completed")


def test_B064_no_letter_of_the_payload_is_stripped(streamguard_gateway: Serve) -> None:
    """Payloads that begin with letters of `data` come whole."""
    run = ask(streamguard_gateway("event data: at\nevent at: dad\nevent : tad"), decode="events")
    assert [event.data for event in run.chunks] == ["data: at", "at: dad", ": tad"]


CONTROL = "raw retry: 1000\\n\\nid: 7\\n\\nevent: ping\\n\\ndata:\\n\\ndata\\n\\n"


@pytest.mark.parametrize("decode", ["chat", "json"])
def test_B065_control_events_are_no_chunks(streamguard_gateway: Serve, decode: str) -> None:
    """Events that only set a time, an id or a name, or whose data is empty, are neither handed over nor parsed."""
    run = ask(streamguard_gateway(f'{CONTROL}\nevent {{"choices":[]}}\n{CONTROL}\ndone'), decode=decode)
    assert (run.error, run.chunks) == (None, [{"choices": []}])


def test_B065_control_events_are_no_progress(streamguard_gateway: Serve) -> None:
    """Nor do they keep a stream alive."""
    run = ask(streamguard_gateway(f"chat a\nloop forever\n{CONTROL}\nwait 0.05\nendloop"), idle=0.4)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.error.phase, run.error.chunks) == ("idle", 1)


def test_B066_several_data_lines_are_joined(streamguard_gateway: Serve) -> None:
    """The data lines of an event are joined by line feeds: all of them count."""
    run = ask(streamguard_gateway('raw data: {\\ndata: "a":\\ndata\\ndata: 1}\\n\\n'), decode="json")
    assert run.chunks == [{"a": 1}]


def test_B067_a_chunk_that_begins_with_a_newline(streamguard_gateway: Serve) -> None:
    """The boundaries of chunks carry no meaning."""
    run = ask(streamguard_gateway("raw data: {\nwait 0.05\nraw \\ndata: }\nwait 0.05\nraw \\n\nraw \\n"), decode="json")
    assert run.chunks == [{}]


@pytest.mark.parametrize("end", ["", "\\n", "\\r\\n", "\\r"])
def test_B068_a_last_event_without_its_blank_line(streamguard_gateway: Serve, end: str) -> None:
    """It is handed over if its JSON is whole, and completes the stream only by what it says."""
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
def test_B069_a_lone_cr_at_the_end(streamguard_gateway: Serve, framing: str, end: str) -> None:
    """An event whose blank line ends with a lone CR at the end of the body is complete."""
    run = ask(streamguard_gateway(f"raw data: x{end}", framing=framing), decode="events")
    assert (run.error, [event.data for event in run.chunks]) == (None, ["x"])


def test_B070_comments_everywhere(streamguard_gateway: Serve) -> None:
    """Comments before, between and directly in front of data are counted, never handed over; unknown fields ignored."""
    data = 'data: {"choices":[{"delta":{"content":"b"}}]}'
    comment = ": OPENROUTER PROCESSING"
    run = ask(
        streamguard_gateway(f"raw {comment}\\n\\n\nchat a\nraw {comment}\\n{data}\\n{comment}\\nfoo: bar\\n:\\n\\n\ndone")
    )
    assert (run.error, run.texts, run.stream.report.comments) == (None, ["a", "b"], 4)


def test_B071_a_comment_dressed_as_data(streamguard_gateway: Serve) -> None:
    """A comment that a gateway turned into data is malformed, and the error quotes no more than 200 characters."""
    run = ask(streamguard_gateway(f"chat a\nraw data: : OPENROUTER PROCESSING {'x' * 5_000}\\n\\n\nchat b\ndone"))
    assert type(run.error) is MalformedChunkError
    assert ": OPENROUTER PROCESSING" in str(run.error)
    assert len(str(run.error)) < 400
    assert run.texts == ["a"]


def test_B072_a_server_without_blank_lines(streamguard_gateway: Serve) -> None:
    """Data lines that never complete an event are no progress: the silence of chunks fires, though bytes come."""
    run = ask(streamguard_gateway("loop forever\nraw data: {}\\n\nwait 0.02\nendloop"), first=0.4)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.error.phase, run.error.chunks) == ("first", 0)
    assert run.error.bytes


def test_B072_an_event_above_the_cap(streamguard_gateway: Serve) -> None:
    """Sent fast enough, they are an event above the cap."""
    lines = "data: {}\\n" * 20_000
    run = ask(streamguard_gateway(f"loop forever\nraw {lines}\nendloop"), first=30)
    assert type(run.error) is MalformedChunkError


def test_B073_extra_blank_lines(streamguard_gateway: Serve) -> None:
    """Blank lines without data dispatch nothing, and merge nothing."""
    body = "\\n\\nevent: hello\\ndata: 1\\n\\n\\n\\n\\nevent: hello\\ndata: 2\\n\\n\\n"
    run = ask(streamguard_gateway(f"raw {body}"), decode="events")
    assert events(run) == [("hello", "1"), ("hello", "2")]
