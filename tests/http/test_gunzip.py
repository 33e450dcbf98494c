"""Unpacking gzip: all of it, once, wherever the limits and the receives fall, and everything that came before a fault."""

import gzip
import io
import random
import zlib
from collections.abc import Callable, Iterable

import pytest
import requests
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from streamguard import Session
from streamguard._http import read_blocks
from streamguard._http.gunzip import GzipDecoder

from .calls import new_session
from .conftest import Serve
from .servers import FRAMINGS, Peer, encoded, frame, head

MEMBERS = st.lists(st.binary(max_size=60) | st.integers(1, 300).map(lambda size: b"x" * size), max_size=12)


def unpacked(pieces: Iterable[bytes], limit: int) -> list[bytes]:
    """Unpack as urllib3 does: whatever waits in the decoder is asked for before the next piece."""
    decoder, blocks = GzipDecoder(), []
    for piece in pieces:
        blocks.append(decoder.decompress(piece, max_length=limit))
        while decoder.has_unconsumed_tail and (block := decoder.decompress(b"", max_length=limit)):
            blocks.append(block)
    blocks.append(decoder.decompress(b""))
    blocks.append(decoder.flush())
    return blocks


def pieces_of(wire: bytes, sizes: list[int]) -> list[bytes]:
    """Cut *wire* into pieces of *sizes*, over and over."""
    pieces = []
    while wire:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(wire[:size])
        wire = wire[size:]
    return pieces


@given(MEMBERS, st.lists(st.integers(1, 200), min_size=1, max_size=5), st.integers(1, 300))
def test_every_member_comes_whole_and_once(members: list[bytes], sizes: list[int], limit: int) -> None:
    """Whatever the receives and the limit of a block are."""
    wire = b"".join(gzip.compress(member) for member in members)
    blocks = unpacked(pieces_of(wire, sizes), limit)
    assert b"".join(blocks) == b"".join(members)
    assert all(len(block) <= limit for block in blocks)


@given(MEMBERS, st.lists(st.integers(1, 200), min_size=1, max_size=5), st.integers(1, 300))
def test_nothing_that_came_is_held_back(members: list[bytes], sizes: list[int], limit: int) -> None:
    """After each piece there is as much as a decoder without a limit makes of it."""
    stream, reference, decoder = zlib.compressobj(wbits=31), zlib.decompressobj(31), GzipDecoder()
    wire = b"".join(stream.compress(member) + stream.flush(zlib.Z_SYNC_FLUSH) for member in members)
    expected, got = b"", b""
    for piece in pieces_of(wire, sizes):
        expected += reference.decompress(piece)
        got += decoder.decompress(piece, max_length=limit)
        while decoder.has_unconsumed_tail and (block := decoder.decompress(b"", max_length=limit)):
            got += block
        assert got == expected


TEN_BYTES_EACH = [b"a" * 10, b"b" * 10, b"c" * 10]


def test_a_limit_that_falls_on_the_end_of_a_member() -> None:
    """A read whose size ends at the end of a member returns that member, and the next read the next one."""
    wire = b"".join(map(gzip.compress, TEN_BYTES_EACH))
    assert unpacked([wire], 10) == [*TEN_BYTES_EACH, b"", b""]
    assert unpacked([wire[:-20], wire[-20:]], 10) == [*TEN_BYTES_EACH, b"", b""]


@pytest.mark.skipif(
    tuple(map(int, urllib3.__version__.split(".")[:2])) < (2, 6), reason="urllib3 before 2.6 decodes these bodies correctly"
)
def test_urllib3_still_needs_our_decoder() -> None:
    """urllib3 from 2.6 on repeats members. When this fails, urllib3 is fixed: write the range into `_http/gunzip.py`."""
    body = io.BytesIO(b"".join(map(gzip.compress, TEN_BYTES_EACH)))
    response = urllib3.HTTPResponse(body, headers={"Content-Encoding": "gzip"}, preload_content=False)
    reads = [response.read1(10, decode_content=True) for _ in range(5)]
    assert reads[:3] == TEN_BYTES_EACH
    assert reads[3:] != [b"", b""]


@pytest.mark.parametrize("padding", [b"\0" * 30, b"plain text", b"\n"], ids=["zeros", "text", "line"])
def test_padding_after_a_member_is_ignored(padding: bytes) -> None:
    """Some servers pad."""
    wire = gzip.compress(b"all of it") + padding
    assert b"".join(unpacked([wire], 65536)) == b"all of it"
    assert b"".join(unpacked(pieces_of(wire, [1]), 65536)) == b"all of it"
    assert b"".join(unpacked([wire, gzip.compress(b"more")], 65536)) == b"all of it"


@pytest.mark.parametrize("limit", [5, 65536])
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_what_came_before_a_fault_is_handed_over_first(size: int, limit: int) -> None:
    """A broken block amid a stream, and then the error, again and again."""
    stream = zlib.compressobj(wbits=31)
    wire = b"".join(stream.compress(text) + stream.flush(zlib.Z_SYNC_FLUSH) for text in (b"one ", b"two "))
    decoder, got = GzipDecoder(), bytearray()

    def unpack_all() -> None:
        for piece in pieces_of(wire + b"data: {}\n\n", [size]):
            got.extend(decoder.decompress(piece, max_length=limit))
            while decoder.has_unconsumed_tail:
                got.extend(decoder.decompress(b"", max_length=limit))

    with pytest.raises(urllib3.exceptions.DecodeError, match="invalid"):
        unpack_all()
    assert got == b"one two "
    with pytest.raises(urllib3.exceptions.DecodeError):
        decoder.decompress(b"more")


def test_a_broken_member_after_whole_ones_is_an_error() -> None:
    """urllib3 drops it, and everything after it, as garbage: the bytes would count as silence."""
    broken = bytearray(gzip.compress(b"two"))
    broken[-6] ^= 1
    decoder = GzipDecoder()
    assert decoder.decompress(gzip.compress(b"one") + bytes(broken), max_length=100) == b"onetwo"
    with pytest.raises(urllib3.exceptions.DecodeError, match="incorrect data check"):
        decoder.decompress(b"")


def read_raw(session: requests.Session, url: str) -> bytes:
    with session.get(url, stream=True) as response:
        return b"".join(read_blocks(response))


def read_content(session: requests.Session, url: str) -> bytes:
    return session.get(url).content


def test_a_broken_body_read_at_once(serve: Serve) -> None:
    """urllib3 asks once for all of it: the fault must come then, in its own words."""
    broken = bytearray(gzip.compress(b"two"))
    broken[-6] ^= 1

    def handler(peer: Peer) -> None:
        peer.read_request()
        peer.send(head("length", "gzip", len(broken)) + bytes(broken))

    with (
        new_session() as session,
        session.get(serve(handler).url, stream=True) as response,
        pytest.raises(urllib3.exceptions.DecodeError),
    ):
        response.raw.read(decode_content=True)


READERS: dict[str, Callable[[str], bytes]] = {
    "stream": lambda url: read_raw(new_session(), url),
    "stream of a foreign adapter": lambda url: read_raw(requests.Session(), url),
    "call": lambda url: read_content(new_session(), url),
    "call of a Session": lambda url: read_content(Session(timeout=20), url),
    "call of a Session with a foreign adapter": lambda url: read_content(_with_foreign_adapter(), url),
}


def _with_foreign_adapter() -> Session:
    session = Session(timeout=20)
    session.mount("http://", requests.adapters.HTTPAdapter())
    return session


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_body_of_many_members(serve: Serve, framing: str, reader: str) -> None:
    """Sizes that divide the limits of a stream (64 KiB) and of requests (10 KiB), so that a member ends on each."""
    chance = random.Random(framing)
    members = [chance.randbytes(128) * 16 for _ in range(200)]
    wire = b"".join(encoded("gzip-members", members))

    def handler(peer: Peer) -> None:
        peer.read_request()
        peer.send(head(framing, "gzip", len(wire)))
        for at in range(0, len(wire), 20_000):
            peer.send(frame(framing, wire[at : at + 20_000]))
        peer.send(b"0\r\n\r\n" if framing == "chunked" else b"")

    assert READERS[reader](serve(handler).url) == b"".join(members)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_events_before_plain_text_amid_a_gzipped_body(serve: Serve, framing: str) -> None:
    """A proxy's own words where gzip should go on, in the same packet: the events are read, then it is a fault."""
    events = b"".join(encoded("gzip", [b"data: 1\n\n", b"data: 2\n\n"])) + b"upstream timed out"

    def handler(peer: Peer) -> None:
        peer.read_request()
        peer.send(head(framing, "gzip", len(events)) + frame(framing, events))
        peer.send(b"0\r\n\r\n" if framing == "chunked" else b"")

    got = bytearray()

    def read(response: requests.Response) -> None:
        for block in read_blocks(response):
            got.extend(block)

    with (
        new_session() as session,
        session.get(serve(handler).url, stream=True) as response,
        pytest.raises(urllib3.exceptions.DecodeError),
    ):
        read(response)
    assert got == b"data: 1\n\ndata: 2\n\n"
