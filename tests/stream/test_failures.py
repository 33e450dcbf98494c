"""What an error of a stream says: its attributes, its words, and no secret."""

import errno
import itertools
import json
import pickle
import threading
from typing import Any

import pytest
import requests
import responses

import streamguard
from streamguard import (
    HTTPStatusError,
    IncompleteStreamError,
    InStreamError,
    MalformedChunkError,
    NotEventStreamError,
    StreamInactivityTimeoutError,
    Timeouts,
    TransportError,
    TransportTimeoutError,
    classify,
    guard,
    guarded_stream,
)

from ..helpers import Serve
from .helpers import (
    STALL,
    ask,
    consume,
    failure,
    policy,
    stream_from,
    two_chunks_then_silence,
)


def test_the_error_is_raised_once(streamguard_gateway: Serve) -> None:
    """However a stream ends, the error is raised once, and then StopIteration."""
    stream = guarded_stream("POST", streamguard_gateway("chat a").url, retry=None)
    assert isinstance(consume(stream).error, IncompleteStreamError)
    assert next(stream, "over") == "over"
    assert (list(stream), stream.text, stream.report.chunks) == ([], "a", 1)


def test_every_ending_is_a_streamguard_error(streamguard_gateway: Serve) -> None:
    """Every error has the numbers of the stream, the caller's name and the report's id."""
    for steps in ("chat a", "chat a\nerror no", "chat a\nevent x", "chat a\nwait 0.1\nreset", "chat a\nstall"):
        run = ask(streamguard_gateway(steps), name="mine", idle=0.3)
        error = run.error
        assert isinstance(error, streamguard.StreamguardError)
        assert (error.chunks, error.partial_text, error.name, error.attempt) == (1, "a", "mine", 1)
        assert (error.id, error.host) == (run.stream.report.id, run.stream.report.host)
        assert error.lifetime is not None


def test_the_error_says_whether_the_route_may_change(streamguard_gateway: Serve) -> None:
    """Before the first chunk the error shows that nothing was returned; after it there is no silent switch (B109)."""
    early = ask(streamguard_gateway(STALL), first=0.1)
    assert isinstance(early.error, StreamInactivityTimeoutError)
    assert (early.error.chunks, early.error.phase, classify(early.error).diagnosis) == (0, "first", "retryable")
    late, made = two_chunks_then_silence(streamguard_gateway, retry=policy(5))
    assert isinstance(late.error, StreamInactivityTimeoutError)
    assert (late.error.chunks, late.error.phase, made) == (2, "idle", 1)


@pytest.mark.parametrize(
    ("phase", "script", "options"),
    [
        ("connect", "stall", {"tls_stall": True}),
        ("response", "stall", {}),
        ("first", "headers\nstall", {}),
        ("idle", "chat a\nstall", {}),
        ("dead", "chat a\nstall", {}),
    ],
)
def test_the_error_says_which_clock_fired(
    streamguard_gateway: Serve, phase: str, script: str, options: dict[str, Any]
) -> None:
    """Phase, limit, elapsed, chunks so far, attempt, host, name and id are on the error; errno stays ETIMEDOUT (B016)."""
    gateway = streamguard_gateway(script, **options)
    stream = guarded_stream("GET", gateway.url, verify=False, retry=None, name="chat", **{phase: 0.15})  # type: ignore[call-overload]
    error = failure(stream)
    assert isinstance(error, TransportTimeoutError)
    assert (error.phase, error.limit, error.errno, error.code) == (phase, 0.15, errno.ETIMEDOUT, "ETIMEDOUT")
    assert error.elapsed is not None
    assert error.elapsed >= 0.15
    assert error.lifetime is not None
    assert error.lifetime >= 0.15
    assert (error.chunks, error.attempt, error.max_attempts) == (1 if "chat" in script else 0, 1, 1)
    assert (error.name, error.id, error.host) == ("chat", stream.report.id, gateway.url.partition("://")[2])
    assert f"{phase}=0.15" in str(error)
    assert f"Raise {phase}=" in str(error)
    assert "/v1" not in str(error)


def test_the_defaults_are_long_and_the_message_names_the_argument(streamguard_gateway: Serve) -> None:
    """By default a pause of a minute fires nothing, and the message says what to raise (B026)."""
    assert Timeouts().idle == 120
    assert "Raise idle=" in str(failure(stream_from(streamguard_gateway("chat a\nstall"), idle=0.1)))
    first = str(failure(stream_from(streamguard_gateway("headers\nstall"), first=0.1, retry=None)))
    assert "Raise first=" in first
    assert "buffering" in first


def test_the_error_tells_the_last_byte_from_the_last_chunk(streamguard_gateway: Serve) -> None:
    """Frames without a chunk count as bytes: the two ages on the error differ, and so do the two clocks (B027)."""
    gateway = streamguard_gateway("chat a\nloop forever\nraw event: vendor\\nid: 1\\n\\n\nwait 0.03\nendloop")
    error = failure(stream_from(gateway, idle=0.3))
    assert error.last_byte_ago < 0.2 <= 0.29 <= error.last_chunk_ago
    quiet = failure(stream_from(streamguard_gateway("headers\nstall"), first=0.1, retry=None))
    assert (quiet.last_byte_ago, quiet.last_chunk_ago) == (None, None)


FAULTS = {
    "reset": ("chat a\nreset", {}, "ECONNRESET"),
    "short chunk": ("headers transfer-encoding: chunked\nwire 50\\r\\nhalf\nclose", {"framing": "close"}, "ECONNRESET"),
    "no last chunk": ("chat a\nclose", {}, "ECONNRESET"),
    "short body": ("chat a\nclose", {"framing": "length", "length": 9999}, "ECONNRESET"),
    # http.client raises the same for a size line that is not a number as for one that is missing.
    "bad chunk size": ("headers transfer-encoding: chunked\nwire zz\\r\\n", {"framing": "close"}, "ECONNRESET"),
    "bad gzip": ("headers content-encoding: gzip\nraw not gzip at all\nend", {}, "EPROTO"),
    "bad deflate": ("headers content-encoding: deflate\nraw not deflate\nend", {}, "EPROTO"),
    "no status line": ("wire what is this?\\r\\n\\r\\n\nclose", {}, "EPROTO"),
    "no answer at all": ("wire \nclose", {}, "ECONNRESET"),
    "reset before headers": ("reset", {}, "ECONNRESET"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("session", [None, "plain"])
def test_no_fault_escapes_the_hierarchy(streamguard_gateway: Serve, fault: str, session: str | None) -> None:
    """Whatever urllib3, http.client or the socket raises, the caller gets an error of ours, and of requests' (B048)."""
    script, options, code = FAULTS[fault]
    gateway = streamguard_gateway(script, **options)
    with requests.Session() as own:
        error = failure(stream_from(gateway, session=own if session else None, retry=None, response=5, total=10))
    assert isinstance(error, TransportError)
    assert isinstance(error, requests.RequestException)
    assert isinstance(error, OSError)
    assert (error.code, error.__cause__ is not None) == (code, True)
    assert classify(error).kind == "transport"


def test_requests_own_timeouts_are_mapped(streamguard_gateway: Serve) -> None:
    """The read timeout of an adapter that is not ours is the same typed error, with its errno (B048)."""

    class Impatient(requests.adapters.HTTPAdapter):
        def send(self, request: Any, *args: Any, **kwargs: Any) -> requests.Response:
            return super().send(request, *args, **{**kwargs, "timeout": 0.1})

    gateway = streamguard_gateway("stall")
    with requests.Session() as session:
        session.mount("http://", Impatient())
        error = failure(stream_from(gateway, session=session, retry=None, response=5))
    assert isinstance(error, TransportTimeoutError)
    assert (error.errno, error.phase) == (errno.ETIMEDOUT, "response")
    assert isinstance(error.__cause__, requests.ReadTimeout)


@pytest.mark.parametrize("limit", ["response", "first", "idle", "dead", "total"])
def test_every_expiry_has_an_errno(streamguard_gateway: Serve, limit: str) -> None:
    """The errno is ETIMEDOUT, though that of the lower layer is None; it can be caught as a TimeoutError (B049)."""
    script = {"response": "stall", "first": "headers\nstall"}.get(limit, "chat a\nstall")
    error = failure(stream_from(streamguard_gateway(script), retry=None, **{limit: 0.1}))
    assert isinstance(error, TimeoutError)
    assert error.errno == errno.ETIMEDOUT


@pytest.mark.parametrize(
    ("exception", "kind"),
    [(requests.ConnectionError("pool"), TransportError), (requests.ReadTimeout("late"), TransportTimeoutError)],
)
def test_mocked_and_real_exceptions_end_the_same(exception: Exception, kind: type[TransportError]) -> None:
    """What mocks raise is mapped as well, though the mapping is proved by real sockets (B054)."""
    with responses.RequestsMock() as mock:
        mock.get("http://mocked/", body=exception)
        error = failure(guarded_stream("GET", "http://mocked/", retry=None))
    assert isinstance(error, kind)
    assert error.__cause__ is exception


def test_a_name_is_in_everything(streamguard_gateway: Serve) -> None:
    """The caller's name is in the report, the repr and the error's message."""
    run = ask(streamguard_gateway("chat a"), name="summary")
    assert run.stream.report.name == "summary"
    assert "summary" in repr(run.stream)
    assert "summary" in str(run.error)
    assert "summary" in str(run.stream.report)


def test_no_secret_is_shown(streamguard_gateway: Serve) -> None:
    """Neither error, report nor repr has the URL's path, query, user or password, a header, or the body."""
    gateway = streamguard_gateway("chat a")
    url = gateway.url.replace("http://", "http://user:hush1@") + "/hush2?key=hush3"
    run = consume(guarded_stream("POST", url, headers={"X-Key": "hush4"}, json={"p": "hush5"}, cookies={"c": "hush6"}))
    assert gateway.requests[0].target == "/hush2?key=hush3"
    report = run.stream.report
    told = (str(run.error), repr(run.error), repr(run.stream), repr(report), str(report), json.dumps(report.to_dict()))
    assert "hush" not in " ".join(told)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("headers\nstall", "received nothing in "),
        ("comment\nstall", "received 0 chunks, "),
        ("chat a\nstall", "received 1 chunk and "),
        ("chat a\nchat b\ncomment\nstall", " and 1 comment in "),
        ("chat a\ncomment\ncomment\nstall", " and 2 comments in "),
    ],
)
def test_counts_have_their_plurals_and_zeros_are_left_out(streamguard_gateway: Serve, script: str, words: str) -> None:
    """The message says what was received: 1 chunk, 2 chunks, and no "0 comments"."""
    message = failure(stream_from(streamguard_gateway(script), idle=0.2, retry=None)).message
    assert words in message
    assert " 0 comments" not in message


def test_counts_that_a_source_does_not_know_are_left_out() -> None:
    """Objects of an SDK have no known size: the message has no "0 bytes", the report keeps the number."""
    release = threading.Event()
    items = itertools.chain([{"a": 1}, {"b": 2}], iter(lambda: release.wait(10), True))
    error = failure(stream := guard(items, interrupt=release.set, idle=0.1))
    assert "received 2 chunks in " in error.message
    assert "byte" not in error.message.partition(". Raise")[0]
    assert stream.report.bytes == 0


def test_the_number_of_attempts_is_named_with_the_last_one(streamguard_gateway: Serve) -> None:
    """An error that is not retried is "attempt 1"; after all attempts it is "attempt 2 of 2"."""
    gateway = streamguard_gateway("chat a\nstall", STALL)
    once = failure(stream_from(gateway, idle=0.1)).message
    assert "attempt 1, host" in once
    twice = failure(stream_from(gateway, first=0.1, retry=policy(2))).message
    assert "attempt 2 of 2, host" in twice


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("headers 401", HTTPStatusError, "status 401"),
        ("chat a\nerror no", InStreamError, "no"),
        ("chat a\nevent x", MalformedChunkError, "x"),
        ("headers 200 content-type: text/html\nraw <p>", NotEventStreamError, "text/html"),
    ],
)
def test_errors_of_the_server_name_the_stream(
    streamguard_gateway: Serve, script: str, kind: type[Exception], words: str
) -> None:
    """Their `.message` is the server's or the decoder's; `str()` adds host, name and id, also of a pickled one."""
    run = ask(gateway := streamguard_gateway(script), name="mine")
    assert type(run.error) is kind
    assert words in run.error.message
    identity = f" (host {gateway.url[7:]}, stream 'mine', id {run.stream.report.id})"
    assert str(run.error) == run.error.message + identity == str(pickle.loads(pickle.dumps(run.error)))
