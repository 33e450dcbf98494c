"""Test tools of users: `responses` works for shapes, freezegun freezes wall labels and nothing else."""

import datetime
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import freezegun
import pytest
import requests
import responses

import streamguard
from streamguard import (
    EmptyStreamError,
    HTTPStatusError,
    IncompleteStreamError,
    InStreamError,
    MalformedChunkError,
    NotEventStreamError,
    StreamInactivityTimeoutError,
    TransportError,
    TransportTimeoutError,
    guarded_stream,
)
from streamguard._core.clock import monotonic

from ..helpers import PROMPT, Serve, wait_until
from .helpers import consume, failure, has_reader, stream_from


def test_a_mocked_stream_ends() -> None:
    """Under `responses` there is no socket: two events and [DONE] are delivered, and everything ends (B129)."""
    body = 'data: {"choices": [{"delta": {"content": "a"}}]}\n\n' * 2 + "data: [DONE]\n\n"
    with responses.RequestsMock() as mock:
        mock.post("http://mocked/v1", body=body, content_type="text/event-stream")
        with guarded_stream("POST", "http://mocked/v1", json={"stream": True}) as stream:
            assert [chunk.text for chunk in stream] == ["a", "a"]
        assert (stream.report.outcome, has_reader(stream)) == ("completed", False)
        with guarded_stream("POST", "http://mocked/v1", json={"stream": True}) as stream:
            next(stream)
            stream.cancel()
        assert stream.report.outcome == "cancelled"


URL = "http://mocked.invalid/v1/chat/completions"
CHUNK = 'data: {"choices": [{"index": 0, "delta": {"content": "%s"}}]}\n\n'
HELLO = CHUNK % "Hel" + CHUNK % "lo"
DONE = "data: [DONE]\n\n"
FROZEN = datetime.datetime(2001, 2, 3, 4, 5, 6, tzinfo=datetime.UTC)


@pytest.fixture
def mock() -> Iterator[responses.RequestsMock]:
    """Answer requests without a socket."""
    with responses.RequestsMock() as mock:
        yield mock


def answer(mock: responses.RequestsMock, body: Any, content_type: str = "text/event-stream", **options: Any) -> None:
    mock.post(URL, body=body, content_type=content_type, **options)


def test_a_mocked_chat_is_read_to_its_end(mock: responses.RequestsMock) -> None:
    """Chunks, the message, the report: the shapes are those of a real stream."""
    answer(mock, HELLO + DONE, headers={"x-request-id": "r-1"})
    seen = consume(stream := guarded_stream("POST", URL, json={"stream": True}, name="mocked"))
    assert (seen.error, seen.texts, stream.message.text) == (None, ["Hel", "lo"], "Hello")
    report = stream.report
    assert (report.outcome, report.attempts, report.chunks, report.comments) == ("completed", 1, 2, 0)
    assert (report.request_id, report.status_code, report.host) == ("r-1", 200, "mocked.invalid")
    assert report.bytes == len(HELLO + DONE)
    assert report.abandoned_threads == 0
    wait_until(lambda: not has_reader(stream))


@pytest.mark.parametrize("decode", ["chat", "events", "json", "bytes", lambda event: event.data])
@pytest.mark.parametrize("body_type", [str, bytes])
def test_every_decoding_works_on_a_mock(mock: responses.RequestsMock, decode: Any, body_type: type) -> None:
    """With text and with bytes as the mocked body."""
    answer(mock, HELLO if body_type is str else HELLO.encode())
    seen = consume(guarded_stream("POST", URL, decode=decode, strict=False))
    assert seen.error is None
    assert len(seen.chunks) == (1 if decode == "bytes" else 2)


@pytest.mark.parametrize("mounted", [False, True])
def test_a_callers_session_works_on_a_mock(mock: responses.RequestsMock, mounted: bool) -> None:
    """A mock works for a Session, with our adapter or requests' own."""
    answer(mock, HELLO + DONE)
    with requests.Session() as session:
        if mounted:
            session.mount("http://", streamguard.Adapter())
        assert guarded_stream("POST", URL, session=session).read() == "Hello"


def test_the_request_is_what_a_mock_expects(mock: responses.RequestsMock) -> None:
    """Matchers see the payload and the headers of the real request."""
    matchers = [
        responses.matchers.json_params_matcher({"stream": True}),
        responses.matchers.header_matcher({"Accept": "text/event-stream", "Authorization": "Bearer k"}),
    ]
    mock.post(URL, body=HELLO + DONE, content_type="text/event-stream", match=matchers)
    stream = guarded_stream("POST", URL, json={"stream": True}, headers={"Authorization": "Bearer k"})
    assert stream.read() == "Hello"
    assert len({call.request.headers["Idempotency-Key"] for call in mock.calls}) == 1


@pytest.mark.parametrize(
    ("body", "options", "kind"),
    [
        (HELLO, {}, IncompleteStreamError),
        ("", {}, EmptyStreamError),
        (HELLO + 'data: {"error": {"message": "m"}}\n\n', {}, InStreamError),
        (HELLO + "data: not json\n\n", {}, MalformedChunkError),
        ("<html>", {"content_type": "text/html"}, NotEventStreamError),
        ('{"choices": []}', {"content_type": "application/json"}, NotEventStreamError),
        ('{"error": {"message": "no key"}}', {"status": 401, "content_type": "application/json"}, HTTPStatusError),
        (requests.ConnectionError("refused"), {}, TransportError),
        (requests.ReadTimeout("late"), {}, TransportTimeoutError),
        (requests.ConnectTimeout("late"), {}, TransportTimeoutError),
        (requests.exceptions.ChunkedEncodingError("broken"), {}, TransportError),
    ],
)
def test_mocked_failures_are_the_same_errors(
    mock: responses.RequestsMock, body: Any, options: dict[str, Any], kind: type[Exception]
) -> None:
    """Every end that does not depend on time can be mocked."""
    answer(mock, body, **options)
    assert isinstance(failure(guarded_stream("POST", URL, retry=None)), kind)


def test_an_exception_of_the_mocks_own_comes_out_unchanged(mock: responses.RequestsMock) -> None:
    """An exception that is not a transport error is raised unchanged."""
    raised = LookupError("from the mock")
    answer(mock, raised)
    assert failure(guarded_stream("POST", URL)) is raised


def test_retries_meet_one_mock_after_the_other(mock: responses.RequestsMock) -> None:
    """A timeout, then an answer: two calls, one report."""
    answer(mock, requests.ReadTimeout("late"))
    answer(mock, HELLO + DONE)
    stream = guarded_stream("POST", URL)
    assert (stream.read(), stream.report.attempts, len(mock.calls)) == ("Hello", 2, 2)


@pytest.mark.parametrize("how", ["close", "cancel", "break", "drop"])
def test_leaving_a_mock_in_the_middle_raises_nothing(mock: responses.RequestsMock, how: str) -> None:
    """A cut finds no socket, and raises nothing."""
    answer(mock, HELLO + DONE)
    stream = guarded_stream("POST", URL)
    assert next(stream)["choices"]
    if how in ("close", "cancel"):
        getattr(stream, how)()
    if how == "break":
        with stream:
            pass
    del stream


def test_a_mock_inside_a_with_block_has_its_response(mock: responses.RequestsMock) -> None:
    """Status and headers are there before the first chunk."""
    answer(mock, HELLO + DONE, headers={"X-A": "b"})
    with guarded_stream("POST", URL) as stream:
        assert (stream.response.status_code, stream.response.headers["X-A"]) == (200, "b")
        assert stream.read() == "Hello"


def test_frozen_time_stops_no_limit(streamguard_gateway: Serve) -> None:
    """A limit fires after real seconds; the report's durations are real, its label is the frozen time."""
    gateway = streamguard_gateway("chat a\nwait 0.1\nchat b\nstall")
    with freezegun.freeze_time(FROZEN):
        seen = consume(stream := stream_from(gateway, idle=0.2))
        assert time.time() == FROZEN.timestamp()
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert 0.3 <= seen.elapsed < 0.3 + PROMPT
    report = stream.report
    assert report.started_at == FROZEN
    assert report.lifetime >= 0.3
    assert report.max_gap is not None
    assert report.max_gap >= 0.09
    assert seen.error.elapsed is not None
    assert seen.error.elapsed >= 0.2


@pytest.mark.parametrize("jump", [datetime.timedelta(days=-400), datetime.timedelta(days=400)])
def test_a_jump_fires_and_delays_nothing(streamguard_gateway: Serve, jump: datetime.timedelta) -> None:
    """Time that a test moves in the middle of a stream neither uses a limit up nor gives one back."""
    gateway = streamguard_gateway("chat a\nwait 0.1\nchat b\nstall")
    with freezegun.freeze_time(FROZEN) as frozen:
        stream = stream_from(gateway, idle=0.25, total=30)
        next(stream)
        frozen.tick(jump)
        seen = consume(stream)
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert (seen.texts, stream.report.started_at) == (["b"], FROZEN)


@pytest.mark.parametrize("limit", ["response", "first", "dead", "total"])
def test_every_limit_runs_under_frozen_time(streamguard_gateway: Serve, limit: str) -> None:
    """Every limit fires, also under a tool that ticks by itself."""
    gateway = streamguard_gateway("stall" if limit == "response" else "headers\nstall")
    with freezegun.freeze_time(FROZEN, auto_tick_seconds=3600):
        seen = consume(stream_from(gateway, retry=None, **{limit: 0.15}))
    assert isinstance(seen.error, TimeoutError)
    assert 0.15 <= seen.elapsed < 0.15 + PROMPT


def test_pauses_heartbeats_and_waits_are_real_under_frozen_time(streamguard_gateway: Serve) -> None:
    """A retry pause passes, and heartbeats come in it."""
    gateway = streamguard_gateway("headers\nstall", "chat a\ndone")
    with freezegun.freeze_time(FROZEN):
        stream = stream_from(gateway, first=0.1, heartbeat=0.05)
        items = list(stream)
    assert items[-1].text == "a"
    assert streamguard.HEARTBEAT in items
    assert stream.report.attempts == 2


@pytest.mark.parametrize("seconds", [2, 5])
def test_a_retry_after_that_is_a_date_is_read_against_the_real_clock(streamguard_gateway: Serve, seconds: int) -> None:
    """A server's date is a few seconds ahead, not decades, whatever time the test has frozen."""
    at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=seconds)
    date = at.strftime("%a, %d %b %Y %H:%M:%S GMT")
    gateway = streamguard_gateway(f"headers 503 retry-after: {date}; content-length: 0", framing="length")
    with freezegun.freeze_time(FROZEN):
        error = failure(stream_from(gateway))
    assert isinstance(error, HTTPStatusError)
    assert error.retry_after is not None
    assert seconds - 2 <= error.retry_after <= seconds


def test_an_import_under_frozen_time_measures_real_time(streamguard_gateway: Serve) -> None:
    """In a process that imports everything while time is frozen, and moves it, limits are the same."""
    program = (
        "import sys, freezegun\n"
        "with freezegun.freeze_time('2001-02-03') as frozen:\n"
        "    import streamguard\n"
        "    stream = streamguard.guarded_stream('GET', sys.argv[1], idle=0.3, total=60)\n"
        "    print(next(stream).text)\n"
        "    frozen.tick(86400)\n"
        "    try:\n"
        "        next(stream)\n"
        "    except streamguard.StreamInactivityTimeoutError as error:\n"
        "        print(error.phase, error.elapsed >= 0.3, stream.report.started_at.year)\n"
    )
    gateway = streamguard_gateway("chat a\nstall")
    began = monotonic()
    done = subprocess.run([sys.executable, "-c", program, gateway.url], capture_output=True, text=True, timeout=30)
    assert (done.stdout, done.stderr, done.returncode) == ("a\nidle True 2001\n", "", 0)
    assert monotonic() - began >= 0.3
