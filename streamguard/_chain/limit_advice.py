"""Advice for limits, from what calls really took. Never applied by itself."""

import collections
import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import overload

from ..errors import UsageError
from .chain_report import StepReport

__all__ = ["Advice", "Samples", "StepAdvice", "suggest_limits"]


@overload
def suggest_limits(
    samples: Mapping[str, Iterable[float]],
    *,
    quantile: float = ...,
    factor: float = ...,
    floor: float = ...,
    ceiling: float | None = ...,
    min_count: int = ...,
    confidence: float | None = ...,
) -> dict[str, float | None]: ...
@overload
def suggest_limits(
    samples: Iterable[float],
    *,
    quantile: float = ...,
    factor: float = ...,
    floor: float = ...,
    ceiling: float | None = ...,
    min_count: int = ...,
    confidence: float | None = ...,
) -> float | None: ...
def suggest_limits(
    samples: Mapping[str, Iterable[float]] | Iterable[float],
    *,
    quantile: float = 0.99,
    factor: float = 1.5,
    floor: float = 0.05,
    ceiling: float | None = None,
    min_count: int = 100,
    confidence: float | None = None,
) -> dict[str, float | None] | float | None:
    """Return the limit, in seconds, that *samples* of durations suggest: *quantile* × *factor*, in [*floor*, *ceiling*].

    samples:   seconds that successful calls took; or a mapping of names to such, for a dict of limits.
    quantile:  the sample that this share of all does not exceed (nearest rank). Default 0.99.
    factor:    the margin above it. Default 1.5.
    floor, ceiling: the smallest and the largest limit to suggest, in seconds. Default 0.05, and none.
    min_count: fewer samples than this suggest nothing: None. Default 100.
    confidence: how sure to be that the *quantile* of all calls, not only of these, is not exceeded: a sample further up is
               taken, and where there are too few samples to be so sure, None. Default None: the samples' own quantile.

    Raises UsageError for options that contradict themselves.

    Limits
        Calls that a limit cut are not among the samples of a chain, so the advice for a limit that often fires is too low:
        look at how often it fired. Advice is never applied by itself. *confidence* takes the samples for independent:
        durations that rise and fall together need more of them. 0.99 with 0.95 takes 299 samples at least.

    Source: distribution-free bounds for quantiles (David and Nagaraja, Order Statistics, 7.1).
    """
    _check(quantile=quantile, factor=factor, floor=floor, ceiling=ceiling, min_count=min_count, confidence=confidence)

    def suggest(durations: Iterable[float]) -> float | None:
        ordered = sorted(durations)
        rank = _rank(len(ordered), quantile, confidence)
        if len(ordered) < min_count or rank is None:
            return None
        wanted = max(floor, ordered[rank] * factor)
        return wanted if ceiling is None else min(wanted, ceiling)

    if isinstance(samples, Mapping):
        return {name: suggest(durations) for name, durations in samples.items()}
    return suggest(samples)


def _check(
    *, quantile: float, factor: float, floor: float, ceiling: float | None, min_count: int, confidence: float | None
) -> None:
    if not 0 < quantile <= 1:
        raise UsageError(f"quantile={quantile!r} is no share above 0 and up to 1")
    if not factor > 0:
        raise UsageError(f"factor={factor!r} is not above 0")
    if ceiling is not None and ceiling < floor:
        raise UsageError(f"ceiling={ceiling!r} is below floor={floor!r}")
    if min_count < 1:
        raise UsageError(f"min_count={min_count!r} is less than one sample")
    if confidence is not None and not (0 < confidence < 1 and quantile < 1):
        raise UsageError(f"confidence={confidence!r} with quantile={quantile!r}: both must be above 0 and below 1")


def _rank(count: int, quantile: float, confidence: float | None) -> int | None:
    """Return the index of the sample to take from *count* sorted ones; None if even the largest leaves too much doubt."""
    if confidence is None:
        return max(0, math.ceil(quantile * count) - 1)
    above = _may_exceed(count, quantile, 1 - confidence)
    return None if above is None else count - 1 - above


def _may_exceed(count: int, quantile: float, doubt: float) -> int | None:
    """Return the most samples that may lie above one that bounds the quantile; None if not even zero may.

    k may, if *doubt* is not less than the probability that k or fewer of *count* samples exceed the quantile. In
    logarithms: quantile**count is no float any more for many samples.
    """
    if quantile**count > doubt:
        return None
    term = count * math.log(quantile)
    known, total = math.log(1 - quantile) - math.log(quantile), term
    for k in range(count):
        term += math.log(count - k) - math.log(k + 1) + known
        higher = max(total, term)
        total = higher + math.log(math.exp(total - higher) + math.exp(term - higher))
        if total > math.log(doubt):
            return k
    return count - 1  # pragma: no cover - doubt is below 1, so the loop ends it


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAdvice:
    """What a chain has seen of one step, and the limit that suggests."""

    name: str
    runs: int
    """How often it started."""
    fired: int
    """How often a limit cut it: its own, or the run's deadline."""
    skipped: int
    """How often no time was left to start it."""
    samples: int
    """Durations kept, of successes only."""
    limit: float | None
    """Its `limit=` now, in seconds."""
    suggested: float | None
    """The limit that its samples suggest, in seconds; None if there are too few."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What a chain has seen of its steps since it was made. `print()` shows it as a table."""

    steps: tuple[StepAdvice, ...]

    def __str__(self) -> str:
        head = f"{'step':<20} {'runs':>6} {'fired':>6} {'skipped':>8} {'samples':>8} {'limit':>9} {'suggested':>10}"
        rows = (
            f"{s.name:<20} {s.runs:>6} {s.fired:>6} {s.skipped:>8} {s.samples:>8} "
            f"{_seconds(s.limit):>9} {_seconds(s.suggested):>10}"
            for s in self.steps
        )
        return "\n".join([head, *rows])


class Samples:
    """Durations and counts of each step; of the durations only the latest *capacity*."""

    def __init__(self, capacity: int) -> None:
        self._durations: dict[str, collections.deque[float]] = collections.defaultdict(
            lambda: collections.deque(maxlen=capacity)
        )
        self._counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self._lock = threading.Lock()

    def note(self, reports: Iterable[StepReport]) -> None:
        """Take in the reports of one run."""
        with self._lock:
            for report in reports:
                self._note(report)

    def durations(self) -> dict[str, list[float]]:
        """Return the durations that are kept, by step."""
        with self._lock:
            return {name: list(kept) for name, kept in self._durations.items()}

    def count(self, name: str, what: str) -> int:
        """Return how often *what* (runs, fired, skipped) happened to the step *name*."""
        with self._lock:
            return self._counts[name, what]

    def _note(self, report: StepReport) -> None:
        if report.status == "ok" and report.reason is None and report.duration is not None:
            self._durations[report.name].append(report.duration)
        self._counts[report.name, "runs"] += report.started_after is not None
        self._counts[report.name, "fired"] += report.status == "timeout"
        self._counts[report.name, "skipped"] += report.reason == "deadline_exhausted" and report.status == "skipped"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"
