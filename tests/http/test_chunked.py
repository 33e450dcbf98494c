"""The chunk parser: whatever the cuts, the same bytes and the same error as from urllib3 alone."""

import http.client
import io
from typing import Any

import pytest
import requests
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from streamguard._http import read_blocks
from streamguard._http.chunked import ChunkWindow, split_chunks

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Pieces(io.RawIOBase):
    """A connection that delivers one piece for each receive, and counts the receives."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = [piece for piece in pieces if piece]
        self.receives = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self.receives += 1
        if not self.pieces:
            return 0
        piece = self.pieces.pop(0)
        taken = piece[: len(buffer)]
        if len(taken) < len(piece):
            self.pieces.insert(0, piece[len(taken) :])
        buffer[: len(taken)] = taken
        return len(taken)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)


def response_of(pieces: list[bytes], *, method: str = "GET") -> tuple[requests.Response, Pieces]:
    """Return a response whose head has been read, and whose body comes in *pieces*."""
    connection = Pieces([HEAD, *pieces])
    body = http.client.HTTPResponse(connection, method=method)  # type: ignore[arg-type]
    body.begin()
    response = requests.Response()
    response.raw = urllib3.HTTPResponse(
        body=body,  # type: ignore[arg-type]
        headers=body.msg.items(),  # type: ignore[arg-type]
        status=200,
        preload_content=False,
        original_response=body,
        request_method=method,
    )
    return response, connection


def read_all(blocks: Any) -> tuple[bytes, type[Exception] | None]:
    """Return the bytes that came, and the class of what was raised in the end."""
    read = b""
    try:
        for block in blocks:
            assert block
            read += block
    except Exception as exc:
        return read, type(exc)
    return read, None


def plain_blocks(response: requests.Response) -> Any:
    """Read as urllib3 does, without the window."""
    while block := response.raw.read1(65536, decode_content=True):
        yield block


def cut(data: bytes, places: list[int]) -> list[bytes]:
    places = sorted({min(place, len(data)) for place in places})
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


SIZE_LINES = st.sampled_from([b"%x\r\n", b"%X\r\n", b"00%x\r\n", b"%x;name=value\r\n", b"%x \r\n", b"%x\n"])
CHUNKS = st.lists(st.tuples(st.binary(min_size=1, max_size=40), SIZE_LINES), max_size=8)
PLACES = st.lists(st.integers(0, 600), max_size=12)
ENDS = st.sampled_from(
    [b"0\r\n\r\n", b"0\r\nTrailer: 1\r\n\r\n", b"", b"0\r\n", b"zz\r\n", b"\r\n", b"5\r\nab", b"-3\r\nabc"]
)


def body_of(chunks: list[tuple[bytes, bytes]], end: bytes) -> bytes:
    return b"".join(line % len(data) + data + b"\r\n" for data, line in chunks) + end


@given(CHUNKS, PLACES)
def test_any_chunks_in_any_pieces(chunks: list[tuple[bytes, bytes]], places: list[int]) -> None:
    """The payload comes out whole, in order, with a clean end."""
    response, _ = response_of(cut(body_of(chunks, b"0\r\n\r\n"), places))
    assert read_all(read_blocks(response)) == (b"".join(data for data, _ in chunks), None)


@given(CHUNKS, ENDS, PLACES)
def test_the_same_as_urllib3_alone(chunks: list[tuple[bytes, bytes]], end: bytes, places: list[int]) -> None:
    """Also if the body breaks off, or continues with invalid chunks: the same bytes, the same error."""
    pieces = cut(body_of(chunks, end), places)
    ours, theirs = response_of(pieces)[0], response_of(pieces)[0]
    assert read_all(read_blocks(ours)) == read_all(plain_blocks(theirs))


@given(CHUNKS, PLACES, st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_the_same_as_urllib3_alone_with_damage(
    chunks: list[tuple[bytes, bytes]], places: list[int], where: int, damage: bytes
) -> None:
    """The same with bytes overwritten anywhere."""
    body = body_of(chunks, b"0\r\n\r\n")
    pieces = cut(body[:where] + damage + body[where + len(damage) :], places)
    ours, theirs = response_of(pieces)[0], response_of(pieces)[0]
    assert read_all(read_blocks(ours)) == read_all(plain_blocks(theirs))


@given(CHUNKS.filter(bool), PLACES)
def test_no_byte_that_arrived_waits_for_another(chunks: list[tuple[bytes, bytes]], places: list[int]) -> None:
    """Before each receive, all payload of the bytes received so far was handed over: this is what prompt means."""
    body = body_of(chunks, b"0\r\n\r\n")
    response, connection = response_of(cut(body, places))
    receive = connection.readinto
    got = b""

    def checked(buffer: Any) -> int:
        assert got == _payload(body[: len(body) - sum(map(len, connection.pieces))])
        return receive(buffer)

    connection.readinto = checked  # type: ignore[method-assign]
    for block in read_blocks(response):
        got += block
    assert got == _payload(body)


def _payload(prefix: bytes) -> bytes:
    """Return the payload within *prefix* of a well-formed body, by the book and one byte at a time."""
    payload, rest = b"", prefix
    while b"\n" in rest:
        line, _, rest = rest.partition(b"\n")
        size = int(line.partition(b";")[0], 16)
        payload += rest[:size]
        rest = rest[size + 2 :]
    return payload


@pytest.mark.parametrize(
    ("window", "left", "expected"),
    [
        (b"", None, (b"", 0, None)),
        (b"5", None, (b"", 0, None)),
        (b"5\r", None, (b"", 0, None)),
        (b"5\r\n", None, (b"", 3, 5)),
        (b"5\r\nab", None, (b"ab", 5, 3)),
        (b"5\r\nabcde", None, (b"abcde", 8, 0)),
        (b"\r", 0, (b"", 0, 0)),
        (b"\r\n", 0, (b"", 0, 0)),
        (b"\r\n2\r\nab", 0, (b"ab", 7, 0)),
        (b"de\r\n2\r\nab\r\n0\r\n\r\n", 2, (b"deab", 9, 0)),
        (b"0\r\n\r\n", None, (b"", 0, None)),
        (b"nonsense\r\n", None, (b"", 0, None)),
        (b"-1\r\nabc", None, (b"", 0, None)),
        (b'2;ext="a"\r\nab', None, (b"ab", 13, 0)),
    ],
)
def test_split_chunks(window: bytes, left: int | None, expected: tuple[bytes, int, int | None]) -> None:
    """Each state that a window can begin and end in."""
    assert split_chunks(window, left) == expected


def test_many_small_chunks_are_one_block() -> None:
    """What arrived in one receive is handed over at once: the reason for all this."""
    response, _ = response_of([b"".join(b"3\r\n%03d\r\n" % n for n in range(100)) + b"0\r\n\r\n"])
    assert list(read_blocks(response)) == [b"".join(b"%03d" % n for n in range(100))]


def test_a_long_chunk_is_read_past_the_buffer() -> None:
    """Of a long chunk each receive takes more than the buffer would hold."""
    size = 200_000
    response, connection = response_of([b"%x\r\n" % size + b"x" * size + b"\r\n0\r\n\r\n"])
    blocks = list(read_blocks(response))
    assert sum(map(len, blocks)) == size
    assert max(map(len, blocks)) == 65536
    assert connection.receives < 10


def test_the_answer_to_head_is_not_waited_for() -> None:
    """It names a transfer encoding, and has no body."""
    response, connection = response_of([], method="HEAD")
    before = connection.receives
    assert list(read_blocks(response)) == []
    assert connection.receives == before


def test_a_body_that_was_begun_elsewhere_is_left_to_urllib3() -> None:
    """http.client stands within a chunk."""
    response, _ = response_of([b"4\r\nabcd\r\n0\r\n\r\n"])
    assert response.raw.read(2) == b"ab"
    assert ChunkWindow.of(response.raw) is None
    assert b"".join(read_blocks(response)) == b"cd"


def test_a_body_that_urllib3_reads_by_itself_is_left_to_it() -> None:
    """`raw.stream` parses chunks on its own, and http.client knows nothing of it."""
    response, _ = response_of([b"4\r\nabcd\r\n0\r\n\r\n"])
    assert next(response.raw.stream(2)) == b"ab"
    assert ChunkWindow.of(response.raw) is None


def test_small_blocks_stay_small() -> None:
    """A size below the buffer's is kept: the window would hand over more."""
    response, _ = response_of([b"64\r\n" + b"x" * 100 + b"\r\n0\r\n\r\n"])
    assert [len(block) for block in read_blocks(response, 30)] == [30, 30, 30, 10]
