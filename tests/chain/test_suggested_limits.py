"""Limits that samples of durations suggest."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard import UsageError, suggest_limits

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
