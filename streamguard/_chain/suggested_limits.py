"""Limits that measured durations suggest. Pure."""

import math
from collections.abc import Iterable, Mapping
from typing import overload

from ..errors import UsageError


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
    """Return the limit in seconds that *samples* suggest: their *quantile* × *factor*, within [*floor*, *ceiling*].

    samples:    durations in seconds of successful calls; or a mapping of names to such durations, which returns a dict.
    quantile:   the share of the samples that does not exceed the value (nearest rank). Default 0.99.
    factor:     the margin: the value is multiplied by it. Default 1.5.
    floor, ceiling: the smallest and the largest result, in seconds. Default 0.05, and no ceiling.
    min_count:  with fewer samples the result is None. Default 100.
    confidence: the probability with which the result is not below the *quantile* of all calls, of which the samples are a
                part. It selects a higher sample; the result is None if there are too few samples. Default None: the
                quantile of the samples.

    Raises UsageError for options that contradict each other.

    Limits
        The samples of a chain do not include calls that a limit cut. The result for a limit that often fires is too low:
        see how often it fired. Nothing is applied automatically. *confidence* assumes independent samples; durations that
        rise and fall together need more. 0.99 with 0.95 needs at least 299 samples.

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
        raise UsageError(f"quantile= must be above 0 and at most 1, got {quantile!r}")
    if not factor > 0:
        raise UsageError(f"factor= must be above 0, got {factor!r}")
    if ceiling is not None and ceiling < floor:
        raise UsageError(f"ceiling= must not be below floor={floor!r}, got {ceiling!r}")
    if min_count < 1:
        raise UsageError(f"min_count= must be 1 or more, got {min_count!r}")
    if confidence is not None and not (0 < confidence < 1 and quantile < 1):
        raise UsageError(f"confidence= and quantile= must be above 0 and below 1, got {confidence!r} and {quantile!r}")


def _rank(count: int, quantile: float, confidence: float | None) -> int | None:
    """Return the index of the sample to take from *count* sorted ones; None if *count* is too small for *confidence*."""
    if confidence is None:
        return max(0, math.ceil(quantile * count) - 1)
    above = _may_exceed(count, quantile, 1 - confidence)
    return None if above is None else count - 1 - above


def _may_exceed(count: int, quantile: float, doubt: float) -> int | None:
    """Return how many samples may lie above the one that bounds the quantile; None if not even zero may.

    The result is the largest k for which the probability that k or fewer of *count* samples exceed the quantile is not
    above *doubt*. It calculates in logarithms, because quantile**count underflows for many samples.
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
