"""Cancel and close: from any thread, in any phase, before the start and after the end."""

import gc
import threading
import time
import weakref
from typing import Any

import pytest

import streamguard
from streamguard import (
    CancelToken,
    StreamCancelledError,
    guarded_stream,
)
from streamguard._core.clock import monotonic
from streamguard.testing.wire import FRAMINGS

from ..helpers import PROMPT, Serve, in_thread, wait_until
from .helpers import COMPLETE, ENDLESS, OPEN, ask, consume, has_reader, stream_from


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("framing", FRAMINGS)
def test_close_does_not_block_while_another_thread_reads(streamguard_gateway: Serve, framing: str, tls: bool) -> None:
    """close() returns at once, the loop of the other thread ends quietly, and the server sees the close (B031)."""
    lie = {"length": 100_000} if framing == "length" else {}
    gateway = streamguard_gateway("chat a\nstall", framing=framing, tls=tls, **lie)
    stream = stream_from(gateway)
    results: list[Any] = []
    reading = in_thread(lambda: results.append(consume(stream)))
    wait_until(lambda: stream.report.chunks == 1)
    began = monotonic()
    stream.close()
    assert monotonic() - began < PROMPT
    reading.join(PROMPT)
    assert (results[0].error, results[0].text, stream.report.outcome) == (None, "a", "closed")
    gateway.wait_left()


@pytest.mark.parametrize("step", ["stall", "wait 30", "loop forever\ncomment ping\nwait 0.01\nendloop"])
def test_cancel_is_immediate_and_no_transport_error(streamguard_gateway: Serve, step: str) -> None:
    """A cancel in the middle of a pause ends the loop at once, as a StreamCancelledError (B032)."""
    gateway = streamguard_gateway(f"chat start\n{step}")
    stream = stream_from(gateway)
    next(stream)
    threading.Timer(0.1, stream.cancel, args=("enough",)).start()
    seen = consume(stream)
    assert isinstance(seen.error, StreamCancelledError)
    assert not isinstance(seen.error, OSError)
    assert (seen.error.reason, stream.report.outcome) == ("enough", "cancelled")
    assert seen.elapsed < 0.1 + PROMPT
    gateway.wait_left()


WHERE = {
    "connect": ("", {"tls_stall": True}, {"verify": False}),
    "response": ("stall", {}, {}),
    "half a header block": ("wire HTTP/1.1 200 OK\\r\\nX-A", {}, {}),
    "first": ("headers\nstall", {}, {}),
    "silent": ("chat a\nstall", {}, {}),
    "flowing": (ENDLESS, {}, {}),
    "error body": ("headers 500 content-length: 100\nraw half\nstall", {"framing": "length", "length": 100}, {}),
    "pause": ("headers 503 retry-after: 30; content-length: 0", {"framing": "length"}, {"retry": "503"}),
}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("how", ["cancel", "close"])
def test_stop_works_from_any_thread_in_any_phase(streamguard_gateway: Serve, where: str, how: str) -> None:
    """Before the connection, before the headers, in silence, in full flow, in an error's body, in a retry pause (B045)."""
    script, options, more = WHERE[where]
    gateway = streamguard_gateway(script + ("\nstall" if "header block" in where else ""), **options)
    retry = streamguard.before_first_chunk(3, status={503}) if more.get("retry") else None
    stream = guarded_stream("GET", gateway.url, verify=more.get("verify", True), retry=retry)
    results: list[Any] = []
    consuming = in_thread(lambda: results.append(consume(stream)))
    gateway.wait_connections(1)
    time.sleep(0.05)
    began = monotonic()
    getattr(stream, how)()
    assert monotonic() - began < PROMPT
    consuming.join(PROMPT)
    assert not consuming.is_alive()
    assert isinstance(results[0].error, StreamCancelledError) == (how == "cancel")
    assert stream.report.outcome == ("cancelled" if how == "cancel" else "closed")
    gateway.wait_connections(1, still_open=0)
    wait_until(lambda: not has_reader(stream))


def test_one_token_stops_many_streams(streamguard_gateway: Serve) -> None:
    """One token ends all streams that have it, and the end of a stream does not touch it."""
    gateway = streamguard_gateway(COMPLETE, OPEN)
    token = CancelToken()
    assert ask(gateway, cancel=token).error is None
    assert ask(gateway, cancel=token, idle=0.1).error is not None
    streams = [guarded_stream("POST", gateway.url, cancel=token, name=f"s{number}") for number in range(3)]
    for stream in streams:
        next(stream)
    assert not token.cancelled
    assert token.cancel("all") is True
    errors = [consume(stream).error for stream in streams]
    assert all(isinstance(error, StreamCancelledError) and error.reason == "all" for error in errors)
    assert [stream.report.outcome for stream in streams] == ["cancelled"] * 3


def test_a_token_that_is_cancelled_already(streamguard_gateway: Serve) -> None:
    """With a token that is cancelled, nothing is sent."""
    gateway = streamguard_gateway(COMPLETE)
    token = CancelToken()
    token.cancel("early")
    run = ask(gateway, cancel=token)
    assert isinstance(run.error, StreamCancelledError)
    assert (run.error.reason, gateway.connections) == ("early", 0)


def test_a_token_does_not_keep_streams(streamguard_gateway: Serve) -> None:
    """A long-lived token holds no stream that has ended, or was dropped."""
    gateway = streamguard_gateway(COMPLETE, OPEN)
    token = CancelToken()
    ended = guarded_stream("POST", gateway.url, cancel=token)
    assert ended.read() == "ab"
    left = guarded_stream("POST", gateway.url, cancel=token)
    next(left)
    references = [weakref.ref(ended), weakref.ref(left)]
    del ended, left
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    assert gateway.wait_left(2).during == "stall"


def test_closing_twice_and_before_the_start(streamguard_gateway: Serve) -> None:
    """close() may come at any time and any number of times; before the start it means that nothing is sent."""
    gateway = streamguard_gateway(COMPLETE)
    stream = guarded_stream("POST", gateway.url)
    stream.close()
    stream.close()
    assert (list(stream), stream.report.outcome, gateway.connections) == ([], "closed", 0)


def test_cancelling_before_the_start(streamguard_gateway: Serve) -> None:
    """cancel() before the start is raised by the first next(), once, and nothing is sent."""
    gateway = streamguard_gateway(COMPLETE)
    stream = guarded_stream("POST", gateway.url)
    assert (stream.cancel("no"), stream.cancel("again")) == (True, False)
    with pytest.raises(StreamCancelledError) as caught:
        next(stream)
    assert (caught.value.reason, list(stream), gateway.connections) == ("no", [], 0)


def test_after_the_end_nothing_changes(streamguard_gateway: Serve) -> None:
    """cancel() and close() after the end leave report and text as they are."""
    stream = guarded_stream("POST", streamguard_gateway(COMPLETE).url)
    assert stream.read() == "ab"
    report = stream.report
    stream.cancel()
    stream.close()
    assert (stream.report is report, report.outcome, list(stream), stream.text) == (True, "completed", [], "ab")


@pytest.mark.parametrize(("how", "outcome"), [("close", "closed"), ("cancel", "cancelled")])
def test_the_end_may_come_from_another_thread(streamguard_gateway: Serve, how: str, outcome: str) -> None:
    """close() ends a blocked loop quietly, cancel() raises in it."""
    gateway = streamguard_gateway(OPEN)
    stream = guarded_stream("POST", gateway.url)
    next(stream)

    def stop() -> None:
        gateway.wait_step("stall")
        getattr(stream, how)()

    thread = threading.Thread(target=stop)
    thread.start()
    run = consume(stream)
    thread.join()
    assert type(run.error) is (type(None) if how == "close" else StreamCancelledError)
    assert (run.chunks, stream.report.outcome) == ([], outcome)
    gateway.wait_left()
