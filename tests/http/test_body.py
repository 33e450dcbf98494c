"""Reading: each event before the next is sent, everything before an error, and never longer than allowed."""

import contextlib
import gzip
import http.client
import io
import ssl
import threading
import time
from collections.abc import Callable

import pytest
import requests
import urllib3

from streamguard._http import drain, find_socket, read_at_most, read_blocks

from .calls import new_session
from .conftest import Serve
from .servers import ENCODINGS, FRAMINGS, PATIENCE, Authority, Peer, encoded, frame, head

EVENTS = [b'data: {"n": %d}\n\n' % n for n in range(5)]

Send = Callable[[Peer, bytes], None]


def end(framing: str) -> bytes:
    return b"0\r\n\r\n" if framing == "chunked" else b""


class Lockstep:
    """A server that sends the next event only after the test has seen the one before."""

    def __init__(self, framing: str, encoding: str) -> None:
        self.framing = framing
        self.events = list(encoded(encoding, EVENTS))
        self.head = head(framing, encoding, sum(map(len, self.events)))
        self.seen = threading.Semaphore(0)

    def __call__(self, peer: Peer) -> None:
        peer.read_request()
        peer.send(self.head)
        for event in self.events:
            peer.send(frame(self.framing, event))
            if not self.seen.acquire(timeout=5):
                return
        peer.send(end(self.framing))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("framing", FRAMINGS)
def test_each_event_comes_before_the_next_is_sent(
    serve: Serve, tls: ssl.SSLContext | None, authority: Authority, framing: str, encoding: str
) -> None:
    """On every framing and encoding: the server waits for us to have seen one event until it sends another."""
    lockstep = Lockstep(framing, encoding)
    server = serve(lockstep, tls=tls)
    body, seen = b"", 0
    with new_session() as session, session.get(server.url, verify=authority.bundle, stream=True) as response:
        for block in read_blocks(response):
            body += block
            while seen < len(EVENTS) and body == b"".join(EVENTS[: seen + 1]):
                seen += 1
                lockstep.seen.release()
    assert body == b"".join(EVENTS)


@pytest.mark.parametrize("size", [1, 3, 65536])
def test_a_chunk_that_fills_slowly(serve: Serve, size: int) -> None:
    """One HTTP chunk for all events, its size line in pieces of *size* bytes: nothing waits for the chunk to be whole."""
    lockstep = Lockstep("length", "identity")
    lockstep.head = head("chunked") + b"%x\r\n" % len(b"".join(EVENTS))
    original = lockstep.events

    def handler(peer: Peer) -> None:
        peer.read_request()
        for place in range(0, len(lockstep.head), size):
            peer.send(lockstep.head[place : place + size])
        for event in original:
            peer.send(event)
            if not lockstep.seen.acquire(timeout=5):
                return
        peer.send(b"\r\n0\r\n\r\n")

    server = serve(handler)
    body = b""
    with new_session() as session, session.get(server.url, stream=True) as response:
        for block in read_blocks(response):
            body += block
            if body.endswith(b"\n\n"):
                lockstep.seen.release()
    assert body == b"".join(EVENTS)


def failing(serve: Serve, sent: list[bytes], *, reset: bool = False) -> tuple[list[bytes], BaseException | None]:
    """Read a body that breaks off after *sent*; return the blocks, and what was raised in the end."""
    blocks: list[bytes] = []
    seen = threading.Event()

    def handler(peer: Peer) -> None:
        peer.read_request()
        for data in sent:
            peer.send(data)
        if reset:
            seen.wait(PATIENCE)
            peer.reset()

    server = serve(handler)
    with new_session() as session, session.get(server.url, stream=True) as response:
        try:
            for block in read_blocks(response):
                blocks.append(block)
                seen.set()
        except Exception as exc:
            return blocks, exc
    return blocks, None


TRANSPORT = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ([head("length", length=500), b"x" * 60], b"x" * 60),
        ([head("length", length=500)], b""),
        ([head("length", "gzip", length=500), gzip.compress(b"whole")], b"whole"),
        ([head("chunked"), frame("chunked", b"one"), frame("chunked", b"two")], b"onetwo"),
        ([head("chunked"), frame("chunked", b"one"), b"ff\r\ntw"], b"onetw"),
        ([head("chunked"), frame("chunked", b"one"), b"not a size\r\ntwo\r\n"], b"one"),
        ([head("chunked"), frame("chunked", b"one"), b"5"], b"one"),
        ([head("chunked"), b"3\r\none"], b"one"),
    ],
    ids=["short", "nothing", "short gzip", "no last chunk", "half a chunk", "no size", "half a size", "no line end"],
)
def test_everything_comes_before_the_error(serve: Serve, sent: list[bytes], expected: bytes) -> None:
    """A body that breaks off: what had arrived is yielded, then an error of the transport is raised."""
    blocks, error = failing(serve, sent)
    assert b"".join(blocks) == expected
    assert isinstance(error, TRANSPORT)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_everything_comes_before_a_reset(serve: Serve, framing: str) -> None:
    """The same when the server leaves with RST, on bodies of any framing."""
    blocks, error = failing(serve, [head(framing), frame(framing, EVENTS[0])], reset=True)
    assert b"".join(blocks) == EVENTS[0]
    assert isinstance(error, TRANSPORT)


def test_a_body_that_is_no_gzip(serve: Serve) -> None:
    """The decoder's own error, not silence."""
    _, error = failing(serve, [head("close", "gzip"), b"plain text"])
    assert isinstance(error, urllib3.exceptions.DecodeError)


def test_a_short_body_is_noticed_where_urllib3_was_told_not_to(serve: Serve) -> None:
    """Our own check of Content-Length, after all that had arrived."""

    def handler(peer: Peer) -> None:
        peer.read_request()
        peer.send(head("length", length=500) + b"short")

    server = serve(handler)
    with new_session() as session, session.get(server.url, stream=True) as response:
        response.raw.enforce_content_length = False
        blocks = read_blocks(response)
        assert next(blocks) == b"short"
        with pytest.raises(urllib3.exceptions.ProtocolError, match="495 more expected"):
            next(blocks)


def test_an_encoded_body_is_not_measured_by_us(serve: Serve) -> None:
    """Servers name the length of the decoded body; only the length of the encoded one could be checked."""

    def handler(peer: Peer) -> None:
        peer.read_request()
        peer.send(head("length", "gzip", length=500) + gzip.compress(b"whole"))

    server = serve(handler)
    with new_session() as session, session.get(server.url, stream=True) as response:
        response.raw.enforce_content_length = False
        assert b"".join(read_blocks(response)) == b"whole"


def test_a_body_that_was_read_already() -> None:
    """A hook of the session may have read it: it is kept in the response, and comes from there."""
    response = requests.Response()
    response.raw = io.BytesIO(b"read before")
    assert response.content == b"read before"
    assert b"".join(read_blocks(response)) == b"read before"


def test_a_raw_response_that_is_not_from_urllib3() -> None:
    """Test doubles put a file into the response."""
    response = requests.Response()
    response.raw = io.BytesIO(b"from a file")
    assert b"".join(read_blocks(response)) == b"from a file"


def test_a_raw_response_without_read1() -> None:
    """A file that can only `read` is read byte by byte, for anything more would wait."""

    class Old:
        def __init__(self) -> None:
            self.file = io.BytesIO(b"old")
            self.asked: list[int] = []

        def read(self, size: int) -> bytes:
            self.asked.append(size)
            return self.file.read(size)

    response = requests.Response()
    response.raw = old = Old()
    assert list(read_blocks(response)) == [b"o", b"l", b"d"]
    assert set(old.asked) == {1}


def test_read_at_most_is_bounded_in_size(serve: Serve) -> None:
    """A page of error text without end."""

    def handler(peer: Peer) -> None:
        peer.read_request()
        with contextlib.suppress(OSError):
            peer.send(head("close"))
            while True:
                peer.send(b"e" * 10_000)

    server = serve(handler)
    with new_session() as session, session.get(server.url, stream=True) as response:
        assert read_at_most(response, 12_345, 5) == b"e" * 12_345


DRIPS = {
    "body": (head("length"), b"d"),
    "chunks": (head("chunked"), b"1\r\nd\r\n"),
    "chunk size": (head("chunked"), b"0"),
    "chunk extension": (head("chunked") + b"5;ext=", b"e"),
    "trailer": (head("chunked") + b"0\r\nTrailer: ", b"t"),
    "gzip header": (head("close", "gzip") + b"\x1f\x8b\x08\x08" + b"\0" * 6, b"name"),
}


@pytest.mark.parametrize("drip", DRIPS)
def test_no_drip_outlasts_read_at_most(serve: Serve, tls: ssl.SSLContext | None, authority: Authority, drip: str) -> None:
    """A slow drip of bytes, in any part of the response: each byte would restart a socket's timeout."""
    start, drop = DRIPS[drip]
    stop = threading.Event()

    def handler(peer: Peer) -> None:
        peer.read_request()
        peer.send(start)
        with contextlib.suppress(OSError):
            while not stop.wait(0.03):
                peer.send(drop)

    server = serve(handler, tls=tls)
    with new_session() as session, session.get(server.url, verify=authority.bundle, stream=True) as response:
        began = time.monotonic()
        body = read_at_most(response, 1000, 0.3)
        assert 0.3 <= time.monotonic() - began < 2
        assert set(body) <= {ord("d")}
    stop.set()


def test_read_at_most_returns_what_came_before_a_fault(serve: Serve) -> None:
    """An error message that breaks off is better than none."""

    def handler(peer: Peer) -> None:
        peer.read_request()
        peer.send(head("chunked") + frame("chunked", b"message") + b"no size\r\n")

    server = serve(handler)
    with new_session() as session, session.get(server.url, stream=True) as response:
        assert read_at_most(response, 1000, 5) == b"message"


def test_read_at_most_of_nothing(serve: Serve) -> None:
    """No room: nothing is waited for."""
    server = serve(lambda peer: (peer.read_request(), peer.send(head("length")), server.stall(peer)))
    with new_session() as session, session.get(server.url, stream=True) as response:
        assert read_at_most(response, 0, 5) == b""


@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_drained_connection_is_used_again(
    serve: Serve, tls: ssl.SSLContext | None, authority: Authority, framing: str
) -> None:
    """The rest of a body that has ended is read away, and the next request needs no new connection."""

    def handler(peer: Peer) -> None:
        while peer.read_request():
            peer.send(head(framing, length=8) + frame(framing, b"data") + frame(framing, b"rest") + end(framing))

    server = serve(handler, tls=tls)
    with new_session() as session:
        for _ in range(2):
            response = session.get(server.url, verify=authority.bundle, stream=True, timeout=7)
            assert next(read_blocks(response, 4)) == b"data"
            assert drain(response, 5)
    assert server.connections == 1


@pytest.mark.parametrize("framing", FRAMINGS)
def test_draining_does_not_wait_for_a_lingering_server(serve: Serve, framing: str) -> None:
    """After its time it gives up, and says so."""

    def handler(peer: Peer) -> None:
        peer.read_request()
        peer.send(head(framing) + frame(framing, b"data"))
        server.stall(peer)

    server = serve(handler)
    with new_session() as session, session.get(server.url, stream=True) as response:
        began = time.monotonic()
        assert not drain(response)
        assert 0.05 <= time.monotonic() - began < 1


def test_draining_gives_up_on_a_long_body(serve: Serve) -> None:
    """Reading on would cost more than a new connection."""

    def handler(peer: Peer) -> None:
        peer.read_request()
        with contextlib.suppress(OSError):
            peer.send(head("length", length=10_000_000) + b"x" * 10_000_000)

    server = serve(handler)
    with new_session() as session, session.get(server.url, stream=True) as response:
        assert not drain(response, 60, 200_000)
        assert response.raw.tell() < 1_000_000


def test_draining_tells_of_a_fault(serve: Serve) -> None:
    """A body that broke off has not ended."""

    def handler(peer: Peer) -> None:
        peer.read_request()
        peer.send(head("length", length=500) + b"short")

    server = serve(handler)
    with new_session() as session, session.get(server.url, stream=True) as response:
        assert not drain(response, 5)


@pytest.mark.parametrize("framing", ["length", "close"])
def test_the_timeout_of_the_socket_is_as_before(serve: Serve, framing: str) -> None:
    """Both in the middle of a body and at its end."""

    step = threading.Semaphore(0)

    def handler(peer: Peer) -> None:
        peer.read_request()
        for data in (head(framing, length=8), b"data", b"rest"):
            peer.send(data)
            step.acquire(timeout=PATIENCE)

    server = serve(handler)
    with new_session() as session, session.get(server.url, stream=True, timeout=7) as response:
        sock = find_socket(response)
        assert sock is not None
        step.release()
        assert read_at_most(response, 4, 1) == b"data"
        assert sock is find_socket(response)
        assert sock.gettimeout() == 7
        step.release(2)
        assert drain(response, 5)
        assert sock.gettimeout() == 7
