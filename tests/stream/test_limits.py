"""`first`, `idle`, `dead` and `total`: what each limits, what restarts it, and which one fires."""

import errno
import threading
import time
from typing import Any

import pytest
import requests

import streamguard
import streamguard._stream.failures
from streamguard import (
    CancelToken,
    DeadlineExceededError,
    StreamCancelledError,
    StreamInactivityTimeoutError,
    Timeouts,
    deadline,
    guarded_stream,
)
from streamguard._core.pump import Pump

from ..helpers import PROMPT, Serve, wait_until
from ..http.servers import Peer, Server
from .helpers import ENDLESS, consume, failure, has_reader, reader_of, stream_from


@pytest.mark.parametrize("script", [ENDLESS, "loop forever\nevent {}\nwait 0.02\nendloop"])
def test_total_bounds_the_whole_transfer(streamguard_gateway: Serve, script: str) -> None:
    """Pieces spaced just under `idle` do not escape `total`, whose error names it and which closes the socket (B001)."""
    gateway = streamguard_gateway(script)
    seen = consume(stream := stream_from(gateway, idle=0.3, total=0.4))
    assert isinstance(seen.error, DeadlineExceededError)
    assert isinstance(seen.error, OSError)
    assert seen.error.errno == errno.ETIMEDOUT
    assert "total=0.4" in seen.error.message
    assert 0.4 <= seen.elapsed < 0.4 + PROMPT
    wait_until(lambda: not has_reader(stream))
    gateway.wait_left()


def test_total_bounds_a_trickle_without_any_chunk(streamguard_gateway: Serve) -> None:
    """Bytes that never make a chunk do not escape `total` either (B001)."""
    gateway = streamguard_gateway(f"drip 1 0.02 | data: {'x' * 500}")
    error = failure(stream_from(gateway, total=0.3, first=None, idle=None))
    assert isinstance(error, DeadlineExceededError)
    gateway.wait_left()


def test_there_are_finite_limits_by_default(streamguard_gateway: Serve) -> None:
    """Without any argument connect, response, first and idle are minutes; None must be given explicitly (B006)."""
    limits = Timeouts()
    assert (limits.connect, limits.response, limits.first, limits.idle) == (10, 120, 120, 120)
    assert (limits.dead, limits.total) == (None, None)
    streamguard.configure(response=0.15)
    try:
        error = failure(stream_from(streamguard_gateway("stall"), retry=None))
    finally:
        streamguard.configure(response=streamguard._core.NOT_GIVEN)
    assert error.phase == "response"


@pytest.mark.parametrize(
    ("decode", "session"),
    [
        ("chat", None),
        ("events", None),
        ("json", None),
        ("bytes", None),
        (lambda event: event.data, None),
        ("chat", "plain"),
        ("bytes", "plain"),
        ("chat", "adapter"),
    ],
)
def test_no_path_is_without_the_idle_limit(streamguard_gateway: Serve, decode: Any, session: str | None) -> None:
    """With every decoding and session, three events and then silence are the same timeout (B007)."""
    gateway = streamguard_gateway('event {"n": 1}\nevent {"n": 2}\nevent {"n": 3}\nstall')
    with requests.Session() as own:
        if session == "adapter":
            own.mount("http://", streamguard.Adapter())
        stream = stream_from(gateway, decode=decode, session=own if session else None, idle=0.12)
        seen = consume(stream)
        assert isinstance(seen.error, StreamInactivityTimeoutError)
        assert seen.error.phase == "idle"
        assert 1 <= len(seen.chunks) <= 3
        gateway.wait_left()
        wait_until(lambda: not has_reader(stream))


def test_a_black_hole_is_found_without_a_sign_of_the_peer() -> None:
    """A peer that no longer sends, reads or closes: the own clock decides, and nothing reconnects (B008, B009)."""
    release, seen_requests = threading.Event(), []

    def vanish(peer: Peer) -> None:
        seen_requests.append(peer.read_request())
        body = b'data: {"choices": []}\n\n' * 2
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n" + body)
        release.wait(10)

    with Server(vanish) as server:
        stream = guarded_stream("GET", server.url, idle=0.2)
        seen = consume(stream)
        assert isinstance(seen.error, StreamInactivityTimeoutError)
        assert (len(seen.chunks), len(seen_requests), seen.error.errno) == (2, 1, errno.ETIMEDOUT)
        wait_until(lambda: not has_reader(stream))
        release.set()


def test_first_fires_while_the_read_is_blocked(streamguard_gateway: Serve) -> None:
    """`first` fires before the late first chunk arrives, and that chunk is dropped (B011)."""
    gateway = streamguard_gateway("headers\nwait 5\nchat late\ndone")
    seen = consume(stream := stream_from(gateway, first=0.2, retry=None))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert 0.2 <= seen.elapsed < 5
    gateway.wait_left()
    assert (seen.chunks, stream.text, seen.error.partial_text, list(stream)) == ([], "", "", [])


def test_first_is_disarmed_by_the_first_chunk(streamguard_gateway: Serve) -> None:
    """A healthy stream outlives `first` many times; only `idle` applies then (B013)."""
    gateway = streamguard_gateway("wait 0.05\nloop 8\ntick\nwait 0.06\nendloop\ndone")
    seen = consume(stream_from(gateway, first=0.25, idle=5))
    assert (seen.error, len(seen.chunks)) == (None, 8)


def test_cold_load_and_stall_have_limits_of_their_own(streamguard_gateway: Serve) -> None:
    """A slow first chunk passes under `first`, a stall after chunks meets `idle`; each error names its phase (B014)."""
    slow = streamguard_gateway("headers\nwait 0.4\nloop 4\ntick\nendloop\ndone")
    assert consume(stream_from(slow, first=5, idle=0.2)).error is None
    stalled = failure(stream_from(streamguard_gateway("tick\ntick\nstall"), first=5, idle=0.2))
    assert stalled.phase == "idle"
    cold = failure(stream_from(streamguard_gateway("headers\nstall"), first=0.2, idle=5, retry=None))
    assert cold.phase == "first"


def test_headers_do_not_start_the_idle_clock(streamguard_gateway: Serve) -> None:
    """Early headers, a late first event, short gaps: `idle` does not limit the first event (B015)."""
    for meanwhile in ("wait 0.3", "loop 7\ncomment ping\nwait 0.05\nendloop"):
        gateway = streamguard_gateway(f"headers\n{meanwhile}\nloop 5\ntick\nwait 0.01\nendloop\ndone")
        seen = consume(stream_from(gateway, first=5, idle=0.2))
        assert (seen.error, len(seen.chunks)) == (None, 5)


@pytest.mark.parametrize("name", ["connect", "response", "first", "idle", "dead"])
@pytest.mark.parametrize("off", [0, 0.0, -1, None])
def test_a_phase_limit_of_zero_is_off(name: str, off: float | None) -> None:
    """For the phases None, zero and less mean no limit, as documented (B018)."""
    assert getattr(Timeouts(**{name: off}), name) is None


@pytest.mark.parametrize("spent", [0, 0.0, -1, -0.001])
def test_a_total_of_zero_is_already_spent(streamguard_gateway: Serve, spent: float) -> None:
    """For `total` only None is off: 0 or less raises before anything connects (B018)."""
    gateway = streamguard_gateway("chat a\ndone")
    error = failure(stream := stream_from(gateway, total=spent))
    assert isinstance(error, DeadlineExceededError)
    assert (error.scope, error.limit, stream.report.attempts, gateway.connections) == ("total", spent, 0, 0)


def test_a_deadline_that_passes_in_the_consumer(streamguard_gateway: Serve) -> None:
    """The time left is never negative: however long the consumer sleeps, the next call raises the usual error (B019)."""
    gateway = streamguard_gateway(ENDLESS)
    seen = consume(stream_from(gateway, total=0.25, heartbeat=0.05), pause=0.06)
    assert isinstance(seen.error, DeadlineExceededError)
    stream = stream_from(gateway, total=0.1)
    stream.open()
    time.sleep(0.15)
    assert isinstance(failure(stream), DeadlineExceededError)


@pytest.mark.parametrize("ping", ["comment ping", "event ping | {}"])
def test_heartbeats_and_the_clock_for_bytes(streamguard_gateway: Serve, ping: str) -> None:
    """With `idle=0` and `dead=` pings of any form keep a stream alive as long as they arrive (B022)."""
    gateway = streamguard_gateway(f"chat a\nloop 9\n{ping}\nwait 0.05\nendloop\nchat b\ndone")
    seen = consume(stream_from(gateway, idle=0, first=0, dead=0.3))
    assert seen.error is None
    assert seen.text == "ab"


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
    """Bytes that make no chunk, such as heartbeat comments, do not restart the limit."""
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


def test_dead_tolerates_heartbeats_and_a_silent_prefill(streamguard_gateway: Serve) -> None:
    """Comments restart `dead` during a long prefill that `first` allows."""
    gateway = streamguard_gateway("headers\nloop 12\ncomment ping\nwait 0.05\nendloop\nchat a\ndone")
    seen = consume(stream_from(gateway, dead=0.3, first=5, idle=5))
    assert (seen.error, seen.texts) == (None, ["a"])


@pytest.mark.parametrize("before", ["headers", "comment ping", "chat a"])
def test_dead_fires_without_a_byte(streamguard_gateway: Serve, before: str) -> None:
    """Without a single byte `dead` fires, long before `first` or `idle` would."""
    gateway = streamguard_gateway(f"{before}\nstall")
    seen = consume(stream_from(gateway, dead=0.2, first=30, idle=30, retry=None))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert (seen.error.phase, seen.error.limit) == ("dead", 0.2)
    assert 0.2 - 0.02 <= seen.elapsed < 0.2 + PROMPT


def test_every_byte_restarts_dead(streamguard_gateway: Serve) -> None:
    """A single event that drips in byte by byte, for longer than `dead`, does not fire it."""
    gateway = streamguard_gateway('drip 2 0.05 | data: {"choices": []}\\n\\n\ndone')
    seen = consume(stream_from(gateway, dead=0.3, first=5, idle=5))
    assert (seen.error, len(seen.chunks)) == (None, 1)
    assert seen.elapsed > 0.4


def test_dead_does_not_watch_the_headers(streamguard_gateway: Serve) -> None:
    """Before the headers only `response` applies: a model may load for longer than `dead`."""
    gateway = streamguard_gateway("wait 0.4\nchat a\ndone")
    seen = consume(stream_from(gateway, dead=0.15, response=5))
    assert (seen.error, seen.texts) == (None, ["a"])


def test_dead_and_idle_are_separate_clocks(streamguard_gateway: Serve) -> None:
    """With heartbeats `idle` fires, without them `dead`; the error has the ages of the last byte and the last chunk."""
    gateway = streamguard_gateway("chat a\nloop forever\ncomment ping\nwait 0.03\nendloop")
    error = failure(stream_from(gateway, idle=0.4, dead=0.3))
    assert error.phase == "idle"
    assert error.last_chunk_ago >= 0.39
    assert error.last_byte_ago < error.last_chunk_ago - 0.1
    assert error.comments >= 5


def test_dead_with_idle_off(streamguard_gateway: Serve) -> None:
    """`idle=0, dead=N`: heartbeats keep a stream alive without limit; without any byte `dead` fires."""
    gateway = streamguard_gateway("chat a\nloop 10\ncomment ping\nwait 0.05\nendloop\nchat b\nstall")
    seen = consume(stream_from(gateway, idle=0, first=0, dead=0.3))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert (seen.texts, seen.error.phase) == (["a", "b"], "dead")


def test_until_the_first_chunk_first_applies(streamguard_gateway: Serve) -> None:
    """Headers at once, the first chunk after several times `idle`, then short gaps: the stream completes."""
    gateway = streamguard_gateway("headers\nwait 0.5\nloop 4\ntick\nwait 0.05\nendloop\ndone")
    seen = consume(stream_from(gateway, first=5, idle=0.25))
    assert (seen.error, len(seen.chunks)) == (None, 4)


def test_first_is_idle_unless_given(streamguard_gateway: Serve) -> None:
    """Without `first=` the first chunk has as long as every other."""
    error = failure(stream_from(streamguard_gateway("headers\nstall"), idle=0.2, retry=None))
    assert (error.phase, error.limit) == ("first", 0.2)
    assert "first=0.2, as idle, argument" in str(error)


def test_first_may_be_the_shorter_one(streamguard_gateway: Serve) -> None:
    """`first` may be shorter than `idle`; the first chunk disarms it."""
    error = failure(stream_from(streamguard_gateway("headers\nstall"), first=0.15, idle=30, retry=None))
    assert (error.phase, error.limit) == ("first", 0.15)
    gateway = streamguard_gateway("chat a\nwait 0.4\nchat b\ndone")
    assert consume(stream_from(gateway, first=0.2, idle=5)).texts == ["a", "b"]


@pytest.mark.parametrize("phase", [{"first": 0.2}, {"idle": 0.2}, {"dead": 0.2}])
def test_total_beats_a_phase_limit_of_the_same_length(streamguard_gateway: Serve, phase: dict[str, float]) -> None:
    """If both are used up when the wait ends, the deadline is raised, and nothing is retried."""
    gateway = streamguard_gateway("headers\nstall")
    error = failure(stream := stream_from(gateway, total=0.2, **phase))
    assert isinstance(error, DeadlineExceededError)
    assert (error.scope, error.limit, error.errno) == ("total", 0.2, errno.ETIMEDOUT)
    assert (stream.report.outcome, len(gateway.requests)) == ("timeout", 1)


def test_cancel_beats_total(streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cancel at the instant of the deadline is a cancel."""
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
    """The surrounding deadline bounds the stream that starts in its block, also after the block."""
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
    """A stream that never stops sending is stopped, and its text is in the error."""
    gateway = streamguard_gateway("loop forever\ntick\nwait 0.02\nendloop")
    seen = consume(stream_from(gateway, total=0.4, idle=0.3))
    assert isinstance(seen.error, DeadlineExceededError)
    assert 0.4 <= seen.elapsed < 0.4 + PROMPT
    assert seen.error.partial_text is not None
    assert seen.error.partial_text.startswith(seen.text)


def test_without_end_grace_idle_still_applies(streamguard_gateway: Serve) -> None:
    """`end_grace=None` waits for the end as for any chunk: `idle` completes a finished answer."""
    gateway = streamguard_gateway("chat a\nfinish\nlinger")
    seen = consume(stream := stream_from(gateway, end_grace=None, idle=0.2))
    assert (seen.error, stream.report.outcome, stream.report.ended_by) == (None, "completed", "idle")


def test_two_limits_that_apply_as_one() -> None:
    """C228: where a function opens its stream, the message names connect= and response=, and leaves out unknown counts."""
    stream: Any = streamguard.guard(lambda: time.sleep(0.8), connect=0.1, response=0.2, retry=None)
    message = str(failure(stream))
    assert "connect=0.1 (argument) + response=0.2 (argument)" in message
    assert "0 bytes" not in message
    if (reader := reader_of(stream)) is not None:  # it cannot be cut
        reader.join(5)
