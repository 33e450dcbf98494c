"""The root of the command line: its commands, and how all of them end."""

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
from .exit_codes import ExitCode
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
            ctx.exit(ExitCode.INTERRUPTED)
        except BrokenPipeError:
            _forget_output()
            ctx.exit(ExitCode.PIPE)
        except OSError as exc:
            _forget_output()
            failure = click.ClickException(f"cannot write the output: {exc.strerror}")
            failure.exit_code = ExitCode.SUPERVISOR if ctx.invoked_subcommand == "run" else ExitCode.FAILED  # type: ignore[misc]
            raise failure from None


@click.group(cls=_Root, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version=__version__, prog_name="streamguard")
def main() -> None:
    """Timeouts that work on streaming HTTP, and on agent programs."""


for _command in (demo, dispatch, gateway, gateway_agent, report, run, tail):
    main.add_command(_command)


def _forget_output() -> None:
    """Send output to the null device: the interpreter's last flush would fail again, with a traceback."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError):  # without a descriptor, they are not the process's own
        os.dup2(nowhere, sys.stdout.fileno())
        if reader_has_left(sys.stderr.buffer):
            os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)
