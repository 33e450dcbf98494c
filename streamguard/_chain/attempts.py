"""Run one step's function, with its retries, inside its budget. This is what runs in the step's thread."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .._core.bounded import refuse_unrun
from .._core.cancel import current_token
from .._core.clock import monotonic
from .._core.deadline import Deadline, deadline
from .._http import retry_after
from .context import StepContext
from .failure_reasons import fault_of, is_retryable
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
    timed_out: bool = False
    """Whether any of its attempts did, so that nobody knows what that one may have changed."""


def perform(
    step: Step[Any], call: Callable[[StepContext], Any], ctx: StepContext, until: Deadline | None, retrying: Retrying
) -> Ended:
    """Call *call* under the step's token and budget, again after a failure if the step may be retried.

    Raises only what came from outside: into the caller's own thread, where inline steps are, Ctrl-C and other signals.
    """
    current_token.set(ctx.token)
    with deadline(until):
        return _attempts(step, call, ctx, until, retrying)


def _attempts(
    step: Step[Any], call: Callable[[StepContext], Any], ctx: StepContext, until: Deadline | None, retrying: Retrying
) -> Ended:
    value: Any = None
    failure: BaseException | None = None
    timed_out = False
    caught = Exception if step.inline else BaseException
    while not ctx.token.cancelled and not (until is not None and until.expired):
        ctx.attempt += 1
        value, failure = _once(step, call, ctx, caught)
        fault = None if failure is None else fault_of(failure, step.handles)
        timed_out = timed_out or (fault is not None and fault.status == "timeout")
        pause = None if failure is None else _pause_after(failure, step, ctx.attempt, until)
        if failure is None or pause is None:
            break
        retrying(ctx.attempt, failure)
        if ctx.token.wait(pause):
            break
    try:
        return Ended(value, failure, monotonic(), ctx.token.cancelled, timed_out)
    finally:
        del value, failure  # the traceback of the failure refers to this frame


def _once(
    step: Step[Any], call: Callable[[StepContext], Any], ctx: StepContext, caught: type[BaseException]
) -> tuple[Any, BaseException | None]:
    try:
        return refuse_unrun(call(ctx), f"step {step.name!r}"), None
    except caught as exc:
        return None, exc


def _pause_after(failure: BaseException, step: Step[Any], attempt: int, until: Deadline | None) -> float | None:
    """Return the seconds to wait before another attempt; None if there shall be none, or no time would be left for it."""
    if attempt > step.retries or not is_retryable(failure, step.handles):
        return None
    asked = _asked(failure)
    backoff = random.uniform(0, min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** (attempt - 1)))
    pause = backoff if asked is None else max(backoff, asked)
    return None if until is not None and pause >= until.remaining() else pause


def _asked(failure: BaseException) -> float | None:
    """Return the seconds that the service asked to wait; None if it did not, or if its exception will not say."""
    try:
        asked = getattr(failure, "retry_after", None)
        if asked is None:
            headers = getattr(getattr(failure, "response", None), "headers", None)
            asked = retry_after(headers.get("Retry-After")) if isinstance(headers, Mapping) else None
    except Exception:  # a property of somebody else's class
        return None
    return asked if isinstance(asked, int | float) else None
