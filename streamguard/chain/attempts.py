"""Run one step's function, with its retries, inside its budget. This is what runs in the step's thread."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.cancel import current_token
from ..core.clock import monotonic
from ..core.deadline import Deadline, deadline
from .context import StepContext
from .faults import is_retryable
from .step import Step

__all__ = ["Ended", "perform"]

Retrying = Callable[[int, BaseException], object]
"""Called with the attempt that failed, and its failure, before the pause that another attempt follows."""

_FIRST_PAUSE = 0.1
_LONGEST_PAUSE = 2.0


@dataclass(frozen=True, slots=True)
class Ended:
    """The last word of a step's function, and when it was spoken."""

    value: Any
    failure: BaseException | None
    at: float
    """The monotonic instant at which it ended: that decides what is late, not when somebody looked."""
    cancelled: bool
    """Whether the step had been cancelled by then."""


def perform(
    step: Step[Any], call: Callable[[StepContext], Any], ctx: StepContext, until: Deadline | None, retrying: Retrying
) -> Ended:
    """Call *call* under the step's token and budget, again after a failure if the step may be retried. Never raises."""
    current_token.set(ctx.token)
    with deadline(until):
        return _attempts(step, call, ctx, until, retrying)


def _attempts(
    step: Step[Any], call: Callable[[StepContext], Any], ctx: StepContext, until: Deadline | None, retrying: Retrying
) -> Ended:
    value: Any = None
    failure: BaseException | None = None
    while not ctx.token.cancelled and not (until is not None and until.expired):
        ctx.attempt += 1
        value, failure = _once(call, ctx)
        pause = None if failure is None else _pause_after(failure, step, ctx.attempt, until)
        if failure is None or pause is None:
            break
        retrying(ctx.attempt, failure)
        if ctx.token.wait(pause):
            break
    try:
        return Ended(value, failure, monotonic(), ctx.token.cancelled)
    finally:
        del value, failure  # the traceback of the failure refers to this frame


def _once(call: Callable[[StepContext], Any], ctx: StepContext) -> tuple[Any, BaseException | None]:
    try:
        return call(ctx), None
    except BaseException as exc:
        return None, exc


def _pause_after(failure: BaseException, step: Step[Any], attempt: int, until: Deadline | None) -> float | None:
    """Return the seconds to wait before another attempt; None if there shall be none, or no time would be left for it."""
    if attempt > step.retries or not is_retryable(failure, step.handles):
        return None
    asked = getattr(failure, "retry_after", None)
    backoff = random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1)))
    pause = max(backoff, asked) if isinstance(asked, int | float) else backoff
    return None if until is not None and pause >= until.remaining() else pause
