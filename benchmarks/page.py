"""Make `docs/performance.md` and its plots from the figures of `benchmarks.run`: `python -m benchmarks.page`.

The prose is in `performance.template.md`, beside this file; `{{name}}` in it is replaced by the results of a part.
"""

import argparse
import importlib
import json
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import cost
from .bars import bars, bars_table
from .numbers import ratio
from .outcomes import LIMIT
from .plots import bar_plot, share_plot
from .run import FIGURES, PARTS
from .summary import summary_table

__all__ = ["fill", "main"]

TEMPLATE = Path(__file__).with_name("performance.template.md")
PAGE = Path("docs/performance.md")
PLOTS = "performance"
_PLACE = re.compile(r"\{\{(\w+)\}\}")
_OVERVIEW, _SINGLE_FAULTS = slice(0, 2), slice(2, None)
_SMALLEST = 1e-5
"""Seconds: what comes earlier is drawn here, for a logarithmic scale has no zero."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the page and its plots."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figures", type=Path, nargs="?", default=FIGURES, help="(default: %(default)s)")
    figures = json.loads(parser.parse_args(arguments).figures.read_text())
    (PAGE.parent / PLOTS).mkdir(parents=True, exist_ok=True)
    PAGE.write_text(fill(TEMPLATE.read_text(encoding="utf-8"), figures), encoding="utf-8")
    for name, plot in plots(figures["parts"]).items():
        (PAGE.parent / PLOTS / f"{name}.svg").write_text(plot, encoding="utf-8")
    print(f"{PAGE} is written.")


def fill(template: str, figures: Mapping[str, Any]) -> str:
    """Return the page: *template* with the results in its places. Raises KeyError for an unknown place."""
    parts = figures["parts"]
    found = {name: _tables(name, parts) for name in PARTS}
    found |= {
        "about": _about(figures),
        "bars": _bars(parts),
        "limit": f"{LIMIT:g}",
        "summary": summary_table(parts).markdown(),
    }
    found |= {"outcomes": _tables("outcomes", parts, _OVERVIEW), "faults": _tables("outcomes", parts, _SINGLE_FAULTS)}
    return _PLACE.sub(lambda place: found[place[1]], template)


def _about(figures: Mapping[str, Any]) -> str:
    machine = figures["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    where = f"{machine['python']}, {machine['system']}, {machine['processor']}, {machine['cores']} cores"
    kind = "`make bench-quick`, too few rounds for conclusions" if figures["quick"] else "`make bench`"
    lines = [f"Measured on {figures['date']} by {kind}, on {where}.", _load(figures["load"], machine["cores"])]
    lines.append(f"Versions: {versions}.")
    if machine["missing"]:
        lines.append(f"Not installed, and left out: {', '.join(machine['missing'])}.")
    return textwrap.fill(" ".join(lines), 118, break_long_words=False, break_on_hyphens=False)


def _load(loads: Sequence[float], cores: int) -> str:
    """Say how busy the machine was: a part of this suite alone makes a load of up to twice the cores."""
    said = f"The load average was {loads[0]:.1f} before it, and {max(loads[1:], default=0.0):.1f} at most after a part."
    if max(loads) > 2 * cores:
        said += " **The machine had other work to do: times, other than ratios of CPU, are worse than they would be.**"
    return said


def _bars(parts: Mapping[str, Any]) -> str:
    judged = bars(parts)
    met = f"{sum(bar.met for bar in judged)} of {len(judged)} are met in this run."
    return f"{met}\n\n{bars_table(parts).markdown()}"


def _tables(name: str, parts: Mapping[str, Any], only: slice = slice(None)) -> str:
    part = parts.get(name, {"failed": "it was left out"})
    if "failed" in part:
        return f"*Not measured in this run: {part['failed']}.*"
    tables = importlib.import_module(f".{name}", __package__).tables(part)[only]
    return "\n\n".join(table.markdown() for table in tables)


def plots(parts: Mapping[str, Any]) -> dict[str, str]:
    """Return the plots for which there are figures, by name."""
    return {name: plot(parts[name]) for name, plot in _PLOTS.items() if "failed" not in parts.get(name, {"failed": ""})}


def _cost_plot(part: Mapping[str, Any]) -> str:
    case = part["cases"][0]
    reference = case["cpu"][cost.REFERENCE]
    spreads = {name: ratio(values, reference) for name, values in case["cpu"].items() if values}
    return bar_plot("CPU for each chat chunk, chunked", "multiples of the same read and parse with no thread", spreads)


def _latency_plot(part: Mapping[str, Any]) -> str:
    case = next(case for case in part["cases"] if case["rate"] == 1000 and not case["busy"])
    curves = {name: _milliseconds(values) for name, values in case["delays"].items()}
    return share_plot("From the server's write to the consumer, 1000 events per second", "ms", curves)


def _expiry_plot(part: Mapping[str, Any]) -> str:
    curves = {crowd["label"]: _milliseconds(crowd["overshoot"]) for crowd in part["crowds"]}
    return share_plot("How late the consumer has its error, by how many streams wait", "ms after the expiry", curves)


def _milliseconds(seconds: Sequence[float]) -> list[float]:
    return [max(value, _SMALLEST) * 1e3 for value in seconds]


_PLOTS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    "cost": _cost_plot,
    "latency": _latency_plot,
    "expiry": _expiry_plot,
}


if __name__ == "__main__":
    main()
