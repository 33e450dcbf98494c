"""Advice with a confidence bound: `suggest_limits(confidence=...)`, and what the journal makes of it."""

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard import UsageError, suggest_limits
from streamguard.journal import Moment
from streamguard.journal.journal_advice import LimitAdvice, Sureness, advise
from streamguard.journal.summary import summed_up

from .causes import stream_entry

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


def test_few_samples_cannot_be_sure() -> None:
    """99 % with 95 % confidence takes 299 samples, and then the largest of them."""
    assert rank(298, quantile=0.99, confidence=0.95) is None
    assert rank(299, quantile=0.99, confidence=0.95) == 298
    assert Sureness().needed == 299
    assert Sureness(0.5, 0.5, min_count=7).needed == 7


def test_many_samples_are_no_trouble() -> None:
    """Where quantile**count is no float any more, the bound comes near to the quantile itself."""
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
def test_what_cannot_be_is_refused(options: dict[str, Any]) -> None:
    """Nobody is sure, and the largest of all calls has no bound."""
    with pytest.raises(UsageError, match="confidence="):
        suggest_limits([1.0], **options)


def by_limit(*entries: Any, sureness: Sureness) -> dict[str, LimitAdvice]:
    return {advice.limit: advice for advice in advise(summed_up(entries), sureness)}


def test_each_limit_has_its_own_samples() -> None:
    """What a complete stream took of each limit; the suggestion is that with a margin."""
    advice = by_limit(*[stream_entry()] * 10, sureness=Sureness(0.5, 0.9, min_count=5))
    assert {name: each.spares for name, each in advice.items()} == {
        "connect": pytest.approx(0.1),
        "response": pytest.approx(0.4),
        "first": pytest.approx(0.5),
        "idle": 0.2,
        "dead": 0.15,
        "total": 2.0,
    }
    assert {name: each.suggested for name, each in advice.items()}["total"] == 3.0
    assert {each.samples for each in advice.values()} == {10}


def test_what_went_wrong_is_counted_and_no_sample() -> None:
    """A stream that a limit cut shows how often it fired, and at which value; a surrounding deadline is no limit of its."""
    fired = (Moment(what="limit", name="idle", attempt=1, seconds=5.0, limit=5.0),)
    cut = stream_entry(outcome="timeout", stopped_in="idle", moments=fired, error_type="StreamInactivityTimeoutError")
    passed = (Moment(what="limit", name="total", at=9.1, limit=9.0), Moment(what="limit", name="deadline", at=7.0))
    total, ambient = (
        stream_entry(outcome="timeout", stopped_in="idle", moments=(moment,), error_type="DeadlineExceededError")
        for moment in passed
    )
    advice = by_limit(stream_entry(), cut, cut, total, ambient, sureness=Sureness())
    assert {name: (a.samples, a.fired, a.fired_at) for name, a in advice.items()} == {
        "connect": (1, 0, None),
        "response": (1, 0, None),
        "first": (1, 0, None),
        "idle": (1, 2, 5.0),
        "dead": (1, 0, None),
        "total": (1, 1, 9.0),
    }
    assert {a.suggested for a in advice.values()} == {None}
