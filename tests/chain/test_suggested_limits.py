"""Limits that samples of durations suggest."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard import UsageError, suggest_limits
from streamguard.journal.limit_advice import AdviceOptions

DURATIONS = st.lists(st.floats(min_value=0, max_value=100), min_size=1, max_size=300)


def test_the_quantile_times_the_factor() -> None:
    """Of a hundred durations, the 99 % quantile is the 99th (nearest rank); times the factor."""
    samples = [number / 100 for number in range(1, 101)]
    assert suggest_limits(samples, quantile=0.99, factor=2) == pytest.approx(1.98)
    assert suggest_limits(samples, quantile=0.5, factor=1) == pytest.approx(0.5)
    assert suggest_limits(samples, quantile=1, factor=1) == pytest.approx(1.0)


def test_floor_and_ceiling_hold() -> None:
    """A suggestion is never below the floor, nor above the ceiling."""
    assert suggest_limits([0.001] * 100) == 0.05
    assert suggest_limits([0.001] * 100, floor=0.2) == 0.2
    assert suggest_limits([10.0] * 100, ceiling=3) == 3


def test_too_few_samples_suggest_nothing() -> None:
    """Below min_count there is no advice."""
    assert suggest_limits([1.0] * 99) is None
    assert suggest_limits([1.0] * 100) is not None
    assert suggest_limits([], min_count=1) is None


def test_a_mapping_gives_a_mapping() -> None:
    """Samples by name give limits by name."""
    assert suggest_limits({"a": [1.0] * 100, "b": []}) == {"a": 1.5, "b": None}


@given(DURATIONS, st.floats(min_value=0.01, max_value=1), st.floats(min_value=1, max_value=5))
def test_a_suggestion_would_have_let_the_quantile_through(samples: list[float], quantile: float, factor: float) -> None:
    """At least the share *quantile* of the samples is within the suggestion, whatever the order of the samples."""
    suggested = suggest_limits(samples, quantile=quantile, factor=factor, floor=0, min_count=1)
    assert suggested is not None
    assert sum(sample <= suggested for sample in samples) >= quantile * len(samples)
    assert suggested == suggest_limits(sorted(samples), quantile=quantile, factor=factor, floor=0, min_count=1)


@pytest.mark.parametrize(
    "options", [{"quantile": 0}, {"quantile": 1.1}, {"factor": 0}, {"floor": 2, "ceiling": 1}, {"min_count": 0}]
)
def test_options_that_contradict_themselves_are_refused(options: dict[str, Any]) -> None:
    """An option that no advice can be made with is refused."""
    with pytest.raises(UsageError):
        suggest_limits([1.0], **options)


SHARES = st.floats(0.05, 0.99)


def at_most(exceeding: int, count: int, quantile: float) -> float:
    """Return the probability that so many of *count* samples, or fewer, exceed the quantile: by the definition."""
    return math.fsum(math.comb(count, k) * (1 - quantile) ** k * quantile ** (count - k) for k in range(exceeding + 1))


def rank(count: int, **options: Any) -> float | None:
    """Return the index, in *count* sorted samples, of the one that is suggested."""
    return suggest_limits(range(count), factor=1, floor=-1, min_count=1, **options)


@given(st.integers(1, 200), SHARES, SHARES)
def test_the_sample_taken_bounds_the_quantile(count: int, quantile: float, confidence: float) -> None:
    """By the binomial distribution: it is below the quantile with at most the doubt left, and the next one down is not."""
    found = rank(count, quantile=quantile, confidence=confidence)
    doubt = 1 - confidence
    if found is None:
        assert at_most(0, count, quantile) > doubt * (1 - 1e-9)
        return
    exceeding = count - 1 - int(found)
    assert at_most(exceeding, count, quantile) <= doubt * (1 + 1e-9)
    assert exceeding == count - 1 or at_most(exceeding + 1, count, quantile) > doubt * (1 - 1e-9)


def test_few_samples_are_not_enough() -> None:
    """99 % with 95 % confidence takes 299 samples, and then the largest of them."""
    assert rank(298, quantile=0.99, confidence=0.95) is None
    assert rank(299, quantile=0.99, confidence=0.95) == 298
    assert AdviceOptions().needed == 299
    assert AdviceOptions(0.5, 0.5, min_count=7).needed == 7


def test_many_samples_are_no_trouble() -> None:
    """If quantile**count underflows, the bound is near the quantile."""
    assert rank(1_000_000, quantile=0.9, confidence=0.95) == pytest.approx(900_494, abs=2)


def test_the_bound_keeps_its_word() -> None:
    """In at least 95 of 100 draws the bound is above the true quantile: here in 380 of 400, less four deviations."""
    draw = random.Random(7)
    kept = sum(
        (suggest_limits([draw.random() for _ in range(400)], quantile=0.98, confidence=0.95, factor=1) or 0) >= 0.98
        for _ in range(400)
    )
    assert kept >= 380 - 4 * math.sqrt(400 * 0.95 * 0.05)


@pytest.mark.parametrize("options", [{"confidence": 0}, {"confidence": 1}, {"confidence": 0.95, "quantile": 1}])
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    """Certainty is impossible, and the largest of all calls has no bound."""
    with pytest.raises(UsageError, match="confidence="):
        suggest_limits([1.0], **options)
