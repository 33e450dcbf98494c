"""Run a step's function inside its budget, with its retries. This runs in the step's thread."""

from collections.abc import Callable
from typing import Any

import tenacity

from .._core.bounded import refuse_unrun
from .._core.cancel import set_current_token
from .._core.clock import monotonic
from .._core.deadline import deadline
from .._stream.upstream.retry import requested_pause
from .active_step import StepEnd
from .context import StepContext
from .failure_reasons import failure_of, is_retryable
from .step import Step

BeforePause = Callable[[int, BaseException], object]
"""Called with the number and the error of an attempt that failed, before the pause that another attempt follows."""

_backoff = tenacity.wait_exponential(multiplier=0.1, max=2) + tenacity.wait_random(0, 0.1)
"""Seconds between attempts: 0.1 after the first, 0.2 after the second, at most 2, and up to 0.1 of jitter."""


def perform(step: Step[Any], call: Callable[[StepContext], Any], ctx: StepContext, before_pause: BeforePause) -> StepEnd:
    """Call *call* under the step's token and budget, and again after an error if the step may be retried.

    Raises only what interrupts the caller's own thread, in which inline steps run: Ctrl-C and other signals.
    """
    set_current_token(ctx.token)
    with deadline(ctx.deadline):
        return _attempts(step, call, ctx, before_pause)


def _attempts(step: Step[Any], call: Callable[[StepContext], Any], ctx: StepContext, before_pause: BeforePause) -> StepEnd:
    value: Any = None
    error: BaseException | None = None
    timed_out = False
    caught = Exception if step.inline else BaseException
    while not ctx.token.cancelled and ctx.remaining() != 0:
        ctx.attempt += 1
        value, error = _once(step, call, ctx, caught)
        failure = None if error is None else failure_of(error, step.handles)
        timed_out = timed_out or (failure is not None and failure.status == "timeout")
        pause = None if error is None else _pause_after(error, step, ctx)
        if error is None or pause is None:
            break
        before_pause(ctx.attempt, error)
        if ctx.token.wait(pause):
            break
    try:
        return StepEnd(value, error, monotonic(), ctx.token.cancelled, timed_out)
    finally:
        del value, error  # the traceback of the error refers to this frame


def _once(
    step: Step[Any], call: Callable[[StepContext], Any], ctx: StepContext, caught: type[BaseException]
) -> tuple[Any, BaseException | None]:
    try:
        return refuse_unrun(call(ctx), f"step {step.name!r}"), None
    except caught as exc:
        return None, exc


def _pause_after(error: BaseException, step: Step[Any], ctx: StepContext) -> float | None:
    """Return the seconds to wait before another attempt; None if none is allowed, or if no time would be left for it."""
    if ctx.attempt > step.retries or not is_retryable(error, step.handles):
        return None
    state = tenacity.RetryCallState(None, None, (), {})  # type: ignore[arg-type] # a wait reads the number alone
    state.attempt_number = ctx.attempt
    pause = max(_backoff(state), requested_pause(error) or 0.0)
    left = ctx.remaining()
    return None if left is not None and pause >= left else pause
