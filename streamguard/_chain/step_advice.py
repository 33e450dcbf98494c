"""What a chain saw of its steps, and the limits that this suggests. Never applied automatically."""

import collections
import threading
from collections.abc import Iterable
from dataclasses import dataclass

from .._svg import format_seconds
from .chain_report import StepReport


@dataclass(frozen=True, slots=True, kw_only=True)
class StepAdvice:
    """What a chain saw of one step, and the limit that this suggests."""

    name: str
    runs: int
    """How often it started."""
    fired: int
    """How often its own `limit=` fired; the deadline of the run does not count."""
    skipped: int
    """How often too little time was left to start it."""
    samples: int
    """How many durations of successes are kept."""
    limit: float | None
    """Its `limit=` now, in seconds."""
    suggested: float | None
    """The limit that its samples suggest, in seconds; None if there are too few samples."""


@dataclass(frozen=True, slots=True)
class Advice:
    """What a chain saw of its steps since its creation. `print()` shows a table."""

    steps: tuple[StepAdvice, ...]

    def __str__(self) -> str:
        head = f"{'step':<20} {'runs':>6} {'fired':>6} {'skipped':>8} {'samples':>8} {'limit':>9} {'suggested':>10}"
        rows = (
            f"{s.name:<20} {s.runs:>6} {s.fired:>6} {s.skipped:>8} {s.samples:>8} "
            f"{format_seconds(s.limit):>9} {format_seconds(s.suggested):>10}"
            for s in self.steps
        )
        return "\n".join([head, *rows])


class Samples:
    """Counts and durations of each step; only the latest *capacity* durations are kept."""

    def __init__(self, capacity: int) -> None:
        self._durations: dict[str, collections.deque[float]] = collections.defaultdict(
            lambda: collections.deque(maxlen=capacity)
        )
        self._counts: collections.Counter[tuple[str, str]] = collections.Counter()
        self._lock = threading.Lock()

    def note(self, reports: Iterable[StepReport]) -> None:
        """Add the reports of one run."""
        with self._lock:
            for report in reports:
                self._note(report)

    def durations(self) -> dict[str, list[float]]:
        """Return the kept durations by step."""
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
        self._counts[report.name, "fired"] += _limit_fired(report)
        self._counts[report.name, "skipped"] += report.reason == "deadline_exhausted" and report.status == "skipped"


def _limit_fired(report: StepReport) -> bool:
    if report.reason == "step_limit":
        return report.status == "timeout"
    timed_out_write = report.reason in ("unknown_outcome", "verified") and not report.budget_reduced
    return timed_out_write and report.limit is not None and (report.duration or 0.0) >= report.limit
