"""What the journal suggests for each limit: `suggest_limits()` on what went well. Never applied by itself. Pure."""

import math
from dataclasses import dataclass

from .._chain import suggest_limits
from .summary import Summary

__all__ = ["LimitAdvice", "Sureness", "advise"]


@dataclass(frozen=True, slots=True)
class Sureness:
    """How much of what is healthy a limit must spare, and how sure one wants to be of it."""

    quantile: float = 0.99
    confidence: float = 0.95
    min_count: int = 100

    @property
    def needed(self) -> int:
        """The fewest samples that can be sure enough."""
        return max(self.min_count, math.ceil(math.log(1 - self.confidence) / math.log(self.quantile)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitAdvice:
    """One limit: what was seen, and what that suggests."""

    limit: str
    """connect, response, first, idle, dead, total; `step RUN/STEP`; `member NAME`, for its output timeout."""
    samples: int
    """How many went well, and so tell what it takes."""
    fired: int
    """How often it fired."""
    fired_at: float | None
    """What it was when it last fired, in seconds; None if that is not known."""
    spares: float | None
    """The value that would have spared the share of them that was asked for; None: too few samples."""
    suggested: float | None
    """That with a margin of a half, and at least 0.05 s."""


def advise(summary: Summary, sureness: Sureness) -> list[LimitAdvice]:
    """Return the advice for each limit that something is known of."""
    suggested = _suggested(summary, sureness, factor=1.5, floor=0.05)
    spares = _suggested(summary, sureness, factor=1.0, floor=0.0)
    return [
        LimitAdvice(
            limit=name,
            samples=len(samples),
            fired=summary.fired[name],
            fired_at=summary.fired_at.get(name),
            spares=spares[name],
            suggested=suggested[name],
        )
        for name, samples in summary.samples.items()
        if samples or summary.fired[name]
    ]


def _suggested(summary: Summary, sureness: Sureness, *, factor: float, floor: float) -> dict[str, float | None]:
    return suggest_limits(
        summary.samples,
        quantile=sureness.quantile,
        confidence=sureness.confidence,
        min_count=sureness.min_count,
        factor=factor,
        floor=floor,
    )
