"""The command line's root: its commands, and the endings that all of them share."""

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
from .demo import demo
from .exits import Exit
from .gateway import gateway
from .tail import tail

__all__ = ["main"]


class _Root(click.Group):
    """A group that ends like other commands when interrupted, and when nobody reads its output any more."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            click.echo(err=True)  # the shell's prompt begins on a line of its own
            ctx.exit(Exit.INTERRUPTED)
        except BrokenPipeError:
            _write_to_nowhere()
            ctx.exit(Exit.PIPE)


@click.group(cls=_Root)
@click.version_option(version=__version__, prog_name="streamguard")
def main() -> None:
    """Guard streaming HTTP calls: limits on silence that really cut a blocked stream."""


for _command in (demo, gateway, tail):
    main.add_command(_command)


def _write_to_nowhere() -> None:
    """Let the interpreter flush what is left: into a closed pipe that would be one more error, and a message."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
