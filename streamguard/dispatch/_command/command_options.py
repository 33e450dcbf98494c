"""The options of a command, checked, and what follows from them."""

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypedDict

from ..._core.cancel import CancelToken, current_token
from ..._core.deadline import current_deadline
from ..._core.limits import seconds_of
from ...errors import UsageError
from .._formats import Pattern, make_format
from .._process.spawn import Spec, check_argv
from .command_clock import CommandLimits
from .command_result import Stall
from .command_watch import OutputReaders

_LONGEST = threading.TIMEOUT_MAX / 4
"""Seconds. `threading` can still wait for a sum of a few of these."""

Seconds = float | str | timedelta | None
Patterns = Pattern | Iterable[Pattern] | None


class CommandOptions(TypedDict, total=False):
    """The keyword arguments of `run_command`."""

    format: str
    first: Seconds
    idle: Seconds
    total: Seconds
    tool_timeout: Seconds
    pty: bool
    on_stall: Callable[[Stall], object] | None
    cancel: CancelToken | None
    input: str | bytes | None
    env: Mapping[str, str] | None
    cwd: str | os.PathLike[str] | None
    stdout_only: bool
    ignore: Patterns
    final: Patterns
    grace: Seconds
    linger: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPlan:
    """The options of a command with their defaults, and four that only this package uses.

    raw:           yield the output as `RawOutput`.
    events:        yield events. They cost more than bytes.
    inherit_stdin: let the program read this process's standard input.
    frames:        for turns: the first line of any known kind satisfies *first*, not only output; `done` is yielded when
                   the result line is read; a stop takes a snapshot.
    """

    argv: Sequence[str] = field(repr=False)
    format: str = "lines"
    first: Seconds = None
    idle: Seconds = None
    total: Seconds = None
    tool_timeout: Seconds = None
    pty: bool = False
    on_stall: Callable[[Stall], object] | None = None
    cancel: CancelToken | None = None
    input: str | bytes | None = field(default=None, repr=False)
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | os.PathLike[str] | None = None
    stdout_only: bool = False
    ignore: Patterns = None
    final: Patterns = None
    grace: Seconds = 3.0
    linger: Seconds = 1.0
    raw: bool = False
    events: bool = True
    inherit_stdin: bool = False
    frames: bool = False

    def check(self) -> None:
        """Raise UsageError or TypeError for an invalid option."""
        check_argv(self.spec().argv)
        self.limits()
        self.readers()
        self.grace_seconds()

    def limits(self) -> CommandLimits:
        """Return the limits in seconds, with the time that a surrounding `deadline()` leaves."""
        total = seconds_of("total", self.total)
        if total is not None and total <= 0:
            raise UsageError(f"total= must be above 0 seconds (None disables it), got {total:g}")
        ambient = current_deadline()
        return CommandLimits(
            first=_phase("first", self.first),
            idle=_phase("idle", self.idle),
            total=total,
            deadline=None if ambient is None else ambient.remaining(),
            tool_timeout=_phase("tool_timeout", self.tool_timeout),
            linger=self.linger_seconds(),
            frames=self.frames,
        )

    def readers(self) -> OutputReaders:
        """Return new readers of the two outputs."""
        return OutputReaders(
            stdout=make_format(self.format, ignore=self.ignore, final=self.final, split=self.events),
            stderr=make_format("lines", ignore=self.ignore, split=self.events),
            stderr_counts=self.format == "lines" and not self.stdout_only,
            raw=self.raw,
            events=self.events,
            for_turn=self.frames,
        )

    def spec(self) -> Spec:
        """Return the program to start."""
        if self.inherit_stdin and self.input is not None:
            raise UsageError("input= and inherit_stdin= exclude each other: pass one of them")
        if isinstance(self.argv, str | bytes):
            raise UsageError(
                "argv= must be a list: the program and its arguments, got one string; for a shell, pass ['sh', '-c', '...']"
            )
        return Spec(
            argv=tuple(map(os.fsdecode, self.argv)),
            env=self.env,
            cwd=self.cwd,
            input=_encoded(self.input),
            inherit_stdin=self.inherit_stdin,
            pty=self.pty,
        )

    def grace_seconds(self) -> float:
        """Return the seconds between SIGTERM and SIGKILL."""
        return _pause("grace", self.grace)

    def linger_seconds(self) -> float:
        """Return the seconds that the program may take to exit after its result."""
        return _pause("linger", self.linger)

    def token(self) -> CancelToken:
        """Return a child of the given token, or of the current one."""
        parent = self.cancel if self.cancel is not None else current_token()
        return CancelToken() if parent is None else parent.child()


def _phase(name: str, value: Seconds) -> float | None:
    seconds = seconds_of(name, value)
    return seconds if seconds is not None and seconds > 0 else None


def _pause(name: str, value: Seconds) -> float:
    seconds = seconds_of(name, value)
    if seconds is None or seconds < 0:
        raise UsageError(f"{name}= must be >= 0 seconds, got {value!r}")
    return min(seconds, _LONGEST)


def _encoded(text: str | bytes | None) -> bytes | None:
    if text is not None and not isinstance(text, str | bytes | bytearray | memoryview):
        raise TypeError(f"input= must be text or bytes, got {type(text).__name__}")
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError:
        raise UsageError("input= has a lone surrogate, which UTF-8 cannot encode: pass bytes") from None
