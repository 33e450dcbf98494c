"""The types of chains, for a type checker. This is checked, never run; an ignore that is not needed is an error."""

from typing import Any, assert_type

from streamguard import Bulkhead, Chain, ChainResult, Settled, StepContext, StepReport, suggest_limits
from streamguard._chain import Step

agent = Chain("agent", deadline=1.2, messages={"completed": "Fine.", "cancelled": lambda result: result.id})


@agent.step
def bare(ctx: StepContext) -> int:
    """Be critical."""
    return len(ctx.inputs)


@agent.step(limit=0.5, needs=(bare, "other"), retries=1, idempotent=True)
def critical(ctx: StepContext) -> str:
    """Use what is needed."""
    assert_type(ctx.results[bare], int)
    assert_type(ctx.results["other"], Any)
    assert_type(ctx.remaining(), float | None)
    return str(ctx.results[bare])


@agent.step(limit=0.5, fallback=0)
def same(ctx: StepContext) -> int:
    """Fall back to the same type."""
    return 1


@agent.step(fallback=None)
def optional(ctx: StepContext) -> int:
    """Fall back to None."""
    return 1


def describe(failure: StepReport) -> bytes:
    """Fall back to bytes."""
    return failure.name.encode()


@agent.step(fallback=describe)
def other(ctx: StepContext) -> str:
    """Fall back to what a function returns."""
    return ""


def plain(ctx: StepContext) -> float:
    """Be declared by a call."""
    return 1.0


called = agent.step(plain, limit=1, name="called")
bounded = agent.step(plain, name="bounded", bulkhead=Bulkhead(2, wait=0.1))
added = agent.add(plain, name="added", fallback=None, verify=lambda ctx: Settled(True, 1.0))


def steps_keep_their_types(ctx: StepContext) -> None:
    """A declared step knows the type of its function's result, and of its fallback."""
    assert_type(bare, Step[int])
    assert_type(critical, Step[str])
    assert_type(same, Step[int])
    assert_type(optional, Step[int | None])
    assert_type(other, Step[str | bytes])
    assert_type(called, Step[float])
    assert_type(added, Step[float | None])
    assert_type(bare(ctx), int)


def results_have_the_steps_types(result: ChainResult) -> None:
    """`result[step]` has the step's type; by name it has any."""
    assert_type(agent.run(user=7), ChainResult)
    assert_type(result[bare], int)
    assert_type(result[optional], int | None)
    assert_type(result["bare"], Any)
    assert_type(result.steps["bare"], StepReport)
    agent.step(plain, limits=1)  # type: ignore[call-overload]
    agent.step(limit=b"1")  # type: ignore[call-overload]


def advice_has_the_shape_of_its_samples() -> None:
    """One list gives one limit, a mapping a mapping."""
    assert_type(suggest_limits([0.1]), float | None)
    assert_type(suggest_limits({"a": [0.1]}), dict[str, float | None])
