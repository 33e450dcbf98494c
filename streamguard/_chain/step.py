"""One declared step: its function, limits and fallback. All options are checked when it is declared."""

import copy
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypedDict, TypeVar

from .._core.bounded import refuse_deferring, refuse_unrun
from .._core.limits import NOT_GIVEN, NotGiven, seconds_of, whole_number
from ..errors import UsageError
from .bulkhead import Bulkhead
from .chain_report import StepReport
from .context import StepContext
from .failure_reasons import Handles
from .step_key import StepKey

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

Seconds = float | str | timedelta


@dataclass(frozen=True, slots=True)
class Settled(Generic[T_co]):
    """What a step's `verify=` found out about a write that timed out."""

    done: bool
    """Whether the service did it."""
    value: T_co | None = None
    """The value of the step, if it was done."""


class StepOptions(TypedDict, total=False):
    """The options of `Chain.step()` and `Chain.add()`, except `fallback=`."""

    limit: Seconds | None
    fallback_name: str | None
    needs: "Iterable[str | Step[Any]] | str | Step[Any]"
    handles: Iterable[type[Exception]] | type[Exception]
    retries: int
    idempotent: bool
    idempotency_key: bool
    verify: Callable[[StepContext], Settled[Any] | None] | None
    inline: bool
    bulkhead: Bulkhead | None
    min_budget: Seconds | None
    reserve: Seconds | None
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Step(StepKey[T]):
    """A declared step. Call it with a context to call the plain function: `profile(ctx)`."""

    fn: Callable[[StepContext], T] = field(repr=False)
    limit: float | None = None
    fallback: Any = field(default=NOT_GIVEN, repr=False)
    fallback_name: str | None = None
    needs: tuple[str, ...] = ()
    handles: Handles = ()
    retries: int = 0
    idempotent: bool = False
    idempotency_key: bool = False
    verify: Callable[[StepContext], Settled[Any] | None] | None = field(default=None, repr=False)
    inline: bool = False
    bulkhead: Bulkhead | None = field(default=None, repr=False)
    min_budget: float = 0.0
    reserve: float = 0.0

    def __call__(self, ctx: StepContext) -> T:
        """Call the function without any limit."""
        return self.fn(ctx)

    @property
    def critical(self) -> bool:
        """Whether it has no fallback, so that the run needs its value."""
        return isinstance(self.fallback, NotGiven)

    def is_write(self, ctx: StepContext) -> bool:
        """Whether the step, which ran with *ctx*, may have changed something: its effect is unknown after a timeout."""
        return self.verify is not None or self.idempotency_key or (ctx.wrote and not self.idempotent)

    def fall_back(self, failure: StepReport) -> Any:
        """Return a fallback value: a copy, or what the fallback function returns for *failure*."""
        if not callable(self.fallback):
            return copy.deepcopy(self.fallback)
        return refuse_unrun(self.fallback(failure), f"fallback= of step {self.name!r}")


def make_step(
    fn: Callable[[StepContext], Any],
    *,
    reserve: float,
    min_budget: float,
    options: StepOptions,
    fallback: object = NOT_GIVEN,
) -> Step[Any]:
    """Return the step with these *options*; *reserve* and *min_budget* are the defaults of the chain.

    Raises TypeError or UsageError, naming the step and the option.
    """
    unknown = options.keys() - StepOptions.__annotations__.keys()
    if unknown:
        known = ", ".join(StepOptions.__annotations__)
        raise TypeError(f"unknown option {min(unknown)}= of a step; it has fallback, {known}")
    if not callable(fn):
        raise TypeError(f"a step must be a function of one argument, ctx, got {type(fn).__name__}")
    name = _name_of(fn, options.get("name"))
    with _naming(name):
        step = _made(name, fn, options, reserve=reserve, min_budget=min_budget, fallback=fallback)
        _refuse_unsafe(step)
    _refuse_deferring(step)
    return step


def _made(
    name: str,
    fn: Callable[[StepContext], Any],
    options: StepOptions,
    *,
    reserve: float,
    min_budget: float,
    fallback: object,
) -> Step[Any]:
    limit = seconds_of("limit", options.get("limit"))
    return Step(
        name=name,
        fn=fn,
        limit=limit,
        fallback=fallback,
        fallback_name=_fallback_name(fallback, options.get("fallback_name")),
        needs=_names(options.get("needs", ())),
        handles=_handles(options.get("handles", ())),
        retries=whole_number("retries", options.get("retries", 0), 0),
        idempotent=bool(options.get("idempotent", False)),
        idempotency_key=bool(options.get("idempotency_key", False)),
        verify=options.get("verify"),
        inline=bool(options.get("inline", False)),
        bulkhead=_bulkhead(options.get("bulkhead")),
        min_budget=_min_budget(options.get("min_budget"), min_budget, limit),
        reserve=not_negative("reserve", options.get("reserve"), reserve),
    )


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Prefix the message about an option with the name of the step."""
    try:
        yield
    except (TypeError, ValueError) as exc:
        raise type(exc)(f"step {name!r}: {exc}") from None


def _refuse_unsafe(step: Step[Any]) -> None:
    if step.retries and not (step.idempotent or step.idempotency_key):
        raise UsageError(
            f"retries={step.retries} repeats its effects. Pass idempotent=True if that does no harm, or "
            "idempotency_key=True if each attempt sends ctx.idempotency_key."
        )
    if step.verify is not None and not callable(step.verify):
        raise TypeError(f"verify= must be a function of ctx, got {type(step.verify).__name__}")
    if step.critical and step.fallback_name is not None:
        raise UsageError("fallback_name= needs fallback=")
    if not step.critical and not callable(step.fallback):
        _refuse_uncopyable(step.fallback)


def _refuse_uncopyable(fallback: object) -> None:
    try:
        copy.deepcopy(fallback)
    except Exception as exc:
        raise UsageError(
            f"fallback= must be a value that can be copied for each use, got a {type(fallback).__name__} "
            f"({type(exc).__name__}); pass a function that returns the value"
        ) from None


def _refuse_deferring(step: Step[Any]) -> None:
    refuse_deferring(step.fn, f"step {step.name!r}")
    for option, fn in (("fallback=", step.fallback), ("verify=", step.verify)):
        refuse_deferring(fn, f"{option} of step {step.name!r}")


def _name_of(fn: Callable[..., Any], name: object) -> str:
    chosen = getattr(fn, "__name__", None) if name is None else name
    if not isinstance(chosen, str) or not chosen or chosen == "<lambda>":
        raise UsageError("name= must be a non-empty str for a step that is not a def")
    return chosen


def _fallback_name(fallback: object, name: object) -> str | None:
    if name is not None and not isinstance(name, str):
        raise TypeError(f"fallback_name= must be a str, got {type(name).__name__}")
    if name is not None or isinstance(fallback, NotGiven):
        return name
    own = getattr(fallback, "__name__", "<lambda>") if callable(fallback) else "<lambda>"
    return "fallback" if own == "<lambda>" else str(own)


def _names(needs: "Iterable[str | Step[Any]] | str | Step[Any]") -> tuple[str, ...]:
    if not isinstance(needs, Iterable) and not isinstance(needs, Step):
        raise TypeError(f"needs= must be steps or their names, got {type(needs).__name__}")
    several = (needs,) if isinstance(needs, str | Step) else tuple(needs)
    wrong = [need for need in several if not isinstance(need, str | Step)]
    if wrong:
        raise TypeError(f"needs= must be steps or their names, got {type(wrong[0]).__name__}")
    return tuple(dict.fromkeys(need.name if isinstance(need, Step) else need for need in several))


def _handles(handles: Iterable[type[Exception]] | type[Exception]) -> Handles:
    if not isinstance(handles, Iterable) and not isinstance(handles, type):
        raise TypeError(f"handles= must be exception classes, got {type(handles).__name__}")
    several = (handles,) if isinstance(handles, type) else tuple(handles)
    wrong = [kind for kind in several if not (isinstance(kind, type) and issubclass(kind, Exception))]
    if wrong:
        raise TypeError(f"handles= must be exception classes, got {wrong[0]!r}")
    return several


def _bulkhead(value: object) -> Bulkhead | None:
    if value is not None and not isinstance(value, Bulkhead):
        raise TypeError(f"bulkhead= must be a Bulkhead, got {type(value).__name__}")
    return value


def _min_budget(value: Seconds | None, default: float, limit: float | None) -> float:
    if value is None:  # the default of the chain must not exceed a smaller limit: the step could never start
        return default if limit is None else min(default, max(limit, 0.0))
    seconds = not_negative("min_budget", value, default)
    if limit is not None and 0 < limit < seconds:
        raise UsageError(f"min_budget= must not be above limit={limit:g}, got {seconds:g}: the step could never start")
    return seconds


def not_negative(name: str, value: Seconds | None, default: float) -> float:
    seconds = seconds_of(name, value)
    if seconds is None:
        return default
    if seconds < 0:
        raise UsageError(f"{name}= must be 0 seconds or more, got {seconds:g}")
    return seconds
