"""A summary of many entries: counts, histograms, and the samples for the advice about limits. Pure."""

import bisect
import collections
import datetime
import itertools
from collections.abc import Iterable, Iterator

from .._core.limits import LIMITS
from ..telemetry.events import GAP_BOUNDS
from .entries import JournalEntry, Moment

KINDS = ("stream", "run", "turn")
"""What a summary counts."""

_LAST_FAILURES = 50

_FOLLOWS = {"connect": "response", "response": "first"}
"""The phase after each phase: the duration is a sample only if the attempt reached it."""


class Summary:
    """Counts, histograms and samples of entries. Filled by `summed_up()`."""

    def __init__(self) -> None:
        self.began: datetime.datetime | None = None
        """When the first one started."""
        self.ended: datetime.datetime | None = None
        """When the last one started."""
        self.lost = 0
        """Entries that could not be written."""
        self.unreadable = 0
        """Rows that could not be read."""
        self.narrowed = False
        """Whether the entries are a selection of those in the journal."""
        self.counts: collections.Counter[tuple[str, str, str]] = collections.Counter()
        """By kind, outcome, and the place where it stopped."""
        self.first_chunks = [0] * (len(GAP_BOUNDS) + 1)
        """Streams by the time to their first chunk, in the buckets of `GAP_BOUNDS`, and one above them."""
        self.gaps = [0] * (len(GAP_BOUNDS) + 1)
        """Gaps between chunks, in the same buckets."""
        self.samples: dict[str, list[float]] = {name: [] for name in LIMITS}
        """For each limit, the durations of successes: for `idle` and `dead` of a stream, the longest silence."""
        self.fired: collections.Counter[str] = collections.Counter()
        """How often each limit fired."""
        self.fired_at: dict[str, float] = {}
        """The value of each limit when it last fired."""

        self.failures: collections.deque[JournalEntry] = collections.deque(maxlen=_LAST_FAILURES)
        """The last failures, the newest last."""

    def kind(self, kind: str) -> list[tuple[str, str, int]]:
        """Return outcome, place and count of each group of *kind*, the largest first."""
        groups = [(outcome, place, count) for (each, outcome, place), count in self.counts.items() if each == kind]
        return sorted(groups, key=lambda group: (-group[2], group[0], group[1]))

    def add(self, entry: JournalEntry) -> None:
        """Add one entry."""
        if entry.kind == "gap":
            self.lost += int(entry.numbers["entries"])
            return
        self.began = min(self.began or entry.started_at, entry.started_at)
        self.ended = max(self.ended or entry.started_at, entry.started_at)
        self.counts[entry.kind, entry.outcome, entry.stopped_in or "-"] += 1
        if entry.failed:
            self.failures.append(entry)
        {"stream": self._stream, "run": self._run, "turn": self._turn}[entry.kind](entry)

    def _stream(self, entry: JournalEntry) -> None:
        first = entry.numbers["time_to_first_chunk"]
        if first is not None:
            self.first_chunks[bisect.bisect_left(GAP_BOUNDS, first)] += 1
        self.gaps = [known + count for known, (count, _) in zip(self.gaps, entry.numbers["gaps"], strict=True)]
        for moment in entry.moments:
            if moment.what == "limit" and moment.name in LIMITS:  # a surrounding deadline is not a limit of the stream
                self._fire(moment.name, moment.limit)
        if entry.outcome == "completed":
            for name, seconds in _healthy(entry):
                self.samples[name].append(seconds)

    def _run(self, entry: JournalEntry) -> None:
        for step in entry.moments:
            label = f"step {entry.name}/{step.name}"
            known = self.samples.setdefault(label, [])
            if step.status == "ok" and step.reason is None and step.seconds is not None:
                known.append(step.seconds)
            elif step.status == "timeout" and step.reason == "step_limit":  # else the deadline, or a limit of one call
                self._fire(label, step.limit)

    def _turn(self, entry: JournalEntry) -> None:
        label = f"member {entry.name}"
        known, silence = self.samples.setdefault(label, []), entry.numbers.get("silence")
        if entry.outcome == "succeeded" and silence is not None:
            known.append(silence)
        elif entry.stopped_in == "timeout":
            self._fire(label, None)

    def _fire(self, label: str, limit: float | None) -> None:
        self.fired[label] += 1
        if limit is not None:
            self.fired_at[label] = limit


def summed_up(entries: Iterable[JournalEntry]) -> Summary:
    """Return the summary of *entries*."""
    summary = Summary()
    for entry in entries:
        summary.add(entry)
    return summary


def _healthy(entry: JournalEntry) -> Iterator[tuple[str, float]]:
    """Yield the time that a complete stream needed of each limit."""
    phases = [moment for moment in entry.moments if moment.what == "phase"]
    yield from _phases(phases)
    numbers = entry.numbers
    headers, first = numbers["time_to_headers"], numbers["time_to_first_chunk"]
    known = {
        "first": None if headers is None or first is None else max(0.0, first - headers),
        "idle": numbers["max_gap"],
        "dead": numbers.get("max_byte_gap"),
        "total": entry.seconds,
    }
    yield from ((name, seconds) for name, seconds in known.items() if seconds is not None)


def _phases(phases: list[Moment]) -> Iterator[tuple[str, float]]:
    for phase, following in itertools.pairwise(phases):
        same = phase.attempt == following.attempt and _FOLLOWS.get(phase.name) == following.name
        if same and phase.at is not None and following.at is not None:
            yield phase.name, following.at - phase.at
