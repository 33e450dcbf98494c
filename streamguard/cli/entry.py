"""The command line's root: its commands, and the endings that all of them share."""

import contextlib
import os
import sys
from typing import Any

try:
    import click
    import rich as _rich  # noqa: F401
except ImportError as exc:
    print(f"The streamguard command needs {exc.name}: pip install 'streamguard[cli]'", file=sys.stderr)
    sys.exit(2)

from .. import __version__
from .demo.demo import demo
from .dispatch.dispatch import dispatch
from .exit_codes import Exit
from .gateway_command import gateway, gateway_agent
from .output import reader_has_left
from .report_command import report
from .run.run import run
from .stdio import open_outputs
from .tail.tail import tail


class _Root(click.Group):
    """A group that ends like other commands when it is interrupted and when its output is closed.

    A command's name may have two words, where the first one is a command that takes files.
    """

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that *args* begin with: that of two words first."""
        words = " ".join(args[:2])
        return super().resolve_command(ctx, [words, *args[2:]] if words in self.commands else args)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        open_outputs()
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(err=True)  # the shell's prompt begins on a line of its own
            ctx.exit(Exit.INTERRUPTED)
        except BrokenPipeError:
            _forget_output()
            ctx.exit(Exit.PIPE)
        except OSError as exc:
            _forget_output()
            failure = click.ClickException(f"cannot write the output: {exc.strerror}")
            failure.exit_code = Exit.SUPERVISOR if ctx.invoked_subcommand == "run" else Exit.FAILED  # type: ignore[misc]
            raise failure from None


@click.group(cls=_Root)
@click.version_option(version=__version__, prog_name="streamguard")
def main() -> None:
    """Guard streaming HTTP calls: limits on silence that really cut a blocked stream."""


for _command in (demo, dispatch, gateway, gateway_agent, report, run, tail):
    main.add_command(_command)


def _forget_output() -> None:
    """Lead output that cannot be written to nowhere: the interpreter's last flush would fail again, and say so."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError):  # no descriptor: they are not the process's own
        os.dup2(nowhere, sys.stdout.fileno())
        if reader_has_left(sys.stderr.buffer):
            os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)
