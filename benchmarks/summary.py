"""What a run found, in ten rows at most. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from . import chains, session, turns
from .bars import Bar, bars
from .faults import FAULTS
from .numbers import ratio, spread
from .table import Table, short
from .verdict import right

__all__ = ["summary_table"]

_AFTER = "after the expiry"
_LEFT = "left over by all of these streams"
_OF_BARS: Mapping[str, Mapping[str, str]] = {
    "CPU for a chat chunk": {
        f"CPU per chat chunk, in multiples of {rival}": rival
        for rival in ("no thread", "requests + sseclient-py", "openai-python")
    },
    "latency added, p50": {
        f"latency added at {rate}, p50": f"at {rate}" for rate in ("100 events per second", "1000 events per second")
    },
    f"error {_AFTER}, p99": {
        f"error {_AFTER}, p99, streams waiting: 1": "for one stream",
        f"error {_AFTER}, p99, streams waiting: 1000 at once": "for 1000 at once",
    },
    f"the server sees the close {_AFTER}": {f"server saw the close {_AFTER}, any framing, plain or TLS, worst": "at most"},
    "left over": {f"{what} {_LEFT}": what for what in ("threads", "descriptors")},
    "memory of a waiting stream": {f"memory of a waiting stream, {transport}": transport for transport in ("plain", "TLS")},
}
"""Rows that quote bars: for each, the bars and what is said of each figure."""


def summary_table(parts: Mapping[str, Any]) -> Table:
    """Return the most important figures; parts that were not measured have no row."""
    measured = {name: part for name, part in parts.items() if "failed" not in part}
    return Table("in short", ("", "this run"), (*_from_bars(bars(parts)), *_from_parts(measured)))


def _from_bars(judged: list[Bar]) -> Iterator[tuple[str, str]]:
    found = {bar.what: f"{short(bar.found)} {bar.unit}" if bar.unit else f"{bar.found:g}" for bar in judged}
    yield "bars met", f"{sum(bar.met for bar in judged)} of {len(judged)}"
    for row, quoted in _OF_BARS.items():
        figures = [f"{found[what]} {said}" for what, said in quoted.items() if what in found]
        if figures:
            yield row, ", ".join(figures)


def _from_parts(parts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if "outcomes" in parts:
        yield "faults with the right end", _faults(parts["outcomes"])
    if "session" in parts:
        cpu = parts["session"]["cpu"]
        yield "CPU of a `Session` call", f"{short(ratio(cpu['Session'], cpu[session.REFERENCE])['median'])} × requests"
    costs = []
    if "chains" in parts:
        costs.append(
            f"{spread(parts['chains']['cpu']['Chain'])['median'] / len(chains.STEPS):.0f} µs for a step of a chain"
        )
    if "turns" in parts:
        costs.append(f"{spread(parts['turns']['turns'][turns.TURN_REFERENCE])['median']:.0f} µs for a turn of a dispatch")
    if costs:
        yield "CPU", ", ".join(costs)


def _faults(result: Mapping[str, Any]) -> str:
    counts = {
        name: sum(right(fault, outcomes[fault.name], result["total"]) for fault in FAULTS)
        for name, outcomes in result["peers"].items()
        if "failed" not in outcomes
    }
    best = max((name for name in counts if not name.startswith("guard")), key=counts.__getitem__, default=None)
    rest = f"; the best peer without a guard, {best}: {counts[best]}" if best else ""
    return f"guarded_stream: {counts.get('guarded_stream', 0)} of {len(FAULTS)}{rest}"
