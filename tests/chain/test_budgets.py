"""Budgets in real time: which steps start, and that none gets more time than is left."""

from collections.abc import Callable
from typing import Any

import pytest

from streamguard import Chain, StepContext, deadline
from streamguard._core.clock import monotonic
from streamguard.testing import Gateway

from .steps import PROMPT, endings, obedient, raises, stuck_step, timed, value

Gateways = Callable[..., Gateway]


def test_b112_no_cumulative_time_budget() -> None:
    """B112: four steps of 0.4 s under a budget of 1.0 s: each gets what is left, and an exhausted one is not started."""
    begun: list[str] = []

    def slow(ctx: StepContext) -> None:
        begun.append(str(ctx.remaining()))
        ctx.token.wait(0.4)

    chain = Chain("c", deadline=1.0)
    for number in range(1, 5):
        chain.step(slow, name=f"step{number}", limit=0.6, fallback="neutral")
    result, seconds = timed(chain)
    assert 1.0 <= seconds < 1.0 + PROMPT
    assert endings(result) == {
        "step1": ("ok", None),
        "step2": ("ok", None),
        "step3": ("timeout", "deadline_exhausted"),
        "step4": ("skipped", "deadline_exhausted"),
    }
    assert result.steps["step3"].budget_reduced
    budget = result.steps["step3"].budget
    assert budget is not None
    assert budget <= 0.2
    assert [result[f"step{number}"] for number in (3, 4)] == ["neutral", "neutral"]
    assert (result.status, len(begun)) == ("completed_with_fallback", 3)


def test_b113_long_step_started_with_little_time_left() -> None:
    """B113: a limit of 2 s with 0.5 s left is 0.5 s; with a reserve of 0.3 s for the fallback it is 0.2 s."""
    for reserve, effective in ((0.0, 0.5), (0.3, 0.2)):
        chain = Chain("c", deadline=0.5)
        chain.step(obedient, name="a", limit=2, reserve=reserve, fallback=lambda failure: failure.reason)
        result, seconds = timed(chain)
        report = result.steps["a"]
        assert report.budget == pytest.approx(effective, abs=0.05)
        assert report.budget_reduced
        assert effective - 0.05 <= seconds < effective + PROMPT
        assert result["a"] == "deadline_exhausted"


@pytest.mark.parametrize(
    ("chain_limit", "limit", "ending"),
    [
        (0, None, ("skipped", "deadline_exhausted")),
        (-1, 0.5, ("skipped", "deadline_exhausted")),
        (5, 0, ("skipped", "step_limit")),
        (None, -1, ("skipped", "step_limit")),
    ],
)
def test_a_spent_budget_starts_nothing(
    chain_limit: float | None, limit: float | None, ending: tuple[str, str], streamguard_gateway: Gateways
) -> None:
    """A deadline or a limit of 0 or less is already spent: no request is made."""
    gateway = streamguard_gateway("body {}")
    chain = Chain("c", deadline=chain_limit)
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="a", limit=limit)
    result = chain.run()
    assert (endings(result), result.status) == ({"a": ending}, "waiting_external_service")
    assert (gateway.connections, result.steps["a"].attempts, result.steps["a"].started_after) == (0, 0, None)


def test_a_spent_surrounding_deadline_starts_nothing() -> None:
    """A surrounding deadline that is spent starts nothing, whatever the limits."""
    ran: list[object] = []
    chain = Chain("c", deadline=10)
    chain.step(ran.append, name="a", limit=5, fallback=1)
    with deadline(0):
        assert endings(chain.run()) == {"a": ("skipped", "deadline_exhausted")}
    assert ran == []


def test_below_min_budget_nothing_starts() -> None:
    """A step with less than min_budget left is skipped; its fallback is used."""
    ran: list[object] = []
    chain = Chain("c", deadline=0.5)
    chain.step(ran.append, name="a", min_budget=0.6, fallback=1)
    chain.step(ran.append, name="b", min_budget=0.3, reserve=0.3, fallback=1)
    chain.step(value(1), name="c", min_budget=0.3)
    result, seconds = timed(chain)
    assert endings(result) == {
        "a": ("skipped", "deadline_exhausted"),
        "b": ("skipped", "deadline_exhausted"),
        "c": ("ok", None),
    }
    assert (ran, seconds < 0.5) == ([], True)


def test_below_min_budget_a_step_does_not_even_wait_for_a_slot() -> None:
    """A step that cannot start is skipped at once, while the only slot is still taken."""
    seen: list[float] = []
    chain = Chain("c", deadline=5)
    chain.step(lambda ctx: ctx.token.wait(0.3), name="a")
    chain.step(value(1), name="b", min_budget=6, fallback=lambda failure: seen.append(monotonic()))
    begun = monotonic()
    result = chain.run()
    assert endings(result)["b"] == ("skipped", "deadline_exhausted")
    assert seen[0] - begun < 0.3


def test_a_small_limit_is_not_below_the_chains_min_budget() -> None:
    """The chain's min_budget never keeps a step with a smaller limit from starting."""
    chain = Chain("c", deadline=5, min_budget=1)
    chain.step(value(1), name="a", limit=0.5)
    assert chain.run().status == "completed"


def test_the_chains_reserve_is_left_over() -> None:
    """No step uses the chain's reserve, unless it has a smaller one of its own."""
    chain = Chain("c", deadline=1.0, reserve=0.7)
    chain.step(obedient, name="a", fallback=1)
    chain.step(lambda ctx: ctx.remaining(), name="b", reserve=0)
    result = chain.run()
    assert endings(result)["a"] == ("timeout", "deadline_exhausted")
    assert result["b"] > 0.3
    assert result.elapsed < 1.0


def test_late_is_never_a_success() -> None:
    """A step that returns within the grace, but after its limit, has timed out; its value is dropped."""

    def late(ctx: StepContext) -> str:
        ctx.token.wait(30)
        return "a value"

    chain = Chain("c")
    chain.step(late, name="threaded", limit=0.1, fallback="neutral")
    chain.step(late, name="inline", limit=0.1, fallback="neutral", inline=True)
    result = chain.run()
    assert endings(result) == {"threaded": ("timeout", "step_limit"), "inline": ("timeout", "step_limit")}
    assert [result[name] for name in ("threaded", "inline")] == ["neutral", "neutral"]


def test_a_trickled_body_is_cut_at_the_limit(streamguard_gateway: Gateways) -> None:
    """A body that comes byte by byte does not stretch the limit: the server sees the close."""
    gateway = streamguard_gateway("headers 200 content-type: application/json\nloop forever\nraw x\nwait 0.02\nendloop")
    chain = Chain("c", deadline=10)
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="a", limit=0.3, fallback=1)
    result, seconds = timed(chain)
    assert endings(result) == {"a": ("timeout", "step_limit")}
    assert 0.3 <= seconds < 0.3 + PROMPT
    assert gateway.wait_left().during == "wait"


def test_deadline_and_limits_hold_with_stuck_steps() -> None:
    """Parallel steps that ignore everything end the run one grace after the deadline, all of them overrun."""
    with stuck_step() as stuck:
        chain = Chain("c", deadline=0.3, max_parallel=5)
        for number in range(5):
            chain.step(stuck, name=f"step{number}", fallback=number)
        result, seconds = timed(chain)
        assert 0.3 <= seconds < 0.3 + PROMPT
        assert [report.overran for report in result.steps.values()] == [True] * 5
        assert result.status == "completed_with_fallback"


def test_an_exhausted_critical_step_fails_closed() -> None:
    """A critical step for which no time is left is skipped, and no decision is taken."""
    chain = Chain("c", deadline=0.2)
    chain.step(obedient, name="profile", fallback=1)
    chain.step(value({"allowed": True}), name="policy", limit=0.5)
    result = chain.run()
    assert endings(result)["policy"] == ("skipped", "deadline_exhausted")
    assert result.status == "waiting_external_service"


def test_without_any_limit_nothing_fires() -> None:
    """No deadline, no limit: the step ends when it ends."""
    chain = Chain("c")
    chain.step(lambda ctx: ctx.token.wait(0.1), name="a")
    result, seconds = timed(chain)
    assert (result.status, result.deadline, result.steps["a"].budget) == ("completed", None, None)
    assert seconds >= 0.1


def test_a_failed_fast_step_leaves_its_time_to_the_others() -> None:
    """What a step does not use, the next one has."""
    chain = Chain("c", deadline=1.0)
    chain.step(raises(ConnectionRefusedError()), name="a", limit=0.9, fallback=1)
    chain.step(lambda ctx: ctx.remaining(), name="b")
    remaining: Any = chain.run()["b"]
    assert 0.5 < remaining <= 1.0
