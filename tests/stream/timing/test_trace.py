"""The trace of a stream: bounded, in order, and true to the longest gaps."""

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from streamguard import before_first_chunk, guarded_stream
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
    """A call with endless retries keeps the first 128 phases."""
    recorder = TraceRecorder()
    for number in range(1000):
        recorder.entered(float(number), "retry", number)
    assert len(recorder.frozen().phases) == 128


def test_a_stream_that_is_retried(streamguard_gateway: Serve) -> None:
    """Phases by attempt, arrivals of the attempt that had any; `to_dict()` has neither."""
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
