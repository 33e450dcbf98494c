"""Heartbeats for the consumer, and the warning at half of a limit."""

import copy
import logging
import pickle
import time
from collections.abc import Iterator
from typing import Any

import pytest

import streamguard
import streamguard._stream.failures
from streamguard import (
    HEARTBEAT,
    StreamInactivityTimeoutError,
    TransportTimeoutError,
    deadline,
    guarded_stream,
)
from streamguard._core.clock import monotonic

from ..helpers import PROMPT, Serve
from .helpers import ask, consume, failure, stream_from


def test_heartbeats_come_in_every_phase(streamguard_gateway: Serve) -> None:
    """After that many seconds of silence `next()` returns HEARTBEAT, with the phase and the length of the silence."""
    stream = guarded_stream("POST", streamguard_gateway("wait 0.5\nheaders\nwait 0.5\nchat a\nstall").url, heartbeat=0.15)
    phases: list[str] = []
    chunk: Any
    for chunk in stream:
        if chunk is HEARTBEAT:
            assert (HEARTBEAT.text, bool(HEARTBEAT), HEARTBEAT.silence > 0) == ("", False, True)
            phases.append(HEARTBEAT.phase)
            if HEARTBEAT.phase == "idle":
                break
    stream.close()
    assert list(dict.fromkeys(phases)) == ["response", "first", "idle"]
    assert stream.report.chunks == 1


def test_heartbeats_do_not_delay_a_limit(streamguard_gateway: Serve) -> None:
    """The limit fires when it would have without heartbeats."""
    run = ask(streamguard_gateway("chat a\nstall"), heartbeat=0.05, idle=0.4)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert 0.4 <= run.stream.report.lifetime < 0.4 + PROMPT
    assert sum(chunk is HEARTBEAT for chunk in run.chunks) >= 3
    assert (run.error.chunks, run.error.partial_text) == (1, "a")


def test_heartbeats_only_in_silence(streamguard_gateway: Serve) -> None:
    """There are none while chunks arrive; the server's comments do not suppress them."""
    run = ask(streamguard_gateway("loop 10\nwait 0.02\ntick\nendloop\ndone"), heartbeat=1)
    assert HEARTBEAT not in run.chunks
    run = ask(streamguard_gateway("loop 10\nwait 0.05\ncomment hb\nendloop\nchat a\ndone"), heartbeat=0.2)
    assert any(chunk is HEARTBEAT for chunk in run.chunks)


@pytest.mark.parametrize("off", [None, 0, -1])
def test_no_heartbeats(streamguard_gateway: Serve, off: float | None) -> None:
    """Heartbeats are off by default, and with None or a value of 0 or less."""
    run = ask(streamguard_gateway("wait 0.2\nchat a\ndone"), heartbeat=off)
    assert len(run.chunks) == 1


def test_a_heartbeat_is_the_one_wherever_it_goes() -> None:
    """HEARTBEAT stays one object when it is copied or unpickled."""
    assert copy.deepcopy([HEARTBEAT])[0] is HEARTBEAT
    assert pickle.loads(pickle.dumps(HEARTBEAT)) is HEARTBEAT


def test_a_host_can_forward_heartbeats(streamguard_gateway: Serve) -> None:
    """While the server only pings, `heartbeat=` gives a host something to forward; the text is unchanged (B028)."""
    gateway = streamguard_gateway("chat a\nloop 12\ncomment ping\nwait 0.03\nendloop\nchat b\ndone")

    def view() -> Iterator[str]:
        for chunk in stream_from(gateway, heartbeat=0.08):
            yield ": ping\n\n" if chunk is HEARTBEAT else chunk.text

    sent = list(view())
    assert [text for text in sent if text != ": ping\n\n"] == ["a", "b"]
    assert 2 <= sent.count(": ping\n\n") <= 5


def test_a_warning_at_half_of_the_limit_names_the_phase(
    streamguard_gateway: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """One WARNING for each silence that reaches half of its limit, and none for an active stream."""
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
    """`open()` returns no heartbeats and does not spin for them: its limit fires on time, with little CPU."""
    gateway = streamguard_gateway("stall")
    stream = stream_from(gateway, response=0.3, heartbeat=0.02, retry=None)
    began, cpu = monotonic(), time.process_time()
    with pytest.raises(TransportTimeoutError):
        stream.open(until=until)
    assert 0.3 <= monotonic() - began < 0.3 + PROMPT
    assert time.process_time() - cpu < 0.15


def test_heartbeats_flow_in_every_phase(streamguard_gateway: Serve) -> None:
    """HEARTBEAT names its phase: before the headers, before the first chunk, between chunks, in a pause."""
    gateway = streamguard_gateway("wait 0.2\nheaders\nstall", "chat a\nwait 0.2\nchat b\ndone")
    stream = stream_from(gateway, first=0.2, heartbeat=0.05, response=5, idle=5)
    phases = [streamguard.HEARTBEAT.phase for item in stream if item is streamguard.HEARTBEAT]
    on_a_busy_machine = {"connect"}
    assert [p for p in dict.fromkeys(phases) if p not in on_a_busy_machine] == ["response", "first", "retry", "idle"]


def test_heartbeats_can_be_asked_for_later(streamguard_gateway: Serve) -> None:
    """`stream.heartbeat` can be set and unset at any time; each heartbeat has the time that is left."""
    gateway = streamguard_gateway("chat a\nstall")
    stream = guarded_stream("POST", gateway.url, json={}, idle=1.0)
    assert (next(stream).text, stream.heartbeat) == ("a", None)
    stream.heartbeat = 0.2
    assert next(stream) is HEARTBEAT
    assert HEARTBEAT.silence >= 0.2
    assert HEARTBEAT.left is not None
    assert 0 < HEARTBEAT.left <= 0.8
    stream.heartbeat = None
    with pytest.raises(StreamInactivityTimeoutError):
        next(stream)


@pytest.mark.parametrize(("around", "most"), [(10, 10), (None, None)])
def test_a_heartbeat_tells_the_nearest_limit(streamguard_gateway: Serve, around: float | None, most: float | None) -> None:
    """The time left is that of the deadline if it is nearer than the phase's limit, and None without any limit."""
    gateway = streamguard_gateway("chat a\nstall")
    with deadline(around), guarded_stream("POST", gateway.url, json={}, heartbeat=0.1, idle=around and 60) as stream:
        assert [next(stream).text, next(stream)] == ["a", HEARTBEAT]
        left = HEARTBEAT.left
        assert left is None if most is None else left is not None and 5 < left <= most


@pytest.mark.parametrize("wrong", [b"5", True, object()])
def test_a_wrong_heartbeat_is_refused(wrong: object) -> None:
    """It takes seconds, a duration or None, as `heartbeat=` does."""
    stream = guarded_stream("GET", "http://127.0.0.1:9/")
    with pytest.raises(TypeError, match="heartbeat="):
        stream.heartbeat = wrong  # type: ignore[assignment]
    stream.close()
