"""Framing and encoding: whatever the pieces, a client that follows the rules reads them back."""

import gzip
import http.client
import io
import zlib
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard.errors import UsageError
from streamguard.testing.response_plan import make_plan
from streamguard.testing.script import Headers, parse_script
from streamguard.testing.wire import ENCODINGS, FRAMINGS, Encoder, Framing, merge_headers, parse_head

PIECES = st.lists(st.binary(max_size=200), max_size=6)
DECODERS: dict[str | None, Callable[[bytes], bytes]] = {
    None: bytes,
    "gzip": gzip.decompress,
    "gzip-members": gzip.decompress,
    "gzip-buffered": gzip.decompress,
    "deflate": zlib.decompress,
}


class FakeSocket:
    """Just enough of a socket for http.client to read a response from bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, *_args: object, **_options: object) -> io.BytesIO:
        return io.BytesIO(self._data)


def read_back(head: bytes, body: bytes) -> bytes:
    response = http.client.HTTPResponse(FakeSocket(head + body))  # type: ignore[arg-type]
    response.begin()
    with response:
        return response.read()


@given(pieces=PIECES, framing=st.sampled_from(FRAMINGS), encoding=st.sampled_from(ENCODINGS))
def test_pieces_survive_every_framing_and_encoding(pieces: list[bytes], framing: str, encoding: str | None) -> None:
    """A body cut into any pieces is read back whole by http.client and the standard decoders."""
    script = parse_script(["raw " + "".join(f"\\x{byte:02x}" for byte in piece) for piece in pieces])
    plan = make_plan(script, framing=framing, encoding=encoding, length=None)
    encoder = Encoder(encoding)
    body = b"".join(plan.framing.frame(encoder.piece(piece)) for piece in pieces)
    body += plan.framing.frame(encoder.end()) + plan.framing.end()
    head = plan.head(Headers("headers", ""), plan.framing, closing=False)
    decoded = read_back(head, body)
    assert (DECODERS[encoding](decoded) if decoded else b"") == b"".join(pieces)


@pytest.mark.parametrize("encoding", [None, "gzip", "deflate"])
def test_a_flushed_piece_can_be_read_at_once(encoding: str | None) -> None:
    """What a flushing encoder returned for a piece decodes to that piece before the next one is encoded."""
    encoder = Encoder(encoding)
    decoder = zlib.decompressobj(wbits=47)
    for piece in (b"data: one\n\n", b"data: two\n\n"):
        encoded = encoder.piece(piece)
        assert (decoder.decompress(encoded) if encoding else encoded) == piece


def test_each_gzip_member_stands_alone() -> None:
    """With gzip-members each piece is a gzip file of its own."""
    encoder = Encoder("gzip-members")
    assert [gzip.decompress(encoder.piece(piece)) for piece in (b"a", b"b")] == [b"a", b"b"]


def test_a_buffering_encoder_holds_small_pieces_back() -> None:
    """With gzip-buffered small events come out at the end only, as with a middleware that never flushes."""
    encoder = Encoder("gzip-buffered")
    first = encoder.piece(b"data: one\n\n")
    assert b"one" not in zlib.decompressobj(wbits=31).decompress(first)
    assert gzip.decompress(first + encoder.end()) == b"data: one\n\n"


def test_an_empty_piece_is_no_chunk() -> None:
    """A piece without bytes must not become the chunk that ends a body."""
    assert Framing("chunked").frame(b"") == b""


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"framing": "chunky"}, "chunky"),
        ({"encoding": "br"}, "br"),
        ({"length": 3}, "length"),
    ],
)
def test_unknown_options_are_refused(options: dict[str, object], match: str) -> None:
    """A framing, an encoding or a length that means nothing is named in a UsageError."""
    arguments = {"framing": "chunked", "encoding": None, "length": None, **options}
    with pytest.raises(UsageError, match=match):
        make_plan(parse_script("event a"), **arguments)  # type: ignore[arg-type]


def test_an_endless_body_has_no_length() -> None:
    """A loop for ever cannot announce its length, unless a length is given."""
    script = parse_script("loop 2\nloop forever\ntick\nendloop\nendloop")
    with pytest.raises(UsageError, match="Content-Length"):
        make_plan(script, framing="length", encoding=None, length=None)
    assert make_plan(script, framing="length", encoding=None, length=9).framing.length == 9


def test_own_headers_replace_and_drop_defaults() -> None:
    """A script's header wins over the default of the same name, and drops it by an empty value."""
    defaults = {"Content-Type": "text/event-stream", "Transfer-Encoding": "chunked"}
    merged = merge_headers(defaults, [("content-type", ""), ("transfer-encoding", "gzip"), ("x", "1")])
    assert merged == [("transfer-encoding", "gzip"), ("x", "1")]


@pytest.mark.parametrize(
    ("first", "connection", "keep_alive"),
    [
        ("GET / HTTP/1.1", None, True),
        ("GET / HTTP/1.1", "close", False),
        ("GET / HTTP/1.0", None, False),
        ("GET / HTTP/1.0", "Keep-Alive", True),
    ],
)
def test_whether_a_connection_is_kept_is_the_clients_wish(first: str, connection: str | None, keep_alive: bool) -> None:
    """HTTP/1.1 keeps a connection by default, HTTP/1.0 only if the client asks for it."""
    lines = [first, "X-A: 1", "x-a: 2", *([f"Connection: {connection}"] if connection else []), "", ""]
    head = parse_head("\r\n".join(lines).encode())
    assert head.keep_alive is keep_alive
    assert head.headers["X-a"] == "1, 2"


@pytest.mark.parametrize("block", [b"\x16\x03\x01 hello\r\n\r\n", b"GET / HTTP/1.1\r\nnonsense\r\n\r\n", b"\r\n\r\n"])
def test_what_is_no_request_is_refused(block: bytes) -> None:
    """An invalid request head raises ValueError."""
    with pytest.raises(ValueError, match=r"."):
        parse_head(block)
