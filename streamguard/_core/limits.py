"""The limits of one call: their values, where each came from, and whether they fit together.

Pure, except that making a `Timeouts` reads the environment.
"""

import math
import numbers
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, Literal

from ..errors import UsageError

Limit = float | str | timedelta | None
"""A limit as callers give it: seconds, a duration as text (`"90s"`, `"1m30s"`, `"off"`), a `timedelta`, or None."""


class NotGiven:
    """The type of `NOT_GIVEN`, which distinguishes an argument that is left out from None."""

    def __repr__(self) -> str:
        return "NOT_GIVEN"

    def __bool__(self) -> Literal[False]:
        return False


NOT_GIVEN: Final = NotGiven()


@dataclass(frozen=True, slots=True)
class LimitInfo:
    """A row of the table of limits."""

    name: str
    default: float | None
    """Seconds; None is off."""
    meaning: str

    @property
    def variable(self) -> str:
        """The environment variable that sets it."""
        return f"STREAMGUARD_{self.name.upper()}"


LIMITS: Final = {
    info.name: info
    for info in (
        LimitInfo("connect", 10.0, "Until connected: DNS, TCP, proxy, TLS"),
        LimitInfo("response", 120.0, "Until the response headers"),
        LimitInfo("first", 120.0, "From the headers to the first chunk"),
        LimitInfo("idle", 120.0, "Between two chunks"),
        LimitInfo("dead", None, "Between two bytes of any kind, heartbeats too"),
        LimitInfo("total", None, "The whole call, retries too"),
    )
}
"""The limits by name, in the order of a call."""
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*(ms|s|m|h|)")

_DAY: Final = 86_400.0

_configured: dict[str, float | None] = {}


class Timeouts:
    """The six limits of a call. Immutable; all arguments are keyword-only.

    A limit is a number of seconds, a `timedelta`, or a duration as text: `"90s"`, `"1m30s"`, `"250ms"`, `"off"`. A bare
    number above a day is accepted with a UserWarning, because it often means milliseconds.

    connect:  call → connected: waiting for the pool, DNS, TCP, proxy, TLS. Default 10.
    response: connected → response headers complete. Restarts when the body has been sent, and for each redirect. 120.
    first:    headers → first chunk that counts. Default: the same as `idle`.
    idle:     chunk → next chunk. Default 120.
    dead:     byte → next byte, heartbeat comments included. Default: off.
    total:    the whole call: all attempts, pauses and waits. Default: off.

    For the phases (all but `total`) None, or a value of 0 or less, means off. For `total` only None means off: 0 or less is
    *already spent*, and the call raises `DeadlineExceededError` before it connects.

    A limit that is not given comes from `streamguard.configure()`, else from the environment (`STREAMGUARD_IDLE=90s`; a
    bare number is seconds), else from the default; `total` caps all of those. Limits *given here* that contradict each
    other are refused with `UsageError`: `idle` above `total`; `dead` above both `first` and `idle`.

    Limits
        Only time that the caller spends waiting on the upstream counts for the phases. They are enforced inside `next()`.
    """

    __slots__ = ("_given", "_sources", "_values", "connect", "dead", "first", "idle", "response", "total")

    connect: float | None
    response: float | None
    first: float | None
    idle: float | None
    dead: float | None
    total: float | None

    def __init__(
        self,
        *,
        connect: Limit | NotGiven = NOT_GIVEN,
        response: Limit | NotGiven = NOT_GIVEN,
        first: Limit | NotGiven = NOT_GIVEN,
        idle: Limit | NotGiven = NOT_GIVEN,
        dead: Limit | NotGiven = NOT_GIVEN,
        total: Limit | NotGiven = NOT_GIVEN,
    ) -> None:
        asked = {"connect": connect, "response": response, "first": first, "idle": idle, "dead": dead, "total": total}
        given = {name: seconds_of(name, value) for name, value in asked.items() if not isinstance(value, NotGiven)}
        _refuse_conflicts(given)
        values, sources = _resolve(given, os.environ)
        for name, value in {**values, "_values": values, "_given": given, "_sources": sources}.items():
            object.__setattr__(self, name, value)

    _values: dict[str, float | None]
    _given: dict[str, float | None]
    _sources: dict[str, str]

    @classmethod
    def off(cls) -> "Timeouts":
        """Return limits that never fire."""
        return cls(connect=None, response=None, first=None, idle=None, dead=None, total=None)

    def replace(self, **limits: Limit | NotGiven) -> "Timeouts":
        """Return a copy with *limits* in place of those of the same names; `NOT_GIVEN` ones stay as they are."""
        given: dict[str, Any] = {name: value for name, value in limits.items() if not isinstance(value, NotGiven)}
        return Timeouts(**{**self._given, **given}) if given else self

    def source(self, name: str) -> str:
        """Return where the limit *name* came from: "argument", "configure()", an environment variable, "default"."""
        return self._sources[name]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Timeouts are immutable; use replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError("Timeouts are immutable")

    def __eq__(self, other: object) -> bool:
        return self._values == other._values if isinstance(other, Timeouts) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._values.values()))

    def __repr__(self) -> str:
        return f"Timeouts({', '.join(f'{name}={value}' for name, value in self._values.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._given,)


def configure(**limits: Limit | NotGiven) -> None:
    """Set the default limits of this process: `configure(idle=60, total=600)`.

    The arguments of a call override them; they override the environment. `NOT_GIVEN` removes one. Raises TypeError or
    UsageError, naming the limit, for an invalid value.
    """
    unknown = limits.keys() - LIMITS.keys()
    if unknown:
        raise TypeError(f"unknown limit {min(unknown)}=: expected {', '.join(LIMITS)}")
    new = {name: seconds_of(name, value) for name, value in limits.items() if not isinstance(value, NotGiven)}
    for name in limits:
        _configured.pop(name, None)
    _configured.update(new)


def parse_duration(text: str) -> float:
    """Return the seconds in *text*: `90`, `90s`, `1.5h`, `10m`, `250ms`, `1m30s`. Raises ValueError for anything else."""
    parts = _DURATION.findall(text.strip())
    if not parts or _DURATION.sub("", text.strip()).strip() or (len(parts) > 1 and any(not unit for _, unit in parts)):
        raise ValueError(
            f"invalid duration {text!r}: expected seconds, or a number with ms, s, m or h, such as 90s or 1.5h"
        )
    seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
    if not math.isfinite(seconds):
        raise ValueError(f"invalid duration {text[:20]!r}…: more seconds than a float can hold")
    return seconds


def seconds_of(name: str, value: Limit, *, source: str = "argument") -> float | None:
    """Return the limit *name* in seconds; None, infinity and `"off"` are off.

    Raises TypeError for another type (bool included), and UsageError for NaN, for a number too large for a float, and for
    text that is not a duration; the message names the limit and its source. Warns about a bare number above a day.
    """
    if isinstance(value, timedelta):
        return value.total_seconds()
    if value is None:
        return None
    if isinstance(value, str):
        try:
            return _seconds_of_text(name, value)
        except ValueError as exc:
            raise UsageError(f"{name}= must be a duration: {exc} ({source})") from None
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        kind = type(value).__name__
        expected = "seconds (a number, a duration such as '90s', or a timedelta) or None"
        raise TypeError(f"{name}= must be {expected}, got {kind}: {value!r} ({source})")
    try:
        seconds = float(value)
    except OverflowError:
        raise UsageError(f"{name}= is too large for a number of seconds: pass None for no limit ({source})") from None
    if math.isnan(seconds):
        raise UsageError(f"{name}= must be a number of seconds, got nan ({source})")
    _warn_above_a_day(name, seconds)
    return None if seconds == math.inf else seconds


def whole_number(name: str, value: object, least: int) -> int:
    """Return the argument *name*, a number of things. Raises TypeError if it is not an int, UsageError below *least*."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name}= must be a whole number, got {type(value).__name__}: {value!r}")
    if value < least:
        raise UsageError(f"{name}= must be {least} or more, got {value}")
    return value


def _seconds_of_text(name: str, text: str) -> float | None:
    if text.strip().lower() == "off":
        return None
    seconds = parse_duration(text)
    if text.strip()[-1].isdigit():
        _warn_above_a_day(name, seconds)
    return seconds


def _warn_above_a_day(name: str, seconds: float) -> None:
    if _DAY < seconds < math.inf:
        message = f"{name}={seconds:g} is {seconds / 3600:.0f} hours: limits are in seconds, not in milliseconds"
        warnings.warn(message, UserWarning, stacklevel=4)


def _refuse_conflicts(given: Mapping[str, float | None]) -> None:
    total, idle, dead = (given.get(name) for name in ("total", "idle", "dead"))
    first = given.get("first", idle)
    if total is not None and total > 0 and idle is not None and idle > total:
        raise UsageError(f"idle={idle:g} can never fire: it is above total={total:g}. Lower idle= or raise total=.")
    if dead and idle and first and 0 < first < dead and 0 < idle < dead:
        raise UsageError(
            f"dead={dead:g} can never fire: it is above first={first:g} and idle={idle:g}. "
            "dead= is the limit for bytes of any kind; make it the smallest."
        )


def _resolve(
    given: Mapping[str, float | None], environ: Mapping[str, str]
) -> tuple[dict[str, float | None], dict[str, str]]:
    values: dict[str, float | None] = {}
    sources: dict[str, str] = {}
    for name in LIMITS:
        values[name], sources[name] = _look_up(name, given, environ)
    if sources["first"] == "default":
        values["first"], sources["first"] = values["idle"], f"as idle, {sources['idle']}"
    total = values["total"]
    for name, value in values.items():
        if name != "total" and value is not None and value <= 0:
            values[name] = None
        elif name not in given and total is not None and total > 0 and value is not None:
            values[name] = min(value, total)
    return values, sources


def _look_up(name: str, given: Mapping[str, float | None], environ: Mapping[str, str]) -> tuple[float | None, str]:
    if name in given:
        return given[name], "argument"
    if name in _configured:
        return _configured[name], "configure()"
    variable = LIMITS[name].variable
    if variable in environ:
        try:
            return _seconds_of_text(variable, environ[variable]), variable
        except ValueError as exc:
            warnings.warn(f"{variable} is ignored: {exc}", UserWarning, stacklevel=5)
    return LIMITS[name].default, "default"


def _rebuild(given: dict[str, Any]) -> Timeouts:
    return Timeouts(**given)
