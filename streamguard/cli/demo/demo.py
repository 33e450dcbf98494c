"""`streamguard demo`: replays on loopback the incident that led to streamguard."""

import time
from collections.abc import Callable, Sequence

import click
from rich.console import Console

from ...errors import StreamguardError
from ..exit_codes import ExitCode
from .demo_console import DemoConsole
from .demo_scenes import DemoScene, bare_call, retried_stream, stalled_stream

SCENES: tuple[Callable[[DemoConsole], DemoScene], ...] = (bare_call, retried_stream, stalled_stream)
TITLES = ("call", "attempts", "phase", "chunks", "outcome", "took", "the server saw")
_PAUSE_SECONDS = 1.0


@click.command()
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Show a stream that hangs, and how a limit ends it.

    A gateway on loopback goes silent: with requests alone, then guarded. It takes about 20 s.

    Exit code: 0 if everything happened as shown, 1 if not, 130 after Ctrl-C.
    """
    console = DemoConsole(Console())
    console.say("A gateway answers 200, sends heartbeat comments, but no content. A real one did so for 595 s.")
    try:
        scenes = [_played(scene, console) for scene in SCENES]
    except (StreamguardError, AssertionError, OSError) as exc:
        raise click.ClickException(f"the demo failed: {type(exc).__name__}: {exc}") from exc
    ctx.exit(finale(console, scenes))


def _played(play: Callable[[DemoConsole], DemoScene], console: DemoConsole) -> DemoScene:
    scene = play(console)
    time.sleep(_PAUSE_SECONDS)
    return scene


def finale(console: DemoConsole, scenes: Sequence[DemoScene]) -> ExitCode:
    """Show what happened, and whether it matches the claims."""
    console.heading("What happened, according to the reports and the server")
    console.table(TITLES, (scene.row for scene in scenes))
    broken = [f"{scene.name}: {claim}" for scene in scenes for claim, holds in scene.claims if not holds]
    for claim in broken:
        console.say(f"This did not happen: {claim}", style="bold red")
    if broken:
        return ExitCode.FAILED
    number = sum(len(scene.claims) for scene in scenes)
    console.say(f"\nAll {number} claims were checked as they happened, and hold.", style="bold green")
    return ExitCode.COMPLETE
