"""The bars: what streamguard is to keep to, and whether the figures do. Pure."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .latency import added
from .numbers import percentile, ratio
from .table import Table, short

__all__ = ["Bar", "bars", "bars_table"]

_GUARDED = "guarded_stream"
_OVERSHOOT = {"1": 2.0, "200 at once": 100.0, "1000 over 8 s": 5.0, "1000 at once": 1500.0}
"""Milliseconds, for the 99th percentile, on a machine that has nothing else to do."""
_CUT_MS = 50.0
_KIB = {False: 80.0, True: 180.0}


@dataclass(frozen=True, slots=True)
class Bar:
    """One promise, and what was found."""

    what: str
    limit: float
    found: float
    unit: str

    @property
    def met(self) -> bool:
        """Whether it holds."""
        return self.found <= self.limit

    def row(self) -> tuple[str, str, str, str]:
        """Return it as a row of a table."""
        return self.what, f"{self.limit:,g} {self.unit}".strip(), f"{short(self.found)} {self.unit}".strip(), self.verdict

    @property
    def verdict(self) -> str:
        """Whether it holds, and else by how much not, in words."""
        if self.met:
            return "met"
        return f"**missed: {short(self.found / self.limit)} times the bar**" if self.limit else "**missed**"


def bars(parts: Mapping[str, Any]) -> list[Bar]:
    """Return the bars for which there are figures."""
    measured = {name: part for name, part in parts.items() if "failed" not in part}
    return [bar for name, judge in _JUDGES.items() if name in measured for bar in judge(measured[name])]


def bars_table(parts: Mapping[str, Any]) -> Table:
    """Return them as a table."""
    rows = tuple(bar.row() for bar in bars(parts))
    return Table("the bars, and this run", ("", "at most", "found", ""), rows)


def _cost(part: Mapping[str, Any]) -> Iterator[Bar]:
    cpu = part["cases"][0]["cpu"]
    rivals = (("no thread", 1.25), ("requests + sseclient-py", 1.0), ("openai-python", 0.2))
    for rival, limit in rivals:
        if cpu.get(rival):
            median = ratio(cpu[_GUARDED], cpu[rival])["median"]
            yield Bar(f"CPU per chat chunk, in multiples of {rival}", limit, median, "×")


def _latency(part: Mapping[str, Any]) -> Iterator[Bar]:
    for case in part["cases"]:
        if not case["busy"]:
            rate = f"{case['rate']} events per second"
            yield Bar(f"latency added at {rate}, p50", 60.0, added(case, 0.5) * 1e6, "µs")
            yield Bar(f"latency added at {rate}, p99", 1000.0, added(case, 0.99) * 1e6, "µs")


def _expiry(part: Mapping[str, Any]) -> Iterator[Bar]:
    for crowd in part["crowds"]:
        late = percentile(crowd["overshoot"], 0.99) * 1e3
        yield Bar(f"error after the expiry, p99, streams waiting: {crowd['label']}", _OVERSHOOT[crowd["label"]], late, "ms")
    for number, sight in enumerate(("consumer has control", "thread gone", "server saw the close")):
        worst = max(late[number] for cut in part["cuts"] for late in cut["late"]) * 1e3
        yield Bar(f"{sight} after the expiry, any framing, plain or TLS, worst", _CUT_MS, worst, "ms")
    for what, more in part["left"].items():
        yield Bar(f"{what} left over by all of these streams", 0.0, more, "")


def _standing(part: Mapping[str, Any]) -> Iterator[Bar]:
    for held in part["held"]:
        if held["holder"] == "guarded_stream, open":
            transport = "TLS" if held["tls"] else "plain"
            yield Bar(f"memory of a waiting stream, {transport}", _KIB[held["tls"]], held["kib"], "KiB")


_JUDGES: Mapping[str, Callable[[Mapping[str, Any]], Iterator[Bar]]] = {
    "cost": _cost,
    "latency": _latency,
    "expiry": _expiry,
    "standing": _standing,
}
