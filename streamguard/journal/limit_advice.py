"""The limits that the journal suggests: `suggest_limits()` of its successes. Never applied automatically. Pure."""

import math
from dataclasses import dataclass

from .._chain import suggest_limits
from .summary import Summary


@dataclass(frozen=True, slots=True)
class AdviceOptions:
    """Which share of the successes a limit must not cut, and with which confidence."""

    quantile: float = 0.99
    confidence: float = 0.95
    min_count: int = 100

    @property
    def needed(self) -> int:
        """The smallest number of samples that is enough."""
        return max(self.min_count, math.ceil(math.log(1 - self.confidence) / math.log(self.quantile)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitAdvice:
    """One limit: what the journal holds about it, and the value that this suggests."""

    limit: str
    """connect, response, first, idle, dead, total; `step RUN/STEP`; `member NAME`, for its output timeout."""
    samples: int
    """How many successes were measured."""
    fired: int
    """How often it fired."""
    fired_at: float | None
    """Its value in seconds when it last fired; None if unknown."""
    spares: float | None
    """The value that would not have cut that share of them, in seconds; None: too few samples."""
    suggested: float | None
    """1.5 times that, and at least 0.05 s."""


def advise(summary: Summary, options: AdviceOptions) -> list[LimitAdvice]:
    """Return the advice for each limit that *summary* knows."""
    suggested = _suggested(summary, options, factor=1.5, floor=0.05)
    spares = _suggested(summary, options, factor=1.0, floor=0.0)
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


def _suggested(summary: Summary, options: AdviceOptions, *, factor: float, floor: float) -> dict[str, float | None]:
    return suggest_limits(
        summary.samples,
        quantile=options.quantile,
        confidence=options.confidence,
        min_count=options.min_count,
        factor=factor,
        floor=floor,
    )
