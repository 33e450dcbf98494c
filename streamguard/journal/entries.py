"""What the journal keeps: one frozen entry for each stream, run and turn that ended.

Nothing here holds a URL, a host, a header, an argument, a body, the name of a model, or anybody's error text: of errors
only the type's name. Times are seconds.
"""

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from ..telemetry.events import GAP_BOUNDS
from .entry_text import story

__all__ = ["JournalEntry", "Kind", "Moment", "entry_of", "is_failure", "plain"]

Kind = Literal["stream", "run", "turn", "gap"]
"""`gap` stands in a database for entries that could not be written."""

_FAILED = {
    "stream": frozenset({"timeout", "error"}),
    "run": frozenset({"waiting_external_service", "raised"}),
    "turn": frozenset({"failed", "interrupted"}),
    "gap": frozenset({"lost"}),
}

_NEEDED = {
    "stream": (
        *("chunks", "bytes", "comments", "status_code", "abandoned_threads"),
        *("time_to_headers", "time_to_first_chunk", "max_gap"),
    ),
    "run": (),
    "turn": (),
    "gap": ("entries",),
}
"""What every entry of a kind has among its numbers."""
_OTHERS = ("max_byte_gap", "silence", "deadline")
_MEASURES = frozenset({"at", "attempt", "seconds", "limit"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """One thing on the way of a stream or a run."""

    what: Literal["phase", "silence", "limit", "retry", "step"]
    """A phase began; half of a limit was used up; a limit fired; another attempt was decided on; a step ended."""
    name: str
    """The phase's or the step's; of a limit the phase's, `total`, or `deadline`, a surrounding one."""
    at: float | None = None
    """From the start of the stream or run; None where only the order is known."""
    attempt: int | None = None
    """Of a stream, the one that it belongs to, from 1; of a step, how many it took."""
    seconds: float | None = None
    """How long it was silent, will pause, or took."""
    limit: float | None = None
    """The limit that is, or is half, used up; None for a surrounding deadline. Of a step, the seconds that it had."""
    status: str | None = None
    """Of a step: ok, timeout, error, skipped, cancelled; started, if the run was left in it, by Ctrl-C say."""
    reason: str | None = None
    fallback: str | None = None
    """The name of what stood in for a step."""
    error_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalEntry:
    """How one stream, run or turn went."""

    kind: Kind
    """stream, run (of a chain), turn (of a dispatch's member); gap: in a database only."""
    id: str
    """The one that its report, its errors and its log line have."""
    parent: str | None = None
    """Of a turn: the execution's id."""
    name: str | None
    """Your name for the stream, the chain or the member."""
    outcome: str
    """A stream's outcome, a run's or a turn's status; `raised` for a run that a bug ended."""
    stopped_in: str | None
    """Where it stopped: a stream's phase, a run's step, the reason of a turn. A complete stream's is `done`."""
    error_type: str | None = None
    """Class name of what was raised."""
    started_at: datetime.datetime
    """The wall clock at the start, in UTC: a label."""
    seconds: float
    """How long it took."""
    moments: tuple[Moment, ...] = ()
    """What happened on the way, in order."""
    numbers: Mapping[str, Any] = field(default_factory=dict)
    """What was counted and measured, by name: as in the stream's report."""

    @property
    def failed(self) -> bool:
        """Whether it is a failure: neither a success, nor what the caller stopped."""
        return is_failure(self.kind, self.outcome)

    def __str__(self) -> str:
        return story(self)


def is_failure(kind: Kind, outcome: str) -> bool:
    """Return whether what ended so is a failure."""
    return outcome in _FAILED[kind]


def plain(entry: JournalEntry) -> dict[str, Any]:
    """Return *entry* as data for JSON; of moments only what is known."""
    values = {each.name: getattr(entry, each.name) for each in fields(entry)}
    moments = [{key: value for key, value in _values(moment) if value is not None} for moment in entry.moments]
    return {**values, "started_at": entry.started_at.timestamp(), "moments": moments, "numbers": dict(entry.numbers)}


def entry_of(values: Mapping[str, Any]) -> JournalEntry:
    """Return the entry that `plain()` made *values* of; what a newer version knows beside is left out.

    Raises ValueError if it is none of ours, or damaged.
    """
    try:
        started_at = datetime.datetime.fromtimestamp(values["started_at"], datetime.UTC)
        moments = tuple(map(_moment_of, values["moments"]))
        _check(values["kind"], values["numbers"], values["seconds"])
        return JournalEntry(**{**values, "started_at": started_at, "moments": moments})
    except (LookupError, TypeError, ValueError, OverflowError, OSError) as exc:
        raise ValueError(f"no entry of a journal: {type(exc).__name__}") from None


def _moment_of(values: Mapping[str, Any]) -> Moment:
    known = {name: values[name] for name in Moment.__slots__ if name in values}
    for name, value in known.items():
        if not isinstance(value, int | float if name in _MEASURES else str):
            raise TypeError(f"{name} of a moment")
    return Moment(**known)


def _check(kind: str, numbers: Mapping[str, Any], seconds: object) -> None:
    """Raise what says that something is missing which every entry of that kind has, or is of another type."""
    told = [*(numbers[name] for name in _NEEDED[kind]), *(numbers.get(name) for name in _OTHERS)]
    measured = [seconds, *(value for value in told if value is not None)]
    if kind == "stream":
        counts = [count for count, _ in numbers["gaps"]]
        if len(counts) != len(GAP_BOUNDS) + 1:
            raise ValueError("other buckets")
        measured += counts
    if not all(isinstance(value, int | float) for value in measured):
        raise TypeError("no number")


def _values(moment: Moment) -> list[tuple[str, Any]]:
    return [(each.name, getattr(moment, each.name)) for each in fields(moment)]
