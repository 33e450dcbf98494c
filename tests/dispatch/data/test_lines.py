"""Bytes to lines, and bounded tails."""

import time

import hypothesis.strategies as st
import pytest
from hypothesis import given

from streamguard.dispatch._data.lines import LineSplitter, Tail

PIECES = st.lists(st.lists(st.sampled_from([b"a", b"\n", b"\r", b"\xc3", b"bc"]), max_size=8).map(b"".join), max_size=12)


@given(pieces=PIECES, carriage_returns=st.booleans())
def test_chunking_does_not_matter(pieces: list[bytes], carriage_returns: bool) -> None:
    """Any chunking gives the same lines, and nothing is lost."""
    split = LineSplitter(1000, carriage_returns=carriage_returns)
    lines = [line for piece in pieces for line in split.feed(piece)]
    whole = LineSplitter(1000, carriage_returns=carriage_returns)
    assert lines == [*whole.feed(b"".join(pieces))]
    rest = split.rest()
    assert rest == whole.rest()
    assert b"".join(lines) + rest == b"".join(pieces)
    assert not any(line.count(b"\n") > 1 or b"\n" in line[:-1] for line in lines)


def test_carriage_returns_end_lines_of_progress() -> None:
    """A `\\r` ends a line; `\\r\\n` is one end, even if it comes in two pieces."""
    splitter = LineSplitter(1000, carriage_returns=True)
    assert [*splitter.feed(b"10%\r20%\r")] == [b"10%\r"]
    assert [*splitter.feed(b"\n30%\r")] == [b"20%\r\n"]
    assert [*splitter.feed(b"done\r\nx")] == [b"30%\r", b"done\r\n"]
    assert (splitter.rest(), splitter.rest()) == (b"x", b"")


def test_a_line_that_never_ends_is_given_in_pieces() -> None:
    """Beyond the longest line, what there is comes as it is."""
    splitter = LineSplitter(10)
    assert [*splitter.feed(b"0123456789")] == []
    assert [*splitter.feed(b"a")] == [b"0123456789a"]


@pytest.mark.parametrize("carriage_returns", [False, True])
def test_a_long_line_in_small_pieces_is_linear(carriage_returns: bool) -> None:
    """5 MB without a newline, in pieces of 64 bytes, cost a moment, not minutes."""
    splitter = LineSplitter(1 << 24, carriage_returns=carriage_returns)
    begun = time.process_time()
    for _ in range(80_000):
        assert [*splitter.feed(b"x" * 64)] == []
    assert [len(line) for line in splitter.feed(b"\n.")] == [80_000 * 64 + 1]
    assert time.process_time() - begun < 5


@given(st.lists(st.binary(max_size=30), max_size=60), st.integers(1, 50))
def test_a_tail_is_the_end(pieces: list[bytes], limit: int) -> None:
    """A tail is exactly the last bytes of all that was added."""
    tail = Tail(limit)
    for piece in pieces:
        tail.add(piece)
    whole = b"".join(pieces)
    assert tail.text() == whole[-limit:].decode("utf-8", "replace")
    assert tail.total == len(whole)


def test_a_tail_of_crumbs_stays_small() -> None:
    """Many small pieces do not make many objects."""
    tail = Tail(100_000)
    for _ in range(50_000):
        tail.add(b"ab")
    assert len(tail._pieces) <= 1025
    assert tail.text(3) == "bab"
