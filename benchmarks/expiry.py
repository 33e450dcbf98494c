"""When a limit is used up: how late the consumer hears of it, when the thread is gone, and when the server sees the close.

One table cuts single streams on every framing, plain and TLS, with the scripted gateway as the witness. The other lets many
streams wait at once, on a silent server in its own process, and measures how late each expiry, and each close, comes.
"""

import gc
import os
import threading
import time
from collections.abc import Mapping
from typing import Any

from streamguard import StreamInactivityTimeoutError, guarded_stream
from streamguard._core.clock import monotonic
from streamguard.testing import Gateway

from .arena import in_process
from .memory import resident_kib
from .numbers import percentile, spread
from .silent import SilentServer, raise_descriptor_limit, silent_server
from .table import Table, milliseconds

__all__ = ["measure", "tables"]

FRAMINGS = ("chunked", "length", "close", "http10")
SIGHTS = ("consumer has control", "thread gone", "server saw the close")
_CROWDS = (("1", 1, 0.0), ("200 at once", 200, 0.0), ("1000 over 8 s", 1000, 8.0), ("1000 at once", 1000, 0.0))
_QUICK_CROWDS = (("1", 1, 0.0), ("200 at once", 200, 0.0))
_SINGLES, _SINGLE_LIMIT = 20, 0.2
"""How often a crowd of one is measured, and its limit."""
_LIMIT = 3.0
_QUICK_LIMIT = 1.0


def measure(*, quick: bool) -> dict[str, Any]:
    """Return how late everything was, in seconds."""
    cuts = in_process(cut_all, 3 if quick else 20)
    with silent_server() as server:
        sizes, limit = (_QUICK_CROWDS, _QUICK_LIMIT) if quick else (_CROWDS, _LIMIT)
        return {"cuts": cuts, **in_process(gather, server, sizes, limit)}


def cut_all(rounds: int) -> list[dict[str, Any]]:
    """Cut single streams on every framing, plain and TLS."""
    return [
        {"tls": tls, "framing": framing, "late": _cut_many(framing, rounds, tls=tls)}
        for tls in (False, True)
        for framing in FRAMINGS
    ]


def _cut_many(framing: str, rounds: int, *, tls: bool) -> list[tuple[float, ...]]:
    length = 1_000_000 if framing == "length" else None
    with Gateway("chat hello\nstall", tls=tls, framing=framing, length=length) as gateway:
        return [cut_once(gateway, number, 0.1) for number in range(1, rounds + 1)]


def cut_once(gateway: Gateway, number: int, idle: float) -> tuple[float, float, float]:
    """Let one stream expire; return seconds after the expiry: consumer, thread gone, server saw the close."""
    verify = gateway.ca if gateway.url.startswith("https") else True
    before = set(threading.enumerate())
    stream = guarded_stream("GET", gateway.url, idle=idle, retry=None, verify=verify)
    next(stream)
    waited_from = monotonic()
    try:
        next(stream)
    except StreamInactivityTimeoutError:
        consumer = monotonic() - waited_from - idle
    while _readers(before):
        time.sleep(0.0002)
    gone = monotonic() - waited_from - idle
    return consumer, gone, gateway.wait_left(number).at - waited_from - idle


def _readers(before: set[threading.Thread] | None = None) -> int:
    """Return how many reader threads of ours run that did not run *before*."""
    others = before or set()
    return sum(t not in others and t.name.startswith("streamguard-reader") for t in threading.enumerate())


def gather(server: SilentServer, crowds: tuple[tuple[str, int, float], ...], limit: float) -> dict[str, Any]:
    """Let crowds of streams expire, one crowd after the other, in this one process."""
    raise_descriptor_limit()
    results = []
    _Crowd(server, 20, 0.0, 0.2).run()  # so that the first is no worse off than the second
    before = _held()
    for label, count, spread_over in crowds:
        times, seconds = (_SINGLES, _SINGLE_LIMIT) if count == 1 else (1, limit)
        rounds = [_Crowd(server, count, spread_over, seconds).run() for _ in range(times)]
        results.append({"label": label, "count": count, **_joined(rounds)})
    after = _held()
    return {"crowds": results, "left": {name: after[name] - before[name] for name in before}}


def _joined(rounds: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "overshoot": sorted(late for one in rounds for late in one["overshoot"]),
        "closed": sorted(late for one in rounds for late in one["closed"]),
        "gone": max(one["gone"] for one in rounds),
        "resident_kib": rounds[-1]["resident_kib"],
    }


def _held() -> dict[str, int]:
    gc.collect()
    return {"threads": threading.active_count(), "descriptors": len(os.listdir("/proc/self/fd"))}


class _Crowd:
    """*count* streams that wait at once; their limits end over *spread_over* seconds."""

    def __init__(self, server: SilentServer, count: int, spread_over: float, limit: float) -> None:
        self._server = server
        self._limits = [limit + spread_over * number / count for number in range(count)]
        self._ready, self._go = threading.Barrier(count + 1), threading.Event()
        self._due: dict[int, float] = {}
        self._late: list[float] = []

    def run(self) -> dict[str, Any]:
        """Return how late each was, how late the server saw each close, and when the last thread was gone."""
        threads = [threading.Thread(target=self._wait, args=item) for item in enumerate(self._limits)]
        for thread in threads:
            thread.start()
        self._ready.wait()
        self._go.set()
        for thread in threads:
            thread.join()
        while _readers():
            time.sleep(0.001)
        gone = monotonic() - max(self._due.values())
        time.sleep(0.2)  # for the last close to be seen
        left = self._server.left()
        closed = [left[number] - due for number, due in self._due.items() if number in left]
        gc.collect()
        return {"overshoot": self._late, "closed": closed, "gone": gone, "resident_kib": resident_kib()}

    def _wait(self, number: int, limit: float) -> None:
        stream = guarded_stream("GET", f"{self._server.url}/{number}", idle=limit, retry=None)
        next(stream)
        self._ready.wait()
        self._go.wait()
        self._due[number] = monotonic() + limit
        try:
            next(stream)
        except StreamInactivityTimeoutError:
            self._late.append(monotonic() - self._due[number])


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Return the table of single cuts, and the one of the crowds."""
    cuts = tuple(
        (f"{'https' if cut['tls'] else 'http'}, {cut['framing']}", *map(_worst, zip(*cut["late"], strict=True)))
        for cut in result["cuts"]
    )
    crowds = tuple(
        (crowd["label"], *(_late(crowd[seen]) for seen in ("overshoot", "closed")), milliseconds(crowd["gone"]))
        for crowd in result["crowds"]
    )
    heads = ("", "consumer has its error", "server saw the close", "last thread gone")
    return [
        Table("single streams: ms after the expiry, median (worst)", ("", *SIGHTS), cuts),
        Table("many streams waiting: ms after the expiry, p50 / p99 / worst", heads, crowds),
    ]


def _worst(seconds: tuple[float, ...]) -> str:
    found = spread(seconds)
    return f"{milliseconds(found['median'])} ({milliseconds(found['high'])})"


def _late(seconds: list[float]) -> str:
    return " / ".join(milliseconds(percentile(seconds, share)) for share in (0.5, 0.99, 1.0)) if seconds else "none"
