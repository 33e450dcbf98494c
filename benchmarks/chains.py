"""CPU per step: a `Chain` of three steps that do nothing, against the same three functions called without it."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from streamguard import Chain, Session

from .arena import Failed, take_turns
from .numbers import ratio, spread
from .table import Table, times

__all__ = ["REFERENCE", "STEPS", "measure", "tables"]

REFERENCE = "a pool's thread for each"
STEPS = ("profile", "policy", "answer")


def _step(_context: object) -> int:
    return 1


def _chain(session: Session, *, inline: bool) -> Callable[[], object]:
    chain = Chain("bench", deadline=60, session=session, samples=0)
    for name in STEPS:
        chain.step(_step, name=name, limit=5, inline=inline)

    def run() -> None:
        if (result := chain.run()).status != "completed":
            raise Failed(f"the chain is {result.status}")

    return run


def contenders(stack: ExitStack) -> dict[str, Callable[[], object]]:
    """Return one run of three steps, done in each way."""
    pool, session = stack.enter_context(ThreadPoolExecutor(1)), stack.enter_context(Session())
    return {
        "three plain calls": lambda: [_step(None) for _ in STEPS],
        REFERENCE: lambda: [pool.submit(_step, None).result(5) for _ in STEPS],
        "Chain, inline=True": _chain(session, inline=True),
        "Chain": _chain(session, inline=False),
    }


def measure(*, quick: bool) -> dict[str, Any]:
    """Return CPU microseconds per run of three steps, round by round."""
    count, rounds = (100, 3) if quick else (500, 9)
    with ExitStack() as stack:
        return {"count": count, "rounds": rounds, "cpu": take_turns(contenders(stack), count, rounds)}


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Return the one table."""
    cpu, each = result["cpu"], len(STEPS)
    rows = [
        (name, times(ratio(costs, cpu[REFERENCE])), f"{spread(costs)['median'] / each:.1f}") for name, costs in cpu.items()
    ]
    return [Table("a run of three steps that do nothing", ("", f"× {REFERENCE}", "CPU per step, µs"), tuple(rows))]
