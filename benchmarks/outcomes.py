"""What each peer does when a gateway has a fault: when it returns, with what error, and whether it closes the connection.

Each peer runs in a process of its own. It reads one healthy stream first; then all faults are played to it at once, each to
a thread of its own, until a hard bound. The scripted gateways, in this process, see how many attempts it makes and when its
connections close; that is looked at while the peer's process is still alive.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from multiprocessing.connection import Connection
from typing import Any
from urllib.parse import urlsplit

from streamguard._core.clock import monotonic
from streamguard.testing import Gateway

from .arena import SPAWN
from .faults import FAULTS, HEALTHY, SLOW_HOST, Fault, script_of
from .peers import PEERS, Peer
from .table import Table
from .verdict import cell, details, right

__all__ = ["LIMIT", "measure", "tables"]

LIMIT = 0.5
TOTAL = 2.0
_BOUND = 6.0
_QUICK_BOUND = 3.0
_LET_GO = 1.0
"""Seconds after which a connection that is still open counts as held."""
_START_SECONDS = 120.0
_SIDE_BY_SIDE = 4


def measure(*, quick: bool) -> dict[str, Any]:
    """Return, for each peer and fault, how it ended."""
    peers, bound = [peer for peer in PEERS if peer.installed], _QUICK_BOUND if quick else _BOUND
    with ThreadPoolExecutor(_SIDE_BY_SIDE) as pool:
        found = list(pool.map(_try, peers, [bound] * len(peers)))
    settings = {peer.name: peer.settings for peer in peers}
    shared = {"limit": LIMIT, "total": TOTAL, "bound": bound, "settings": settings}
    return {**shared, "peers": {peer.name: outcomes for peer, outcomes in zip(peers, found, strict=True)}}


def _try(peer: Peer, bound: float) -> dict[str, Any]:
    """Play every fault to one peer; return how each ended, or `{"failed": why}`."""
    with ExitStack() as stack:
        healthy = stack.enter_context(Gateway(script_of(HEALTHY, peer.dialect)))
        gateways = {fault.name: stack.enter_context(_gateway(fault, peer)) for fault in FAULTS}
        here, there = SPAWN.Pipe()
        process = SPAWN.Process(target=_suffer, args=(peer.name, healthy.url, _urls(gateways), there), daemon=True)
        process.start()
        stack.callback(process.join)
        stack.callback(process.kill)
        if not here.poll(_START_SECONDS):
            return {"failed": "it did not start"}
        if (warm := here.recv()) is not None:
            return {"failed": warm}
        ended = _collect(here, bound)
        time.sleep(_LET_GO)
        return {fault.name: _outcome(gateways[fault.name], ended.get(fault.name)) for fault in FAULTS}


def _gateway(fault: Fault, peer: Peer) -> Gateway:
    return Gateway(script_of(fault.script, peer.dialect), framing=fault.framing, keep_alive=False)


def _urls(gateways: Mapping[str, Gateway]) -> dict[str, str]:
    slow = {fault.name for fault in FAULTS if fault.slow_name}
    return {name: _slow(gateway.url) if name in slow else gateway.url for name, gateway in gateways.items()}


def _slow(url: str) -> str:
    return f"http://{SLOW_HOST}:{urlsplit(url).port}"


def _collect(results: Connection, bound: float) -> dict[str, dict[str, Any]]:
    """Return what ended before the bound."""
    ended: dict[str, dict[str, Any]] = {}
    end = monotonic() + bound
    while len(ended) < len(FAULTS) and results.poll(max(0.0, end - monotonic())):
        name, outcome = results.recv()
        ended[name] = outcome
    return ended


def _outcome(gateway: Gateway, ended: dict[str, Any] | None) -> dict[str, Any]:
    """Join what the peer said with what the gateway saw."""
    requests = gateway.requests
    outcome: dict[str, Any] = {"attempts": len(requests), "freed": None, **(ended or {"seconds": None})}
    if ended is not None and requests:
        left = [request.left.at if request.left else None for request in requests]
        closed = gateway.open_connections == 0
        outcome["freed"] = closed and max(at or 0.0 for at in left) - ended["at"] < _LET_GO
    elif requests:
        outcome["freed"] = gateway.open_connections == 0
    return outcome


def _suffer(name: str, healthy: str, urls: Mapping[str, str], results: Connection) -> None:
    """Be the peer: read a healthy stream, then every faulty one, each in a thread."""
    peer = next(peer for peer in PEERS if peer.name == name)
    _resolve_slowly()
    try:
        peer.prepare(healthy, 10.0, 30.0)()
        calls = {fault: peer.prepare(url, LIMIT, TOTAL) for fault, url in urls.items()}
    except Exception as error:
        results.send(f"fails on a healthy stream: {type(error).__name__}: {error}"[:200])
        return
    results.send(None)
    lock = threading.Lock()
    threads = [threading.Thread(target=_suffer_one, args=(*item, results, lock)) for item in calls.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    threading.Event().wait()  # alive until it is killed, so that what it still holds is its own doing


def _suffer_one(fault: str, call: Callable[[], int], results: Connection, lock: threading.Lock) -> None:
    outcome: dict[str, Any] = {"error": None, "events": None}
    begun = monotonic()
    try:
        outcome["events"] = call()
    except Exception as error:
        outcome["error"] = type(error).__name__
    ended = monotonic()
    with lock, contextlib.suppress(OSError):
        results.send((fault, {**outcome, "seconds": ended - begun, "at": ended}))


def _resolve_slowly() -> None:
    """Make one name, and no other, take longer than every limit."""
    resolve = socket.getaddrinfo

    def resolve_late(host: Any, *args: Any, **options: Any) -> Any:
        if host in (SLOW_HOST, SLOW_HOST.encode()):
            time.sleep(2 * _BOUND)
        return resolve("127.0.0.1" if host in (SLOW_HOST, SLOW_HOST.encode()) else host, *args, **options)

    socket.getaddrinfo = resolve_late


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Return the settings, the overview, and a table for each fault."""
    peers = result["peers"]
    played = {name: outcomes for name, outcomes in peers.items() if "failed" not in outcomes}
    rows = [_overview(name, outcomes, result["bound"]) for name, outcomes in played.items()]
    rows += [(name, outcomes["failed"], *[""] * len(FAULTS)) for name, outcomes in peers.items() if name not in played]
    heads = ("", "right", *(fault.name for fault in FAULTS))
    title = f"time until the program has control again; limits of {LIMIT} s per wait, {TOTAL:g} s in total if it has one"
    settings = Table("who was tried, and with what", ("", "settings"), tuple(result["settings"].items()))
    overview = Table(title, heads, tuple(rows))
    return [settings, overview, *(_by_fault(fault, played, result["bound"]) for fault in FAULTS)]


def _overview(name: str, outcomes: Mapping[str, Any], bound: float) -> tuple[str, ...]:
    good = sum(right(fault, outcomes[fault.name], TOTAL) for fault in FAULTS)
    cells = (cell(fault, outcomes[fault.name], TOTAL, bound) for fault in FAULTS)
    return (name, f"{good} of {len(FAULTS)}", *cells)


def _by_fault(fault: Fault, peers: Mapping[str, Any], bound: float) -> Table:
    rows = [(name, *details(outcomes[fault.name], bound)) for name, outcomes in peers.items()]
    return Table(fault.name, ("", "control after", "how it ended", "connection closed", "attempts"), tuple(rows))
