"""How a supervised command ended: the exit code, the last line, the report as JSON. Pure."""

import signal
from dataclasses import dataclass
from typing import Any

from ..._text import one_line
from ...dispatch._command.command_result import CommandResult
from ..exit_codes import ExitCode


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run.

    pipe_closed: our output was closed.
    hurried:     a paused reader must not be waited for.
    output_lost: some of the command's output was dropped, since it was not read in time.
    """

    result: CommandResult
    pipe_closed: bool = False
    hurried: bool = False
    output_lost: bool = False

    @property
    def exit_code(self) -> int:
        """The command's own code, unless that would hide what happened."""
        result = self.result
        if self.pipe_closed:
            return ExitCode.PIPE
        if result.outcome == "timeout":
            return ExitCode.TIMEOUT
        if result.ok:
            return ExitCode.COMPLETE
        own = 128 + result.signal if result.signal else result.exit_code or 0
        return own or (ExitCode.FAILED if result.outcome in ("failed", "incomplete") else ExitCode.COMPLETE)

    def last_line(self) -> str:
        """Return what happened, which limit fired, and whether CPU deferred it, in one line."""
        result = self.result
        parts = [f"streamguard: {self._what()}"]
        if result.limit:
            parts.append(_deferral(result))
        if how := self._how():
            parts.append(how)
        if self.output_lost:
            parts.append("output was dropped because it was not read in time")
        parts += [f"exit code {int(self.exit_code)}", f"{result.duration:.1f} s in all"]
        return one_line("; ".join(parts))

    def record(self) -> dict[str, Any]:
        """Return the report as plain data."""
        own = {"command_exit_code": self.result.exit_code, "exit_code": int(self.exit_code)}
        return {**self.result.to_dict(), **own, "output_lost": self.output_lost}

    def _what(self) -> str:
        result = self.result
        if result.limit:
            return f"timeout, --{_option(result.limit)} {result.limit_seconds:g} s: {result.message}"
        if result.outcome == "cancelled":
            return f"stopped by {result.reason}"
        return f"{result.outcome}: {result.message}" if not result.ok else result.message

    def _how(self) -> str:
        """Return how the command's process ended, if the exit code does not say it."""
        result = self.result
        if result.stopped and result.killed:
            return "killed (SIGKILL), since it did not exit after SIGTERM"
        if result.signal:
            return f"terminated ({_signal_name(result.signal)})"
        if result.exit_code is None:
            return "the command's exit code is unknown"
        return f"the command's exit code was {result.exit_code}" if result.exit_code != self.exit_code else ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return f"signal {number}"


def _option(limit: str) -> str:
    return "tool-timeout" if limit == "tool" else limit


def _deferral(result: CommandResult) -> str:
    if result.deferred_by_cpu:
        return f"deferred by CPU for {result.deferred_by_cpu:.1f} s"
    return "not deferred by CPU"
