"""A step that runs: its budget, whether and why it was cut, and what its end means."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from .._core.tasks import Task
from ..errors import DeadlineExceededError
from .context import StepContext
from .failure_reasons import Failure, failure_of
from .step import Step
from .step_status import Budget, Limiter, StopReason


@dataclass(frozen=True, slots=True)
class StepEnd:
    """How a step's function ended, and when."""

    value: Any
    error: BaseException | None
    at: float
    """The monotonic instant of the end. It decides what is late, not the instant at which the run notices."""
    cancelled: bool
    """Whether the step was cancelled by then."""
    timed_out: bool = False
    """Whether any attempt timed out: the effect of that attempt is unknown."""


@dataclass(frozen=True, slots=True)
class OpenWrite:
    """A write that timed out, while `verify=` asks its service about it."""

    failure: Failure
    error: BaseException | None
    facts: dict[str, Any]


@dataclass(slots=True, eq=False)
class ActiveStep:
    """A step that runs, or that was cut and is within its grace. `ctx.deadline` is the instant at which it is cut."""

    step: Step[Any]
    ctx: StepContext
    budget: Budget
    begun: float
    """The monotonic instant of its start."""
    started_after: float
    """Seconds since the start of the run."""
    free: Callable[[], None]
    """Gives its place among the active steps back."""
    open_write: OpenWrite | None = None
    """Set while the step's `verify=` runs, not the step itself."""
    task: Task | None = None
    """Its thread; None for an inline step."""
    cut: Limiter | StopReason | None = None
    grace_ends: float | None = None
    overran: bool = False

    @property
    def next_instant(self) -> float | None:
        """When the run must act on it, if it does not end before."""
        if self.grace_ends is not None:
            return self.grace_ends
        return None if self.ctx.deadline is None else self.ctx.deadline.at

    def is_late(self, at: float) -> bool:
        """Whether its budget is spent at the instant *at*."""
        return self.ctx.deadline is not None and at >= self.ctx.deadline.at

    def stop(self, reason: Limiter | StopReason, grace_ends: float) -> None:
        """Cut it, unless it is cut already; it should have ended by *grace_ends*."""
        if self.cut is None:
            self.cut, self.grace_ends = reason, grace_ends
            self.ctx.token.cancel(reason)

    def failure(self, end: StepEnd) -> Failure | None:
        """Return why it did not succeed; None if it succeeded, or if `end.error` is a bug.

        After its limit or a cut, what it returns or raises does not count.
        """
        late = self.is_late(end.at)
        if not late and not end.cancelled:
            return None if end.error is None else failure_of(end.error, self.step.handles)
        if self.cut == "critical_failed" or self.cut == "run_cancelled":
            return Failure("cancelled", self.cut)
        if late or self.cut is not None:
            return Failure("timeout", self.budget.limiter)
        return Failure("error", "stream_cancelled")  # by its own code, through `ctx.token`

    def error(self, failure: Failure, end: StepEnd, id: str) -> BaseException | None:
        """Return the error of the step in the run *id*: after its limit a timeout, whatever it raised when it was cut."""
        if failure != Failure("timeout", self.budget.limiter):
            return end.error
        own, elapsed = self.budget.limiter == "step_limit", max(0.0, end.at - self.begun)
        limit = f"limit={self.budget.seconds:g}" if own else f"the {self.budget.seconds:.2f} s that the deadline left"
        error = DeadlineExceededError(
            f"step {self.step.name!r} took longer than {limit} ({elapsed:.2f} s){'; it is abandoned' * self.overran}",
            scope="step" if own else "ambient",
            limit=self.budget.seconds,
            elapsed=elapsed,
            name=self.step.name,
            id=id,
            overran=self.overran,
            partial_text=getattr(end.error, "partial_text", None),
        )
        error.__context__ = end.error  # not its cause: a cancel among the causes would make a cancel of it
        return error

    def leaves_open(self, failure: Failure, end: StepEnd) -> bool:
        """Whether it is a write whose effect is unknown after *failure*, or after an earlier attempt."""
        timed_out = failure.status == "timeout" or (failure.status == "error" and end.timed_out)
        return timed_out and self.ctx.attempt > 0 and self.step.is_write(self.ctx)

    def facts(self, end: StepEnd) -> dict[str, Any]:
        """Return how it ran, as fields of its report."""
        return {
            **budget_facts(self.step, self.budget),
            "started_after": self.started_after,
            "duration": max(0.0, end.at - self.begun),
            "attempts": self.ctx.attempt,
            "overran": self.overran,
            "idempotency_key": self.ctx.idempotency_key,
        }


def budget_facts(step: Step[Any], budget: Budget) -> dict[str, Any]:
    """Return the budget of *step*, as fields of its report."""
    reduced = step.limit is not None and budget.limiter == "deadline_exhausted"
    return {"budget": budget.seconds, "budget_reduced": reduced}


@contextmanager
def alarm(active: ActiveStep) -> Iterator[None]:
    """Cancel the token of *active* when its budget ends within the block, from a thread of its own."""
    until, token = active.ctx.deadline, active.ctx.token
    if until is None:
        yield
        return
    with token.child() as off:

        def ring() -> None:
            while not off.wait(until.remaining()):
                if until.expired:
                    token.cancel(active.budget.limiter)

        Task(ring, name=f"alarm-{active.step.name}").start()
        try:
            yield
        finally:
            off.cancel("in time")
