"""A step at work: its budget, whether and why it was cut, and what its ending means."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .._core.deadline import Deadline
from .._core.pump import Feed, Pump
from .attempts import Ended
from .context import StepContext
from .failure_reasons import Fault, fault_of
from .run_state import Stop
from .step import Step
from .step_status import Budget, Limiter

__all__ = ["Running", "Unsettled", "alarm", "budget_facts"]


def _nothing() -> None:
    """There is no place to free yet."""


@dataclass(slots=True, eq=False)
class Running:
    """A step that is at work, or has been cut and is within its grace."""

    step: Step[Any]
    ctx: StepContext
    budget: Budget
    until: Deadline | None
    begun: float
    """The monotonic instant of its start."""
    started_after: float
    """Seconds since the start of the run."""
    settles: "Unsettled | None" = None
    """Set while it is the step's `verify=` that is at work."""
    pump: Pump[None] | None = None
    cut: Limiter | Stop | None = None
    grace_ends: float | None = None
    overran: bool = False
    free: Callable[[], None] = _nothing
    """Tells that its place among the steps at work is free again."""

    @property
    def next_instant(self) -> float | None:
        """When something must be done about it, if it does not end before."""
        if self.grace_ends is not None:
            return self.grace_ends
        return None if self.until is None else self.until.at

    def stop(self, reason: Limiter | Stop, grace_ends: float) -> None:
        """Cut it, unless that has been done; it should be gone by *grace_ends*."""
        if self.cut is None:
            self.cut, self.grace_ends = reason, grace_ends
            self.ctx.token.cancel(reason)

    def fault(self, ended: Ended) -> Fault | None:
        """Return what kept it from succeeding; None if it succeeded, or (`ended.failure`) if it has a bug.

        What it returns or raises once it is late, or has been cut, is only the noise of that.
        """
        late = self.until is not None and ended.at >= self.until.at
        if not late and not ended.cancelled:
            return None if ended.failure is None else fault_of(ended.failure, self.step.handles)
        if self.cut == "critical_failed" or self.cut == "run_cancelled":
            return Fault("cancelled", self.cut)
        if late or self.cut is not None:
            return Fault("timeout", self.budget.limiter)
        return Fault("error", "stream_cancelled")  # by its own code, through `ctx.token`

    def is_unsettled(self, fault: Fault, ended: Ended) -> bool:
        """Whether it may have changed something, and *fault*, or an attempt before, leaves open whether it did."""
        is_open = fault.status == "timeout" or (fault.status == "error" and ended.timed_out)
        return is_open and self.ctx.attempt > 0 and self.step.is_write(self.ctx)

    def facts(self, ended: Ended) -> dict[str, Any]:
        """Return what a report says about how it ran."""
        return {
            **budget_facts(self.step, self.budget),
            "started_after": self.started_after,
            "duration": max(0.0, ended.at - self.begun),
            "attempts": self.ctx.attempt,
            "overran": self.overran,
            "idempotency_key": self.ctx.idempotency_key,
        }


@dataclass(frozen=True, slots=True)
class Unsettled:
    """A write that timed out, while its service is asked about it."""

    fault: Fault
    failure: BaseException | None
    facts: dict[str, Any]


def budget_facts(step: Step[Any], budget: Budget) -> dict[str, Any]:
    """Return what a report says about the budget of *step*."""
    reduced = step.limit is not None and budget.limiter == "deadline_exhausted"
    return {"budget": budget.seconds, "budget_reduced": reduced}


@contextmanager
def alarm(running: Running) -> Iterator[None]:
    """Cancel the token of *running* when its budget ends within the block, from a thread that does nothing else."""
    until, token = running.until, running.ctx.token
    if until is None:
        yield
        return
    with token.child() as off:

        def ring(_feed: Feed) -> None:
            while not off.wait(until.remaining()):
                if until.expired:
                    token.cancel(running.budget.limiter)

        Pump(ring, off, name=f"alarm-{running.step.name}").start()
        try:
            yield
        finally:
            off.cancel("in time")
