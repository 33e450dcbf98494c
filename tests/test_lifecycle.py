"""The life of a stream among threads, tokens and the collector: one error once, no wait for ever, no leak."""

import gc
import logging
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from streamguard import (
    CancelToken,
    DeadlineExceededError,
    StreamCancelledError,
    StreamguardError,
    StreamInactivityTimeoutError,
    UsageError,
    guarded_stream,
)
from streamguard._core.clock import monotonic
from streamguard.telemetry import flush

from .helpers import PROMPT, Consumer, in_threads, join, wait_until

Serve = Callable[..., Any]


def test_ten_streams_share_a_token_and_one_times_out(streamguard_gateway: Serve) -> None:
    """A limit that fires in one stream ends that one: the nine others and the token stay live."""
    silent = streamguard_gateway("chat hello\nstall")
    lively = streamguard_gateway("loop 5\ntick\nwait 0.1\nendloop\nfinish\ndone")
    token = CancelToken()
    urls = [silent.url, *[lively.url] * 9]
    consumers = [Consumer(guarded_stream("GET", url, cancel=token, idle=0.3)) for url in urls]
    join(in_threads(10, lambda number: consumers[number]()))
    (error,) = consumers[0].errors
    assert isinstance(error, StreamInactivityTimeoutError)
    assert [consumer.errors for consumer in consumers[1:]] == [[]] * 9
    assert ["".join(consumer.texts) for consumer in consumers[1:]] == ["1 2 3 4 5 "] * 9
    assert not token.cancelled
    silent.wait_left()


def test_ten_streams_share_a_token_that_is_cancelled(streamguard_gateway: Serve) -> None:
    """One cancel ends all ten, each with its own error, the same reason, and its own partial text."""
    gateway = streamguard_gateway("tick\nstall")
    token = CancelToken()
    consumers = [Consumer(guarded_stream("GET", gateway.url, cancel=token)) for _ in range(10)]
    threads = in_threads(10, lambda number: consumers[number]())
    wait_until(lambda: all(consumer.texts for consumer in consumers))
    assert token.cancel("enough")
    join(threads)
    errors = [consumer.errors[0] for consumer in consumers]
    assert {type(error) for error in errors} == {StreamCancelledError}
    assert len({id(error) for error in errors}) == 10
    assert {(error.reason, error.partial_text) for error in errors} == {("enough", "1 ")}  # type: ignore[attr-defined]
    gateway.wait_connections(10, still_open=0)


def test_a_token_forgets_streams_that_have_ended(streamguard_gateway: Serve) -> None:
    """After any end, a long-lived token keeps nothing of its streams, and its cancel changes none of them."""
    gateway = streamguard_gateway("chat hello\nfinish\ndone", "headers 500", "chat hello\nstall", "chat hello\nstall")
    token = CancelToken()
    streams = [guarded_stream("GET", gateway.url, cancel=token, idle=0.1, retry=None) for _ in range(4)]
    assert streams[0].read() == "hello"
    for stream in streams[1:3]:
        with pytest.raises(StreamguardError):
            stream.read()
    with streams[3]:
        pass
    assert token._closers == {}
    token.cancel()
    assert [stream.report.outcome for stream in streams] == ["completed", "error", "timeout", "closed"]
    refs = [weakref.ref(stream) for stream in streams]
    del streams, stream
    gc.collect()
    assert [ref() for ref in refs] == [None] * 4


def test_a_full_second_of_queued_chunks_when_total_fires(streamguard_gateway: Serve) -> None:
    """A consumer that returns after the deadline gets the error at once, with all text that had arrived."""
    gateway = streamguard_gateway("loop 50\ntick\nwait 0.01\nendloop\nstall")
    stream = guarded_stream("GET", gateway.url, total=1.0)
    assert next(stream).text == "1 "
    gateway.wait_step("stall")
    CancelToken().wait(1.0)
    begun = monotonic()
    with pytest.raises(DeadlineExceededError) as caught:
        next(stream)
    assert monotonic() - begun < PROMPT
    error = caught.value
    assert error.partial_text == "".join(f"{number} " for number in range(1, 51)) == stream.text
    assert (error.scope, error.limit, error.chunks) == ("total", 1.0, 1)
    assert error.elapsed is not None
    assert error.elapsed >= 1.0
    assert list(stream) == []
    assert (stream.report.outcome, stream.report.chunks) == ("timeout", 1)
    gateway.wait_left()


def test_a_slow_consumer_is_not_silence(streamguard_gateway: Serve) -> None:
    """Only time spent waiting counts: a consumer that pauses longer than every limit loses nothing."""
    gateway = streamguard_gateway("chat a\nwait 0.3\nchat b\nfinish\ndone")
    stream = guarded_stream("GET", gateway.url, idle=0.25, dead=0.25)
    assert next(stream).text == "a"
    time.sleep(0.6)
    assert next(stream).text == "b"
    time.sleep(0.3)
    assert stream.read() == "ab"


def test_after_the_end_nothing_changes_it(streamguard_gateway: Serve) -> None:
    """close() and cancel() after a completed stream do nothing, and its report stays the same object."""
    gateway = streamguard_gateway("chat hello\nfinish\ndone")
    stream = guarded_stream("GET", gateway.url)
    assert stream.read() == "hello"
    report = stream.report
    stream.cancel("late")
    stream.close()
    with stream:
        assert list(stream) == []
    assert stream.report is report
    assert report.outcome == "completed"


def test_closed_or_cancelled_before_the_start(streamguard_gateway: Serve) -> None:
    """A stream that is closed before it starts has no chunks; a cancelled one raises, once; neither connects."""
    gateway = streamguard_gateway("chat hello\nfinish\ndone")
    closed, cancelled = (guarded_stream("GET", gateway.url) for _ in range(2))
    closed.close()
    assert list(closed) == []
    assert closed.open() is closed
    assert closed.report.outcome == "closed"
    cancelled.cancel("no")
    with pytest.raises(StreamCancelledError):
        next(cancelled)
    assert list(cancelled) == []
    token = CancelToken()
    token.cancel("earlier")
    with pytest.raises(StreamCancelledError) as caught:
        guarded_stream("GET", gateway.url, cancel=token).open()
    assert caught.value.reason == "earlier"
    assert gateway.connections == 0


def test_a_dropped_stream_frees_everything_at_once(streamguard_gateway: Serve) -> None:
    """With the last reference the socket is closed and the reader ends, without the collector."""
    gateway = streamguard_gateway("chat hello\nstall")
    gc.disable()
    try:
        for chunk in guarded_stream("GET", gateway.url):
            assert chunk.text == "hello"
            break
        gateway.wait_left()
        wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("streamguard-reader")])
    finally:
        gc.enable()


def test_a_stream_in_a_cycle_is_freed_by_the_collector(streamguard_gateway: Serve) -> None:
    """The reader thread keeps no stream alive: a cycle of the caller is freed with the next collection."""
    gateway = streamguard_gateway("chat hello\nstall")
    stream = guarded_stream("GET", gateway.url)
    assert next(stream).text == "hello"
    cycle: list[object] = [stream]
    cycle.append(cycle)
    del stream, cycle
    gc.collect()
    gateway.wait_left()


def test_a_stream_that_was_never_started_says_so() -> None:
    """Collected unstarted: one ResourceWarning that names it. After close() or cancel(): no warning."""
    with pytest.warns(ResourceWarning, match="forgotten was never started"):
        guarded_stream("GET", "http://127.0.0.1:9/", name="forgotten")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        guarded_stream("GET", "http://127.0.0.1:9/").close()
        guarded_stream("GET", "http://127.0.0.1:9/").cancel()
        gc.collect()


def test_a_late_error_of_the_reader_is_dropped(
    streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """An exception of the reader after the cut is dropped: no traceback of a thread, no unraisable, nothing on stderr."""
    shouts: list[object] = []
    monkeypatch.setattr(threading, "excepthook", shouts.append)
    monkeypatch.setattr(sys, "unraisablehook", shouts.append)
    gateway = streamguard_gateway("chat hello\nstall")
    for limit in ("idle", "total"):
        with pytest.raises(TimeoutError):
            guarded_stream("GET", gateway.url, **{limit: 0.1}).read()  # type: ignore[call-overload]
    with guarded_stream("GET", gateway.url):
        pass
    gateway.wait_connections(3, still_open=0)
    gc.collect()
    assert shouts == []
    assert capfd.readouterr().err == ""


def test_an_error_of_the_callers_own_function_is_raised_unchanged(streamguard_gateway: Serve) -> None:
    """An exception of `counts=` or `decode=` ends the stream, unchanged, once; the server sees the close."""
    gateway = streamguard_gateway("chat hello\nstall")
    fault = ZeroDivisionError("theirs")

    def broken(_: object) -> bool:
        raise fault

    for options in ({"counts": broken}, {"decode": broken}):
        stream: Any = guarded_stream("GET", gateway.url, **options)  # type: ignore[call-overload]
        with pytest.raises(ZeroDivisionError) as caught:
            next(stream)
        assert caught.value is fault
        assert list(stream) == []
        assert (stream.report.outcome, stream.report.error_type) == ("error", "ZeroDivisionError")
    gateway.wait_connections(2, still_open=0)


def test_the_response_is_there_when_the_stream_has_begun(streamguard_gateway: Serve) -> None:
    """Before the start the error says that there is none; after the headers it is requests' own."""
    gateway = streamguard_gateway("headers 200 x-request-id: abc\nchat hello\nfinish\ndone")
    stream = guarded_stream("GET", gateway.url)
    with pytest.raises(UsageError, match="no response yet"):
        _ = stream.response
    with stream:
        assert stream.response.status_code == 200
        assert stream.report.request_id == "abc"
        assert stream.report.outcome == "running"


def test_the_end_is_logged_once(streamguard_gateway: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """One INFO line for each stream, at any end and for any observer; it holds nothing of the URL."""
    gateway = streamguard_gateway("chat hello\nfinish\ndone", "chat hello\nstall")
    flush()  # what earlier tests left to the collector
    with caplog.at_level(logging.INFO, "streamguard"):
        completed = guarded_stream("GET", f"{gateway.url}/secret", name="a")
        completed.read()
        closed = guarded_stream("GET", f"{gateway.url}/secret", name="b")
        with closed:
            closed.report  # noqa: B018
        for stream in (completed, closed):
            stream.close()
            stream.report  # noqa: B018
    infos = [record for record in caplog.records if record.levelno == logging.INFO and record.name == "streamguard"]
    assert [record.getMessage() for record in infos] == ["stream completed", "stream closed"]
    assert "secret" not in caplog.text + str([vars(record) for record in infos])
