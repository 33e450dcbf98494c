"""The words of a run, and the arithmetic of budgets: no thread, no clock."""

import re
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from streamguard._chain.step_status import (
    REASONS,
    RUN_STATUSES,
    STEP_STATUSES,
    RunStatus,
    StepStatus,
    plan_budget,
)

from ..helpers import ROOT

PAGE = (ROOT / "docs" / "status.md").read_text(encoding="utf-8")
SECONDS = st.floats(min_value=0, max_value=1000)
LIMITS = st.none() | st.floats(min_value=-10, max_value=1000)


@given(LIMITS, SECONDS, SECONDS, SECONDS)
def test_a_budget_is_within_all_of_its_limits(
    limit: float | None, remaining: float, reserve: float, min_budget: float
) -> None:
    """A budget that starts is at most the limit and leaves the reserve; below min_budget none starts."""
    budget = plan_budget(limit, remaining, reserve=reserve, min_budget=min_budget)
    assert budget.seconds is not None
    if budget.starts:
        assert budget.seconds <= remaining - reserve
        assert remaining - reserve >= min_budget
    assert limit is None or budget.seconds <= limit or not budget.starts


@given(LIMITS, SECONDS, SECONDS, SECONDS)
def test_a_budget_names_who_decided(limit: float | None, remaining: float, reserve: float, min_budget: float) -> None:
    """The limiter is the step's own limit exactly if the budget is that limit."""
    budget = plan_budget(limit, remaining, reserve=reserve, min_budget=min_budget)
    assert (budget.limiter == "step_limit") == (budget.seconds == limit)


def test_without_a_deadline_the_limit_is_the_budget() -> None:
    """Where nothing else bounds the run, a step has its limit, or no end."""
    assert plan_budget(0.4, None, reserve=9, min_budget=9).seconds == 0.4
    assert plan_budget(None, None).seconds is None
    assert plan_budget(None, None).starts
    assert not plan_budget(0, None).starts


STEPS = st.lists(
    st.tuples(LIMITS, st.floats(0, 2), st.floats(0, 2), st.floats(0, 1)), min_size=1, max_size=20
)  # limit, reserve, min_budget, share of its budget that the step uses


@given(st.floats(min_value=0, max_value=10), STEPS)
def test_budgets_never_add_up_past_the_deadline(
    deadline: float, steps: list[tuple[float | None, float, float, float]]
) -> None:
    """On a fake clock, whatever part of their budgets the steps use, none ends after the deadline less its reserve."""
    now = 0.0
    for limit, reserve, min_budget, share in steps:
        budget = plan_budget(limit, max(0.0, deadline - now), reserve=reserve, min_budget=min_budget)
        assert budget.seconds is not None
        if budget.starts:
            now += budget.seconds * share
            assert now <= deadline - reserve + 1e-9


def first_column(title: str) -> list[str]:
    section = PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([^`]+)` \|", section, flags=re.MULTILINE)


def test_the_page_has_every_word_once() -> None:
    """docs/status.md lists each status of a run and of a step, and each reason, exactly once, and no other."""
    assert first_column("A run") == list(RUN_STATUSES)
    assert first_column("A step") == list(STEP_STATUSES)
    assert sorted(first_column("Reasons")) == sorted([*REASONS, "http_500"])


def test_the_types_have_the_same_words() -> None:
    """A type checker accepts the documented words."""
    assert set(get_args(RunStatus)) == set(RUN_STATUSES)
    assert set(get_args(StepStatus)) == set(STEP_STATUSES)
