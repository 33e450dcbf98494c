"""`streamguard demo`: the incident that streamguard was made after, lived through on loopback."""

import time
from collections.abc import Callable, Sequence

import click
from rich.console import Console

from ...errors import StreamguardError
from ..exit_codes import Exit
from .demo_console import Stage
from .demo_scenes import Act, bare_call, retried_stream, stalled_stream

ACTS: tuple[Callable[[Stage], Act], ...] = (bare_call, retried_stream, stalled_stream)
TITLES = ("call", "attempts", "phase", "chunks", "outcome", "took", "the server saw")
_PAUSE_SECONDS = 1.0


@click.command()
@click.pass_context
def demo(ctx: click.Context) -> None:
    """Watch a gateway go silent: with requests alone, then guarded (about 20 s, only on loopback).

    Exit code: 0 if all that it shows really happened, 1 if not, 130 after Ctrl-C.
    """
    stage = Stage(Console())
    stage.say("A gateway answers 200, sends heartbeat comments, and never says a word. It once did so for 595 s.")
    try:
        acts = [_played(act, stage) for act in ACTS]
    except (StreamguardError, AssertionError, OSError) as exc:
        raise click.ClickException(f"the demo could not be played: {type(exc).__name__}: {exc}") from exc
    ctx.exit(finale(stage, acts))


def _played(play: Callable[[Stage], Act], stage: Stage) -> Act:
    act = play(stage)
    time.sleep(_PAUSE_SECONDS)
    return act


def finale(stage: Stage, acts: Sequence[Act]) -> Exit:
    """Show what happened, and whether it matches the claims."""
    stage.heading("What happened, as the reports and the server tell it")
    stage.table(TITLES, (act.row for act in acts))
    broken = [f"{act.name}: {claim}" for act in acts for claim, holds in act.claims if not holds]
    for claim in broken:
        stage.say(f"This did not happen: {claim}", style="bold red")
    if broken:
        return Exit.FAILED
    number = sum(len(act.claims) for act in acts)
    stage.say(f"\nAll of this was checked as it happened: {number} claims, and they hold.", style="bold green")
    return Exit.COMPLETE
