"""How far apart a stream's chunks were, in bounded memory however many they are. Pure: times are arguments."""

import bisect

from ...telemetry.events import GAP_BOUNDS, Gaps


class GapCounts:
    """Counts and sums of gaps for each bucket; a value equal to a bound belongs below it, as in OpenTelemetry."""

    __slots__ = ("_counts", "_totals")

    def __init__(self) -> None:
        self._counts = [0] * (len(GAP_BOUNDS) + 1)
        self._totals = [0.0] * (len(GAP_BOUNDS) + 1)

    def add(self, seconds: float) -> None:
        """Count one gap."""
        bucket = bisect.bisect_left(GAP_BOUNDS, seconds)
        self._counts[bucket] += 1
        self._totals[bucket] += seconds

    def frozen(self, chunks: int) -> Gaps:
        """Return the counts. *chunks* chunks have more gaps than were added if some arrived together: gaps of zero."""
        together = max(0, chunks - 1 - sum(self._counts))
        return ((self._counts[0] + together, self._totals[0]), *zip(self._counts[1:], self._totals[1:], strict=True))
