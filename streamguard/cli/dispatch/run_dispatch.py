"""Runs the dispatch that a file describes, and shows it."""

import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import IO, Any

import click
from rich.console import Console
from rich.live import Live

from ..._core import CancelToken
from ..._core.limits import NOT_GIVEN
from ...dispatch import Dispatcher, DispatchOutcome, DispatchStream
from ...dispatch._process.process import kill_running
from ...dispatch._turn.dispatch_options import VARIABLE
from ...errors import UsageError
from ..exit_codes import ExitCode
from ..signals import handled
from ..stdio import main_output, write_record
from .answers import answers_text, make_folder, write_answers
from .dispatch_file import read_dispatch_file
from .dispatch_table import DispatchTable, failure_lines, last_line


def run_dispatch(
    file: Path, *, prompt: str | None, output_timeout: float | None, records: str | None, **display: Any
) -> int:
    """Run what *file* describes, with the given options in place of its own; show the outcome, and return the exit code."""
    asked = read_dispatch_file(file)
    if prompt == "":
        raise UsageError("--prompt must not be empty")
    limits: dict[str, Any] = {"output_timeout": NOT_GIVEN, **asked.limits}
    if output_timeout is not None:
        limits["output_timeout"] = output_timeout
    screen, stop = _Screen(DispatchTable(member.name for member in asked.members), **display), _SignalStop()
    if limits["output_timeout"] is NOT_GIVEN and VARIABLE not in os.environ and "first" not in limits:
        screen.warn("no output timeout: a member that hangs is not stopped. Pass --output-timeout, or off for none.")
    with handled(stop.handle):
        with (
            Dispatcher(records or asked.records) as dispatcher,
            dispatcher.stream(
                asked.conversation, asked.members, prompt or asked.prompt, mode=asked.mode, cancel=stop.token, **limits
            ) as stream,
        ):
            outcome = screen.follow(stream)
        exit_code = stop.exit_code or _exit_code(outcome)
        screen.write_files(outcome, exit_code)
    screen.show(outcome, exit_code)
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


class _Screen:
    """Where a dispatch is shown and written.

    A terminal has a live table; anything else a plain one, at the end. Standard output holds only the report if that is
    written there, else only the answers if they are asked for; the table then goes to standard error.
    """

    def __init__(
        self, table: DispatchTable, *, report: IO[str] | None, quiet: bool, answers: bool, output_dir: Path | None
    ) -> None:
        self._table = table
        self._report = report
        self._quiet = quiet
        self._answers = main_output(report) if answers else None
        self._folder = output_dir
        self._out = sys.stderr if answers else main_output(report)
        self._console = Console(file=self._out, quiet=quiet)
        self._live = self._console.is_terminal and not self._console.is_dumb_terminal
        if output_dir is not None:
            make_folder(output_dir)

    def warn(self, text: str) -> None:
        """Write a warning, unless it is to be quiet."""
        if not self._quiet:
            click.echo(f"streamguard: warning: {text}", err=True)

    def follow(self, stream: DispatchStream) -> DispatchOutcome:
        """Read the events until the end; on a terminal, show the table meanwhile."""
        live = Live(console=self._console, get_renderable=self._table.render) if self._live else contextlib.nullcontext()
        with live:
            for event in stream:
                self._table.note(event)
        return stream.outcome

    def write_files(self, outcome: DispatchOutcome, exit_code: int) -> None:
        """Write the answers and the report."""
        if self._folder is not None:
            write_answers(outcome, self._folder)
        if self._report is not None:
            write_record({**outcome.to_dict(), "exit_code": exit_code}, self._report)

    def show(self, outcome: DispatchOutcome, exit_code: int) -> None:
        """Print the table, if it is not on display, the answers, the reasons of failures, and the last line."""
        if not self._live and not self._quiet:
            click.echo(self._table.plain(), nl=False, file=self._out)
        if self._answers is not None:
            click.echo(answers_text(outcome, terminal=self._answers.isatty()), nl=False, file=self._answers)
        if exit_code or not self._quiet:
            for line in (*failure_lines(outcome), last_line(outcome)):
                click.echo(line, err=True)


def _exit_code(outcome: DispatchOutcome) -> int:
    if outcome.succeeded:
        return ExitCode.COMPLETE
    return ExitCode.TIMEOUT if any(turn.timed_out for turn in outcome.turns) else ExitCode.FAILED
