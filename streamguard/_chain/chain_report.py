"""The result of a run, with one report for each step."""

import dataclasses
import datetime
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar, overload

from .._svg import Lane, Span, card, draw, format_seconds
from .._text import counted
from ..errors import StepFailedError
from .step_key import StepKey
from .step_status import RunStatus, StepStatus

T = TypeVar("T")

_PRIVATE: Final = frozenset({"error", "has_value"})


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """How one step ended. Durations are seconds on the monotonic clock; None if it never happened."""

    name: str
    status: StepStatus
    """ok, timeout, error, skipped, cancelled."""
    reason: str | None = None
    """Why, in one of the words of `docs/status.md`; None for a plain ok, and for a bug."""
    critical: bool
    """Whether it has no fallback, so that the run needs its value."""
    fallback: str | None = None
    """The name of the fallback whose value stands in for the step's; None if none was used."""
    has_value: bool = False
    """Whether `result[step]` has a value, the step's own or a fallback's."""
    limit: float | None = None
    """The step's own `limit=`."""
    budget: float | None = None
    """The seconds that it had: the smaller of its limit and the time that the deadline left."""
    budget_reduced: bool = False
    """Whether the deadline left it less than its limit."""
    started_after: float | None = None
    """From the start of the run to the start of the step."""
    duration: float | None = None
    """From its start until it returned or was abandoned."""
    attempts: int = 0
    """Attempts started."""
    overran: bool = False
    """Whether it ignored its cancel, so that its thread was abandoned."""
    idempotency_key: str | None = None
    """The key that its attempts could send, for a later question to the service."""
    error_type: str | None = None
    """Class name of the exception of the step, or of its fallback."""
    error: BaseException | None = field(default=None, repr=False, compare=False)
    """The exception, for the program. It may quote a URL or a server, so it is never published."""

    @property
    def was_asked(self) -> bool:
        """Whether the step started, so that its service may have been asked."""
        return self.started_after is not None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, without the exception."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _PRIVATE}

    def to_log(self) -> dict[str, Any]:
        """Return the report for a log line: without the exception and the key."""
        return {key: value for key, value in self.to_dict().items() if key != "idempotency_key"}

    def public(self) -> dict[str, Any]:
        """Return what users may see: name, status, reason and fallback."""
        return {"name": self.name, "status": self.status, "reason": self.reason, "fallback": self.fallback}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ChainResult:
    """How a run ended: `result[step]` is a step's value, `result.steps[name]` its report.

    `result[step]` takes the step, which keeps the value's type, or its name. It raises `StepFailedError` if the step has no
    value.
    """

    name: str
    """The name of the chain."""
    id: str
    """The id of the run, as in its log line."""
    status: RunStatus
    """completed, completed_with_fallback, waiting_external_service, cancelled."""
    message: str = ""
    """One sentence for users: the chain's `messages=`, or the default."""
    answer: Any = None
    """What `answer=` returned for a completed run; else None."""
    steps: Mapping[str, StepReport]
    """The reports, in the order in which the steps were declared."""
    deadline: float | None = None
    """Seconds that the run had when it started: the chain's deadline, or a nearer surrounding one."""
    elapsed: float
    started_at: datetime.datetime
    """The wall clock at the start: a label."""
    values: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """The values of the steps and of the fallbacks; steps without a value are not in it."""

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
        rows = [(step.name, _html_row(step)) for step in self.steps.values()]
        title = f"run {self.name} {self.id}"
        return card(title, self.status, None, [*rows, ("elapsed", format_seconds(self.elapsed))], draw(lanes, self.elapsed))

    def __str__(self) -> str:
        title = f"run {self.name} {self.id}: {self.status} after {self.elapsed:.3f} s"
        return "\n".join([title, *(f"  {_text_row(report)}" for report in self.steps.values())])

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data, without the values and the exceptions."""
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
        """Return what users may see: statuses, reasons, the names that you chose, `message` and `answer`.

        It holds no URL, header, token or argument, and no text of a server or an exception, unless your own `messages=` or
        `answer=` adds it.
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
        """Return the result for a log line: without message and answer."""
        kept = {key: value for key, value in self.to_dict().items() if key not in ("message", "answer")}
        return {**kept, "steps": [report.to_log() for report in self.steps.values()]}

    def _failure(self, report: StepReport) -> StepFailedError:
        return StepFailedError(
            f"step {report.name!r} of {self.name!r} has no value: {report.status} ({report.reason}); "
            f"{'' if report.was_asked else 'it was not asked; '}its report is result.steps[{report.name!r}]",
            step=report.name,
            status=report.status,
            reason=report.reason,
            name=self.name,
            id=self.id,
        )


def run_status(steps: Iterable[StepReport]) -> RunStatus:
    """Return the status of the run with these *steps*: without a value of each there is no completion."""
    reports = list(steps)
    if any(report.reason == "run_cancelled" for report in reports):
        return "cancelled"
    if not all(report.has_value for report in reports):
        return "waiting_external_service"
    return "completed_with_fallback" if any(report.fallback is not None for report in reports) else "completed"


Messages = Mapping[str, "str | Callable[[ChainResult], str]"]
"""A sentence for users, by run status."""


def message_of(result: ChainResult, messages: Messages) -> ChainResult:
    """Return *result* with its message: the one of *messages* for its status, else the default."""
    own = messages.get(result.status)
    text = own(result) if callable(own) else own
    return dataclasses.replace(result, message=_default_message(result) if text is None else text)


def _default_message(result: ChainResult) -> str:
    reports = result.steps.values()
    if result.status == "completed":
        return "All steps succeeded."
    if result.status == "completed_with_fallback":
        names = (f"{r.name}{'' if r.was_asked else ' (not asked)'}" for r in reports if r.fallback is not None)
        return f"Completed; a fallback stands in for: {', '.join(names)}."
    without = [report for report in reports if not report.has_value]
    never = ", ".join(f"{report.name} ({report.reason})" for report in without if not report.was_asked)
    not_asked = f" Not asked: {never}." if never else ""
    if result.status == "cancelled":
        return f"Cancelled by the caller. No decision was taken.{not_asked}"
    failed = ", ".join(f"{report.name} ({report.reason})" for report in without if report.was_asked)
    failed = f" Without a value: {failed}." if failed else ""
    return f"Waiting for an external service. No decision was taken.{failed}{not_asked}"


def _text_row(report: StepReport) -> str:
    ending, duration = f"{report.status}{_why(report)}", format_seconds(report.duration)
    return f"{report.name:<20} {ending:<36} {duration:>9}  {', '.join(_notes(report))}".rstrip()


def _why(report: StepReport) -> str:
    return f" ({report.reason})" if report.reason else ""


def _notes(report: StepReport) -> list[str]:
    return [
        *([counted(report.attempts, "attempt")] if report.attempts > 1 else []),
        *([f"fallback {report.fallback}"] if report.fallback is not None else []),
        *(["overran"] if report.overran else []),
    ]


def _span(step: StepReport) -> tuple[Span, ...]:
    if step.started_after is None or step.duration is None:
        return ()
    return (Span(step.started_after, step.started_after + step.duration, step.status),)


def _html_row(report: StepReport) -> str:
    return ", ".join([f"{report.status}{_why(report)}", *_notes(report), format_seconds(report.duration)])
