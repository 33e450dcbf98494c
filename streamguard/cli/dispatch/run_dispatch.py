"""Runs the dispatch that a file describes, and shows it."""

import os
import signal
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console
from rich.live import Live

from ..._core import CancelToken
from ..._core.limits import NOT_GIVEN
from ...dispatch import Dispatcher, DispatchOutcome, DispatchStream
from ...dispatch._process.process import kill_running
from ...errors import UsageError
from ..exit_codes import ExitCode
from ..signals import handled
from ..stdio import write_record
from .dispatch_file import read_dispatch_file
from .dispatch_table import DispatchTable, last_line


def run_dispatch(
    file: Path,
    *,
    report: IO[str] | None,
    quiet: bool,
    prompt: str | None,
    output_timeout: float | None,
    records: str | None,
) -> int:
    """Run what *file* describes, with the given options in place of its own; show the outcome, and return the exit code."""
    asked = read_dispatch_file(file)
    if prompt == "":
        raise UsageError("--prompt takes text that is not empty")
    limits: dict[str, Any] = {"output_timeout": NOT_GIVEN, **asked.limits}
    if output_timeout is not None:
        limits["output_timeout"] = output_timeout
    console, table, stop = Console(quiet=quiet), DispatchTable(member.name for member in asked.members), _SignalStop()
    with handled(stop.handle):
        with (
            Dispatcher(records or asked.records) as dispatcher,
            dispatcher.stream(
                asked.conversation, asked.members, prompt or asked.prompt, mode=asked.mode, cancel=stop.token, **limits
            ) as stream,
        ):
            outcome = _show_live(stream, table, console)
        exit_code = stop.exit_code or _exit_code(outcome)
        if report is not None:
            write_record({**outcome.to_dict(), "exit_code": exit_code}, report)
    _show_result(outcome, table, console, quiet=quiet and not exit_code)
    return exit_code


class _SignalStop:
    """Stops the dispatch at the first signal, with the members' graces; without at the second one; ends at the third."""

    def __init__(self) -> None:
        self.token = CancelToken()
        self.exit_code = 0
        """128 plus the number of the first signal; 0 without one."""
        self._count = 0

    def handle(self, number: int) -> None:
        """Stop the dispatch at signal *number*. It runs in a signal handler."""
        self._count += 1
        self.exit_code = self.exit_code or 128 + number
        self.token.cancel(signal.Signals(number).name)
        if self._count > 1:
            kill_running(now=self._count > 2)
        if self._count > 2:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def _show_live(stream: DispatchStream, table: DispatchTable, console: Console) -> DispatchOutcome:
    """Read the events until the end; on a terminal, show the table meanwhile."""
    if not console.is_terminal:
        return _follow(stream, table)
    with Live(console=console, get_renderable=table.render):
        return _follow(stream, table)


def _follow(stream: DispatchStream, table: DispatchTable) -> DispatchOutcome:
    for event in stream:
        table.note(event)
    return stream.outcome


def _show_result(outcome: DispatchOutcome, table: DispatchTable, console: Console, *, quiet: bool) -> None:
    if not console.is_terminal:
        with console.capture() as printed:  # rich would end the process by itself if its output is closed
            console.print(table.render())
        click.echo(printed.get(), nl=False)
    if not quiet:
        click.echo(last_line(outcome), err=True)


def _exit_code(outcome: DispatchOutcome) -> int:
    if outcome.succeeded:
        return ExitCode.COMPLETE
    return ExitCode.TIMEOUT if any(turn.timed_out for turn in outcome.turns) else ExitCode.FAILED
