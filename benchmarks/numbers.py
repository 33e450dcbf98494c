"""Medians, spreads and percentiles. Pure."""

import statistics
from collections.abc import Sequence
from typing import TypedDict

__all__ = ["Spread", "percentile", "ratio", "spread"]


class Spread(TypedDict):
    """The median of several rounds, and the lowest and highest of them."""

    median: float
    low: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    """Return the spread of *values*, of which there is at least one."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def ratio(values: Sequence[float], reference: Sequence[float]) -> Spread:
    """Return how many times the *reference* the *values* are, round by round.

    Pairs of one round were measured right after each other; so what slows the machine down for a while cancels out. Rounds
    that only one of them ran are left out.
    """
    return spread([value / other for value, other in zip(values, reference, strict=False)])


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which *share* (0 to 1) of the *values* lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
