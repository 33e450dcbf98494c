"""After an expiry the consumer has control, the reader is gone, and the server saw the close: wherever it happens."""

from typing import Any

import pytest
import requests
import urllib3

import streamguard
import streamguard._stream.failures
from streamguard import (
    DeadlineExceededError,
    StreamguardError,
    StreamInactivityTimeoutError,
    TransportTimeoutError,
    guarded_stream,
)
from streamguard._core.clock import monotonic
from streamguard._http import SocketGuard
from streamguard.testing import Gateway
from streamguard.testing.wire import FRAMINGS

from ..helpers import PROMPT, Serve, wait_until
from ..http.servers import blackhole
from .helpers import ENDLESS, consume, failure, has_reader, stream_from

LIMIT = 0.05
ENCODINGS = [None, "gzip", "gzip-members", "deflate"]

MANNERS = {
    "silent": "stall",
    "dripping": f"drip 1 0.02 | data: {'x' * 4000}",
    "heartbeats": "loop forever\ncomment ping\nwait 0.02\nendloop",
}

both_schemes = pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])


def assert_released(gateway: Gateway, limit: str, kind: type[StreamguardError], **options: Any) -> Any:
    """Run into *limit*: the error is on time, and soon no reader and no connection is left."""
    stream = stream_from(gateway, retry=None, **{"first": 10, limit: LIMIT, **options})
    seen = consume(stream)
    freed = monotonic()
    error = seen.error
    assert isinstance(error, kind)
    assert error.elapsed is not None
    assert LIMIT <= error.elapsed <= seen.elapsed + 0.001
    assert seen.elapsed - LIMIT < PROMPT
    wait_until(lambda: not has_reader(stream), PROMPT)
    if gateway.requests:
        assert gateway.wait_left(timeout=PROMPT).at - freed < PROMPT
    gateway.wait_connections(1, still_open=0, timeout=PROMPT)
    assert stream.report.outcome == "timeout"
    return error


def _lie(framing: str) -> dict[str, int]:
    return {"length": 100_000} if framing == "length" else {}


@both_schemes
@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("framing", FRAMINGS)
def test_between_chunks(streamguard_gateway: Serve, framing: str, encoding: str | None, manner: str, tls: bool) -> None:
    """`idle` cuts the body after a chunk, which was delivered."""
    gateway = streamguard_gateway(
        f"chat a\n{MANNERS[manner]}", framing=framing, encoding=encoding, tls=tls, **_lie(framing)
    )
    error = assert_released(gateway, "idle", StreamInactivityTimeoutError)
    assert (error.phase, error.partial_text, error.chunks) == ("idle", "a", 1)


@both_schemes
@pytest.mark.parametrize("manner", MANNERS)
@pytest.mark.parametrize("framing", FRAMINGS)
def test_before_the_first_chunk(streamguard_gateway: Serve, framing: str, manner: str, tls: bool) -> None:
    """`first` cuts a body without a chunk."""
    encoding = ENCODINGS[FRAMINGS.index(framing)]
    gateway = streamguard_gateway(
        f"headers\n{MANNERS[manner]}", framing=framing, encoding=encoding, tls=tls, **_lie(framing)
    )
    error = assert_released(gateway, "first", StreamInactivityTimeoutError)
    assert (error.phase, error.partial_text, error.chunks) == ("first", "", 0)


@both_schemes
@pytest.mark.parametrize("framing", FRAMINGS)
def test_in_full_flow(streamguard_gateway: Serve, framing: str, tls: bool) -> None:
    """`total` cuts a body that never pauses."""
    gateway = streamguard_gateway("loop forever\ntick\nendloop", framing=framing, tls=tls, **_endless(framing))
    assert assert_released(gateway, "total", DeadlineExceededError).scope == "total"


def _endless(framing: str) -> dict[str, int]:
    return {"length": 1 << 40} if framing == "length" else {}


@both_schemes
@pytest.mark.parametrize("script", ["stall", "wire HTTP/1.1 200 OK\\r\\nX-A: b\nstall", "drip-headers 0.02"])
@pytest.mark.parametrize(("limit", "kind"), [("response", TransportTimeoutError), ("total", DeadlineExceededError)])
def test_before_the_headers(
    streamguard_gateway: Serve, script: str, limit: str, kind: type[StreamguardError], tls: bool
) -> None:
    """`response` and `total` cut the wait for the headers, silent, half-way or dripping."""
    error = assert_released(streamguard_gateway(script, tls=tls), limit, kind)
    assert error.phase == "response" or limit == "total"


@pytest.mark.parametrize(("limit", "kind"), [("connect", TransportTimeoutError), ("total", DeadlineExceededError)])
def test_in_the_tls_handshake(streamguard_gateway: Serve, limit: str, kind: type[StreamguardError]) -> None:
    """`connect` and `total` cut a handshake that is not answered."""
    gateway = streamguard_gateway("", tls_stall=True)
    assert assert_released(gateway, limit, kind, verify=False).phase == "connect"


@pytest.mark.parametrize(("limit", "kind"), [("connect", TransportTimeoutError), ("total", DeadlineExceededError)])
def test_in_the_connect(limit: str, kind: type[StreamguardError]) -> None:
    """`connect` and `total` cut a connect without an answer."""
    with blackhole() as port:
        stream = guarded_stream("GET", f"http://127.0.0.1:{port}/", retry=None, **{limit: LIMIT})  # type: ignore[call-overload]
        seen = consume(stream)
        assert isinstance(seen.error, kind)
        assert LIMIT <= seen.elapsed < LIMIT + PROMPT
        wait_until(lambda: not has_reader(stream))


@both_schemes
@pytest.mark.parametrize(("limit", "kind"), [("response", TransportTimeoutError), ("total", DeadlineExceededError)])
def test_while_sending(streamguard_gateway: Serve, limit: str, kind: type[StreamguardError], tls: bool) -> None:
    """`response` and `total` cut the sending of a body that the server does not take."""
    gateway = streamguard_gateway("stall", tls=tls, read_body=False)
    stream = stream_from(gateway, data=b"x" * 20_000_000, retry=None, **{limit: LIMIT})
    seen = consume(stream)
    assert isinstance(seen.error, kind)
    assert seen.error.phase == "response" or limit == "total"
    assert LIMIT <= seen.elapsed < LIMIT + PROMPT
    wait_until(lambda: not has_reader(stream))


@both_schemes
def test_in_the_body_of_a_redirect(streamguard_gateway: Serve, tls: bool) -> None:
    """`response` cuts the body of a redirect, which requests reads before it follows."""
    gateway = streamguard_gateway("headers 302 location: /next\nraw half\nstall", tls=tls, **_body_of(100))
    assert assert_released(gateway, "response", TransportTimeoutError).phase == "response"
    assert len(gateway.requests) == 1


def _body_of(length: int) -> dict[str, Any]:
    return {"framing": "length", "length": length}


@both_schemes
@pytest.mark.parametrize("session", ["plain", "adapter"])
@pytest.mark.parametrize("framing", FRAMINGS)
def test_with_a_session_of_the_caller(streamguard_gateway: Serve, framing: str, session: str, tls: bool) -> None:
    """The body is cut in a caller's Session, with or without our adapter, and the Session still works."""
    gateway = streamguard_gateway("chat a\nstall", "chat b\ndone", framing=framing, tls=tls, **_lie(framing))
    with requests.Session() as own:
        if session == "adapter":
            own.mount("https://" if tls else "http://", streamguard.Adapter())
        assert_released(gateway, "idle", StreamInactivityTimeoutError, session=own)
        assert consume(stream_from(gateway, session=own)).text == "b"


def test_the_cut_needs_no_newer_urllib3(streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """urllib3's own `shutdown()`, missing before 2.3, plays no part in a cut (B033)."""
    monkeypatch.delattr(urllib3.HTTPResponse, "shutdown", raising=False)
    monkeypatch.delattr(urllib3.response.BaseHTTPResponse, "shutdown", raising=False)
    gateway = streamguard_gateway(ENDLESS)
    stream = stream_from(gateway, total=0.2)
    assert isinstance(failure(stream), DeadlineExceededError)
    wait_until(lambda: not has_reader(stream))
    gateway.wait_left()


@pytest.mark.parametrize("limit", ["total", "idle", "first"])
def test_the_bound_never_depends_on_the_cut(
    streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """If a cut does not wake the reader, the consumer gets its error on time, and the thread is counted (B033)."""
    monkeypatch.setattr(SocketGuard, "cut", lambda guard: None)
    gateway = streamguard_gateway("headers\nstall" if limit == "first" else "chat a\nstall")
    seen = consume(stream := stream_from(gateway, retry=None, **{limit: 0.2}))
    assert isinstance(seen.error, TimeoutError)
    assert seen.elapsed < 0.2 + PROMPT
    assert (stream.report.abandoned_threads, has_reader(stream)) == (1, True)
    gateway.stop()
    wait_until(lambda: not has_reader(stream))


@pytest.mark.parametrize("framing", ["close", "http10"])
@pytest.mark.parametrize("strict", [True, False])
def test_a_cut_body_never_passes_for_a_clean_end(streamguard_gateway: Serve, framing: str, strict: bool) -> None:
    """If the body ends with the connection, the cut would look like its end: it is still a timeout."""
    gateway = streamguard_gateway("chat a\nfinish\nchat b\nstall", framing=framing)
    stream = stream_from(gateway, idle=0.15, end_grace=None, strict=strict)
    error = failure(stream)
    assert isinstance(error, StreamInactivityTimeoutError)
    assert stream.report.outcome == "timeout"


@pytest.mark.parametrize("decode", ["bytes", "events", "json"])
@pytest.mark.parametrize("framing", ["close", "http10"])
def test_a_cut_body_is_not_an_end_in_any_decoding(streamguard_gateway: Serve, framing: str, decode: str) -> None:
    """The same for the decodings that end at any well-framed end of the body."""
    gateway = streamguard_gateway("event 1\nstall", framing=framing)
    stream = stream_from(gateway, idle=0.15, decode=decode)
    assert isinstance(failure(stream), StreamInactivityTimeoutError)
    assert stream.report.outcome == "timeout"
