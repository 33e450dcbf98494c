"""CPU per event at full speed: guarded_stream against the same read and parse with no thread, and against its peers.

Every contender reads the same events and parses each one. The CPU time of its whole process is counted, all threads.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from .arena import Contender, Failed, compete
from .numbers import ratio, spread
from .readers import READERS
from .server import EVENT_BYTES, Load, running_server
from .table import Table, times

__all__ = ["REFERENCE", "measure", "tables"]

REFERENCE = "no thread"
_ROUND_SECONDS = 60.0
_PATIENCE_SECONDS = 4.0
"""What the rounds of one contender may take together; after that it runs no more."""
_WARM_UP_EVENTS = 200
_WHOLE = ("big", "lines")
"""Loads of a single event, which the floor cannot read: it does not unframe."""

_TITLES = {
    ("chat", "chunked"): f"chat chunks of {EVENT_BYTES} bytes, chunked",
    ("chat", "close"): f"chat chunks of {EVENT_BYTES} bytes, close-delimited",
    ("named", "chunked"): f"`event:` and `data:` (Messages API), {EVENT_BYTES} bytes, chunked",
    ("big", "chunked"): "one event of 5 MB, chunked",
    ("lines", "chunked"): "one event of 100,000 data lines, chunked",
}


def measure(*, quick: bool) -> dict[str, Any]:
    """Return, for each load and framing, CPU microseconds per event of each contender, round by round."""
    count, rounds = (10_000, 3) if quick else (100_000, 5)
    loads = [key for key in _TITLES if not (quick and key[0] in _WHOLE)]
    readers = {name: reader for name, reader in READERS.items() if reader.installed}
    with compete(dict.fromkeys(readers, read)) as contenders:
        cases = [_case(*load, 1 if load[0] in _WHOLE else count, rounds, contenders) for load in loads]
    return {"count": count, "rounds": rounds, "cases": cases}


def read(name: str, kind: str, url: str) -> int:
    """Let a reader read a load of that *kind*: what runs in the processes of the contenders."""
    reader = READERS[name].on(kind)
    assert reader is not None
    return reader(url)


def _case(kind: str, framing: str, count: int, rounds: int, contenders: Mapping[str, Contender]) -> dict[str, Any]:
    left_out = ("floor",) if kind in _WHOLE else ()
    taking_part = [contenders[name] for name in contenders if READERS[name].on(kind) and name not in left_out]
    with running_server(Load(kind, count)) as url:
        race = _Race(kind, f"{url}/{framing}", count, [contender.name for contender in taking_part])
        for contender in taking_part:
            race.warm_up(contender)
        for _ in range(rounds):
            for contender in taking_part:
                race.run(contender)
    return {"kind": kind, "framing": framing, "cpu": race.cpu, "failed": race.failed}


class _Race:
    """The rounds of one case: what they cost, and who fell out."""

    def __init__(self, kind: str, url: str, count: int, names: Iterable[str]) -> None:
        self._kind, self._url, self._count = kind, url, count
        self.cpu: dict[str, list[float]] = {name: [] for name in names}
        self.failed: dict[str, str] = {}
        self._spent = dict.fromkeys(self.cpu, 0.0)

    def warm_up(self, contender: Contender) -> None:
        """Let it import and allocate what it needs; a load of a single event is not shown to it before."""
        self._attempt(contender, _WARM_UP_EVENTS if self._count > _WARM_UP_EVENTS else 0)
        self._spent[contender.name] = 0.0

    def run(self, contender: Contender) -> None:
        """Run a round, unless it has failed or used up its time."""
        if contender.name in self.failed or self._spent[contender.name] > _PATIENCE_SECONDS:
            return
        count = max(1, self._count // READERS[contender.name].share)
        cost = self._attempt(contender, count)
        if cost is not None:
            self.cpu[contender.name].append(cost / count * 1e6)

    def _attempt(self, contender: Contender, count: int) -> float | None:
        try:
            done = contender.run(contender.name, self._kind, f"{self._url}/{count}", bound=_ROUND_SECONDS)
            if done.result < count:
                raise Failed(f"saw {done.result} of {count} events")
        except Failed as error:
            self.failed[contender.name] = str(error)
            return None
        self._spent[contender.name] += done.wall
        return done.cpu


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Return a table for each case, in multiples of the reference."""
    return [_table(case) for case in result["cases"]]


def _table(case: Mapping[str, Any]) -> Table:
    cpu, failed = case["cpu"], case["failed"]
    reference = cpu[REFERENCE]
    unit = "ms per event" if case["kind"] in _WHOLE else "µs per event"
    scale = 1e-3 if case["kind"] in _WHOLE else 1.0
    rows = [
        (name, times(ratio(values, reference)), f"{spread(values)['median'] * scale:.2f}") if values else (name, "", "")
        for name, values in cpu.items()
        if name not in failed
    ]
    rows += [(name, reason, "") for name, reason in failed.items()]
    return Table(_TITLES[case["kind"], case["framing"]], ("", f"× {REFERENCE}", f"CPU, {unit}"), tuple(rows))
