"""`streamguard run`: runs a command with limits on silence, as timeout(1) does with a limit on time."""

import sys
from collections.abc import Callable
from typing import IO, Any

import click

from ..exit_codes import ExitCode
from ..stdio import descriptor_of, has_room, main_output, report_option, write_record
from ..values import read_duration, read_pause

Command = Callable[..., None]


class _Command(click.Command):
    """Invalid usage is exit code 125, as with timeout(1): 2 may be the command's own."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.UsageError as exc:
            exc.exit_code = ExitCode.SUPERVISOR  # type: ignore[misc]
            raise

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as exc:
            if exc.exit_code in (ExitCode.FAILED, ExitCode.USAGE):
                exc.exit_code = ExitCode.SUPERVISOR  # type: ignore[misc]
            raise


def _limit(name: str, what: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}", metavar="DURATION", callback=read_duration, help=what)


@click.command(cls=_Command, context_settings={"allow_interspersed_args": False})
@click.argument("command", metavar="COMMAND...", nargs=-1, type=click.UNPROCESSED)
@_limit("first", "Until the first output. Default: as --idle.")
@_limit("idle", "Between outputs; up to twice as long while the command uses CPU.")
@_limit("total", "The whole run. Default: off.")
@_limit("tool-timeout", "As --idle, while a tool call runs, if it is longer; with --format.")
@click.option(
    "--format",
    type=click.Choice(["claude", "codex", "gemini", "opencode", "qwen", "cline", "lines"]),
    default="lines",
    help="The agent program whose output this is: then only real output counts. Default: lines, all output counts.",
)
@click.option("--stdout-only", is_flag=True, help="Standard error does not count. With an agent's format it never does.")
@click.option("--ignore", multiple=True, metavar="REGEX", help="Lines matching REGEX do not reset the timers; repeatable.")
@click.option(
    "--final",
    multiple=True,
    metavar="REGEX",
    help="The line that ends the run; without it the run is incomplete; repeatable.",
)
@click.option(
    "--pty",
    is_flag=True,
    help="Give the command a terminal as standard output: some programs buffer their output in a pipe.",
)
@click.option("--grace", metavar="DURATION", callback=read_pause, help="From SIGTERM to SIGKILL; 0: at once. Default: 3s.")
@click.option(
    "--on-stall", metavar="SHELL", help="Run this before the stop, for 10 s at most, with the diagnosis as JSON on stdin."
)
@report_option
@click.option(
    "-q", "--quiet", is_flag=True, help="Do not warn of options that have the command print nothing until its end."
)
@click.option("-v", "--verbose", is_flag=True, help="Write the last line if the command succeeds, too.")
@click.pass_context
def run(ctx: click.Context, /, command: tuple[str, ...], **options: Any) -> None:
    """Run a command, and stop it when it is silent.

    Its children are stopped too. The limits are --first, --idle and --total; at least one is required.

    \b
    Example: streamguard run --idle 10m -- make test

    Its output passes through as it arrives; so does standard input, unless it is a terminal. The first SIGINT is passed on;
    SIGTERM, SIGHUP, SIGQUIT and a second SIGINT end the command.

    A DURATION is 250ms, 90s, 2m, 1.5h, or seconds; 0 or off disables a limit.

    Exit code: the command's own (128 + N if signal N ended it); 124 a limit fired; 125 streamguard failed, or its usage is
    invalid; 126 the command cannot be executed; 127 the command does not exist. With --format or --final, 1 if the command
    exits with 0 and its output is not complete.
    """
    if not command:
        raise click.UsageError("missing COMMAND: streamguard run --idle 10m -- COMMAND ...")
    if not any(options[name] for name in ("first", "idle", "total")):
        raise click.UsageError("give at least one of --idle, --first and --total.")
    try:
        from .supervise import PATIENCE, supervise
    except ImportError as exc:
        raise click.ClickException(f"it needs {exc.name}: pip install 'streamguard[dispatch]'") from None
    report, verbose = options.pop("report"), options.pop("verbose")
    result = supervise(command, out=main_output(report), **options)
    shown = (result.exit_code or verbose) and not result.pipe_closed
    try:
        if shown and not (result.hurried and _is_paused(sys.stderr, PATIENCE)):
            click.echo(result.last_line(), err=True)
    finally:
        if report is not None:
            write_record(result.record(), report)
    if result.pipe_closed:
        raise BrokenPipeError
    ctx.exit(result.exit_code)


def _is_paused(out: IO[str], seconds: float) -> bool:
    descriptor = descriptor_of(out)
    return descriptor is not None and not has_room(descriptor, seconds)
