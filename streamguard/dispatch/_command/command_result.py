"""The result of a command."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from .._data.output_timeout import Diagnosis
from .._process.snapshot import ProcessSnapshot
from .command_clock import LimitFired

_SILENT = ("first", "idle", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """The argument of `on_stall`, which is called before the program is stopped."""

    pid: int
    program: str
    fired: LimitFired
    evidence: ProcessSnapshot

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        return {
            "pid": self.pid,
            "program": self.program,
            "limit": self.fired.limit,
            "seconds": self.fired.seconds,
            "elapsed": self.fired.elapsed,
            "diagnosis": self.fired.diagnosis.to_dict(),
            "evidence": self.evidence.to_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """How a command ended. Times are in seconds."""

    outcome: str
    """`completed`, `failed`, `incomplete` (exit code 0, without the final line), `timeout` or `cancelled`."""
    program: str
    message: str
    """One sentence about the end."""
    exit_code: int | None = None
    """The program's exit code; None if a signal ended it, or it was not started."""
    signal: int | None = None
    """The number of the signal that ended it."""
    limit: str | None = None
    """The limit that fired: first, idle, tool, total or deadline."""
    limit_seconds: float | None = None
    error_code: str | None = None
    """Why it did not complete: a code of the format, or exit_N, signal_N, timeout, cancelled, incomplete, not_json."""
    reason: object = None
    """The argument of `cancel()`."""
    diagnosis: Diagnosis | None = None
    """The diagnosis when a limit fired. Its instants are seconds since the start."""
    evidence: ProcessSnapshot | None = None
    """A snapshot of the program from before the stop, if a limit fired."""
    text: str = ""
    """The answer: the texts of all text events (the last 16 MiB)."""
    stdout: str = ""
    """The end of standard output (64 KiB)."""
    stderr: str = ""
    """The end of standard error (64 KiB)."""
    session_id: str | None = None
    duration: float = 0.0
    deferred_by_cpu: float = 0.0
    """Seconds by which CPU use deferred *idle*."""
    stopped: bool = False
    """Whether streamguard ended it: for a limit, a cancel, or because it did not exit after its result."""
    killed: bool = False
    """Whether a process of it outlived SIGTERM, and got SIGKILL."""

    @property
    def ok(self) -> bool:
        """Whether it completed."""
        return self.outcome == "completed"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {
            **plain,
            "reason": None if self.reason is None else str(self.reason),
            "diagnosis": self.diagnosis and self.diagnosis.to_dict(),
            "evidence": self.evidence and self.evidence.to_dict(),
        }


def timeout_sentence(program: str, fired: LimitFired) -> str:
    """Return one sentence: the limit that stopped *program*, what had arrived, and the argument to change."""
    known = fired.diagnosis
    if fired.limit not in _SILENT:
        return f"{program} was stopped after {fired.elapsed:.1f} s (limit: {_limit_of(fired)})"
    parts = [f"{program} was stopped: no output for {fired.elapsed:.1f} s (limit: {_limit_of(fired)})"]
    if known.deferred:
        parts.append(f"CPU use had deferred it by {known.deferred:.1f} s")
    if known.tools:
        parts.append(f"a tool call was running: {', '.join(known.tools)}; raise tool_timeout= to give tools longer")
    if known.first_output_at is None:
        parts.append(
            "there was no output at all: a program that prints only at its end needs a streaming output mode, or pty=True"
        )
    if known.last_signal_kind is not None:
        parts.append(f"the last event that is not output was {known.last_signal_kind}")
    return "; ".join(parts)


def _limit_of(fired: LimitFired) -> str:
    if fired.limit == "deadline":
        return "the surrounding deadline()"
    name = "tool_timeout" if fired.limit == "tool" else fired.limit
    return f"{name}={fired.seconds:g}"
