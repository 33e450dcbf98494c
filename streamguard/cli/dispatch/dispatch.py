"""`streamguard dispatch`: several members on one prompt, described by a file."""

from pathlib import Path
from typing import Any

import click

from ...errors import UsageError
from ..stdio import report_option
from ..values import read_duration


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--prompt", metavar="TEXT", help="Replaces the file's prompt.")
@click.option(
    "--output-timeout",
    metavar="DURATION",
    callback=read_duration,
    help="How long a member may be without output; replaces the file's. 0 or off disables it.",
)
@click.option(
    "--records", metavar="URL", help="The records' database, sqlite:///F or postgresql://...; replaces the file's."
)
@click.option("--answers", is_flag=True, help="Print each member's answer; the table goes to standard error.")
@click.option(
    "--output-dir",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write each member's answer to DIR/NAME.txt.",
)
@report_option
@click.option("-q", "--quiet", is_flag=True, help="Show no table, and the last line only if a member did not succeed.")
@click.pass_context
def dispatch(ctx: click.Context, /, file: Path, **given: Any) -> None:
    """Send one prompt to several agents, and stop hung ones.

    FILE describes the members, in TOML.

    \b
    Example: streamguard dispatch review.toml --output-timeout 10m

    A live table shows them on a terminal; elsewhere a plain one is printed at the end. No process of a member is left over.
    Ctrl-C, SIGTERM, SIGHUP and SIGQUIT stop all of them; a second one kills them; a third one ends at once.

    Exit code: 0 every member that was not cancelled succeeded; 124 a member was stopped by the output timeout; 1 any other
    failure; 2 invalid usage; 128 + N if signal N stopped it: 130 Ctrl-C, 143 SIGTERM, 129 SIGHUP.
    """
    try:
        from .run_dispatch import run_dispatch

        exit_code = run_dispatch(file, **given)
    except ImportError as exc:
        raise click.ClickException(f"it needs {exc.name}: pip install 'streamguard[dispatch]'") from None
    except UsageError as exc:
        raise click.UsageError(f"{file}: {exc}") from None
    ctx.exit(exit_code)
