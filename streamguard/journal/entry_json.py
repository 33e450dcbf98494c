"""Journal entries as JSON data, and back."""

import datetime
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ..telemetry.events import GAP_BOUNDS
from .entries import JournalEntry, Moment

_NEEDED = {
    "stream": (
        *("chunks", "bytes", "comments", "status_code", "abandoned_threads"),
        *("time_to_headers", "time_to_first_chunk", "max_gap"),
    ),
    "run": (),
    "turn": (),
    "gap": ("entries",),
}
"""The numbers that every entry of a kind has."""
_OTHERS = ("max_byte_gap", "silence", "deadline")
_MEASURES = frozenset({"at", "attempt", "seconds", "limit"})


def plain(entry: JournalEntry) -> dict[str, Any]:
    """Return *entry* as data for JSON; fields of moments that are None are left out."""
    values = {each.name: getattr(entry, each.name) for each in fields(entry)}
    moments = [{key: value for key, value in _values(moment) if value is not None} for moment in entry.moments]
    return {**values, "started_at": entry.started_at.timestamp(), "moments": moments, "numbers": dict(entry.numbers)}


def entry_of(values: Mapping[str, Any]) -> JournalEntry:
    """Return the entry with these *values* of `plain()`; fields of a newer version are left out of its moments.

    Raises ValueError if the values are not those of an entry, or damaged.
    """
    try:
        started_at = datetime.datetime.fromtimestamp(values["started_at"], datetime.UTC)
        moments = tuple(map(_moment_of, values["moments"]))
        _check(values["kind"], values["numbers"], values["seconds"])
        return JournalEntry(**{**values, "started_at": started_at, "moments": moments})
    except (LookupError, TypeError, ValueError, OverflowError, OSError) as exc:
        raise ValueError(f"not a journal entry: {type(exc).__name__}") from None


def _moment_of(values: Mapping[str, Any]) -> Moment:
    known = {name: values[name] for name in Moment.__slots__ if name in values}
    for name, value in known.items():
        if not isinstance(value, int | float if name in _MEASURES else str):
            raise TypeError(f"{name} of a moment")
    return Moment(**known)


def _check(kind: str, numbers: Mapping[str, Any], seconds: object) -> None:
    """Raise if a number is missing that every entry of *kind* has, or if one is not a number."""
    known = [*(numbers[name] for name in _NEEDED[kind]), *(numbers.get(name) for name in _OTHERS)]
    measured = [seconds, *(value for value in known if value is not None)]
    if kind == "stream":
        counts = [count for count, _ in numbers["gaps"]]
        if len(counts) != len(GAP_BOUNDS) + 1:
            raise ValueError("wrong number of buckets")
        measured += counts
    if not all(isinstance(value, int | float) for value in measured):
        raise TypeError("not a number")


def _values(moment: Moment) -> list[tuple[str, Any]]:
    return [(each.name, getattr(moment, each.name)) for each in fields(moment)]
