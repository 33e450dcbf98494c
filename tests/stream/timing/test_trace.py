"""The trace of a stream: bounded, in order, and true to the longest gaps."""

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard import HEARTBEAT, StreamInactivityTimeoutError, before_first_chunk, deadline, guarded_stream
from streamguard._stream.timing.trace import TraceRecorder

from ...helpers import Serve

steps = st.lists(st.floats(0.001, 100, allow_nan=False), min_size=1, max_size=3000)


@given(steps)
def test_arrivals_are_bounded_and_gaps_are_exact(lengths: list[float]) -> None:
    """However many chunks come, at most 512 arrivals are kept, in order, and the eight longest gaps."""
    times = list(accumulate(lengths))
    recorder = TraceRecorder()
    for at in times:
        recorder.arrived(at)
    trace = recorder.frozen()
    assert len(trace.arrivals) <= 512
    assert set(trace.arrivals) <= set(times)
    assert list(trace.arrivals) == sorted(trace.arrivals)
    if len(times) <= 512:
        assert list(trace.arrivals) == times
    longest = sorted((late - early for early, late in pairwise(times)), reverse=True)[:8]
    assert sorted((seconds for _, seconds in trace.gaps), reverse=True) == longest


def test_the_selection_is_even() -> None:
    """Of a hundred thousand arrivals the kept ones are spread over all of them."""
    recorder = TraceRecorder()
    for number in range(100_000):
        recorder.arrived(float(number))
    kept = recorder.frozen().arrivals
    distances = {late - early for early, late in pairwise(kept)}
    assert 256 <= len(kept) <= 512
    assert len(distances) <= 2
    assert kept[-1] > 99_000


def test_phases_are_bounded() -> None:
    """A call that is tried again without end keeps the first 128 phases."""
    recorder = TraceRecorder()
    for number in range(1000):
        recorder.entered(float(number), "retry", number)
    assert len(recorder.frozen().phases) == 128


def test_a_stream_that_is_tried_again(streamguard_gateway: Serve) -> None:
    """Phases by attempt, arrivals of the one that had any; nothing of it in the plain data, which stays small."""
    gateway = streamguard_gateway("headers\nstall", "chat a\nwait 0.2\nchat b\nfinish\ndone")
    retry = before_first_chunk(1, wait=lambda state: 0.05)
    stream = guarded_stream("POST", gateway.url, json={}, first=0.2, idle=5, retry=retry)
    assert stream.read() == "ab"
    trace = stream.report.trace
    names = [(mark.attempt, mark.phase) for mark in trace.phases]
    assert names == [
        *((1, phase) for phase in ("connect", "response", "first", "retry")),
        *((2, phase) for phase in ("connect", "response", "first", "idle")),
    ]
    assert [mark.at for mark in trace.phases] == sorted(mark.at for mark in trace.phases)
    began, seconds = max(trace.gaps, key=lambda gap: gap[1])
    assert seconds >= 0.15
    assert began in trace.arrivals
    assert "trace" not in {**stream.report.to_dict(), **stream.report.to_log()}


def test_heartbeats_can_be_asked_for_later(streamguard_gateway: Serve) -> None:
    """`stream.heartbeat` can be set in the middle, and taken back; each heartbeat says what time is left."""
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
    """The time left is that of the deadline where it is nearer than the phase's limit, and None without any limit."""
    gateway = streamguard_gateway("chat a\nstall")
    with deadline(around), guarded_stream("POST", gateway.url, json={}, heartbeat=0.1, idle=around and 60) as stream:
        assert [next(stream).text, next(stream)] == ["a", HEARTBEAT]
        left = HEARTBEAT.left
        assert left is None if most is None else left is not None and 5 < left <= most


@pytest.mark.parametrize("wrong", [b"5", True, object()])
def test_what_is_no_heartbeat(wrong: object) -> None:
    """It takes seconds, a duration or None, as `heartbeat=` does."""
    stream = guarded_stream("GET", "http://127.0.0.1:9/")
    with pytest.raises(TypeError, match="heartbeat="):
        stream.heartbeat = wrong  # type: ignore[assignment]
    stream.close()
