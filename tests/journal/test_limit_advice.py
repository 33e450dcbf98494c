"""The limits that a journal suggests."""

from typing import Any

import pytest

from streamguard.journal import Moment
from streamguard.journal.limit_advice import AdviceOptions, LimitAdvice, advise
from streamguard.journal.summary import summed_up

from .causes import stream_entry


def by_limit(*entries: Any, options: AdviceOptions) -> dict[str, LimitAdvice]:
    return {advice.limit: advice for advice in advise(summed_up(entries), options)}


def test_each_limit_has_its_own_samples() -> None:
    """The time that complete streams needed of each limit; the suggestion adds a margin."""
    advice = by_limit(*[stream_entry()] * 10, options=AdviceOptions(0.5, 0.9, min_count=5))
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


def test_failures_are_counted_and_not_sampled() -> None:
    """A stream that a limit cut shows how often it fired, and at which value; a surrounding deadline does not count."""
    fired = (Moment(what="limit", name="idle", attempt=1, seconds=5.0, limit=5.0),)
    cut = stream_entry(outcome="timeout", stopped_in="idle", moments=fired, error_type="StreamInactivityTimeoutError")
    passed = (Moment(what="limit", name="total", at=9.1, limit=9.0), Moment(what="limit", name="deadline", at=7.0))
    total, ambient = (
        stream_entry(outcome="timeout", stopped_in="idle", moments=(moment,), error_type="DeadlineExceededError")
        for moment in passed
    )
    advice = by_limit(stream_entry(), cut, cut, total, ambient, options=AdviceOptions())
    assert {name: (a.samples, a.fired, a.fired_at) for name, a in advice.items()} == {
        "connect": (1, 0, None),
        "response": (1, 0, None),
        "first": (1, 0, None),
        "idle": (1, 2, 5.0),
        "dead": (1, 0, None),
        "total": (1, 1, 9.0),
    }
    assert {a.suggested for a in advice.values()} == {None}
