"""What happened in a run: one report per step, and the result that holds them."""

import dataclasses
import datetime
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar, overload

from .._svg import Lane, Span, card, draw, format_seconds
from ..errors import StepFailedError
from .step_key import StepKey
from .step_status import RunStatus, StepStatus

__all__ = ["ChainResult", "Messages", "StepReport", "message_of"]

T = TypeVar("T")

_PRIVATE: Final = frozenset({"error", "has_value"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """How one step ended. Durations are seconds on the monotonic clock; what never happened is None."""

    name: str
    status: StepStatus
    """ok, timeout, error, skipped, cancelled."""
    reason: str | None = None
    """Why, in one of the words of `docs/status.md`; None for a plain ok, and for a bug."""
    critical: bool
    """Whether the run cannot do without it: it has no fallback."""
    fallback: str | None = None
    """The name of the fallback whose value stands in for the step's; None if none was used."""
    has_value: bool = False
    """Whether `result[step]` has a value, the step's own or a fallback's."""
    limit: float | None = None
    """The step's own `limit=`."""
    budget: float | None = None
    """The seconds it really had: the smaller of its limit and what the deadline left."""
    budget_reduced: bool = False
    """Whether the deadline left it less than its limit."""
    started_after: float | None = None
    """From the start of the run to the start of the step."""
    duration: float | None = None
    """From its start until it returned, or was left behind."""
    attempts: int = 0
    """Attempts started."""
    overran: bool = False
    """Whether it ignored its cancel, and was still running when the run went on without it."""
    idempotency_key: str | None = None
    """The key that its attempts could send, to ask the service about later."""
    error_type: str | None = None
    """Class name of what it, or its fallback, raised."""
    error: BaseException | None = field(default=None, repr=False, compare=False)
    """The exception itself, for the program; it may quote a URL or a server. Never published."""

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, without the exception."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _PRIVATE}

    def to_log(self) -> dict[str, Any]:
        """Return what a log line may hold: everything but the key, which is the service's business."""
        return {key: value for key, value in self.to_dict().items() if key != "idempotency_key"}

    def public(self) -> dict[str, Any]:
        """Return what people may see: name, status, reason and fallback."""
        return {"name": self.name, "status": self.status, "reason": self.reason, "fallback": self.fallback}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChainResult:
    """How a run ended: `result[step]` is a step's value, `result.steps[name]` its report.

    `result[step]` raises `StepFailedError` where there is no value: nobody invents one. It takes the step, which keeps the
    value's type, or its name.
    """

    name: str
    """The chain's name."""
    id: str
    """streamguard's own id of the run, as in its log line."""
    status: RunStatus
    """completed, completed_with_fallback, waiting_external_service, cancelled."""
    message: str = ""
    """One sentence for people: the chain's `messages=`, or ours."""
    answer: Any = None
    """What `answer=` made of a completed run; else None."""
    steps: Mapping[str, StepReport]
    """The reports, in the order in which the steps were declared."""
    deadline: float | None = None
    """Seconds that the run had when it started: the chain's deadline, or a nearer one around it."""
    elapsed: float
    started_at: datetime.datetime
    """The wall clock at the start: a label."""
    values: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """What the steps returned, and the fallbacks: only of steps that have a value."""

    @overload
    def __getitem__(self, step: StepKey[T]) -> T: ...
    @overload
    def __getitem__(self, step: str) -> Any: ...
    def __getitem__(self, step: StepKey[Any] | str) -> Any:
        """Return the value of *step*. Raises StepFailedError if it has none, KeyError if there is no such step."""
        name = step if isinstance(step, str) else step.name
        report = self.steps[name]
        if not report.has_value:
            raise self._failure(report)
        return self.values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.steps)

    def __repr__(self) -> str:
        return f"<ChainResult {self.name!r} {self.id}: {self.status}>"

    def _repr_html_(self) -> str:
        lanes = [Lane(step.name, _span(step)) for step in self.steps.values()]
        rows = [(step.name, _words(step)) for step in self.steps.values()]
        title = f"run {self.name} {self.id}"
        return card(title, self.status, None, [*rows, ("elapsed", format_seconds(self.elapsed))], draw(lanes, self.elapsed))

    def __str__(self) -> str:
        title = f"run {self.name} {self.id}: {self.status} after {self.elapsed:.3f} s"
        return "\n".join([title, *(f"  {_row(report)}" for report in self.steps.values())])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data for machines: everything but the values and the exceptions."""
        return {
            "name": self.name,
            "id": self.id,
            "status": self.status,
            "message": self.message,
            "answer": self.answer,
            "deadline": self.deadline,
            "elapsed": self.elapsed,
            "started_at": self.started_at.isoformat(),
            "steps": [report.to_dict() for report in self.steps.values()],
        }

    def public(self) -> dict[str, Any]:
        """Return what people may see: an allow-list of words, names that you chose, `message` and `answer`.

        No URL, header, token, argument, server's or exception's text is in it, unless your own `messages=` or `answer=`
        put it there.
        """
        return {
            "name": self.name,
            "id": self.id,
            "status": self.status,
            "message": self.message,
            "answer": self.answer,
            "steps": [report.public() for report in self.steps.values()],
        }

    def to_log(self) -> dict[str, Any]:
        """Return what a log line may hold: neither message nor answer, which are yours."""
        kept = {key: value for key, value in self.to_dict().items() if key not in ("message", "answer")}
        return {**kept, "steps": [report.to_log() for report in self.steps.values()]}

    def _failure(self, report: StepReport) -> StepFailedError:
        return StepFailedError(
            f"step {report.name!r} of {self.name!r} has no value: {report.status} ({report.reason}); "
            f"its report is result.steps[{report.name!r}]",
            step=report.name,
            status=report.status,
            reason=report.reason,
            name=self.name,
            id=self.id,
        )


Messages = Mapping[str, "str | Callable[[ChainResult], str]"]
"""What to say, by run status."""


def message_of(result: ChainResult, messages: Messages) -> ChainResult:
    """Return *result* with its message: the caller's own for that status, called with the result if it is a callable."""
    own = messages.get(result.status)
    text = own(result) if callable(own) else own
    return dataclasses.replace(result, message=_default_message(result) if text is None else text)


def _default_message(result: ChainResult) -> str:
    reports = result.steps.values()
    if result.status == "completed":
        return "All steps succeeded."
    if result.status == "completed_with_fallback":
        return f"Completed; a fallback stands in for: {', '.join(r.name for r in reports if r.fallback is not None)}."
    if result.status == "cancelled":
        return "Cancelled by the caller. No decision was taken."
    without = ", ".join(f"{r.name} ({r.reason})" for r in reports if not r.has_value)
    return f"Waiting for an external service. No decision was taken. Without a value: {without}."


def _row(report: StepReport) -> str:
    why = f" ({report.reason})" if report.reason else ""
    notes = [f"fallback {report.fallback}"] * (report.fallback is not None) + ["overran"] * report.overran
    return f"{report.name:<20} {report.status + why:<36} {format_seconds(report.duration):>9}  {', '.join(notes)}".rstrip()


def _span(step: StepReport) -> tuple[Span, ...]:
    if step.started_after is None or step.duration is None:
        return ()
    return (Span(step.started_after, step.started_after + step.duration, step.status),)


def _words(step: StepReport) -> str:
    why = f" ({step.reason})" if step.reason else ""
    stand_in = f", fallback {step.fallback}" if step.fallback else ""
    return f"{step.status}{why}{stand_in}, {format_seconds(step.duration)}"
