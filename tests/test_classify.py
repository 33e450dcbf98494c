"""`classify`: what failed, and whether it may be retried; for our exceptions and for those of other libraries."""

import asyncio
import concurrent.futures
import contextlib
import errno
import http.client
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import urllib3
import urllib3.exceptions as u3

from streamguard import (
    Classification,
    DeadlineExceededError,
    EmptyStreamError,
    HTTPStatusError,
    IncompleteStreamError,
    InStreamError,
    MalformedChunkError,
    NotEventStreamError,
    StreamCancelledError,
    StreamguardError,
    StreamInactivityTimeoutError,
    TransportError,
    TransportTimeoutError,
    UsageError,
    classify,
    guarded_stream,
)

Serve = Callable[..., Any]

CANCEL = Classification("cancel", "fail-fast")
DEADLINE = Classification("deadline", "fail-fast")
PROTOCOL = Classification("protocol", "fail-fast")
UNKNOWN = Classification("unknown", "fail-fast")


def transport(code: str, diagnosis: Any = "retryable") -> Classification:
    return Classification("transport", diagnosis, code)


def raised(action: Callable[[], object]) -> BaseException:
    """Return the exception of *action*."""
    try:
        action()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def chained(outer: BaseException, *causes: BaseException) -> BaseException:
    """Return *outer* with each of *causes* as the cause of the one before it."""
    for effect, cause in zip((outer, *causes), causes, strict=False):
        effect.__cause__ = cause
    return outer


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (StreamCancelledError("x"), CANCEL),
        (DeadlineExceededError("x"), DEADLINE),
        (TransportTimeoutError("x"), transport("ETIMEDOUT")),
        (StreamInactivityTimeoutError("x"), transport("ETIMEDOUT")),
        (TransportError("x", code="ECONNRESET"), transport("ECONNRESET")),
        (TransportError("x", code="ECERT"), transport("ECERT", "fail-fast")),
        (HTTPStatusError("x", status_code=401), Classification("http", "fail-fast")),
        (HTTPStatusError("x", status_code=404), Classification("http", "fail-fast")),
        (HTTPStatusError("x", status_code=429), Classification("http", "retryable")),
        (HTTPStatusError("x", status_code=503), Classification("http", "retryable")),
        (HTTPStatusError("x", status_code=529), Classification("http", "retryable")),
        (HTTPStatusError("x", status_code=501), Classification("http", "fail-fast")),
        (InStreamError("x", type="overloaded_error"), Classification("server", "retryable")),
        (InStreamError("x", type="invalid_request_error"), Classification("server", "fail-fast")),
        (InStreamError("x", code=503), Classification("server", "retryable")),
        (InStreamError("x", code="429"), Classification("server", "retryable")),
        (InStreamError("x", code="rate_limit_exceeded"), Classification("server", "retryable")),
        (InStreamError("x", code="content_filter"), Classification("server", "fail-fast")),
        (InStreamError("x", status_code=200), Classification("server", "fail-fast")),
        (IncompleteStreamError("x"), PROTOCOL),
        (EmptyStreamError("x"), PROTOCOL),
        (MalformedChunkError("x"), PROTOCOL),
        (NotEventStreamError("x"), PROTOCOL),
        (UsageError("x"), UNKNOWN),
        (StreamguardError("x"), UNKNOWN),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_our_own(error: BaseException, expected: Classification) -> None:
    """Each of our errors has its classification."""
    assert classify(error) == expected


class HttpxLikeError(Exception):
    """As httpx has them: not OSErrors; their causes name the fault."""


class ApiStatusError(Exception):
    """As openai's and anthropic's SDKs have them."""

    def __init__(self, status_code: int) -> None:
        self.status_code = status_code


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ConnectionRefusedError(), transport("ECONNREFUSED")),
        (ConnectionResetError(), transport("ECONNRESET")),
        (ConnectionAbortedError(), transport("ECONNABORTED")),
        (BrokenPipeError(), transport("EPIPE")),
        (TimeoutError(), transport("ETIMEDOUT")),
        (TimeoutError("The read operation timed out"), transport("ETIMEDOUT")),
        (OSError(errno.ENETUNREACH, "x"), transport("ENETUNREACH")),
        (OSError(errno.EHOSTUNREACH, "x"), transport("EHOSTUNREACH")),
        (OSError("x"), transport("EIO")),
        (socket.gaierror(socket.EAI_NONAME, "x"), transport("EAI_NONAME")),
        (socket.herror(1, "x"), transport("EAI_NONAME")),
        (ssl.SSLCertVerificationError(1, "x"), transport("ECERT", "fail-fast")),
        (ssl.SSLEOFError(8, "x"), transport("ECONNRESET")),
        (ssl.SSLError(1, "x"), transport("EPROTO")),
        (FileNotFoundError(errno.ENOENT, "x"), transport("ENOENT", "fail-fast")),
        (PermissionError(errno.EACCES, "x"), transport("EACCES", "fail-fast")),
        (http.client.IncompleteRead(b""), transport("ECONNRESET")),
        (http.client.RemoteDisconnected("x"), transport("ECONNRESET")),
        (http.client.BadStatusLine("x"), transport("EPROTO")),
        (u3.ReadTimeoutError(None, "/", "x"), transport("ETIMEDOUT")),  # type: ignore[arg-type]
        (u3.ProtocolError("x", ConnectionResetError()), transport("ECONNRESET")),
        (u3.IncompleteRead(1, 2), transport("ECONNRESET")),
        (u3.DecodeError("x"), transport("EPROTO")),
        (u3.LocationParseError("a..b"), UNKNOWN),
        (requests.ConnectTimeout(), transport("ETIMEDOUT")),
        (requests.ReadTimeout(), transport("ETIMEDOUT")),
        (requests.ConnectionError(), transport("EIO")),
        (requests.exceptions.ChunkedEncodingError(), transport("EIO")),
        (requests.TooManyRedirects(), transport("ELOOP", "fail-fast")),
        (requests.exceptions.MissingSchema(), UNKNOWN),
        (requests.exceptions.InvalidURL(u3.LocationValueError("x")), UNKNOWN),
        (requests.JSONDecodeError("x", "y", 0), PROTOCOL),
        (requests.RequestException(), UNKNOWN),
        (urllib.error.URLError(ConnectionRefusedError()), transport("ECONNREFUSED")),
        (urllib.error.HTTPError("u", 404, "m", http.client.HTTPMessage(), None), Classification("http", "fail-fast")),
        (urllib.error.HTTPError("u", 503, "m", http.client.HTTPMessage(), None), Classification("http", "retryable")),
        (ApiStatusError(400), Classification("http", "fail-fast")),
        (ApiStatusError(500), Classification("http", "retryable")),
        (ApiStatusError(200), UNKNOWN),
        (chained(HttpxLikeError(), HttpxLikeError(), ConnectionResetError()), transport("ECONNRESET")),
        (chained(HttpxLikeError(), HttpxLikeError(), TimeoutError()), transport("ETIMEDOUT")),
        (HttpxLikeError(), UNKNOWN),
        (ValueError("x"), UNKNOWN),
        (json.JSONDecodeError("x", "y", 0), UNKNOWN),
        (NameError("x"), UNKNOWN),
    ],
    ids=repr,
)
def test_foreign(error: BaseException, expected: Classification) -> None:
    """Exceptions of sockets, ssl, http.client, urllib, urllib3, requests and SDKs, by their type and causes."""
    try:
        assert classify(error) == expected
    finally:
        if isinstance(error, urllib.error.HTTPError):
            error.close()


@pytest.mark.parametrize(
    "error",
    [
        KeyboardInterrupt(),
        SystemExit(1),
        GeneratorExit(),
        asyncio.CancelledError(),
        concurrent.futures.CancelledError(),
        BaseException("an async exception of somebody's"),
    ],
    ids=repr,
)
def test_a_base_exception_is_a_cancel(error: BaseException) -> None:
    """A BaseException that is not an Exception, itself or as a cause, is a decision to stop, and never retried."""
    assert classify(error) == CANCEL
    assert classify(chained(OSError("x"), error)) == CANCEL


def test_a_cancel_precedes_a_deadline_and_both_precede_the_rest() -> None:
    """At any depth, a cancel decides; then a deadline; only then the transport."""
    cancel, late, reset = StreamCancelledError("x"), DeadlineExceededError("x"), ConnectionResetError()
    assert classify(chained(TransportTimeoutError("x"), late, reset)) == DEADLINE
    assert classify(chained(requests.ConnectionError(), late, cancel)) == CANCEL
    assert classify(requests.ConnectionError(u3.MaxRetryError(None, "/", cancel))) == CANCEL  # type: ignore[arg-type]


def test_a_status_precedes_the_transport() -> None:
    """An exception with a response of an error status is classified by the status, with any cause."""
    response = requests.Response()
    response.status_code = 401
    assert classify(requests.HTTPError(response=response)) == Classification("http", "fail-fast")
    assert classify(chained(RuntimeError(), requests.HTTPError(response=response))).kind == "http"
    response.status_code = 200
    assert classify(requests.ConnectionError(response=response)) == transport("EIO")


def test_numbers_and_texts_are_not_trusted() -> None:
    """Neither an errno of another kind of error, nor a text about timeouts, decides."""
    assert classify(RuntimeError(errno.ETIMEDOUT, "timed out")) == UNKNOWN
    assert classify(ssl.SSLError(errno.ETIMEDOUT, "timed out")) == transport("EPROTO")


def test_cycles_end() -> None:
    """An exception that is its own cause, or its own argument, is visited once."""
    one, other = RuntimeError(), RuntimeError()
    one.args = (other, one)
    chained(one, other, one)
    assert classify(one) == UNKNOWN


def test_strange_attributes_do_no_harm() -> None:
    """Attributes with our names and other types are ignored."""

    class Strange(Exception):
        status_code = "401"
        response = 5
        reason = "because"
        status: Any = None

    assert classify(Strange()) == UNKNOWN


def test_a_classification_is_a_value() -> None:
    """It is frozen, compares by value and can be a key."""
    assert len({classify(TimeoutError()), classify(ConnectionRefusedError()), classify(TimeoutError("x"))}) == 2
    with pytest.raises(AttributeError):
        classify(TimeoutError()).kind = "http"  # type: ignore[misc]


@contextlib.contextmanager
def closed_port() -> Iterator[int]:
    """Reserve a port at which no server listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


def read_with_requests(url: str, **options: Any) -> None:
    with requests.get(url, stream=True, timeout=options.pop("timeout", 5), **options) as response:
        for _ in response.iter_content(None):
            pass
        response.raise_for_status()


def read_with_urllib3(url: str, **_: Any) -> None:
    with urllib3.PoolManager(retries=False) as manager:
        response = manager.request("GET", url, preload_content=False, timeout=0.2)
        try:
            for _block in response.stream():
                pass
        finally:
            response.close()


def read_with_http_client(url: str, **_: Any) -> None:
    connection = http.client.HTTPConnection(url.partition("://")[2], timeout=0.2)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    finally:
        connection.close()


def read_with_urllib(url: str, **_: Any) -> None:
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=0.2) as response:
        response.read()


def read_with_us(url: str, **options: Any) -> None:
    guarded_stream("GET", url, decode="bytes", retry=None, response=0.2, idle=0.2, **options).read()


READERS: dict[str, Callable[..., None]] = {
    "requests": read_with_requests,
    "urllib3": read_with_urllib3,
    "http.client": read_with_http_client,
    "urllib": read_with_urllib,
    "streamguard": read_with_us,
}

reader = pytest.mark.parametrize("read", READERS.values(), ids=READERS)


@reader
def test_a_refused_connection(read: Callable[..., None]) -> None:
    """No server listens: ECONNREFUSED, with any client."""
    with closed_port() as port:
        assert classify(raised(lambda: read(f"http://127.0.0.1:{port}"))) == transport("ECONNREFUSED")


@reader
def test_a_name_that_does_not_exist(read: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """The resolver does not know the name: EAI_NONAME, with any client."""

    def unknown(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert classify(raised(lambda: read("http://nowhere.invalid"))) == transport("EAI_NONAME")


@reader
@pytest.mark.parametrize("script", ["reset", "chat hello\nreset"], ids=["before the headers", "in the body"])
def test_a_reset(streamguard_gateway: Serve, read: Callable[..., None], script: str) -> None:
    """The peer resets the connection: ECONNRESET, with any client."""
    gateway = streamguard_gateway(script)
    assert classify(raised(lambda: read(gateway.url))) == transport("ECONNRESET")


@reader
@pytest.mark.parametrize(("framing", "length"), [("length", 1000), ("chunked", None)])
def test_a_short_body(streamguard_gateway: Serve, read: Callable[..., None], framing: str, length: int | None) -> None:
    """The body ends before its framing does: ECONNRESET, except for chunks in urllib3, which only says that it failed."""
    gateway = streamguard_gateway("chat hello\nclose", framing=framing, length=length)
    vague = framing == "chunked" and read in (read_with_requests, read_with_urllib3)
    assert classify(raised(lambda: read(gateway.url))) in (transport("ECONNRESET"), transport("EIO"))[: 1 + vague]


@reader
@pytest.mark.parametrize("script", ["stall", "chat hello\nstall"], ids=["before the headers", "in the body"])
def test_silence(streamguard_gateway: Serve, read: Callable[..., None], script: str) -> None:
    """No byte arrives within the limit: ETIMEDOUT, with any client (requests raises ConnectionError for the body)."""
    gateway = streamguard_gateway(script)
    options = {"timeout": 0.2} if read is read_with_requests else {}
    assert classify(raised(lambda: read(gateway.url, **options))) == transport("ETIMEDOUT")


@pytest.mark.parametrize("read", [read_with_requests, read_with_us], ids=["requests", "streamguard"])
def test_an_unknown_certificate(streamguard_tls_gateway: Serve, read: Callable[..., None]) -> None:
    """A certificate of an unknown authority: ECERT, and not retryable."""
    gateway = streamguard_tls_gateway("chat hello\ndone")
    assert classify(raised(lambda: read(gateway.url))) == transport("ECERT", "fail-fast")


@pytest.mark.parametrize("read", [read_with_requests, read_with_us], ids=["requests", "streamguard"])
@pytest.mark.parametrize(
    ("status", "diagnosis"), [(401, "fail-fast"), (404, "fail-fast"), (429, "retryable"), (502, "retryable")]
)
def test_a_status(streamguard_gateway: Serve, read: Callable[..., None], status: int, diagnosis: str) -> None:
    """The number of an error status decides whether it is retryable."""
    gateway = streamguard_gateway(f"headers {status}\nend")
    error = raised(lambda: read(gateway.url))
    verdict = classify(error)
    assert (verdict.kind, verdict.diagnosis, verdict.transport_code) == ("http", diagnosis, None)


@pytest.mark.parametrize("url", ["http://a..b/", f"http://{'a' * 70}.invalid/"])
def test_a_url_that_cannot_be_requested(url: str) -> None:
    """An impossible host is the caller's mistake, not retryable, and the message names the argument."""
    error = raised(lambda: guarded_stream("GET", url).read())
    assert isinstance(error, UsageError)
    assert "url=" in str(error)
    assert classify(error) == UNKNOWN


def test_broken_chunking(streamguard_gateway: Serve) -> None:
    """An invalid chunk size is a fault of the transport; http.client does not distinguish it from a short body."""
    gateway = streamguard_gateway(r"wire HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n")
    assert classify(raised(lambda: read_with_us(gateway.url))) in (transport("ECONNRESET"), transport("EPROTO"))


def test_what_is_not_http(streamguard_gateway: Serve) -> None:
    """An answer that is not HTTP: EPROTO."""
    gateway = streamguard_gateway(r"wire SSH-2.0-OpenSSH_9.0\r\n")
    assert classify(raised(lambda: read_with_us(gateway.url))) == transport("EPROTO")


def test_the_systems_own_error() -> None:
    """The system's own error has its code, also inside urllib3's error for it."""
    for number, code in ((errno.EMFILE, "EMFILE"), (errno.ENETUNREACH, "ENETUNREACH")):
        assert classify(chained(u3.NewConnectionError(None, "x"), OSError(number, "x"))) == transport(code)  # type: ignore[arg-type]
    assert classify(u3.NewConnectionError(None, "x")) == transport("EIO")  # type: ignore[arg-type]
