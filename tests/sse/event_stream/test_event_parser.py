"""Events: the 256 cases of the contract, a naive reference decoder, and sseclient itself as peers."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest
import sseclient
from hypothesis import given
from hypothesis import strategies as st

from streamguard._sse import Event, EventClient
from streamguard.errors import MalformedChunkError
from tests.sse.pieces import bytewise, cut
from tests.sse.reference import Reference

CASES = json.loads((Path(__file__).parents[2] / "data" / "sse.json").read_text("utf-8"))
FIELDS = ("event", "data", "id", "retry")

by_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def fields(event: Event) -> tuple[Any, ...]:
    return tuple(getattr(event, name) for name in FIELDS)


def check(case: dict[str, Any], pieces: list[bytes]) -> None:
    client = EventClient()
    events = [event for piece in pieces for event in client.feed(piece)]
    assert [fields(event) for event in events] == [tuple(e[name] for name in FIELDS) for e in case["expected"]]
    assert all(type(event) is sseclient.Event for event in events)
    assert client.last_event_id == case["final"]["last_event_id"]
    assert client.retry_ms == case["final"]["retry_ms"]


def stream_of(case: dict[str, Any]) -> bytes:
    return base64.b64decode(case["input_base64"])


def test_all_cases_are_here() -> None:
    """The contract has 256 cases."""
    assert len(CASES) == 256


@by_case
def test_case_whole(case: dict[str, Any]) -> None:
    """Every case in one piece."""
    check(case, [stream_of(case)])


@by_case
def test_case_byte_by_byte(case: dict[str, Any]) -> None:
    """Every case in single bytes."""
    check(case, bytewise(stream_of(case)))


@pytest.mark.parametrize("case", [c for c in CASES if c.get("split_at")], ids=lambda case: case["name"])
def test_case_at_its_own_cuts(case: dict[str, Any]) -> None:
    """Cases that come with offsets are cut there."""
    check(case, cut(stream_of(case), case["split_at"]))


@given(st.sampled_from(CASES), st.data())
def test_case_in_random_pieces(case: dict[str, Any], data: st.DataObject) -> None:
    """Any case, cut anywhere."""
    stream = stream_of(case)
    check(case, cut(stream, data.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted))))


@by_case
def test_case_through_the_public_events_method(case: dict[str, Any]) -> None:
    """`events()` over an iterable gives the same events, and discards the unfinished last block."""
    stream = stream_of(case)
    client = EventClient(iter([stream[:7], stream[7:]]))
    assert [fields(e) for e in client.events()] == [tuple(e[name] for name in FIELDS) for e in case["expected"]]
    assert client.last_event_id == case["final"]["last_event_id"]


NAMES = [b"data", b"event", b"id", b"retry", b"dat", b"Data"]
LINES = [b"data: x\n", b"data: y\n\n", b"data:\n", b"id: 7\n", b"id\n", b"retry: 12\n", b"event: e\n", b": ping\n\n"]
ENDS = [b"\n", b"\r", b"\r\n", b"\n\n", b"\r\r", b"\r\n\r\n"]
VALUES = [b":", b": ", b" ", b"0", b"31", b"x", "é".encode(), "\u0663".encode()]
TRAPS = [b"\0", b"\t", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\xff", b"\xe2\x82", b"\xc2\x85", b"\x0b", b"\x1c"]
TOKENS = st.sampled_from([*NAMES, *LINES, *ENDS, *VALUES, *TRAPS])
STREAMS = st.lists(TOKENS, max_size=40).map(b"".join)


@given(STREAMS, st.data())
def test_a_naive_decoder_written_from_the_standard_agrees(stream: bytes, data: st.DataObject) -> None:
    """Events, ids, retries and comments equal the standard's, for any stream in any pieces."""
    client = EventClient()
    pieces = cut(stream, data.draw(st.lists(st.integers(0, len(stream)), max_size=12).map(sorted)))
    events = [fields(event) for piece in pieces for event in client.feed(piece)]
    standard = Reference().decode(stream)
    assert events == standard.events
    assert client.last_event_id == standard.last_event_id
    last = client.finish()
    closed = Reference().decode(stream + b"\n\n")
    assert events + ([fields(last)] if last else []) == closed.events
    assert client.last_event_id == standard.last_event_id
    assert (client.retry_ms, client.comments) == (closed.reconnection_time, closed.comments)


LINE = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=12)
NAME = LINE.filter(lambda name: name.strip() and name[0] != " ")


@given(st.lists(st.tuples(NAME, NAME, st.lists(LINE, min_size=1, max_size=4), st.integers(0, 9999)), max_size=5))
def test_sseclient_agrees_on_well_behaved_streams(events: list[tuple[str, str, list[str], int]]) -> None:
    """With LF line ends, complete blocks and an id in each, the plain library yields the same events."""
    blocks = [
        f"event: {name}\nid: {id_}\nretry: {retry}\n" + "".join(f"data: {line}\n" for line in lines) + "\n"
        for name, id_, lines, retry in events
    ]
    pieces = [block.encode() for block in blocks]
    peer = [(e.event, e.data, e.id, int(e.retry)) for e in sseclient.SSEClient(iter(pieces)).events()]
    assert [fields(event) for event in EventClient(pieces).events()] == peer
    assert len(peer) == len(events)


def test_the_client_is_sseclients_own() -> None:
    """It is an SSEClient in type, and closes its source like one."""
    closed = []

    class Source(list[bytes]):
        def close(self) -> None:
            closed.append(True)

    client = EventClient(Source([b"data: x\n\n"]))
    assert isinstance(client, sseclient.SSEClient)
    assert [event.data for event in client.events()] == ["x"]
    client.close()
    assert closed == [True]


@pytest.mark.parametrize("rest", [b"data: b", b"data: b\n", b"data: b\r", b"data: b\r\n", b"id: 2\ndata: b\nevent: e"])
def test_an_unfinished_last_block_is_the_callers_decision(rest: bytes) -> None:
    """`finish()` returns it, `events()` does not, and neither takes its id (B068)."""
    client = EventClient()
    assert [event.data for event in client.feed(b"id: 1\ndata: a\n\n" + rest)] == ["a"]
    last = client.finish()
    assert last is not None
    assert last.data == "b"
    assert client.last_event_id == "1"
    assert client.finish() is None
    assert [event.data for event in EventClient([b"data: a\n\n", rest]).events()] == ["a"]


@pytest.mark.parametrize("rest", [b"", b"\n", b": ping", b"id: 2\n", b"event: x\n", b"da"])
def test_an_unfinished_block_without_data_is_nothing(rest: bytes) -> None:
    """`finish()` makes no event of comments, ids, names and fragments."""
    client = EventClient()
    client.feed(b"data: a\n\n" + rest)
    assert client.finish() is None


def test_control_only_blocks_are_no_events() -> None:
    """retry, id, event and comment blocks dispatch nothing; `data:` alone is an event without text (B065)."""
    client = EventClient()
    events = client.feed(b"retry: 1000\n\nid: 7\n\nevent: ping\n\n: c\n\ndata:\n\ndata: {}\n\n")
    assert [fields(event) for event in events] == [("message", "", "7", None), ("message", "{}", "7", None)]
    assert (client.retry_ms, client.comments) == (1000, 1)


def test_comments_count_at_once_and_once() -> None:
    """Comments in complete blocks, inside events and in the unfinished block all count, each one time (B070)."""
    client = EventClient()
    counts = []
    for piece in (b": a\n\n", b":\n", b": b\ndata: x\n", b"\n", b":c", b"\n\n", b"data: :no\n\n", b": d"):
        client.feed(piece)
        counts.append(client.comments)
    assert counts == [1, 2, 3, 3, 4, 4, 4, 5]
    client.finish()
    assert client.comments == 5


@pytest.mark.parametrize("digits", [101, 5000, 100_000])
def test_a_retry_of_absurd_length_is_ignored(digits: int) -> None:
    """Python refuses to convert thousands of digits; no such line may break the stream."""
    client = EventClient()
    events = client.feed(b"retry: 5\nretry: " + b"9" * digits + b"\ndata: x\n\n")
    assert [fields(event) for event in events] == [("message", "x", "", 5)]


def test_a_character_cut_between_two_reads_is_whole_again() -> None:
    """Bytes are split into lines before they are decoded (B060, B062)."""
    stream = 'data: {"t":"hé你😀"}\n\n'.encode()
    for offset in range(len(stream)):
        client = EventClient()
        assert [e.data for piece in cut(stream, [offset]) for e in client.feed(piece)] == ['{"t":"hé你😀"}']


def test_events_in_front_of_one_above_the_cap_are_delivered() -> None:
    """The iterator yields what was complete, then raises."""
    events = EventClient([b"data: a\n\ndata: b\n\ndata: " + b"x" * 200], max_bytes=100).events()
    assert [next(events).data, next(events).data] == ["a", "b"]
    with pytest.raises(MalformedChunkError, match="above the cap"):
        next(events)


@pytest.mark.parametrize("size", [64, 65536])
def test_three_hundred_thousand_data_lines_are_linear(size: int) -> None:
    """One event of 300k short lines takes about a second; a decoder that copies per line would take a minute."""
    stream = b"data: x\n" * 300_000 + b"\n"
    start = time.process_time()
    client = EventClient()
    events = [event for i in range(0, len(stream), size) for event in client.feed(stream[i : i + size])]
    assert [len(event.data) for event in events] == [599_999]
    assert time.process_time() - start < 15


@pytest.mark.parametrize("line", [b"data: " + b"x" * 400_000, b"data:" + b"x" * 400_000 + b"\nevent: big"])
def test_a_long_line_in_tiny_pieces_is_linear(line: bytes) -> None:
    """A line of 400 kB may come in pieces of seven bytes (B059)."""
    start = time.process_time()
    client = EventClient()
    stream = line + b"\n\n"
    events = [event for i in range(0, len(stream), 7) for event in client.feed(stream[i : i + 7])]
    assert [len(event.data) for event in events] == [400_000]
    assert time.process_time() - start < 15
