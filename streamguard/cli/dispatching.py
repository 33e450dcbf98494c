"""Runs the dispatch that a file describes, and shows it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console
from rich.live import Live

from ..core.limits import NOT_GIVEN
from ..dispatch import Dispatcher, DispatchOutcome, DispatchStream
from .dispatch_file import read_dispatch_file
from .dispatch_table import DispatchTable, last_line
from .exits import Exit

__all__ = ["last_line", "run_dispatch"]

_TERMINATED = 128 + signal.SIGTERM


class _TerminatedError(BaseException):
    """Raised where SIGTERM interrupts the main thread."""


def run_dispatch(
    file: Path, *, quiet: bool, prompt: str | None, output_timeout: float | None, records: str | None
) -> tuple[DispatchOutcome, int]:
    """Run what *file* describes, with what was given in place of its own; return the outcome and the exit code."""
    asked = read_dispatch_file(file)
    limits: dict[str, Any] = {"output_timeout": NOT_GIVEN, **asked.limits}
    if output_timeout is not None:
        limits["output_timeout"] = output_timeout
    with Dispatcher(records or asked.records) as dispatcher, _terminations():
        text = prompt or asked.prompt
        with dispatcher.stream(asked.conversation, asked.members, text, mode=asked.mode, **limits) as stream:
            stopped = _show(stream, DispatchTable(member.name for member in asked.members), quiet)
            return stream.outcome, stopped or _exit_code(stream.outcome)


def _show(stream: DispatchStream, table: DispatchTable, quiet: bool) -> int:
    """Show the events until the end; return the exit code of an interruption, or 0."""
    console = Console(quiet=quiet)
    if not console.is_terminal:
        stopped = _take(stream, table)
        console.print(table.render())
        return stopped
    with Live(console=console, get_renderable=table.render):
        return _take(stream, table)


def _take(stream: DispatchStream, table: DispatchTable) -> int:
    try:
        _note_all(stream, table)
    except (KeyboardInterrupt, _TerminatedError) as exc:
        stream.cancel_all("user_cancel")
        _note_all(stream, table)
        return Exit.INTERRUPTED if isinstance(exc, KeyboardInterrupt) else _TERMINATED
    return 0


def _note_all(stream: DispatchStream, table: DispatchTable) -> None:
    for event in stream:
        table.note(event)


def _exit_code(outcome: DispatchOutcome) -> int:
    if outcome.succeeded:
        return Exit.COMPLETE
    return Exit.TIMEOUT if any(turn.timed_out for turn in outcome.turns) else Exit.FAILED


@contextmanager
def _terminations() -> Iterator[None]:
    """Have SIGTERM interrupt the main thread, as Ctrl-C does."""

    def terminate(_number: int, _frame: FrameType | None) -> None:
        raise _TerminatedError

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
