"""Framing: blocks whatever the line ends, the cuts and the size."""

import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard._sse import Framer
from streamguard.errors import MalformedChunkError
from tests.sse.pieces import bytewise, cut

LINE_ENDS = (b"\n", b"\r", b"\r\n")


def feed_all(framer: Framer, pieces: list[bytes]) -> list[bytes]:
    return [block for piece in pieces for block in framer.feed(piece)]


# CR then LF is one line end, no blank line.
@pytest.mark.parametrize(
    ("inner", "end", "blank"),
    [ends for ends in itertools.product(LINE_ENDS, repeat=3) if ends[1:] != (b"\r", b"\n")],
)
def test_line_ends_in_any_mixture_are_normalised(inner: bytes, end: bytes, blank: bytes) -> None:
    """Lines come out joined by LF, whichever ends the lines and the blank line had."""
    stream = b"a" + inner + b"b" + end + blank + b"c" + inner + b"d" + end + blank
    assert feed_all(Framer(), [stream]) == [b"a\nb", b"c\nd"]
    assert feed_all(Framer(), bytewise(stream)) == [b"a\nb", b"c\nd"]


@pytest.mark.parametrize("stream", [b"x\n\n", b"x\r\r", b"x\n\r", b"x\r\n\r", b"x\r\n\n"])
def test_a_block_is_complete_with_the_first_byte_of_its_blank_lines_end(stream: bytes) -> None:
    """No further byte is waited for, not even one that might complete a CRLF (B069)."""
    framer = Framer()
    assert feed_all(framer, bytewise(stream)[:-1]) == []
    assert framer.feed(stream[-1:]) == [b"x"]


def test_the_line_feed_after_a_prompt_carriage_return_is_no_second_line_end() -> None:
    """A CRLF cut in two yields no phantom blank line (B055)."""
    framer = Framer()
    assert feed_all(framer, [b"a\r", b"\nb\r", b"\n\r"]) == [b"a\nb"]
    assert feed_all(framer, [b"\n", b"c\r", b"", b"\n\r"]) == [b"c"]


@pytest.mark.parametrize("gap", [b"\n" * n for n in range(2, 8)] + [b"\r\n" * 5, b"\r" * 5, b"\n\r\r\n\n\n\r"])
@pytest.mark.parametrize("cut", [1, 2, 3, 1000])
def test_extra_blank_lines_are_nothing(gap: bytes, cut: int) -> None:
    """More blank lines between two blocks neither merge them nor add empty ones (B073)."""
    stream = gap + b"a" + gap + b"b" + gap
    pieces = [stream[i : i + cut] for i in range(0, len(stream), cut)]
    assert feed_all(Framer(), pieces) == [b"a", b"b"]


@pytest.mark.parametrize("cuts", [[3], [1, 3], [2, 3], [1, 2, 3], [0, 1, 2], []])
def test_one_byte_order_mark_at_the_start_is_dropped_however_it_is_cut(cuts: list[int]) -> None:
    """Exactly one, only at the start, also when its bytes come in pieces."""
    stream = b"\xef\xbb\xbfa\n\n\xef\xbb\xbfb\n\n"
    assert feed_all(Framer(), cut(stream, cuts)) == [b"a", b"\xef\xbb\xbfb"]


@pytest.mark.parametrize("start", [b"\xef", b"\xef\xbb", b"\xef\xef\xbb\xbf", b"\xbb\xbf"])
def test_half_a_byte_order_mark_is_data(start: bytes) -> None:
    """What only looks like the mark stays part of the first line, and of the unfinished block at the end."""
    assert feed_all(Framer(), bytewise(start + b"a\n\n")) == [start + b"a"]
    framer = Framer()
    assert framer.feed(start) == []
    assert framer.pending == len(start)
    assert framer.finish() == start


@pytest.mark.parametrize(
    ("stream", "rest"),
    [
        (b"", b""),
        (b"\xef\xbb\xbf", b""),
        (b"a\n\n", b""),
        (b"a\n\nb", b"b"),
        (b"a\r\rb\r", b"b"),
        (b"\n\n\nb\nc\r\n", b"b\nc"),
    ],
)
def test_finish_returns_the_unfinished_block(stream: bytes, rest: bytes) -> None:
    """The bytes behind the last blank line come back once, normalised, without their last line end."""
    framer = Framer()
    framer.feed(stream)
    assert framer.finish() == rest
    assert framer.finish() == b""
    assert framer.pending == 0


def test_pending_counts_the_bytes_of_the_unfinished_block_only() -> None:
    """What was returned, and blank lines, do not count."""
    framer = Framer()
    sizes = []
    for piece in (b"\n\n", b"abc", b"\n", b"d", b"\n\n", b"\r\n", b"xy"):
        framer.feed(piece)
        sizes.append(framer.pending)
    assert sizes == [0, 3, 4, 5, 0, 0, 2]


def test_comments_of_the_unfinished_block_are_counted_as_they_come() -> None:
    """A server that never sends a blank line behind its heartbeats still shows them."""
    framer = Framer()
    counts = []
    for piece in (b":", b" ping\n", b":ping\r", b"\n:", b"x:\n:y\n", b"\n", b"data\n", b":\n"):
        framer.feed(piece)
        counts.append((framer.pending_comments, framer.pending_comments))
    assert counts == [(n, n) for n in (1, 1, 2, 3, 4, 0, 0, 1)]


@pytest.mark.parametrize("size", [1, 7, 4096])
@pytest.mark.parametrize("fill", [b"x", b": ping\n", b"data: x\r\n", b"x\r"])
def test_an_endless_block_ends_at_the_cap(fill: bytes, size: int) -> None:
    """Without a blank line, comments and data alike are refused just above the cap (B072)."""
    framer = Framer(max_bytes=10_000)
    stream = fill * (12_000 // len(fill))
    with pytest.raises(MalformedChunkError, match="above the cap of 10000 bytes"):
        feed_all(framer, [stream[i : i + size] for i in range(0, len(stream), size)])
    assert framer.pending == 0


def test_a_block_of_exactly_the_cap_passes_in_any_pieces() -> None:
    """The cap is inclusive, for one block; the stream may be longer."""
    stream = (b"x" * 100 + b"\n\n") * 3
    assert feed_all(Framer(max_bytes=100), [stream]) == [b"x" * 100] * 3
    assert feed_all(Framer(max_bytes=100), bytewise(stream)) == [b"x" * 100] * 3
    with pytest.raises(MalformedChunkError):
        Framer(max_bytes=99).feed(stream)


@pytest.mark.parametrize("big", [b"x" * 101 + b"\n\nlate\n\n", b"x" * 101])
def test_blocks_before_the_one_above_the_cap_are_not_lost(big: bytes) -> None:
    """They are returned, the error comes with the next call, and stays."""
    framer = Framer(max_bytes=100)
    assert framer.feed(b"a\n\nb\n\n" + big) == [b"a", b"b"]
    for _ in range(2):
        with pytest.raises(MalformedChunkError, match="above the cap"):
            framer.feed(b"c\n\n")
    with pytest.raises(MalformedChunkError, match="above the cap"):
        framer.finish()


def test_the_default_cap_is_sixteen_mebibytes() -> None:
    """16 MiB without a line end pass, one byte more is refused by a message that says so."""
    framer = Framer()
    piece = b"x" * (1024 * 1024)
    assert feed_all(framer, [piece] * 16) == []
    with pytest.raises(MalformedChunkError, match="above the cap of 16 MiB"):
        framer.feed(b"x")


@pytest.mark.parametrize("end", [b"\n\n", b""])
def test_the_lines_of_a_block_are_capped(end: bytes) -> None:
    """A block of a million empty fields is refused, finished or not, before anybody makes a list of them."""
    framer = Framer(max_lines=1000)
    assert framer.feed(b"\n".join([b"a"] * 1000) + b"\n\n") == [b"\n".join([b"a"] * 1000)]
    with pytest.raises(MalformedChunkError, match="above the cap of 1000 lines"):
        framer.feed(b"\n".join([b"a"] * 1001) + end) or framer.finish()


@pytest.mark.parametrize("size", [16, 100, 65536])
def test_time_is_linear_in_the_size_of_one_block(size: int) -> None:
    """8 MiB without a line end take no second, however small the pieces; copying them for each piece would take minutes."""
    framer = Framer()
    piece = b"x" * size
    start = time.process_time()
    for _ in range(8 * 1024 * 1024 // size):
        framer.feed(piece)
        framer.pending_comments  # noqa: B018 - asked after every piece, as a reader does
    assert framer.feed(b"\n\n")
    assert time.process_time() - start < 15


@given(st.lists(st.sampled_from([b"a", b"bc", b":", b"\n", b"\r", b"\r\n", b"\xef\xbb\xbf"]), max_size=30), st.data())
def test_cuts_carry_no_meaning(tokens: list[bytes], data: st.DataObject) -> None:
    """Any cutting gives the same blocks, the same unfinished rest and the same comment count (B067)."""
    stream = b"".join(tokens)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8).map(sorted))
    whole, pieced = Framer(), Framer()
    expected = whole.feed(stream)
    assert feed_all(pieced, cut(stream, cuts)) == expected
    assert (pieced.pending, pieced.pending_comments) == (whole.pending, whole.pending_comments)
    assert pieced.finish() == whole.finish()
    assert all(block and not block.startswith(b"\n") and b"\n\n" not in block for block in expected)
