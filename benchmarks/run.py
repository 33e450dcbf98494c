"""Measure, print the tables, and keep the figures: `python -m benchmarks.run [--quick] [--only PART ...]`.

The parts run one after another, each in a process of its own and with a hard bound. `benchmarks.page` makes the page of
what was kept.
"""

import argparse
import datetime
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from . import machine
from .arena import SPAWN

__all__ = ["FIGURES", "PARTS", "main"]

FIGURES = Path("build/bench.json")
PARTS = ("cost", "latency", "expiry", "standing", "outcomes", "session", "chains", "turns")
_BOUND_SECONDS = 300.0
_QUICK_BOUND_SECONDS = 60.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 0 if every part could be measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small counts: under 90 s, and for no conclusions")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, help="these parts only")
    parser.add_argument("--out", type=Path, default=FIGURES, help="where to keep the figures (default: %(default)s)")
    options = parser.parse_args(arguments)
    figures = _measure_all(options.only, quick=options.quick)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(figures))
    print(f"The figures are in {options.out}.")
    return int(any("failed" in part for part in figures["parts"].values()))


def _measure_all(names: Sequence[str], *, quick: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "quick": quick,
        "machine": machine.describe(),
        "load": [machine.load()],
        "parts": {},
    }
    print(_heading(figures["machine"]), flush=True)
    for name in names:
        begun = time.monotonic()
        figures["parts"][name] = measure_part(name, quick=quick)
        figures["parts"][name]["seconds"] = time.monotonic() - begun
        figures["load"].append(machine.load())
        _show(name, figures["parts"][name])
    return figures


def _heading(found: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    absent = f"\nNot installed, and left out: {', '.join(found['missing'])}" if found["missing"] else ""
    return f"{found['python']}, {found['system']}, {found['processor']}, {found['cores']} cores\n{versions}{absent}\n"


def _show(name: str, figures: dict[str, Any]) -> None:
    print(f"== {name} ({figures['seconds']:.0f} s)\n")
    if "failed" in figures:
        print(f"not measured: {figures['failed']}\n")
        return
    for table in importlib.import_module(f".{name}", __package__).tables(figures):
        print(table.text(), end="\n\n", flush=True)


def measure_part(name: str, *, quick: bool) -> dict[str, Any]:
    """Measure one part in a process of its own; return its figures, or `{"failed": why}`."""
    here, there = SPAWN.Pipe()
    bound = _QUICK_BOUND_SECONDS if quick else _BOUND_SECONDS
    process = SPAWN.Process(target=_perform, args=(name, quick, there))
    process.start()
    there.close()
    try:
        answer = here.recv() if here.poll(bound) else {"failed": f"it took more than {bound:g} s"}
    except EOFError:
        answer = {"failed": "its process has ended"}
    finally:
        _end_group(process.pid or 0)
        process.join()
    return dict(answer)


def _perform(name: str, quick: bool, answers: Connection) -> None:
    os.setsid()
    try:
        figures = importlib.import_module(f".{name}", __package__).measure(quick=quick)
        answers.send(json.loads(json.dumps(figures)))
    except Exception as error:
        answers.send({"failed": f"{type(error).__name__}: {error}"[:300]})


def _end_group(leader: int) -> None:
    """End the part's process, and those that it has started."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


if __name__ == "__main__":
    sys.exit(main())
