"""Behaviours met in public bug reports: timeouts, liveness, cancelling, exceptions, threads, test doubles.

Each test is named by the report's id in the project's collection; the docstring says what must hold.
"""

import errno
import itertools
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
import responses
import urllib3

import streamguard
from streamguard import (
    HEARTBEAT,
    DeadlineExceededError,
    GuardedStream,
    HTTPStatusError,
    IncompleteStreamError,
    InStreamError,
    StreamCancelledError,
    StreamguardError,
    StreamInactivityTimeoutError,
    Timeouts,
    TransportError,
    TransportTimeoutError,
    UsageError,
    classify,
    guarded_stream,
    has_content,
)
from streamguard._core.clock import monotonic
from streamguard._http import SocketGuard
from streamguard.testing import Gateway

from ..helpers import PROMPT, Serve, in_thread, wait_until
from ..http.servers import Peer, Server, blackhole
from .helpers import consume, failure, has_reader, stream_from

ENDLESS = "loop forever\ntick\nwait 0.02\nendloop"
FRAMINGS = ["chunked", "length", "close", "http10"]


@pytest.fixture
def stuck_dns(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold every name resolution until the event is set, at the latest behind the test."""
    answer, resolve = threading.Event(), socket.getaddrinfo

    def getaddrinfo(*args: Any, **kwargs: Any) -> Any:
        answer.wait(30)
        return resolve(*args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    yield answer
    answer.set()


# Timeouts


@pytest.mark.parametrize("script", [ENDLESS, "loop forever\nevent {}\nwait 0.02\nendloop"])
def test_B001_total_bounds_the_whole_transfer(streamguard_gateway: Serve, script: str) -> None:
    """Pieces spaced just under the idle limit do not get around `total`, which says so and closes the socket."""
    gateway = streamguard_gateway(script)
    seen = consume(stream := stream_from(gateway, idle=0.3, total=0.4))
    assert isinstance(seen.error, DeadlineExceededError)
    assert isinstance(seen.error, OSError)
    assert seen.error.errno == errno.ETIMEDOUT
    assert "total=0.4" in seen.error.message
    assert 0.4 <= seen.elapsed < 0.4 + PROMPT
    wait_until(lambda: not has_reader(stream))
    gateway.wait_left()


def test_B001_total_bounds_a_trickle_without_any_chunk(streamguard_gateway: Serve) -> None:
    """Bytes that never make a chunk do not get around `total` either."""
    gateway = streamguard_gateway(f"drip 1 0.02 | data: {'x' * 500}")
    error = failure(stream_from(gateway, total=0.3, first=None, idle=None))
    assert isinstance(error, DeadlineExceededError)
    gateway.wait_left()


@pytest.mark.parametrize(
    ("options", "least", "kinds"),
    [
        ({"total": 0.3}, 0.3, DeadlineExceededError),
        ({"connect": 0.2, "retry": None}, 0.2, TransportTimeoutError),
        # Whichever comes first: the deadline, or a pause that would outlast it.
        ({"connect": 0.1, "total": 0.5, "retry": 9}, 0.1, DeadlineExceededError | TransportTimeoutError),
    ],
)
def test_B003_name_resolution_is_inside_the_limits(
    streamguard_gateway: Serve,
    stuck_dns: threading.Event,
    capfd: pytest.CaptureFixture[str],
    options: dict[str, Any],
    least: float,
    kinds: type[StreamguardError],
) -> None:
    """A resolver that hangs holds up no consumer; the thread left in it is counted, and never emits anything."""
    gateway = streamguard_gateway("chat late\ndone")
    seen = consume(stream := stream_from(gateway, **options))
    assert isinstance(seen.error, kinds)
    assert seen.error.phase in ("connect", "retry")
    assert least <= seen.elapsed < 0.5 + PROMPT
    assert stream.report.abandoned_threads == stream.report.attempts
    stuck_dns.set()
    wait_until(lambda: not has_reader(stream))
    assert (gateway.connections, stream.text, capfd.readouterr()) == (0, "", ("", ""))


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_B003_name_resolution_can_be_cancelled(streamguard_gateway: Serve, stuck_dns: threading.Event, how: str) -> None:
    """Cancel and close free a consumer that waits for a name."""
    gateway = streamguard_gateway("chat late\ndone")
    stream = stream_from(gateway)
    threading.Timer(0.1, getattr(stream, how)).start()
    seen = consume(stream)
    assert isinstance(seen.error, StreamCancelledError) == (how == "cancel")
    assert seen.elapsed < PROMPT
    stuck_dns.set()
    wait_until(lambda: not has_reader(stream))
    assert gateway.connections == 0


@pytest.mark.parametrize(("limit", "phase"), [("connect", "connect"), ("total", "connect")])
def test_B004_connect_is_not_paid_once_per_address(monkeypatch: pytest.MonkeyPatch, limit: str, phase: str) -> None:
    """A name with three addresses that do not answer costs one `connect`, and `total` holds as well."""
    with blackhole() as one, blackhole() as two, blackhole() as three:
        addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in (one, two, three)]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: addresses)
        stream = guarded_stream("GET", "http://three-addresses.invalid/", retry=None, **{limit: 0.3})  # type: ignore[call-overload]
        seen = consume(stream)
        assert isinstance(seen.error, TransportTimeoutError | DeadlineExceededError)
        assert seen.error.phase == phase
        assert 0.3 <= seen.elapsed < 0.9
        wait_until(lambda: not has_reader(stream))


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize(("limit", "kind"), [("response", TransportTimeoutError), ("total", DeadlineExceededError)])
def test_B005_a_slow_header_block_is_cut(
    streamguard_gateway: Serve, tls: bool, limit: str, kind: type[StreamguardError]
) -> None:
    """Headers that drip in are one wait, not many: the limit fires on time, and the server sees the close."""
    gateway = streamguard_gateway("drip-headers 0.03", tls=tls)
    seen = consume(stream := stream_from(gateway, retry=None, **{limit: 0.3}))
    assert isinstance(seen.error, kind)
    assert seen.error.phase == "response"
    assert 0.3 <= seen.elapsed < 0.3 + PROMPT
    gateway.wait_left()
    wait_until(lambda: not has_reader(stream))


def test_B006_there_are_finite_limits_by_default(streamguard_gateway: Serve) -> None:
    """Without any argument connect, response, first and idle are minutes, not for ever; None has to be spelled out."""
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
def test_B007_no_path_is_without_the_idle_limit(streamguard_gateway: Serve, decode: Any, session: str | None) -> None:
    """Whatever the decoding and whosever the session: three events, then silence, is the same timeout."""
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


def test_B008_B009_a_black_hole_is_found_without_a_sign_of_the_peer() -> None:
    """A peer that neither sends nor reads nor closes any more: the own clock decides, and nothing reconnects."""
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


def test_B011_first_fires_while_the_read_is_blocked(streamguard_gateway: Serve) -> None:
    """The late first chunk is not what reports its own lateness, and it reaches nobody."""
    gateway = streamguard_gateway("headers\nwait 5\nchat late\ndone")
    seen = consume(stream := stream_from(gateway, first=0.2, retry=None))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert 0.2 <= seen.elapsed < 5
    gateway.wait_left()
    assert (seen.chunks, stream.text, seen.error.partial_text, list(stream)) == ([], "", "", [])


def test_B012_a_consumer_that_comes_back_late_gets_the_deadline_at_once(streamguard_gateway: Serve) -> None:
    """Limits are enforced inside `next()`: who is away meanwhile hears of a passed deadline without another wait."""
    stream = stream_from(streamguard_gateway("chat a\nstall"), total=0.2)
    next(stream)
    time.sleep(0.35)
    seen = consume(stream)
    assert isinstance(seen.error, DeadlineExceededError)
    assert seen.elapsed < PROMPT


def test_B012_a_waiting_consumer_gets_the_error_on_time_beside_busy_threads(streamguard_gateway: Serve) -> None:
    """Threads that compete for the interpreter do not keep the limit from being evaluated."""
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


def test_B013_first_is_disarmed_by_the_first_chunk(streamguard_gateway: Serve) -> None:
    """A healthy stream outlives `first` many times; `idle` alone watches it then."""
    gateway = streamguard_gateway("wait 0.05\nloop 8\ntick\nwait 0.06\nendloop\ndone")
    seen = consume(stream_from(gateway, first=0.25, idle=5))
    assert (seen.error, len(seen.chunks)) == (None, 8)


def test_B014_cold_load_and_stall_have_limits_of_their_own(streamguard_gateway: Serve) -> None:
    """A slow first chunk passes under `first`, a stall after chunks meets `idle`; each error names its phase."""
    slow = streamguard_gateway("headers\nwait 0.4\nloop 4\ntick\nendloop\ndone")
    assert consume(stream_from(slow, first=5, idle=0.2)).error is None
    stalled = failure(stream_from(streamguard_gateway("tick\ntick\nstall"), first=5, idle=0.2))
    assert stalled.phase == "idle"
    cold = failure(stream_from(streamguard_gateway("headers\nstall"), first=0.2, idle=5, retry=None))
    assert cold.phase == "first"


def test_B015_headers_do_not_start_the_idle_clock(streamguard_gateway: Serve) -> None:
    """Early headers, a late first event, short gaps: `idle` is no limit for the first event, heartbeats or not."""
    for meanwhile in ("wait 0.3", "loop 7\ncomment ping\nwait 0.05\nendloop"):
        gateway = streamguard_gateway(f"headers\n{meanwhile}\nloop 5\ntick\nwait 0.01\nendloop\ndone")
        seen = consume(stream_from(gateway, first=5, idle=0.2))
        assert (seen.error, len(seen.chunks)) == (None, 5)


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
def test_B016_the_error_says_which_clock_fired(
    streamguard_gateway: Serve, phase: str, script: str, options: dict[str, Any]
) -> None:
    """Phase, limit, elapsed, chunks so far, attempt, host, name and id are on the error; errno stays ETIMEDOUT."""
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


def test_B017_no_limit_is_mistaken_for_another(streamguard_gateway: Serve) -> None:
    """A steady stream outlives `idle`, only `total` ends it, and a bare `timeout=` is refused with both names."""
    seen = consume(stream_from(streamguard_gateway(ENDLESS), idle=0.2, total=0.6))
    assert isinstance(seen.error, DeadlineExceededError)
    assert len(seen.chunks) > 5
    with pytest.raises(UsageError, match=r"idle= is silence, total= the whole call"):
        guarded_stream("GET", "http://localhost/", timeout=5)  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["connect", "response", "first", "idle", "dead"])
@pytest.mark.parametrize("off", [0, 0.0, -1, None])
def test_B018_a_phase_limit_of_zero_is_off(name: str, off: float | None) -> None:
    """For the phases None, zero and below mean "no limit", as documented."""
    assert getattr(Timeouts(**{name: off}), name) is None


@pytest.mark.parametrize("spent", [0, 0.0, -1, -0.001])
def test_B018_a_total_of_zero_is_already_spent(streamguard_gateway: Serve, spent: float) -> None:
    """For `total` only None is off: what is spent raises before anything connects."""
    gateway = streamguard_gateway("chat a\ndone")
    error = failure(stream := stream_from(gateway, total=spent))
    assert isinstance(error, DeadlineExceededError)
    assert (error.scope, error.limit, stream.report.attempts, gateway.connections) == ("total", spent, 0, 0)


@pytest.mark.parametrize("name", ["connect", "response", "first", "idle", "dead", "total", "heartbeat", "end_grace"])
@pytest.mark.parametrize(("wrong", "kind"), [(float("nan"), ValueError), (True, TypeError), ("soon", ValueError)])
def test_B018_nonsense_is_refused_by_name(name: str, wrong: object, kind: type[Exception]) -> None:
    """NaN, a bool and a text without a duration are refused, and the error says which argument it was."""
    with pytest.raises(kind, match=f"^{name}="):
        guarded_stream("GET", "http://localhost/", **{name: wrong})  # type: ignore[call-overload]


def test_B019_a_deadline_that_passes_in_the_consumer(streamguard_gateway: Serve) -> None:
    """Time left is never negative: whatever the consumer sleeps, the next call raises the ordinary error."""
    gateway = streamguard_gateway(ENDLESS)
    seen = consume(stream_from(gateway, total=0.25, heartbeat=0.05), pause=0.06)
    assert isinstance(seen.error, DeadlineExceededError)
    stream = stream_from(gateway, total=0.1)
    stream.open()
    time.sleep(0.15)
    assert isinstance(failure(stream), DeadlineExceededError)


@pytest.mark.parametrize("jump", [-86_400.0, 86_400.0])
def test_B020_a_clock_that_is_set_neither_fires_nor_delays(
    streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """Every limit is monotonic: the wall clock, and whatever a tool makes of `time`, may jump meanwhile."""
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


@pytest.mark.parametrize(
    ("framing", "kind"),
    [
        ("chunked", TransportError),
        ("length", TransportError),
        ("close", IncompleteStreamError),
        ("http10", IncompleteStreamError),
    ],
)
def test_B021_a_stream_that_is_cut_off_is_no_complete_one(
    streamguard_gateway: Serve, framing: str, kind: type[StreamguardError]
) -> None:
    """A gateway that closes in the middle: all chunks, then a typed error with what was known, and no retry."""
    lie = {"length": 100_000} if framing == "length" else {}
    gateway = streamguard_gateway("loop 8\ntick\nwait 0.02\nendloop\nclose", framing=framing, **lie)
    policy = streamguard.before_first_chunk(3, on={"ETIMEDOUT", "ECONNRESET", IncompleteStreamError})
    seen = consume(stream_from(gateway, retry=policy))
    assert isinstance(seen.error, kind)
    assert (len(seen.chunks), seen.error.chunks, len(gateway.requests)) == (8, 8, 1)
    assert seen.error.lifetime is not None
    assert seen.error.lifetime >= 0.14
    assert seen.error.partial_text == seen.text


# Liveness and progress


@pytest.mark.parametrize("ping", ["comment ping", "event ping | {}"])
def test_B022_heartbeats_and_the_clock_for_bytes(streamguard_gateway: Serve, ping: str) -> None:
    """With `idle=0` and `dead=` pings keep a run alive for as long as they come, whatever they look like."""
    gateway = streamguard_gateway(f"chat a\nloop 9\n{ping}\nwait 0.05\nendloop\nchat b\ndone")
    seen = consume(stream_from(gateway, idle=0, first=0, dead=0.3))
    assert seen.error is None
    assert seen.text == "ab"


@pytest.mark.parametrize(
    "beat",
    [
        "event {}",
        'event {"choices": []}',
        'event {"choices": [{"index": 0, "delta": {}}]}',
        'event {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}',
        'event {"choices": [{"index": 0, "delta": {"content": null, "tool_calls": []}}]}',
        'event ping | {"type": "ping"}',
    ],
)
def test_B023_a_provider_that_only_beats_is_stale(streamguard_gateway: Serve, beat: str) -> None:
    """With `counts=has_content` empty payloads are handed over, and re-arm nothing."""
    gateway = streamguard_gateway(f"loop forever\n{beat}\nwait 0.03\nendloop")
    seen = consume(stream_from(gateway, first=0.2, counts=has_content, retry=None))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert seen.error.phase == "first"
    assert len(seen.chunks) >= 2
    assert 0.19 <= seen.elapsed < 0.2 + PROMPT


def test_B024_keep_alives_do_not_hold_a_run_open(streamguard_gateway: Serve) -> None:
    """Comment lines alone run into `idle`, long before any wall budget."""
    gateway = streamguard_gateway("chat a\nloop forever\ncomment keep-alive\nwait 0.03\nendloop")
    seen = consume(stream_from(gateway, idle=0.2, dead=0.15, total=30))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert seen.error.phase == "idle"
    assert seen.error.comments is not None
    assert seen.error.comments >= 2


def test_B025_endless_reasoning_can_be_told_from_an_answer(streamguard_gateway: Serve) -> None:
    """A predicate for content only stops a model that thinks for ever; otherwise `total` does."""
    gateway = streamguard_gateway("loop forever\nreasoning hm\nwait 0.02\nendloop")
    seen = consume(stream_from(gateway, first=0.25, counts=lambda chunk: chunk.text, retry=None))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert {item.reasoning for item in seen.chunks} == {"hm"}
    assert isinstance(failure(stream_from(gateway, idle=0.2, total=0.5)), DeadlineExceededError)


def test_B026_the_defaults_are_patient_and_the_message_names_the_knob(streamguard_gateway: Serve) -> None:
    """By default a pause of a minute is nobody's end, and whoever set less is told what to raise."""
    assert Timeouts().idle == 120
    assert "Raise idle=" in str(failure(stream_from(streamguard_gateway("chat a\nstall"), idle=0.1)))
    first = str(failure(stream_from(streamguard_gateway("headers\nstall"), first=0.1, retry=None)))
    assert "Raise first=" in first
    assert "buffering" in first


def test_B027_the_error_tells_the_last_byte_from_the_last_chunk(streamguard_gateway: Serve) -> None:
    """Frames that make no chunk are seen as bytes: the two ages on the error differ, the two clocks as well."""
    gateway = streamguard_gateway("chat a\nloop forever\nraw event: vendor\\nid: 1\\n\\n\nwait 0.03\nendloop")
    error = failure(stream_from(gateway, idle=0.3))
    assert error.last_byte_ago < 0.2 <= 0.29 <= error.last_chunk_ago
    quiet = failure(stream_from(streamguard_gateway("headers\nstall"), first=0.1, retry=None))
    assert (quiet.last_byte_ago, quiet.last_chunk_ago) == (None, None)


def test_B028_a_host_can_forward_heartbeats(streamguard_gateway: Serve) -> None:
    """While the upstream only pings, `heartbeat=` gives a host something to pass on; text is untouched by it."""
    gateway = streamguard_gateway("chat a\nloop 12\ncomment ping\nwait 0.03\nendloop\nchat b\ndone")

    def view() -> Iterator[str]:
        for chunk in stream_from(gateway, heartbeat=0.08):
            yield ": ping\n\n" if chunk is HEARTBEAT else chunk.text

    sent = list(view())
    assert [text for text in sent if text != ": ping\n\n"] == ["a", "b"]
    assert 2 <= sent.count(": ping\n\n") <= 5


def test_B030_a_slow_client_is_no_stall(streamguard_gateway: Serve) -> None:
    """Time spent in the consumer, and chunks that wait for it, never count; one token and then silence does."""
    gateway = streamguard_gateway("tick\ntick\ntick\nend")
    seen = consume(stream_from(gateway, idle=0.1, strict=False), pause=0.15)
    assert (seen.error, len(seen.chunks)) == (None, 3)
    assert failure(stream_from(streamguard_gateway("tick\nstall"), idle=0.1)).phase == "idle"


# Close, cancel, release


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("framing", FRAMINGS)
def test_B031_close_does_not_block_while_another_thread_reads(streamguard_gateway: Serve, framing: str, tls: bool) -> None:
    """The closer returns at once, the reader's loop just ends, and the server sees it."""
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
def test_B032_cancel_is_immediate_and_no_transport_error(streamguard_gateway: Serve, step: str) -> None:
    """A cancel in the middle of a pause ends the loop at once, as what it is."""
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


def test_B033_the_cut_needs_no_newer_urllib3(streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """urllib3's own `shutdown()`, missing before 2.3, plays no part in a cut."""
    monkeypatch.delattr(urllib3.HTTPResponse, "shutdown", raising=False)
    monkeypatch.delattr(urllib3.response.BaseHTTPResponse, "shutdown", raising=False)
    gateway = streamguard_gateway(ENDLESS)
    stream = stream_from(gateway, total=0.2)
    assert isinstance(failure(stream), DeadlineExceededError)
    wait_until(lambda: not has_reader(stream))
    gateway.wait_left()


@pytest.mark.parametrize("limit", ["total", "idle", "first"])
def test_B033_the_bound_never_depends_on_the_cut(
    streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Where a cut wakes nobody, the consumer is free on time all the same, and the thread left behind is counted."""
    monkeypatch.setattr(SocketGuard, "cut", lambda guard: None)
    gateway = streamguard_gateway("headers\nstall" if limit == "first" else "chat a\nstall")
    seen = consume(stream := stream_from(gateway, retry=None, **{limit: 0.2}))
    assert isinstance(seen.error, TimeoutError)
    assert seen.elapsed < 0.2 + PROMPT
    assert (stream.report.abandoned_threads, has_reader(stream)) == (1, True)
    gateway.stop()
    wait_until(lambda: not has_reader(stream))


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("mounted", [False, True], ids=["plain session", "our adapter"])
def test_B039_the_connection_survives_the_end_marker(streamguard_gateway: Serve, mounted: bool, tls: bool) -> None:
    """Two streams on one Session whose bodies really end behind [DONE] share one connection."""
    gateway = streamguard_gateway("chat a\ndone", tls=tls)
    with requests.Session() as session:
        if mounted:
            session.mount("https://" if tls else "http://", streamguard.Adapter())
        for _ in range(3):
            assert consume(stream_from(gateway, session=session)).text == "a"
    assert (gateway.connections, len(gateway.requests)) == (1, 3)


def test_B039_a_lingering_server_is_not_waited_for(streamguard_gateway: Serve) -> None:
    """A body that does not end behind [DONE] costs the connection, and next to no time."""
    gateway = streamguard_gateway("chat a\ndone\nlinger")
    with requests.Session() as session:
        session.mount("http://", streamguard.Adapter())
        for _ in range(2):
            seen = consume(stream_from(gateway, session=session))
            assert (seen.error, seen.text) == (None, "a")
            assert seen.elapsed < PROMPT
        gateway.wait_left(1)
        gateway.wait_left(2)
    assert gateway.connections == 2


@pytest.mark.parametrize("ending", ["done", "end", "close"])
def test_B042_the_end_comes_through_a_full_queue(streamguard_gateway: Serve, ending: str) -> None:
    """More than the reader may hold, a consumer that comes late, a server that is long gone: all chunks, then the end."""
    chunk = '{"choices": [{"index": 0, "delta": {"content": "%s"}}]}' % ("x" * 20_000)
    gateway = streamguard_gateway(f"loop 150\nevent {chunk}\nendloop\n{ending}")
    stream = stream_from(gateway, strict=False)
    next(stream)
    time.sleep(0.3)
    seen = consume(stream)
    assert len(seen.chunks) == 149
    assert (seen.error is None) == (ending != "close")
    assert next(stream, "over") == "over"


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
def test_B045_stop_works_from_any_thread_in_any_phase(streamguard_gateway: Serve, where: str, how: str) -> None:
    """Before the connection, before the headers, in silence, in full flow, in an error's body, in a retry pause."""
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


def test_B046_a_timeout_is_final_for_its_stream(streamguard_gateway: Serve) -> None:
    """What comes after the limit is not delivered later; what came before is in the error and on the stream."""
    gateway = streamguard_gateway("chat one\nwait 0.4\nchat two\ndone")
    seen = consume(stream := stream_from(gateway, idle=0.15))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    gateway.wait_left()
    time.sleep(0.3)
    assert (list(stream), seen.error.partial_text, stream.text, stream.message.text) == ([], "one", "one", "one")


# Exceptions


FAULTS = {
    "reset": ("chat a\nreset", {}, "ECONNRESET"),
    "short chunk": ("headers transfer-encoding: chunked\nwire 50\\r\\nhalf\nclose", {"framing": "close"}, "ECONNRESET"),
    "no last chunk": ("chat a\nclose", {}, "ECONNRESET"),
    "short body": ("chat a\nclose", {"framing": "length", "length": 9999}, "ECONNRESET"),
    # http.client raises the same for a size line that is no number as for one that is missing.
    "bad chunk size": ("headers transfer-encoding: chunked\nwire zz\\r\\n", {"framing": "close"}, "ECONNRESET"),
    "bad gzip": ("headers content-encoding: gzip\nraw not gzip at all\nend", {}, "EPROTO"),
    "bad deflate": ("headers content-encoding: deflate\nraw not deflate\nend", {}, "EPROTO"),
    "no status line": ("wire what is this?\\r\\n\\r\\n\nclose", {}, "EPROTO"),
    "no answer at all": ("wire \nclose", {}, "ECONNRESET"),
    "reset before headers": ("reset", {}, "ECONNRESET"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("session", [None, "plain"])
def test_B048_no_fault_escapes_the_hierarchy(streamguard_gateway: Serve, fault: str, session: str | None) -> None:
    """Whatever urllib3, http.client or the socket raised, the caller gets one of ours, which requests' users know."""
    script, options, code = FAULTS[fault]
    gateway = streamguard_gateway(script, **options)
    with requests.Session() as own:
        error = failure(stream_from(gateway, session=own if session else None, retry=None, response=5, total=10))
    assert isinstance(error, TransportError)
    assert isinstance(error, requests.RequestException)
    assert isinstance(error, OSError)
    assert (error.code, error.__cause__ is not None) == (code, True)
    assert classify(error).kind == "transport"


def test_B048_requests_own_timeouts_are_mapped(streamguard_gateway: Serve) -> None:
    """The read timeout of an adapter that is not ours is the same typed error, with its errno."""

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
def test_B049_every_expiry_has_an_errno(streamguard_gateway: Serve, limit: str) -> None:
    """The number is ours, never that of a lower layer, where it is None; as a TimeoutError everyone can catch it."""
    script = {"response": "stall", "first": "headers\nstall"}.get(limit, "chat a\nstall")
    error = failure(stream_from(streamguard_gateway(script), retry=None, **{limit: 0.1}))
    assert isinstance(error, TimeoutError)
    assert error.errno == errno.ETIMEDOUT


@pytest.mark.parametrize("status", [400, 401, 404, 429, 500, 503])
def test_B050_the_body_of_an_error_is_kept(streamguard_gateway: Serve, status: int) -> None:
    """Status, headers, Retry-After and the server's message are on the error; the connection is free."""
    body = '{"error": {"message": "no such key", "type": "auth", "code": "invalid_api_key"}}'
    gateway = streamguard_gateway(f"headers {status} retry-after: 7; x-request-id: r-1\nbody {body}")
    error = failure(stream := stream_from(gateway, retry=None))
    assert isinstance(error, HTTPStatusError)
    assert isinstance(error, requests.HTTPError)
    assert (error.status_code, error.retry_after, error.body, error.request_id) == (status, 7, body, "r-1")
    assert "no such key" in str(error)
    assert error.headers["retry-after"] == "7"
    wait_until(lambda: not has_reader(stream))
    gateway.wait_connections(1, still_open=0)


@pytest.mark.parametrize(
    ("script", "options", "most"),
    [
        (f"headers 500\nloop 40\nraw {'x' * 50_000}\nendloop", {}, PROMPT),
        ("headers 500\nraw half an answ\nstall", {}, 1 + PROMPT),
        ("headers 500\nloop forever\nraw drip\nwait 0.05\nendloop", {}, 1 + PROMPT),
        ("headers 500 content-length: 999\nraw short\nclose", {"framing": "length", "length": 999}, PROMPT),
        ("headers 500\nraw cut\nreset", {}, PROMPT),
    ],
    ids=["huge", "stalling", "endless", "short", "reset"],
)
def test_B050_the_read_of_an_error_body_is_bounded(
    streamguard_gateway: Serve, script: str, options: dict[str, Any], most: float
) -> None:
    """A body that is too big, stalls, never ends or breaks costs a second at most, and never the status."""
    gateway = streamguard_gateway(script, **options)
    seen = consume(stream := stream_from(gateway, retry=None))
    assert isinstance(seen.error, HTTPStatusError)
    assert seen.error.status_code == 500
    assert len(seen.error.body) <= 65_536
    assert seen.elapsed < most
    wait_until(lambda: not has_reader(stream))
    gateway.wait_connections(1, still_open=0)


class SoftLimit(Exception):
    """What a task queue raises in the middle of whatever runs."""


@pytest.mark.parametrize("kind", [SoftLimit, KeyboardInterrupt, SystemExit, OSError, TimeoutError])
@pytest.mark.parametrize("retry", [None, 3])
def test_B051_what_a_signal_handler_raises_is_not_ours(
    streamguard_gateway: Serve, kind: type[BaseException], retry: int | None
) -> None:
    """It propagates unchanged from a waiting `next()`, is never retried, and the stream is closed behind it."""
    gateway = streamguard_gateway("headers\nstall")
    raised = kind("from outside")

    def handler(*_: object) -> None:
        raise raised

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        stream = stream_from(gateway, retry=retry)
        _signal_when(lambda: bool(gateway.requests) and gateway.requests[0].reached["stall"] > 0, signal.SIGUSR1)
        with pytest.raises(kind) as caught:
            next(stream)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert caught.value is raised
    assert (len(gateway.requests), has_reader(stream)) == (1, False)
    gateway.wait_left()
    assert stream.report.outcome == ("error" if issubclass(kind, Exception) else "closed")
    assert next(stream, "over") == "over"


@pytest.mark.parametrize("kind", [SoftLimit, TimeoutError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["counts", "decode"])
def test_B051_what_the_callers_functions_raise_is_not_ours(
    streamguard_gateway: Serve, kind: type[BaseException], where: str
) -> None:
    """A fault in `counts=` or `decode=` comes out as it is, once, behind a closed stream."""
    gateway = streamguard_gateway("chat a\nstall")

    def faulty(_: object) -> None:
        raise kind("a bug")

    stream = stream_from(gateway, retry=3, **{where: faulty})
    with pytest.raises(kind, match="a bug"):
        next(stream)
    assert next(stream, "over") == "over"
    assert len(gateway.requests) == 1
    gateway.wait_left()


def test_B051_what_the_body_of_the_loop_raises_frees_the_stream(streamguard_gateway: Serve) -> None:
    """With `with`, an exception of the consumer's own closes the stream on its way."""
    gateway = streamguard_gateway(ENDLESS)
    stream = stream_from(gateway)
    with pytest.raises(SoftLimit):
        _fail_in_the_middle(stream)
    assert (stream.report.outcome, has_reader(stream)) == ("closed", False)
    gateway.wait_left()


def test_B051_an_exception_in_a_plain_loop_frees_the_stream(streamguard_gateway: Serve) -> None:
    """Without `with` as well, and while the exception, with its traceback, is still being handled."""
    gateway = streamguard_gateway(ENDLESS)
    try:
        for _ in stream_from(gateway):
            raise SoftLimit
    except SoftLimit:
        gateway.wait_left()


def test_B051_a_generator_that_is_closed_frees_its_stream(streamguard_gateway: Serve) -> None:
    """What a host does when its own client leaves: it closes the view's generator in the middle."""
    gateway = streamguard_gateway(ENDLESS)

    def view() -> Iterator[str]:
        for chunk in stream_from(gateway):
            yield chunk.text

    body = view()
    assert next(body) == "1 "
    body.close()
    gateway.wait_left()


def test_B052_an_error_frame_keeps_its_details(streamguard_gateway: Serve) -> None:
    """Message, type, code and the raw body are on the exception, in its own words."""
    body = '{"error":{"message":"m","type":"t","code":"c"}}'
    seen = consume(stream_from(streamguard_gateway(f"chat a\nevent {body}\nstall")))
    assert isinstance(seen.error, InStreamError)
    assert (seen.error.message, seen.error.type, seen.error.code, seen.error.body) == ("m", "t", "c", body)
    assert (seen.text, seen.error.partial_text) == ("a", "a")


def test_B053_an_error_in_the_stream_is_not_its_status(streamguard_gateway: Serve) -> None:
    """The 200 is no statement about the error: the class and `.type` are what is classified."""
    frame = '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}'
    error = failure(stream := stream_from(streamguard_gateway(f"event error | {frame}\nstall")))
    assert isinstance(error, InStreamError)
    assert not isinstance(error, HTTPStatusError)
    assert (error.type, stream.report.status_code) == ("overloaded_error", 200)
    assert (classify(error).kind, classify(error).diagnosis) == ("server", "retryable")


@pytest.mark.parametrize(
    ("exception", "kind"),
    [(requests.ConnectionError("pool"), TransportError), (requests.ReadTimeout("late"), TransportTimeoutError)],
)
def test_B054_imagined_and_real_exceptions_end_the_same(exception: Exception, kind: type[TransportError]) -> None:
    """What mocks raise is mapped as well, though the mapping is proved by real sockets (B048)."""
    with responses.RequestsMock() as mock:
        mock.get("http://mocked/", body=exception)
        error = failure(guarded_stream("GET", "http://mocked/", retry=None))
    assert isinstance(error, kind)
    assert error.__cause__ is exception


# Threads, exit, signals


def test_B115_a_stream_at_interpreter_exit() -> None:
    """From an atexit hook a stream works or fails with a clear error; it neither hangs nor leaves a traceback."""
    program = (
        "import atexit, sys, streamguard\n"
        "def late():\n"
        "    try:\n"
        "        print(streamguard.guarded_stream('GET', sys.argv[1], total=5).read())\n"
        "    except streamguard.StreamguardError as error:\n"
        "        print(type(error).__name__)\n"
        "held = streamguard.guarded_stream('GET', sys.argv[1])\n"
        "next(held)\n"
        "atexit.register(late)\n"
    )
    with Gateway("chat a\nstall", "chat a\ndone") as gateway:
        done = subprocess.run([sys.executable, "-c", program, gateway.url], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("a\n", "StreamguardError\n")


@pytest.mark.parametrize("limits", [{"idle": 30}, {"idle": 0, "first": 0}, {"idle": 30, "total": 60, "heartbeat": 20}])
@pytest.mark.parametrize("step", ["stall", ENDLESS])
def test_B116_ctrl_c_interrupts_a_waiting_next(streamguard_gateway: Serve, limits: dict[str, float], step: str) -> None:
    """KeyboardInterrupt at once, whatever the limits; the socket is closed and the thread gone."""
    gateway = streamguard_gateway(f"chat a\n{step}")
    stream = stream_from(gateway, **limits)
    next(stream)
    sent = _signal_when(lambda: True, signal.SIGINT, after=0.1)
    with pytest.raises(KeyboardInterrupt):
        for _ in stream:
            pass
    assert monotonic() - sent[0] < PROMPT
    stream.close()
    wait_until(lambda: not has_reader(stream))
    gateway.wait_left()


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("stall", {}),
        ("", {"tls_stall": True}),
        ("headers 503 retry-after: 30; content-length: 0", {"framing": "length"}),
    ],
    ids=["headers", "handshake", "pause"],
)
def test_B116_ctrl_c_interrupts_every_other_wait(streamguard_gateway: Serve, script: str, options: dict[str, Any]) -> None:
    """Before the headers, in a handshake, in the pause before another attempt."""
    gateway = streamguard_gateway(script, **options)
    retry = streamguard.before_first_chunk(3, status={503})
    stream = guarded_stream("GET", gateway.url, retry=retry)
    sent = _signal_when(lambda: gateway.connections > 0, signal.SIGINT, after=0.1)
    with pytest.raises(KeyboardInterrupt):
        stream.open()
    assert monotonic() - sent[0] < PROMPT
    assert (stream.report.outcome, has_reader(stream)) == ("closed", False)
    gateway.wait_connections(1, still_open=0)


@pytest.mark.parametrize("limit", ["total", "idle"])
def test_B117_limits_work_off_the_main_thread(streamguard_gateway: Serve, limit: str) -> None:
    """No signal is involved: in a worker thread the limits are the same, and no handler is touched."""
    handlers = _signal_handlers()
    stream = stream_from(streamguard_gateway("chat a\nstall"), **{limit: 0.2})
    errors: list[Any] = []
    in_thread(lambda: errors.append(failure(stream))).join(5)
    assert isinstance(errors[0], TimeoutError)
    assert _signal_handlers() == handlers


def test_B118_streams_in_many_threads_do_not_mix() -> None:
    """8 threads × 20 streams: each gets back the number it sent, over its own connection, with cookies of nobody."""

    def echo(peer: Peer) -> None:
        head = peer.read_request().lower()
        number = head.partition(b"x-number: ")[2].partition(b"\r\n")[0].decode()
        cookie = "" if b"\ncookie:" not in head else "leaked"
        payload = '{"choices": [{"index": 0, "delta": {"content": "%s"}}]}' % (number + cookie)
        start = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nSet-Cookie: n={number}\r\n\r\n"
        peer.send(f"{start}data: {payload}\n\ndata: [DONE]\n\n".encode())

    wrong: list[str] = []

    def work(thread: int) -> None:
        for number in range(20):
            mine = f"{thread}-{number}"
            got = guarded_stream("GET", server.url, headers={"X-Number": mine}).read()
            if got != mine:
                wrong.append(f"{mine}: {got}")

    with Server(echo) as server:
        threads = [in_thread(lambda thread=thread: work(thread)) for thread in range(8)]
        for thread in threads:
            thread.join(30)
    assert (wrong, server.connections) == ([], 160)


def test_B119_no_timer_and_no_lasting_thread(streamguard_gateway: Serve) -> None:
    """While limits are armed there is one thread, a daemon, and no timer; an interrupt leaves none of them."""
    before = set(threading.enumerate())
    gateway = streamguard_gateway("chat a\nstall")
    stream = stream_from(gateway, idle=30, total=60, dead=20, heartbeat=10)
    next(stream)
    own = [t for t in threading.enumerate() if t not in before and "gateway" not in t.name]
    assert [(thread.daemon, isinstance(thread, threading.Timer)) for thread in own] == [(True, False)]
    _signal_when(lambda: True, signal.SIGINT, after=0.05)
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    assert not own[0].is_alive()


# Testing


def test_B129_a_mocked_stream_ends() -> None:
    """Under `responses` there is no socket: two events and [DONE] are delivered, and everything ends."""
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


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize(
    ("framing", "encoding"), list(itertools.product(FRAMINGS, [None, "gzip", "gzip-members", "deflate"]))
)
def test_B130_each_event_is_seen_before_the_next_is_sent(
    streamguard_gateway: Serve, framing: str, encoding: str | None, tls: bool
) -> None:
    """On every framing and encoding an event is handed over while the server still waits to send another."""
    lie = {"length": 100_000} if framing == "length" else {}
    gateway = streamguard_gateway("chat one\nstall", framing=framing, encoding=encoding, tls=tls, **lie)
    with stream_from(gateway) as stream:
        assert next(stream).text == "one"
        gateway.wait_step("stall")


def _fail_in_the_middle(stream: GuardedStream[Any]) -> None:
    with stream:
        next(stream)
        raise SoftLimit


def _signal_handlers() -> list[Any]:
    return [signal.getsignal(number) for number in sorted(signal.valid_signals())]


def _signal_when(holds: Callable[[], bool], number: signal.Signals, *, after: float = 0.0) -> list[float]:
    """Send the main thread a signal once *holds* is true, *after* seconds later; return where its time will be."""
    sent: list[float] = []

    def send() -> None:
        wait_until(holds)
        time.sleep(after)
        sent.append(monotonic())
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    in_thread(send)
    return sent
