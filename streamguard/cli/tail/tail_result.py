"""How a tail ended: its exit code, its last line, its report as JSON. Pure."""

from dataclasses import dataclass
from typing import Any

from ..._core import Timeouts
from ..._core.limits import LIMITS
from ..._stream import StreamReport
from ..._svg import format_seconds
from ..._text import counted, one_line
from ...errors import DeadlineExceededError, StreamguardError, TransportTimeoutError, UsageError
from ..exit_codes import ExitCode
from ..signals import Terminated
from .tail_options import Secrets


@dataclass(frozen=True, slots=True)
class TailResult:
    """How a stream ended: *error* ended it, or is None if the stream reached its own end."""

    report: StreamReport
    error: StreamguardError | KeyboardInterrupt | BrokenPipeError | None
    limits: Timeouts
    secrets: Secrets

    @property
    def exit(self) -> int:
        """The exit code."""
        if self.error is None:
            return ExitCode.COMPLETE
        if isinstance(self.error, Terminated):
            return 128 + self.error.number
        if isinstance(self.error, KeyboardInterrupt):
            return ExitCode.INTERRUPTED
        if isinstance(self.error, BrokenPipeError):
            return ExitCode.PIPE
        if isinstance(self.error, UsageError):
            return ExitCode.USAGE
        return ExitCode.TIMEOUT if isinstance(self.error, TimeoutError) else ExitCode.FAILED

    @property
    def message(self) -> str | None:
        """The error's message on one line, without secrets."""
        if not isinstance(self.error, StreamguardError):
            return None
        return one_line(self.secrets.hidden(str(self.error)))

    @property
    def limit(self) -> str | None:
        """The name of the limit that fired. A timeout of the operating system has none."""
        if isinstance(self.error, DeadlineExceededError):
            return "total"
        if isinstance(self.error, TransportTimeoutError) and self.error.limit is not None:
            return self.error.phase
        return None

    def last_line(self) -> str:
        """Return the outcome, the limit that fired, and the report's essentials, in one line."""
        report = self.report
        return f"streamguard: {self._outcome()}; " + ", ".join(
            (
                counted(report.attempts, "attempt"),
                counted(report.chunks, "chunk"),
                counted(report.bytes, "byte"),
                counted(report.comments, "heartbeat"),
                f"headers after {format_seconds(report.time_to_headers)}",
                f"first chunk after {format_seconds(report.time_to_first_chunk)}",
                f"longest gap {format_seconds(report.max_gap)}",
                f"{format_seconds(report.lifetime)} in all",
                f"id {report.id}",
            )
        )

    def record(self) -> dict[str, Any]:
        """Return the report as plain data, with the exit code, the message, and the limit that fired."""
        return {
            **self.report.to_dict(),
            "request_id": self.report.request_id and self.secrets.hidden(self.report.request_id),
            "exit_code": int(self.exit),
            "message": self.message,
            "limit": self.limit,
            "limits": {name: getattr(self.limits, name) for name in LIMITS},
        }

    def _outcome(self) -> str:
        if isinstance(self.error, KeyboardInterrupt):
            return f"interrupted in phase {self.report.phase}"
        if self.limit:
            return f"timeout, {self.limit} {getattr(self.limits, self.limit):g} s ({self._source(self.limit)})"
        if self.error:
            return f"{self.report.outcome}, {type(self.error).__name__} in phase {self.report.phase}"
        return self.report.outcome

    def _source(self, limit: str) -> str:
        source = self.limits.source(limit)
        return f"--{limit}" if source == "argument" else source.replace("argument", "--idle")
