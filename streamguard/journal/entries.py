"""The entry of one stream, run or turn that ended, and its text.

An entry holds no URL, host, header, argument, body or name of a model, and no error text: of an error only the name of its
type. Times are seconds.
"""

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .._svg import format_seconds
from .._text import one_line

Kind = Literal["stream", "run", "turn", "gap"]
"""`gap` is only in a database: entries that could not be written."""

_FAILED = {
    "stream": frozenset({"timeout", "error"}),
    "run": frozenset({"waiting_external_service", "raised"}),
    "turn": frozenset({"failed", "interrupted"}),
    "gap": frozenset({"lost"}),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One event in the course of a stream or a run."""

    what: Literal["phase", "silence", "limit", "retry", "step"]
    """A phase began; half of a limit is used up; a limit fired; another attempt follows; a step ended."""
    name: str
    """The name of the phase or step; of a limit the phase, `total`, or `deadline` for a surrounding deadline."""
    at: float | None = None
    """Seconds from the start of the stream or run; None if only the order is known."""
    attempt: int | None = None
    """Of a stream, the number of the attempt, from 1; of a step, how many attempts it took."""
    seconds: float | None = None
    """How long the silence was, the pause will be, or the step took."""
    limit: float | None = None
    """The limit in seconds; None for a surrounding deadline. Of a step, the seconds that it had."""
    status: str | None = None
    """Of a step: ok, timeout, error, skipped, cancelled; started, if Ctrl-C for example ended the run in it."""
    reason: str | None = None
    fallback: str | None = None
    """Of a step, the name of the fallback that was used."""
    error_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """The course and the end of one stream, run or turn."""

    kind: Kind
    """stream, run (of a chain), turn (of a member of a dispatch); in a database also gap."""
    id: str
    """The id, as in its report, its errors and its log line."""
    parent: str | None = None
    """Of a turn: the id of the execution."""
    name: str | None
    """Your name for the stream, the chain or the member."""
    outcome: str
    """The outcome of a stream, the status of a run or turn; `raised` for a run that a bug ended."""
    stopped_in: str | None
    """Where it stopped: the phase of a stream (`done` if complete), the step of a run, the reason of a turn."""
    error_type: str | None = None
    """Class name of the exception."""
    started_at: datetime.datetime
    """The wall clock at the start, in UTC."""
    seconds: float
    """How long it took."""
    moments: tuple[Moment, ...] = ()
    """The events in its course, in order."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """Counts and measured times by name, as in the report of the stream."""

    @property
    def failed(self) -> bool:
        """Whether it is a failure: not a success, and not stopped by the caller."""
        return is_failure(self.kind, self.outcome)

    def __str__(self) -> str:
        return "\n".join((headline(self), f"  {_ending(self)}", *_way(self), *_numbers(self)))


def is_failure(kind: Kind, outcome: str) -> bool:
    """Return whether *outcome* is a failure."""
    return outcome in _FAILED[kind]


def headline(entry: JournalEntry) -> str:
    """Return its kind, name, id and start in one line."""
    name = one_line(entry.name) if entry.name else "(no name)"
    call = ", a call of a model" if entry.numbers.get("operation") == "chat" else ""
    belongs = f" of execution {one_line(entry.parent)}" if entry.parent else ""
    return f"{entry.kind} {name}, id {one_line(entry.id)}{belongs}{call}, started {entry.started_at:%Y-%m-%d %H:%M:%S} UTC"


def _ending(entry: JournalEntry) -> str:
    stopped = entry.stopped_in if entry.stopped_in != "done" else None
    where = {"stream": "in phase", "run": "at step", "turn": "for"}.get(entry.kind, "in")
    raised = f": {entry.error_type}" if entry.error_type else ""
    return f"{entry.outcome}{f' {where} {one_line(stopped)}' if stopped else ''} after {entry.seconds:.3f} s{raised}"


def _way(entry: JournalEntry) -> Iterator[str]:
    attempt: int | None = None
    for moment in entry.moments:
        if entry.kind == "stream" and moment.attempt != attempt:
            attempt = moment.attempt
            yield f"  attempt {attempt}"
        yield f"  {'' if moment.at is None else f'{moment.at:.3f} s':>12}  {one_line(_words(moment))}"


def _words(moment: Moment) -> str:
    match moment.what:
        case "silence":
            return f"silent in phase {moment.name} for half of the limit, {format_seconds(moment.limit)}"
        case "limit" if moment.name == "deadline":
            return "the surrounding deadline() passed"
        case "limit" if moment.name == "total":
            return f"limit total={_bare(moment.limit)} fired"
        case "limit":
            return f"limit {moment.name}={_bare(moment.limit)} fired: silent for {format_seconds(moment.seconds)}"
        case "retry":
            return f"{moment.error_type} in phase {moment.name}; another attempt after {format_seconds(moment.seconds)}"
        case "step":
            return _step(moment)
    return moment.name


def _step(moment: Moment) -> str:
    why = f" ({moment.reason})" if moment.reason else ""
    took = f", took {moment.seconds:.3f} s" if moment.seconds is not None else ""
    had = f" of {moment.limit:.3f} s" if took and moment.limit is not None else ""
    again = f", {moment.attempt} attempts" if (moment.attempt or 0) > 1 else ""
    stand_in = f", fallback {moment.fallback}" if moment.fallback else ""
    raised = f", {moment.error_type}" if moment.error_type else ""
    return f"{moment.name}: {moment.status}{why}{took}{had}{again}{stand_in}{raised}"


def _numbers(entry: JournalEntry) -> Iterator[str]:
    numbers = entry.numbers
    if entry.kind == "stream":
        yield f"  chunks {numbers['chunks']}, bytes {numbers['bytes']}, heartbeats {numbers['comments']}"
        yield f"  status {numbers['status_code'] or '-'}, finish reason {numbers['finish_reason'] or '-'}"
        first, longest = format_seconds(numbers["time_to_first_chunk"]), format_seconds(numbers["max_gap"])
        yield f"  first chunk after {first}, longest gap {longest}"
        if numbers["abandoned_threads"]:
            yield f"  abandoned threads: {numbers['abandoned_threads']}"
    elif entry.kind == "run" and numbers.get("deadline") is not None:
        yield f"  deadline {format_seconds(numbers['deadline'])}"
    elif entry.kind == "turn":
        yield f"  longest silence {format_seconds(numbers.get('silence'))}"


def _bare(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
