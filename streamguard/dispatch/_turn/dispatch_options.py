"""The arguments of a dispatch, checked: members, prompt, mode, limits."""

import logging
import os
import threading
import uuid
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from ..._core.limits import Limit, NotGiven, seconds_of
from ...errors import UsageError
from ...telemetry.logs import log_line
from .._data.outcome import TurnOutcome
from .._data.rows import ExecutionRecord
from .._data.status import ExecutionStatus
from .._members.member import Member

Prompt = str | Callable[[str], str]
Mode = Literal["parallel", "serial"]
Follow = Callable[[TurnOutcome], Iterable[Member]]

VARIABLE = "CLI_TIMEOUT_MS"
"""The environment variable that holds the output timeout, in milliseconds."""

_LONGEST = timedelta(days=30).total_seconds()


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLimits:
    """The limits of each turn of a dispatch, in seconds; None and 0 are off."""

    output_timeout: float = 0.0
    """Without output: then the turn is stopped (R2)."""
    tool_timeout: float | None = None
    """Without output while a tool call is in flight, if it is longer: see `OutputTimeout`."""
    first: float | None = None
    """Until the first frame of a program (R26)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchPlan:
    """What a dispatch runs."""

    record: ExecutionRecord
    members: tuple[Member, ...]
    prompt: Prompt = field(repr=False)
    limits: TurnLimits
    follow: Follow | None = None
    recorded: bool = False
    """Whether its record is already `running`, as for an entry of a queue."""


def plan_of(
    conversation: str, members: Iterable[Member], prompt: Prompt, mode: Mode, limits: TurnLimits, follow: Follow | None
) -> DispatchPlan:
    """Return the plan of a dispatch. Raises TypeError or UsageError for invalid arguments."""
    named = by_name(members)
    if not isinstance(conversation, str) or not conversation:
        raise UsageError(f"conversation= must be a non-empty str, got {conversation!r}")
    if not isinstance(prompt, str) and not callable(prompt):
        raise TypeError(f"prompt= must be a str or a function of the member's name, got {type(prompt).__name__}")
    if mode not in ("parallel", "serial"):
        raise UsageError(f"mode= must be 'parallel' or 'serial', got {mode!r}")
    if follow is not None and mode != "serial":
        raise UsageError(f"follow= needs mode='serial', got mode={mode!r}")
    record = ExecutionRecord(
        id=uuid.uuid4().hex,
        conversation=conversation,
        mode=mode,
        members=[*named],
        prompt=prompt if isinstance(prompt, str) else "",
        options={},
        status=ExecutionStatus.RUNNING,
    )
    return DispatchPlan(record=record, members=tuple(named.values()), prompt=prompt, limits=limits, follow=follow)


def by_name(members: Iterable[Member]) -> dict[str, Member]:
    """Return the members by name. Raises TypeError for another type, UsageError for no member or a repeated name."""
    found = tuple(members) if isinstance(members, Iterable) else None
    if found is None or not all(isinstance(member, Member) for member in found):
        wrong = members if found is None else next(member for member in found if not isinstance(member, Member))
        raise TypeError(
            "members= must be a list of members, such as CommandMember, StreamMember or CallableMember, "
            f"got {type(wrong).__name__}"
        )
    if not found:
        raise UsageError("members= must have at least one member, got none")
    named: dict[str, Member] = {}
    for member in found:
        if member.name in named:
            raise UsageError(f"members= names {member.name!r} twice: the names must differ")
        named[member.name] = member
    return named


def limits_of(
    output_timeout: Limit | NotGiven, tool_timeout: Limit, first: Limit, environ: Mapping[str, str] = os.environ
) -> TurnLimits:
    """Return the limits of a dispatch. Raises TypeError or UsageError for an invalid value, naming it."""
    return TurnLimits(
        output_timeout=_output_timeout(output_timeout, environ),
        tool_timeout=_limit("tool_timeout", tool_timeout),
        first=_limit("first", first),
    )


def _output_timeout(given: Limit | NotGiven, environ: Mapping[str, str]) -> float:
    """Return the output timeout in seconds; 0 never fires.

    given: the argument, in seconds; 0 and None disable it. If it is not given, `CLI_TIMEOUT_MS` (*milliseconds*) applies,
           else it is disabled. An invalid value there (negative, NaN, empty, above 30 days) is ignored with a warning.

    Logs one INFO line if it is disabled. Raises TypeError or UsageError for an invalid argument.
    """
    seconds = _from_environment(environ) if isinstance(given, NotGiven) else _limit("output_timeout", given) or 0.0
    if seconds == 0:
        log_line(
            logging.INFO,
            "no_output_timeout",
            "no output timeout: a member that hangs is not stopped (set output_timeout=, or %s)",
            VARIABLE,
        )
    return seconds


def _limit(name: str, value: Limit) -> float | None:
    """Return the limit *name* in seconds; None and 0 are off. Raises TypeError or UsageError, naming it."""
    seconds = seconds_of(name, value)
    if seconds is None or seconds == 0:
        return None
    if seconds < 0:
        raise UsageError(f"{name}= must be >= 0 seconds (0 disables it), got {seconds:g}")
    return min(seconds, threading.TIMEOUT_MAX)


def _from_environment(environ: Mapping[str, str]) -> float:
    text = environ.get(VARIABLE)
    if text is None:
        return 0.0
    try:
        seconds = float(text) / 1000
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST:  # false for NaN too
        warnings.warn(
            f"{VARIABLE}={text!r} is ignored: expected milliseconds, from 0 (disabled) to 30 days",
            UserWarning,
            stacklevel=5,
        )
        return 0.0
    return seconds
