"""What became of a command."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from .._data.output_timeout import Diagnosis
from .._process.snapshot import ProcessSnapshot
from .command_clock import LimitFired

_SILENT = ("first", "idle", "tool")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """What `on_stall` gets before the program is stopped."""

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
    """`completed`, `failed`, `incomplete` (it ended well, without the line that says so), `timeout` or `cancelled`."""
    program: str
    message: str
    """What happened, in one sentence."""
    exit_code: int | None = None
    """The program's own exit code; None if it died by a signal, or was not started."""
    signal: int | None = None
    """The signal that it died by."""
    limit: str | None = None
    """The limit that fired: first, idle, tool, total or deadline."""
    limit_seconds: float | None = None
    error_code: str | None = None
    """Why it did not complete: a word of the format, or exit_N, signal_N, timeout, cancelled, incomplete, not_json."""
    reason: object = None
    """What was given to `cancel()`."""
    diagnosis: Diagnosis | None = None
    """What was known when a limit fired. Its instants are seconds since the start."""
    evidence: ProcessSnapshot | None = None
    """What was seen of the program before it was stopped, when a limit fired."""
    text: str = ""
    """The answer: the texts of all text events (the last 16 MiB)."""
    stdout: str = ""
    """The end of standard output (64 KiB), as it came."""
    stderr: str = ""
    """The end of standard error (64 KiB)."""
    session_id: str | None = None
    duration: float = 0.0
    deferred_by_cpu: float = 0.0
    """For how long burning CPU put a limit off, up to the end."""
    stopped: bool = False
    """Whether we ended it: for a limit, a cancel, or because it lingered after its result."""
    killed: bool = False
    """Whether something of it did not leave at SIGTERM, and had to be killed."""

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
    """Say which limit stopped *program*, what was known, and which knob there is."""
    known = fired.diagnosis
    if fired.limit not in _SILENT:
        return f"{program} was stopped after {fired.elapsed:.1f} s: {_knob(fired)}"
    parts = [f"{program} was stopped: no output for {fired.elapsed:.1f} s, {_knob(fired)}"]
    if known.deferred:
        parts.append(f"burning CPU had deferred it by {known.deferred:.1f} s")
    if known.tools:
        parts.append(f"a tool call was running: {', '.join(known.tools)}; tool_timeout= gives tools longer")
    if known.first_output_at is None:
        parts.append(
            "there was no output at all: a program that prints only at its end needs a streaming output mode, or pty"
        )
    if known.last_signal_kind is not None:
        parts.append(f"the last event that is not output was {known.last_signal_kind}")
    return "; ".join(parts)


def _knob(fired: LimitFired) -> str:
    if fired.limit == "deadline":
        return "the surrounding deadline() has passed"
    name = "tool_timeout" if fired.limit == "tool" else fired.limit
    return f"{name}={fired.seconds:g} has passed"
