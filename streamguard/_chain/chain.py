"""`Chain`: steps that call external services, under one deadline."""

import contextlib
import contextvars
import dataclasses
import functools
import graphlib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar, Unpack, overload

from .._core.cancel import CancelToken, current_token
from .._core.clock import monotonic
from .._core.deadline import Deadline, current_deadline
from .._core.limits import NOT_GIVEN, seconds_of, whole_number
from ..errors import UsageError
from ..session import Session
from .chain_report import ChainResult, Messages, message_of, run_status
from .chain_run import ChainRun
from .context import SessionSource, StepContext
from .run_state import RunState
from .step import Seconds, Step, StepOptions, make_step, not_negative
from .step_advice import Advice, Samples, StepAdvice
from .step_status import RUN_STATUSES
from .suggested_limits import suggest_limits

T = TypeVar("T")
F = TypeVar("F")

_MIN_BUDGET_SECONDS = 0.01


class Chain:
    """Steps that call external services, all under one deadline.

    name:         a constant, used in logs, results and messages.
    deadline:     seconds for a whole run; None: only a surrounding `deadline()` bounds it. 0 or less starts nothing.
    max_parallel: how many steps run at once. Default 1: the steps run in the order in which they are declared.
    reserve:      seconds of the deadline that no step may use, for the work after the run. Default 0.
    min_budget:   a step with fewer seconds left does not start. Default 0.01, or the step's limit if that is less.
    messages:     a sentence for users by run status: text, or a function that returns it for the `ChainResult`.
    answer:       a function that returns the answer for the `ChainResult` of a completed run.
    session:      the `streamguard.Session` of all runs. Default: one for each run, because a session keeps cookies.
    samples:      how many durations of each step are kept for `advice()`. Default 1000; 0 keeps none.

    Declare the steps with `@chain.step(limit=..., fallback=...)`; a step without a fallback is critical. `run()` may be
    called repeatedly, from any thread, also at the same time.

    Raises TypeError or UsageError, naming the argument.
    """

    def __init__(
        self,
        name: str,
        *,
        deadline: Seconds | None = None,
        max_parallel: int = 1,
        reserve: Seconds = 0.0,
        min_budget: Seconds = _MIN_BUDGET_SECONDS,
        messages: Messages | None = None,
        answer: Callable[[ChainResult], Any] | None = None,
        session: Session | None = None,
        samples: int = 1000,
    ) -> None:
        self.name = name
        self.deadline = seconds_of("deadline", deadline)
        self.max_parallel = whole_number("max_parallel", max_parallel, 1)
        self._reserve = not_negative("reserve", reserve, 0.0)
        self._min_budget = not_negative("min_budget", min_budget, 0.0)
        self._messages = dict(messages or {})
        self._answer = answer
        self._session = session
        self._steps: dict[str, Step[Any]] = {}
        self._samples = Samples(whole_number("samples", samples, 0))
        _check(name=name, messages=self._messages, session=session)

    def __repr__(self) -> str:
        return f"<Chain {self.name!r}: {', '.join(self._steps) or 'no steps'}>"

    @property
    def steps(self) -> Mapping[str, Step[Any]]:
        """The steps by name, in the order in which they were declared."""
        return MappingProxyType(self._steps)

    @overload
    def step(self, fn: Callable[[StepContext], T], /, **options: Unpack[StepOptions]) -> Step[T]: ...
    @overload
    def step(
        self, fn: Callable[[StepContext], T], /, *, fallback: Callable[..., F], **options: Unpack[StepOptions]
    ) -> Step[T | F]: ...
    @overload
    def step(self, fn: Callable[[StepContext], T], /, *, fallback: F, **options: Unpack[StepOptions]) -> Step[T | F]: ...
    @overload
    def step(self, /, **options: Unpack[StepOptions]) -> Callable[[Callable[[StepContext], T]], Step[T]]: ...
    @overload
    def step(
        self, /, *, fallback: Callable[..., F], **options: Unpack[StepOptions]
    ) -> Callable[[Callable[[StepContext], T]], Step[T | F]]: ...
    @overload
    def step(
        self, /, *, fallback: F, **options: Unpack[StepOptions]
    ) -> Callable[[Callable[[StepContext], T]], Step[T | F]]: ...
    def step(
        self,
        fn: Callable[[StepContext], Any] | None = None,
        /,
        *,
        fallback: object = NOT_GIVEN,
        **options: Unpack[StepOptions],
    ) -> Any:
        """Declare a step: `@chain.step`, `@chain.step(limit=0.4, fallback=None)`, or `chain.step(fn, limit=0.4)`.

        limit:         seconds that the step may take, all attempts together; None: only the deadline bounds it.
        fallback:      the value if the step fails: a value, copied for each use, or a function of its `StepReport`, which
                       runs in the caller's thread and must be quick. Not given: the step is critical.
        fallback_name: for reports. Default: the function's name, or "fallback".
        needs:         steps, or their names, that must have a value before it starts. It gets their values.
        handles:       further exceptions that mean that the step failed. Streamguard's and requests' errors, OSError and
                       invalid JSON always do. All others are bugs, and `run()` raises them.
        retries:       further attempts after a failure that may pass, within the limit. Default 0.
        idempotent:    repeating the step does no harm. Default False.
        idempotency_key: the step is a write that sends `ctx.idempotency_key`, the same for all attempts. Default False.
        verify:        for a write: a function of ctx that asks the service after a timeout whether the write was done. It
                       returns a `Settled`, or None if it cannot tell.
        inline:        run the step in the caller's thread, alone. Then only its sockets can be cut.
        bulkhead:      a `Bulkhead` that bounds how many steps call a service at once. A step without a place is skipped.
        min_budget, reserve: the chain's options, for this step.
        name:          default: the function's name.

        Raises UsageError for a name that is taken, and for retries of a step that is not declared safe to repeat.
        """
        if fn is None:
            return functools.partial(self._declare, fallback, options)
        return self._declare(fallback, options, fn)

    add = step

    def run(self, *, cancel: CancelToken | None = None, **inputs: Any) -> ChainResult:
        """Run the steps and return the result when all have ended, at the latest at the deadline.

        cancel: a token whose cancel ends the run. Default: the current one.
        inputs: the `ctx.inputs` of the steps.

        Failures of services do not raise: check the `status` of the result. Only bugs raise, unchanged: an exception of a
        step that is not a failure of a service, an exception of `answer=` or `messages=`, and UsageError for steps that
        need each other in a circle or that do not exist.

        Limits
            A step that ignores its cancel is abandoned 0.04 s after its limit: its report says `overran`, its late result
            is dropped, and its thread goes on until it ends by itself.
        """
        steps = dict(self._steps)
        state, source = RunState(self.name), SessionSource(self._session)
        until, begun = self._until(), monotonic()
        given = None if until is None else until.remaining()
        run = ChainRun(
            steps=steps,
            order=self._order(steps),
            inputs=MappingProxyType(inputs),
            until=until,
            parent=_parent(cancel),
            source=source,
            max_parallel=self.max_parallel,
            state=state,
        )
        state.notify.started()
        try:
            with contextlib.closing(source):
                contextvars.copy_context().run(run.go)
            result = self._conclude(state, deadline=given, elapsed=monotonic() - begun)
        except BaseException as exc:
            state.notify.raised(exc, monotonic() - begun)
            raise
        state.notify.finished(result)
        return result

    def advice(
        self,
        *,
        quantile: float = 0.99,
        factor: float = 1.5,
        floor: float = 0.05,
        ceiling: float | None = None,
        min_count: int = 100,
        confidence: float | None = None,
    ) -> Advice:
        """Return the limit that the runs of this chain suggest for each step, and how often each limit fired.

        `print()` shows a table. The options are those of `suggest_limits()`. No limit changes.
        """
        kept = self._samples.durations()
        suggested = suggest_limits(
            {name: kept.get(name, []) for name in self._steps},
            quantile=quantile,
            factor=factor,
            floor=floor,
            ceiling=ceiling,
            min_count=min_count,
            confidence=confidence,
        )
        return Advice(tuple(self._step_advice(step, len(kept.get(n, [])), suggested[n]) for n, step in self._steps.items()))

    def _step_advice(self, step: Step[Any], samples: int, suggested: float | None) -> StepAdvice:
        return StepAdvice(
            name=step.name,
            runs=self._samples.count(step.name, "runs"),
            fired=self._samples.count(step.name, "fired"),
            skipped=self._samples.count(step.name, "skipped"),
            samples=samples,
            limit=step.limit,
            suggested=suggested,
        )

    def _declare(self, fallback: object, options: StepOptions, fn: Callable[[StepContext], Any]) -> Step[Any]:
        step = make_step(fn, fallback=fallback, options=options, reserve=self._reserve, min_budget=self._min_budget)
        if self._steps.setdefault(step.name, step) is not step:
            raise UsageError(f"chain {self.name!r} already has a step {step.name!r}: pass another name=")
        return step

    def _order(self, steps: Mapping[str, Step[Any]]) -> "graphlib.TopologicalSorter[str]":
        if not steps:
            raise UsageError(f"chain {self.name!r} has no steps: declare them with @chain.step(...)")
        for step in steps.values():
            for need in step.needs:
                if need not in steps:
                    raise UsageError(f"step {step.name!r}: needs= must name steps of chain {self.name!r}, got {need!r}")
        order = graphlib.TopologicalSorter({name: step.needs for name, step in steps.items()})
        try:
            order.prepare()
        except graphlib.CycleError as exc:
            raise UsageError(f"chain {self.name!r}: needs= forms a circle: {' → '.join(exc.args[1])}") from None
        return order

    def _until(self) -> Deadline | None:
        own = None if self.deadline is None else Deadline.after(self.deadline)
        return Deadline.nearest(own, current_deadline())

    def _conclude(self, state: RunState, *, deadline: float | None, elapsed: float) -> ChainResult:
        result = ChainResult(
            name=self.name,
            id=state.id,
            status=run_status(state.reports.values()),
            steps={name: state.reports[name] for name in self._steps if name in state.reports},
            deadline=deadline,
            elapsed=elapsed,
            started_at=state.started_at,
            values=state.values,
        )
        self._samples.note(result.steps.values())
        result = message_of(result, self._messages)
        if self._answer is None or result.status not in ("completed", "completed_with_fallback"):
            return result
        return dataclasses.replace(result, answer=self._answer(result))


def _parent(cancel: CancelToken | None) -> CancelToken | None:
    if cancel is not None and not isinstance(cancel, CancelToken):
        kind = type(cancel).__name__
        raise TypeError(f"cancel= must be a CancelToken, got {kind}: an input cannot be named 'cancel', which is reserved")
    return cancel if cancel is not None else current_token()


def _check(*, name: object, messages: Messages, session: object) -> None:
    if not isinstance(name, str):
        raise TypeError(f"name= must be a str, got {type(name).__name__}")
    if not name:
        raise UsageError("name= must not be empty")
    if session is not None and not isinstance(session, Session):
        raise TypeError(f"session= must be a streamguard.Session, whose calls can be cut, got {type(session).__name__}")
    unknown = messages.keys() - RUN_STATUSES.keys()
    if unknown:
        raise UsageError(f"messages= must have run statuses as keys ({', '.join(RUN_STATUSES)}), got {min(unknown)!r}")
