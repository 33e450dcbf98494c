"""The seven scenarios of the watchdog's original design, and whose time counts."""

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
import tenacity

import streamguard
import streamguard._stream.failures
from streamguard import (
    CancelToken,
    DeadlineExceededError,
    StreamCancelledError,
    StreamInactivityTimeoutError,
    Timeouts,
    has_content,
)
from streamguard._core.clock import monotonic
from streamguard._core.pump import Pump
from streamguard.testing import Gateway

from ..helpers import PROMPT, Serve, in_thread, wait_until
from .helpers import consume, failure, has_reader, stream_from


def test_a_consumer_that_comes_back_late_gets_the_deadline_at_once(streamguard_gateway: Serve) -> None:
    """Limits are enforced inside `next()`: a late call raises the passed deadline without another wait (B012)."""
    stream = stream_from(streamguard_gateway("chat a\nstall"), total=0.2)
    next(stream)
    time.sleep(0.35)
    seen = consume(stream)
    assert isinstance(seen.error, DeadlineExceededError)
    assert seen.elapsed < PROMPT


def test_a_waiting_consumer_gets_the_error_on_time_with_busy_threads(streamguard_gateway: Serve) -> None:
    """Threads that compete for the interpreter do not delay the limit (B012)."""
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            sum(range(1000))

    busy = [in_thread(burn) for _ in range(3)]
    seen = consume(stream_from(streamguard_gateway("chat a\nstall"), idle=0.3))
    stop.set()
    for thread in busy:
        thread.join()
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert seen.elapsed < 0.3 + PROMPT


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_a_clock_that_is_set_neither_fires_nor_delays(
    streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """Every limit is monotonic: the wall clock, and a fake `time`, may jump (B020)."""
    gateway = streamguard_gateway("chat a\nwait 0.1\nchat b\nstall")
    stream = stream_from(gateway, idle=0.3, total=20)
    next(stream)
    wall, mono = time.time, time.monotonic
    monkeypatch.setattr(time, "time", lambda: wall() + jump)
    monkeypatch.setattr(time, "monotonic", lambda: mono() + jump)
    seen = consume(stream)
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert seen.texts == ["b"]
    assert 0.3 <= seen.elapsed < 0.4 + PROMPT


def test_a_slow_client_is_not_a_stall(streamguard_gateway: Serve) -> None:
    """Time spent in the consumer, and chunks that wait for it, never count; one token and then silence does (B030)."""
    gateway = streamguard_gateway("tick\ntick\ntick\nend")
    seen = consume(stream_from(gateway, idle=0.1, strict=False), pause=0.15)
    assert (seen.error, len(seen.chunks)) == (None, 3)
    assert failure(stream_from(streamguard_gateway("tick\nstall"), idle=0.1)).phase == "idle"


def test_a_timeout_is_final_for_its_stream(streamguard_gateway: Serve) -> None:
    """Chunks after the limit are not delivered; the text before it is in the error and on the stream (B046)."""
    gateway = streamguard_gateway("chat one\nwait 0.4\nchat two\ndone")
    seen = consume(stream := stream_from(gateway, idle=0.15))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    gateway.wait_left()
    time.sleep(0.3)
    assert (list(stream), seen.error.partial_text, stream.text, stream.message.text) == ([], "one", "one", "one")


def test_scenario_1_silence_with_no_chunk(streamguard_gateway: Serve) -> None:
    """A gateway that answers 200 and then nothing: ETIMEDOUT in phase `first`, and the server sees the close."""
    gateway = streamguard_gateway("headers\nstall")
    seen = consume(stream := stream_from(gateway, first=0.2, retry=None))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert (seen.chunks, seen.error.phase, seen.error.errno) == ([], "first", errno.ETIMEDOUT)
    assert 0.2 <= seen.elapsed < 0.2 + PROMPT
    wait_until(lambda: not has_reader(stream))
    gateway.wait_left()


def test_scenario_1_is_retried_as_often_as_the_policy_says(streamguard_gateway: Serve) -> None:
    """Silence before the first chunk is retried: three attempts, then the error of the last one."""
    gateway = streamguard_gateway("headers\nstall")
    quick = streamguard.before_first_chunk(wait=tenacity.wait_fixed(0.05))
    error = failure(stream := stream_from(gateway, first=0.1, retry=quick))
    assert isinstance(error, StreamInactivityTimeoutError)
    assert (error.attempt, error.max_attempts, stream.report.attempts, len(gateway.requests)) == (3, 3, 3, 3)


def test_scenario_2_silence_after_chunks(streamguard_gateway: Serve) -> None:
    """Chunks are delivered, then ETIMEDOUT in phase `idle`; it is not retried, since chunks were returned."""
    gateway = streamguard_gateway("chat Hel\nchat lo\nstall")
    seen = consume(stream := stream_from(gateway, idle=0.2, retry=5))
    assert seen.texts == ["Hel", "lo"]
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert (seen.error.phase, seen.error.errno, seen.error.code) == ("idle", errno.ETIMEDOUT, "ETIMEDOUT")
    assert (seen.error.chunks_received, seen.error.idle, seen.error.partial_text) == (2, 0.2, "Hello")
    assert seen.error.stream_lifetime is not None
    assert seen.error.stream_lifetime >= 0.2
    assert (stream.report.outcome, stream.report.attempts, len(gateway.requests)) == ("timeout", 1, 1)
    gateway.wait_left()


def test_scenario_3_an_active_stream_never_fires(streamguard_gateway: Serve) -> None:
    """A stream three times as long as its limits, with gaps far below them, completes."""
    gateway = streamguard_gateway("loop 18\ntick\nwait 0.05\nendloop\ndone")
    seen = consume(stream_from(gateway, idle=0.3, first=0.3, dead=0.3, response=0.3))
    assert seen.error is None
    assert len(seen.chunks) == 18
    assert seen.elapsed > 0.8


@pytest.mark.parametrize("instant", ["after the wait", "during the cut"])
def test_scenario_4_the_callers_cancel_beats_the_timeout(
    streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch, instant: str
) -> None:
    """A cancel at the instant at which the limit is used up: cancelled, not a timeout, and never retried."""
    gateway, token = streamguard_gateway("headers\nstall"), CancelToken()
    stream = stream_from(gateway, first=0.2, cancel=token)
    begun = monotonic()

    def now() -> float:
        if monotonic() - begun > 0.2:
            token.cancel("user")
        return monotonic()

    def stop(pump: Pump[Any], reason: object, grace: float) -> bool:
        token.cancel("user")
        return real_stop(pump, reason, grace)

    real_stop = Pump.stop
    if instant == "after the wait":
        monkeypatch.setattr(streamguard._stream.failures, "monotonic", now)
    else:
        monkeypatch.setattr(Pump, "stop", stop)
    error = failure(stream)
    assert isinstance(error, StreamCancelledError)
    assert (error.reason, stream.report.outcome, len(gateway.requests)) == ("user", "cancelled", 1)


def test_scenario_4_any_race_has_one_outcome(streamguard_gateway: Serve) -> None:
    """Cancels that race with the expiry end each stream as one or the other, and its report says the same."""
    gateway = streamguard_gateway("chat a\nstall")
    for number in range(15):
        stream = stream_from(gateway, idle=0.05)
        next(stream)
        timer = threading.Timer(0.04 + number * 0.001, stream.cancel, args=("user",))
        timer.start()
        error = failure(stream)
        timer.join()
        outcome = "cancelled" if isinstance(error, StreamCancelledError) else "timeout"
        assert isinstance(error, StreamCancelledError | StreamInactivityTimeoutError)
        assert stream.report.outcome == outcome
        assert next(stream, None) is None


@pytest.mark.parametrize("off", [0, 0.0, -1, -0.5, None, timedelta(0)])
def test_scenario_5_idle_off_is_transparent(streamguard_gateway: Serve, off: object) -> None:
    """`idle` of zero, less, or None: pauses of any length are accepted, before the first chunk and between chunks."""
    streamguard.configure(first=None)
    try:
        gateway = streamguard_gateway("headers\nwait 0.05\nchat a\nwait 0.05\nchat b\ndone")
        seen = consume(stream_from(gateway, idle=off))
    finally:
        streamguard.configure(first=streamguard._core.NOT_GIVEN)
    assert (seen.error, seen.texts) == (None, ["a", "b"])


def test_scenario_5_idle_off_waits_without_end(streamguard_gateway: Serve) -> None:
    """With `idle=0` the consumer blocks without any timeout of its own, and a cancel still wakes it."""
    gateway = streamguard_gateway("chat a\nstall")
    stream = stream_from(gateway, idle=0)
    assert next(stream).text == "a"
    threading.Timer(0.3, stream.cancel).start()
    seen = consume(stream)
    assert isinstance(seen.error, StreamCancelledError)
    assert seen.elapsed > 0.25


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({"idle": 0.15}, 0.15),
        ({"idle": 0.3}, 0.3),
        ({"idle": timedelta(milliseconds=200)}, 0.2),
        ({"timeouts": Timeouts(idle=0.2)}, 0.2),
        ({"timeouts": Timeouts(idle=60), "idle": 0.1}, 0.1),
    ],
)
def test_scenario_6_a_custom_limit_is_honoured(streamguard_gateway: Serve, options: dict[str, Any], limit: float) -> None:
    """The caller's limit fires, not earlier, and the error names it."""
    stream = stream_from(streamguard_gateway("chat a\nstall"), **options)
    next(stream)
    seen = consume(stream)
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert seen.error.limit == limit
    assert seen.error.elapsed is not None
    assert seen.error.elapsed >= limit
    assert limit - 0.02 <= seen.elapsed < limit + PROMPT


@pytest.mark.parametrize("source", ["configure()", "STREAMGUARD_IDLE"])
def test_scenario_6_limits_from_outside(streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    """A limit of `configure()` or of the environment applies, and the message says where it came from."""
    if source == "configure()":
        streamguard.configure(idle=0.2)
    else:
        monkeypatch.setenv("STREAMGUARD_IDLE", "200ms")
    try:
        error = failure(stream_from(streamguard_gateway("chat a\nstall")))
    finally:
        streamguard.configure(idle=streamguard._core.NOT_GIVEN)
    assert error.limit == 0.2
    assert f"idle=0.2, {source}" in str(error)


@pytest.mark.parametrize("framing", ["chunked", "length", "close", "http10"])
@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_scenario_7_the_late_error_of_the_reader_is_swallowed(
    streamguard_gateway: Serve,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    framing: str,
    tls: bool,
) -> None:
    """The late exception of the cut reader is dropped: no stderr, no thread traceback, nothing unraisable."""
    noise: list[object] = []
    monkeypatch.setattr(threading, "excepthook", noise.append)
    monkeypatch.setattr(sys, "unraisablehook", noise.append)
    gateway = streamguard_gateway("chat a\nstall", tls=tls, framing=framing, **_lie(framing))
    stream = stream_from(gateway, idle=0.1)
    error = failure(stream)
    assert isinstance(error, StreamInactivityTimeoutError)
    wait_until(lambda: not has_reader(stream))
    gateway.wait_left()
    assert next(stream, "over") == "over"
    assert stream.report.error_type == "StreamInactivityTimeoutError"
    gc.collect()
    assert noise == []
    assert capfd.readouterr() == ("", "")


def _lie(framing: str) -> dict[str, int]:
    return {"length": 100_000} if framing == "length" else {}


def test_a_slow_consumer_never_makes_a_server_look_silent(streamguard_gateway: Serve) -> None:
    """The consumer sleeps twice the limit over each chunk, and nothing fires."""
    gateway = streamguard_gateway("tick\ntick\ntick\ndone")
    seen = consume(stream_from(gateway, idle=0.1, first=0.1, dead=0.1), pause=0.2)
    assert (seen.error, len(seen.chunks)) == (None, 3)


def test_silence_while_the_consumer_works_does_not_count(streamguard_gateway: Serve) -> None:
    """The server is silent for longer than the limit, but the consumer was not waiting then."""
    gateway = streamguard_gateway("chat a\nwait 0.4\nchat b\ndone")
    stream = stream_from(gateway, idle=0.2)
    next(stream)
    gateway.wait_step("done")
    assert [chunk.text for chunk in stream] == ["b"]


def test_waits_add_up(streamguard_gateway: Serve) -> None:
    """Heartbeats and short waits do not restart the clock: the silence is measured over all of them."""
    gateway = streamguard_gateway("chat a\nloop forever\ncomment ping\nwait 0.02\nendloop")
    stream = stream_from(gateway, idle=0.3, heartbeat=0.05)
    seen = consume(stream)
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert 0.28 <= seen.elapsed < 0.3 + PROMPT
    assert 3 <= sum(item is streamguard.HEARTBEAT for item in seen.chunks) <= 6


def test_a_stopped_process_does_not_blame_the_server() -> None:
    """A client that was stopped for longer than the limit, while its server kept sending, goes on."""
    program = (
        "import sys, streamguard\n"
        "for chunk in streamguard.guarded_stream('GET', sys.argv[1], idle=0.3):\n"
        "    print(chunk.text, flush=True)\n"
    )
    with Gateway("chat first\nwait 0.3\nloop 20\ntick\nwait 0.05\nendloop\ndone") as gateway:
        client = subprocess.Popen([sys.executable, "-c", program, gateway.url], stdout=subprocess.PIPE, text=True)
        assert client.stdout is not None
        assert client.stdout.readline() == "first\n"
        os.kill(client.pid, signal.SIGSTOP)
        gateway.wait_step("tick", 10)
        os.kill(client.pid, signal.SIGCONT)
        output, _ = client.communicate(timeout=20)
    assert (client.returncode, len(output.splitlines())) == (0, 20)


def test_a_flood_of_comments_hides_no_expiry(streamguard_gateway: Serve) -> None:
    """Comments at full speed, so that the queue is rarely empty, do not delay the limit."""
    for step in ("comment ping", "raw " + r": ping\n\n" * 20_000, "raw " + r"\n" * 100_000):
        gateway = streamguard_gateway(f"chat a\nloop forever\n{step}\nendloop")
        seen = consume(stream_from(gateway, idle=0.15, first=10, total=10))
        assert isinstance(seen.error, StreamInactivityTimeoutError)
        assert (seen.error.phase, seen.texts) == ("idle", ["a"])


def test_a_flood_of_skipped_events_hides_no_expiry(streamguard_gateway: Serve) -> None:
    """Events that a callable `decode=` skips are not chunks, however many there are."""
    gateway = streamguard_gateway("event a\nloop forever\nraw " + r"data: skip\n\n" * 5000 + "\nendloop")
    decode = {"a": "a"}.get
    seen = consume(stream_from(gateway, decode=lambda event: decode(event.data), idle=0.15, first=10, total=10))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert seen.chunks == ["a"]


def test_time_in_the_callers_functions_does_not_count(streamguard_gateway: Serve) -> None:
    """Time in `decode=` and `counts=` does not count as silence of the server."""

    def slow(event: Any) -> str | None:
        time.sleep(0.15)
        return None if event.data == "skip" else event.data

    gateway = streamguard_gateway("event skip\nevent skip\nevent a\nevent skip\nevent b\nend")
    seen = consume(stream_from(gateway, decode=slow, counts=lambda _: time.sleep(0.15) is None, idle=0.12, first=0.12))
    assert (seen.error, seen.chunks) == (None, ["a", "b"])


def test_counts_narrows_what_disarms_first(streamguard_gateway: Serve) -> None:
    """Chunks that do not count leave the stream in phase `first`."""
    gateway = streamguard_gateway("loop forever\nevent {}\nwait 0.03\nendloop")
    seen = consume(stream_from(gateway, first=0.3, idle=30, counts=has_content, retry=None))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert (seen.error.phase, seen.error.limit) == ("first", 0.3)
    assert len(seen.chunks) >= 3


def test_a_timeout_is_raised_once(streamguard_gateway: Serve) -> None:
    """After the error the stream has ended."""
    stream = stream_from(streamguard_gateway("chat a\nstall"), idle=0.1)
    assert failure(stream).phase == "idle"
    began = monotonic()
    assert consume(stream).error is None
    assert monotonic() - began < 0.1


def test_next_in_another_thread_is_watched_too(streamguard_gateway: Serve) -> None:
    """The limits hold wherever `next()` runs."""
    stream = stream_from(streamguard_gateway("chat a\nstall"), idle=0.2)
    errors: list[Any] = []
    in_thread(lambda: errors.append(failure(stream))).join(5)
    assert [error.phase for error in errors] == ["idle"]
