"""When a stream's phases began and its chunks came, in bounded memory however long it runs. Pure: times are arguments."""

import heapq

from ..._reports import PhaseMark, Trace

_ARRIVALS = 512
_GAPS = 8
_MARKS = 128


class TraceRecorder:
    """Collect a trace as the stream goes."""

    __slots__ = ("_arrivals", "_gaps", "_last", "_marks", "_skipped", "_stride")

    def __init__(self) -> None:
        self._marks: list[PhaseMark] = []
        self._arrivals: list[float] = []
        self._gaps: list[tuple[float, float]] = []
        """A heap of (seconds, beginning): the shortest of the longest is the first."""
        self._last: float | None = None
        self._stride = 1
        self._skipped = 0

    def entered(self, at: float, phase: str, attempt: int) -> None:
        """Note that *phase* begins at *at*."""
        if len(self._marks) < _MARKS:
            self._marks.append(PhaseMark(at, phase, attempt))

    def arrived(self, at: float) -> None:
        """Note that a chunk arrived at *at*."""
        last, self._last = self._last, at
        if last == at:  # it arrived with the one before
            return
        if last is not None:
            self._keep_gap(last, at - last)
        self._skipped += 1
        if self._skipped < self._stride:
            return
        self._skipped = 0
        self._arrivals.append(at)
        if len(self._arrivals) > _ARRIVALS:
            del self._arrivals[1::2]
            self._stride *= 2

    def frozen(self) -> Trace:
        """Return the trace so far."""
        gaps = sorted((began, seconds) for seconds, began in self._gaps)
        return Trace(tuple(self._marks), tuple(self._arrivals), tuple(gaps))

    def _keep_gap(self, began: float, seconds: float) -> None:
        if len(self._gaps) < _GAPS:
            heapq.heappush(self._gaps, (seconds, began))
        elif seconds > self._gaps[0][0]:
            heapq.heapreplace(self._gaps, (seconds, began))
