"""The watchdog: the seven scenarios of its original design, and which clock fires when."""

import errno
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from typing import Any

import pytest
import requests
import tenacity

import streamguard
import streamguard._stream.failures
from streamguard import (
    CancelToken,
    DeadlineExceededError,
    StreamCancelledError,
    StreamInactivityTimeoutError,
    Timeouts,
    TransportTimeoutError,
    deadline,
    has_content,
)
from streamguard._core.clock import monotonic
from streamguard._core.pump import Pump
from streamguard.testing import Gateway

from ..helpers import PROMPT, Serve, in_thread, wait_until
from .helpers import consume, failure, has_reader, stream_from

# The seven scenarios


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
    """Silence before the first chunk is what `before_first_chunk` retries: three attempts, then the last one's error."""
    gateway = streamguard_gateway("headers\nstall")
    quick = streamguard.before_first_chunk(wait=tenacity.wait_fixed(0.05))
    error = failure(stream := stream_from(gateway, first=0.1, retry=quick))
    assert isinstance(error, StreamInactivityTimeoutError)
    assert (error.attempt, error.max_attempts, stream.report.attempts, len(gateway.requests)) == (3, 3, 3, 3)


def test_scenario_2_silence_after_chunks(streamguard_gateway: Serve) -> None:
    """Chunks are delivered, then ETIMEDOUT in phase `idle`; it is not retried, since the reader has seen text."""
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
    """A stream three times as long as its limits, with gaps far below them, comes through whole."""
    gateway = streamguard_gateway("loop 18\ntick\nwait 0.05\nendloop\ndone")
    seen = consume(stream_from(gateway, idle=0.3, first=0.3, dead=0.3, response=0.3))
    assert seen.error is None
    assert len(seen.chunks) == 18
    assert seen.elapsed > 0.8


@pytest.mark.parametrize("instant", ["behind the wait", "during the cut"])
def test_scenario_4_the_callers_cancel_beats_the_timeout(
    streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch, instant: str
) -> None:
    """A cancel in the very instant in which the limit is used up: cancelled, no timeout, and never retried."""
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
    if instant == "behind the wait":
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
    """`idle` of zero, below, or None: pauses of any length pass, before the first chunk as well as between chunks."""
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
    """The limit that the caller gave is the one that fires, not before it, and the error names it."""
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
    """A limit of `configure()` or of the environment is honoured, and the message says where it came from."""
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
    """What the cut reader says in the end reaches nobody: no stderr, no thread traceback, nothing unraisable."""
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


# Only time waiting on the upstream counts


def test_a_slow_consumer_never_makes_a_server_look_silent(streamguard_gateway: Serve) -> None:
    """The consumer sleeps twice the limit over each chunk, and nothing fires."""
    gateway = streamguard_gateway("tick\ntick\ntick\ndone")
    seen = consume(stream_from(gateway, idle=0.1, first=0.1, dead=0.1), pause=0.2)
    assert (seen.error, len(seen.chunks)) == (None, 3)


def test_silence_behind_the_consumers_back_does_not_count(streamguard_gateway: Serve) -> None:
    """The server is silent for longer than the limit, but all that time nobody was waiting for it."""
    gateway = streamguard_gateway("chat a\nwait 0.4\nchat b\ndone")
    stream = stream_from(gateway, idle=0.2)
    next(stream)
    gateway.wait_step("done")
    assert [chunk.text for chunk in stream] == ["b"]


def test_waits_add_up(streamguard_gateway: Serve) -> None:
    """Heartbeats and short waits do not start the clock anew: the silence is measured over all of them."""
    gateway = streamguard_gateway("chat a\nloop forever\ncomment ping\nwait 0.02\nendloop")
    stream = stream_from(gateway, idle=0.3, heartbeat=0.05)
    seen = consume(stream)
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert 0.28 <= seen.elapsed < 0.3 + PROMPT
    assert 3 <= sum(item is streamguard.HEARTBEAT for item in seen.chunks) <= 6


def test_a_process_that_stood_still_blames_no_server() -> None:
    """A client stopped for longer than the limit, while its server kept sending, goes on where it was."""
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


# What re-arms idle


@pytest.mark.parametrize("line", ["tick", "reasoning hm", 'event {"choices": []}', "event {}"])
def test_any_parsed_chunk_rearms_idle(streamguard_gateway: Serve, line: str) -> None:
    """Text, reasoning, even an empty chunk: by default every parsed chunk is progress."""
    gateway = streamguard_gateway(f"loop 7\n{line}\nwait 0.05\nendloop\ndone")
    seen = consume(stream_from(gateway, idle=0.25))
    assert (seen.error, len(seen.chunks)) == (None, 7)


@pytest.mark.parametrize(
    "line",
    [
        "comment ping",
        r"raw :\n",
        r"raw \n\n",
        r"raw event: ping\n\n",
        r"raw id: 7\n\n",
        r"raw retry: 100\n\n",
        r"raw data:",
        r"raw \r\n",
    ],
)
def test_no_comment_rearms_idle(streamguard_gateway: Serve, line: str) -> None:
    """Bytes that make no chunk, heartbeat comments first of all, do not put off the limit."""
    gateway = streamguard_gateway(f"chat a\nloop forever\n{line}\nwait 0.02\nendloop")
    seen = consume(stream_from(gateway, idle=0.15))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert (seen.error.phase, seen.texts) == ("idle", ["a"])
    assert 0.14 <= seen.elapsed < 0.15 + PROMPT


@pytest.mark.parametrize("decode", ["events", "json", lambda event: event.data])
def test_comments_rearm_nothing_in_any_decoding(streamguard_gateway: Serve, decode: Any) -> None:
    """The rule is the same for every `decode=` on events."""
    gateway = streamguard_gateway('event {"n": 1}\nloop forever\ncomment ping\nwait 0.02\nendloop')
    seen = consume(stream_from(gateway, decode=decode, idle=0.2))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert len(seen.chunks) == 1


def test_a_flood_of_comments_hides_no_expiry(streamguard_gateway: Serve) -> None:
    """Comments at full speed, so that the queue is hardly ever empty, put off nothing either."""
    for step in ("comment ping", "raw " + r": ping\n\n" * 20_000, "raw " + r"\n" * 100_000):
        gateway = streamguard_gateway(f"chat a\nloop forever\n{step}\nendloop")
        seen = consume(stream_from(gateway, idle=0.15, first=10, total=10))
        assert isinstance(seen.error, StreamInactivityTimeoutError)
        assert (seen.error.phase, seen.texts) == ("idle", ["a"])


def test_a_flood_of_skipped_events_hides_no_expiry(streamguard_gateway: Serve) -> None:
    """What a callable `decode=` skips is no chunk, however much of it there is."""
    gateway = streamguard_gateway("event a\nloop forever\nraw " + r"data: skip\n\n" * 5000 + "\nendloop")
    decode = {"a": "a"}.get
    seen = consume(stream_from(gateway, decode=lambda event: decode(event.data), idle=0.15, first=10, total=10))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert seen.chunks == ["a"]


def test_time_in_the_callers_functions_does_not_count(streamguard_gateway: Serve) -> None:
    """A `decode=` and a `counts=` that are slower than the limit make no server look silent."""

    def slow(event: Any) -> str | None:
        time.sleep(0.15)
        return None if event.data == "skip" else event.data

    gateway = streamguard_gateway("event skip\nevent skip\nevent a\nevent skip\nevent b\nend")
    seen = consume(stream_from(gateway, decode=slow, counts=lambda _: time.sleep(0.15) is None, idle=0.12, first=0.12))
    assert (seen.error, seen.chunks) == (None, ["a", "b"])


# counts=


def test_counts_narrows_what_rearms_idle(streamguard_gateway: Serve) -> None:
    """Chunks that do not count are handed over, and do not put off the limit."""
    gateway = streamguard_gateway("chat a\nloop forever\nevent {}\nwait 0.03\nendloop")
    seen = consume(stream_from(gateway, idle=0.3, counts=has_content))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert seen.error.phase == "idle"
    assert seen.texts[0] == "a"
    assert len(seen.chunks) >= 3
    assert 0.28 <= seen.elapsed < 0.3 + PROMPT


def test_counts_narrows_what_ends_first(streamguard_gateway: Serve) -> None:
    """Chunks that do not count leave the stream in phase `first`."""
    gateway = streamguard_gateway("loop forever\nevent {}\nwait 0.03\nendloop")
    seen = consume(stream_from(gateway, first=0.3, idle=30, counts=has_content, retry=None))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert (seen.error.phase, seen.error.limit) == ("first", 0.3)
    assert len(seen.chunks) >= 3


def test_counts_decides_when_the_retry_gate_closes(streamguard_gateway: Serve) -> None:
    """What does not count does not forbid another attempt; what counts does."""
    gateway = streamguard_gateway("event {}\nstall", "event {}\nchat a\nstall")
    seen = consume(stream := stream_from(gateway, first=0.15, idle=0.2, counts=has_content))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert ([chunk.text for chunk in seen.chunks], stream.report.attempts) == (["", "", "a"], 2)


def test_counts_that_counts_keeps_the_stream_alive(streamguard_gateway: Serve) -> None:
    """What counts re-arms, among any number of chunks that do not."""
    gateway = streamguard_gateway("loop 8\ntick\nevent {}\nwait 0.07\nendloop\ndone")
    seen = consume(stream := stream_from(gateway, idle=0.4, counts=has_content))
    assert (seen.error, len(seen.chunks)) == (None, 16)
    assert stream.report.max_gap is not None
    assert stream.report.max_gap >= 0.07


# dead=


def test_dead_tolerates_heartbeats_and_a_silent_prefill(streamguard_gateway: Serve) -> None:
    """Comments keep the line alive through a prefill longer than `dead`, as `first` allows."""
    gateway = streamguard_gateway("headers\nloop 12\ncomment ping\nwait 0.05\nendloop\nchat a\ndone")
    seen = consume(stream_from(gateway, dead=0.3, first=5, idle=5))
    assert (seen.error, seen.texts) == (None, ["a"])


@pytest.mark.parametrize("before", ["headers", "comment ping", "chat a"])
def test_dead_sees_a_dead_line(streamguard_gateway: Serve, before: str) -> None:
    """Not a single byte: `dead` fires, long before `first` or `idle` would."""
    gateway = streamguard_gateway(f"{before}\nstall")
    seen = consume(stream_from(gateway, dead=0.2, first=30, idle=30, retry=None))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert (seen.error.phase, seen.error.limit) == ("dead", 0.2)
    assert 0.2 - 0.02 <= seen.elapsed < 0.2 + PROMPT


def test_dead_hears_every_byte(streamguard_gateway: Serve) -> None:
    """A single event that drips in byte by byte, for longer than `dead`, is no dead line."""
    gateway = streamguard_gateway('drip 2 0.05 | data: {"choices": []}\\n\\n\ndone')
    seen = consume(stream_from(gateway, dead=0.3, first=5, idle=5))
    assert (seen.error, len(seen.chunks)) == (None, 1)
    assert seen.elapsed > 0.4


def test_dead_does_not_watch_the_headers(streamguard_gateway: Serve) -> None:
    """Before the headers `response` rules alone: a model may load for longer than `dead`."""
    gateway = streamguard_gateway("wait 0.4\nchat a\ndone")
    seen = consume(stream_from(gateway, dead=0.15, response=5))
    assert (seen.error, seen.texts) == (None, ["a"])


def test_dead_and_idle_are_separate_clocks(streamguard_gateway: Serve) -> None:
    """With heartbeats `idle` fires, without them `dead`; the error tells the last byte from the last chunk."""
    gateway = streamguard_gateway("chat a\nloop forever\ncomment ping\nwait 0.03\nendloop")
    error = failure(stream_from(gateway, idle=0.4, dead=0.3))
    assert error.phase == "idle"
    assert error.last_chunk_ago >= 0.39
    assert error.last_byte_ago < error.last_chunk_ago - 0.1
    assert error.comments >= 5


def test_dead_with_idle_off(streamguard_gateway: Serve) -> None:
    """`idle=0, dead=N`: heartbeats keep a stream alive without limit, a dead line does not."""
    gateway = streamguard_gateway("chat a\nloop 10\ncomment ping\nwait 0.05\nendloop\nchat b\nstall")
    seen = consume(stream_from(gateway, idle=0, first=0, dead=0.3))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert (seen.texts, seen.error.phase) == (["a", "b"], "dead")


# Headers do not start idle


def test_until_the_first_chunk_first_rules(streamguard_gateway: Serve) -> None:
    """Headers at once, the first chunk after several times `idle`, then short gaps: it comes through."""
    gateway = streamguard_gateway("headers\nwait 0.5\nloop 4\ntick\nwait 0.05\nendloop\ndone")
    seen = consume(stream_from(gateway, first=5, idle=0.25))
    assert (seen.error, len(seen.chunks)) == (None, 4)


def test_first_is_idle_unless_given(streamguard_gateway: Serve) -> None:
    """Without `first=` the first chunk has as long as every other."""
    error = failure(stream_from(streamguard_gateway("headers\nstall"), idle=0.2, retry=None))
    assert (error.phase, error.limit) == ("first", 0.2)
    assert "first=0.2, as idle, argument" in str(error)


def test_first_may_be_the_shorter_one(streamguard_gateway: Serve) -> None:
    """A first chunk sooner than every other one is a limit too, and it is disarmed by that chunk."""
    error = failure(stream_from(streamguard_gateway("headers\nstall"), first=0.15, idle=30, retry=None))
    assert (error.phase, error.limit) == ("first", 0.15)
    gateway = streamguard_gateway("chat a\nwait 0.4\nchat b\ndone")
    assert consume(stream_from(gateway, first=0.2, idle=5)).texts == ["a", "b"]


# connect and response


def test_connect_covers_the_tls_handshake(streamguard_tls_gateway: Serve) -> None:
    """A server that accepts and never answers the client hello: `connect`, as requests' own timeout and retried."""
    gateway = streamguard_tls_gateway("", tls_stall=True)
    once = streamguard.before_first_chunk(1, wait=tenacity.wait_none())
    error = failure(stream_from(gateway, connect=0.2, retry=once))
    assert isinstance(error, TransportTimeoutError)
    assert not isinstance(error, StreamInactivityTimeoutError)
    assert (error.phase, error.limit, error.attempt) == ("connect", 0.2, 2)
    gateway.wait_connections(2, still_open=0)


def test_connect_covers_the_proxy(streamguard_gateway: Serve) -> None:
    """A proxy that never answers CONNECT is no upstream that thinks."""
    proxy = streamguard_gateway("stall")
    stream = streamguard.guarded_stream(
        "GET", "https://upstream.invalid/", proxies={"https": proxy.url}, connect=0.2, retry=None
    )
    error = failure(stream)
    assert (error.phase, error.limit, proxy.requests[0].method) == ("connect", 0.2, "CONNECT")
    proxy.wait_left()


def test_connect_covers_the_wait_for_the_pool(streamguard_gateway: Serve) -> None:
    """A slot of a blocking pool that is not free: the consumer is on time, the thread stays until it gets the slot."""
    gateway = streamguard_gateway("chat a\nstall")
    with requests.Session() as session:
        session.mount("http://", streamguard.Adapter(pool_maxsize=1, pool_block=True))
        with stream_from(gateway, session=session) as holder:
            waiting = stream_from(gateway, session=session, connect=0.2, retry=None)
            error = failure(waiting)
            assert isinstance(error, TransportTimeoutError)
            assert (error.phase, waiting.report.abandoned_threads, has_reader(waiting)) == ("connect", 1, True)
            assert holder.report.outcome == "running"
        wait_until(lambda: not has_reader(waiting))
    assert len(gateway.requests) == 1


@pytest.mark.parametrize("script", ["stall", "wire HTTP/1.1 200 OK\\r\\nX-A: y\nstall", "drip-headers 0.05"])
def test_response_covers_the_whole_header_block(streamguard_gateway: Serve, script: str) -> None:
    """No headers, half of them, or a byte now and then: `response`, and the server sees the close."""
    gateway = streamguard_gateway(script)
    seen = consume(stream_from(gateway, response=0.2, retry=None))
    assert isinstance(seen.error, TransportTimeoutError)
    assert isinstance(seen.error, requests.Timeout)
    assert (seen.error.phase, seen.error.limit, seen.error.errno) == ("response", 0.2, errno.ETIMEDOUT)
    assert 0.2 <= seen.elapsed < 0.2 + PROMPT
    gateway.wait_left()


def test_response_starts_anew_for_each_redirect(streamguard_gateway: Serve) -> None:
    """Three hops of which each takes more than half of `response` are no timeout."""
    hop = "wait 0.25\nheaders 307 location: /next; content-length: 0"
    gateway = streamguard_gateway(hop, hop, "wait 0.25\nchat a\ndone", framing="length")
    seen = consume(stream_from(gateway, response=0.45))
    assert (seen.error, seen.texts, len(gateway.requests)) == (None, ["a"], 3)


def test_a_redirect_that_stalls_is_cut(streamguard_gateway: Serve) -> None:
    """The silence of a later hop is the phase `response` as well."""
    gateway = streamguard_gateway("headers 307 location: /next; content-length: 0", "stall", framing="length")
    error = failure(stream_from(gateway, response=0.2, retry=None))
    assert (error.phase, len(gateway.requests)) == ("response", 2)
    gateway.wait_left(2)


# On expiry: reason, cut, raise


@pytest.mark.parametrize("framing", ["close", "http10"])
@pytest.mark.parametrize("strict", [True, False])
def test_a_cut_body_never_passes_for_a_clean_end(streamguard_gateway: Serve, framing: str, strict: bool) -> None:
    """Where only the connection's end ends the body, the cut itself would read as one: it is still a timeout."""
    gateway = streamguard_gateway("chat a\nfinish\nchat b\nstall", framing=framing)
    stream = stream_from(gateway, idle=0.15, end_grace=None, strict=strict)
    error = failure(stream)
    assert isinstance(error, StreamInactivityTimeoutError)
    assert stream.report.outcome == "timeout"


@pytest.mark.parametrize("decode", ["bytes", "events", "json"])
@pytest.mark.parametrize("framing", ["close", "http10"])
def test_a_cut_body_is_no_end_in_any_decoding(streamguard_gateway: Serve, framing: str, decode: str) -> None:
    """The same for the decodings that end at any well-framed end of the body."""
    gateway = streamguard_gateway("event 1\nstall", framing=framing)
    stream = stream_from(gateway, idle=0.15, decode=decode)
    assert isinstance(failure(stream), StreamInactivityTimeoutError)
    assert stream.report.outcome == "timeout"


def test_the_error_is_raised_once(streamguard_gateway: Serve) -> None:
    """Behind the error the stream is at its end, at once."""
    stream = stream_from(streamguard_gateway("chat a\nstall"), idle=0.1)
    assert failure(stream).phase == "idle"
    began = monotonic()
    assert consume(stream).error is None
    assert monotonic() - began < 0.1


# At one instant: cancel > total > phase


@pytest.mark.parametrize("phase", [{"first": 0.2}, {"idle": 0.2}, {"dead": 0.2}])
def test_total_beats_a_phase_limit_of_the_same_length(streamguard_gateway: Serve, phase: dict[str, float]) -> None:
    """Both are used up when the wait ends: the deadline is the one that is raised, and nothing is retried."""
    gateway = streamguard_gateway("headers\nstall")
    error = failure(stream := stream_from(gateway, total=0.2, **phase))
    assert isinstance(error, DeadlineExceededError)
    assert (error.scope, error.limit, error.errno) == ("total", 0.2, errno.ETIMEDOUT)
    assert (stream.report.outcome, len(gateway.requests)) == ("timeout", 1)


def test_cancel_beats_total(streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel in the instant in which the deadline passed is a cancel."""
    token = CancelToken()
    stream = stream_from(streamguard_gateway("chat a\nstall"), total=0.2, cancel=token)
    next(stream)
    token.on_cancel(lambda: None)
    real_stop = Pump.stop

    def stop(pump: Pump[Any], reason: object, grace: float) -> bool:
        token.cancel("user")
        return real_stop(pump, reason, grace)

    monkeypatch.setattr(Pump, "stop", stop)
    assert isinstance(failure(stream), StreamCancelledError)


def test_the_ambient_deadline_is_captured_at_the_start(streamguard_gateway: Serve) -> None:
    """The surrounding block's deadline bounds the stream that starts in it, also behind the block."""
    gateway = streamguard_gateway("loop forever\ntick\nwait 0.02\nendloop")
    with deadline(0.3):
        stream = stream_from(gateway, total=30)
        next(stream)
    seen = consume(stream)
    assert isinstance(seen.error, DeadlineExceededError)
    assert (seen.error.scope, stream.report.outcome) == ("ambient", "timeout")
    assert len(seen.chunks) >= 2


def test_total_covers_all_attempts_and_pauses(streamguard_gateway: Serve) -> None:
    """Retries never multiply `total`: attempts, their pauses and the last wait end together."""
    gateway = streamguard_gateway("headers\nstall")
    seen = consume(stream_from(gateway, first=0.1, total=1.5, retry=50))
    assert isinstance(seen.error, DeadlineExceededError | StreamInactivityTimeoutError)
    assert seen.elapsed < 1.5 + PROMPT
    assert 2 <= len(gateway.requests) < 15


def test_total_ends_a_busy_stream(streamguard_gateway: Serve) -> None:
    """A stream that never stops sending is stopped all the same, and its text is in the error."""
    gateway = streamguard_gateway("loop forever\ntick\nwait 0.02\nendloop")
    seen = consume(stream_from(gateway, total=0.4, idle=0.3))
    assert isinstance(seen.error, DeadlineExceededError)
    assert 0.4 <= seen.elapsed < 0.4 + PROMPT
    assert seen.error.partial_text is not None
    assert seen.error.partial_text.startswith(seen.text)


# The warning and the heartbeat


def test_a_warning_at_half_of_the_limit_names_the_phase(
    streamguard_gateway: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """One WARNING for each silence that is half used up, and none for a stream that keeps talking."""
    caplog.set_level(logging.WARNING, "streamguard")
    consume(stream_from(streamguard_gateway("tick\ntick\ndone"), idle=5))
    assert halves(caplog) == []
    gateway = streamguard_gateway("headers\nwait 0.3\nchat a\nstall")
    failure(stream_from(gateway, first=0.5, idle=0.2))
    assert [message.split()[-1] for message in halves(caplog)] == ["first", "idle"]


def halves(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [message for message in caplog.messages if "half" in message]


@pytest.mark.parametrize("until", ["headers", "first"])
def test_heartbeats_do_not_disturb_open(streamguard_gateway: Serve, until: Any) -> None:
    """`open()` returns no heartbeats and does not spin for them: its limit fires on time, at next to no CPU."""
    gateway = streamguard_gateway("stall")
    stream = stream_from(gateway, response=0.3, heartbeat=0.02, retry=None)
    began, cpu = monotonic(), time.process_time()
    with pytest.raises(TransportTimeoutError):
        stream.open(until=until)
    assert 0.3 <= monotonic() - began < 0.3 + PROMPT
    assert time.process_time() - cpu < 0.15


def test_heartbeats_flow_in_every_phase(streamguard_gateway: Serve) -> None:
    """HEARTBEAT names the phase it came in: before the headers, before the first chunk, between chunks, in a pause."""
    gateway = streamguard_gateway("wait 0.2\nheaders\nstall", "chat a\nwait 0.2\nchat b\ndone")
    stream = stream_from(gateway, first=0.2, heartbeat=0.05, response=5, idle=5)
    phases = [streamguard.HEARTBEAT.phase for item in stream if item is streamguard.HEARTBEAT]
    on_a_busy_machine = {"connect"}
    assert [p for p in dict.fromkeys(phases) if p not in on_a_busy_machine] == ["response", "first", "retry", "idle"]


# The end of a stream


def test_without_end_grace_idle_still_rules(streamguard_gateway: Serve) -> None:
    """`end_grace=None` waits for the end as for any chunk, not for ever: a lingering server meets `idle`."""
    gateway = streamguard_gateway("chat a\nfinish\nlinger")
    error = failure(stream_from(gateway, end_grace=None, idle=0.2))
    assert (error.phase, error.limit) == ("idle", 0.2)


def test_a_choice_that_begins_late_reopens_the_stream(streamguard_gateway: Serve) -> None:
    """When all known choices had finished and another one begins, its silence is a timeout, not the end."""
    second = '{"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": null}]}'
    gateway = streamguard_gateway(f"chat a\nfinish\nevent {second}\nstall")
    seen = consume(stream := stream_from(gateway, end_grace=0.1, idle=0.3))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert (len(seen.chunks), stream.report.outcome) == (3, "timeout")


ROLE = '{"choices": [{"index": %d, "delta": {"role": "assistant"}, "finish_reason": null}]}'


def test_a_late_choice_reopens_the_stream_though_it_does_not_count(streamguard_gateway: Serve) -> None:
    """The same when `counts=` is narrow, and the other choice begins with a chunk that does not count."""
    gateway = streamguard_gateway(f"chat a\nfinish\nwait 0.03\nevent {ROLE % 1}\nstall")
    seen = consume(stream := stream_from(gateway, end_grace=0.15, idle=0.3, counts=has_content))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert (len(seen.chunks), stream.report.outcome) == (3, "timeout")


@pytest.mark.parametrize("end", ["linger", "end", "loop forever\nevent {}\nwait 0.03\nendloop"])
def test_a_finished_answer_without_anything_that_counts_is_complete(streamguard_gateway: Serve, end: str) -> None:
    """An empty answer that says that it is finished is neither silence nor worth another attempt."""
    gateway = streamguard_gateway(f"event {ROLE % 0}\nfinish content_filter\n{end}")
    seen = consume(stream := stream_from(gateway, end_grace=0.1, first=5, counts=has_content))
    assert (seen.error, seen.text, stream.report.outcome, stream.report.attempts) == (None, "", "completed", 1)


def test_next_in_another_thread_is_watched_too(streamguard_gateway: Serve) -> None:
    """The limits hold wherever `next()` runs."""
    stream = stream_from(streamguard_gateway("chat a\nstall"), idle=0.2)
    errors: list[Any] = []
    in_thread(lambda: errors.append(failure(stream))).join(5)
    assert [error.phase for error in errors] == ["idle"]
