"""What a dispatch costs: a turn of a member, an event through it, and a line of a program's output."""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from streamguard.dispatch import CallableMember, CommandMember, Dispatcher

from .arena import Failed, take_turns
from .numbers import ratio, spread
from .table import Table, times

__all__ = ["EVENT_REFERENCE", "LINE_REFERENCE", "TURN_REFERENCE", "measure", "tables"]

TURN_REFERENCE = "Dispatcher, records in memory"
EVENT_REFERENCE = "the generator alone"
LINE_REFERENCE = "subprocess, readline, json.loads"
_WORD = "x" * 20
_DELTA = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": _WORD}}
_LINE = json.dumps({"type": "stream_event", "session_id": "s", "event": _DELTA})
_RESULT = json.dumps({"type": "result", "subtype": "success", "is_error": False, "result": "x", "session_id": "s"})


def _say(_prompt: str, _context: object) -> str:
    return _WORD


def _talk(count: int) -> Iterator[str]:
    for _ in range(count):
        yield _WORD


def _whole(dispatcher: Dispatcher, member: CallableMember | CommandMember, count: int) -> Callable[[], None]:
    """Return a call that streams one turn, and raises Failed unless it had *count* events or more."""

    def run() -> None:
        with dispatcher.stream("bench", [member], "go", output_timeout=60) as stream:
            seen = sum(1 for _event in stream)
        if seen < count or stream.outcome.status != "succeeded":
            raise Failed(f"{member.name} had {seen} events of {count}, and {stream.outcome.status}")

    return run


def _turns(stack: ExitStack) -> dict[str, Callable[[], object]]:
    memory = stack.enter_context(Dispatcher())
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    stored = stack.enter_context(Dispatcher(records=f"sqlite:///{Path(folder) / 'records.db'}"))
    member = CallableMember("bench", _say)
    return {
        TURN_REFERENCE: lambda: memory.dispatch("bench", [member], "go", output_timeout=60),
        "Dispatcher, records in SQLite": lambda: stored.dispatch("bench", [member], "go", output_timeout=60),
    }


def _events(stack: ExitStack, count: int) -> dict[str, Callable[[], object]]:
    dispatcher = stack.enter_context(Dispatcher())
    member = CallableMember("bench", lambda _prompt, _context: _talk(count))
    return {EVENT_REFERENCE: lambda: sum(1 for _ in _talk(count)), "through a member": _whole(dispatcher, member, count)}


def _program(count: int) -> list[str]:
    code = f"import sys; sys.stdout.write(({_LINE!r} + chr(10)) * {count}); print({_RESULT!r})"
    return [sys.executable, "-I", "-S", "-c", code]


def _lines(stack: ExitStack, count: int) -> dict[str, Callable[[], object]]:
    dispatcher, argv = stack.enter_context(Dispatcher()), _program(count)
    member = CommandMember("bench", argv, format="claude")
    return {LINE_REFERENCE: lambda: _read_program(argv), "through a member": _whole(dispatcher, member, count)}


def _read_program(argv: list[str]) -> int:
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        return sum(bool(json.loads(line)) for line in process.stdout)


def measure(*, quick: bool) -> dict[str, Any]:
    """Return CPU microseconds per turn, per event and per line, of this process, round by round."""
    turns, events, rounds = (20, 2_000, 3) if quick else (100, 20_000, 5)
    with ExitStack() as stack:
        return {
            "turns": take_turns(_turns(stack), turns, rounds),
            "wall_us": _wall_per_turn(stack, turns),
            "events": _each(take_turns(_events(stack, events), 1, rounds), events),
            "lines": _each(take_turns(_lines(stack, events), 1, rounds), events),
        }


def _each(costs: Mapping[str, list[float]], count: int) -> dict[str, list[float]]:
    return {name: [cost / count for cost in values] for name, values in costs.items()}


def _wall_per_turn(stack: ExitStack, count: int) -> dict[str, float]:
    """Return how many microseconds pass in a turn."""
    return {name: _wall(call, count) for name, call in _turns(stack).items()}


def _wall(call: Callable[[], object], count: int) -> float:
    begun = time.monotonic()
    for _ in range(count):
        call()
    return (time.monotonic() - begun) / count * 1e6


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Return the tables of turns, events and lines."""
    turns = result["turns"]
    rows = [
        (
            name,
            times(ratio(costs, turns[TURN_REFERENCE])),
            f"{spread(costs)['median']:.0f}",
            f"{result['wall_us'][name]:.0f}",
        )
        for name, costs in turns.items()
    ]
    heads = ("", f"× {TURN_REFERENCE}", "CPU, µs", "time, µs")
    return [
        Table("one turn of a member that says one word", heads, tuple(rows)),
        _rates("events of a CallableMember", result["events"], EVENT_REFERENCE),
        _rates("lines of a program that prints JSON (the CPU of the supervising process)", result["lines"], LINE_REFERENCE),
    ]


def _rates(title: str, costs: Mapping[str, list[float]], reference: str) -> Table:
    rows = []
    for name, values in costs.items():
        median = spread(values)["median"]
        rows.append((name, times(ratio(values, costs[reference])), f"{median:.2f}", f"{1e6 / median:,.0f}"))
    return Table(title, ("", f"× {reference}", "CPU for each, µs", "in a second of CPU"), tuple(rows))
