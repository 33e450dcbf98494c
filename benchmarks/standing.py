"""What a stream that waits costs: memory, and CPU while nothing happens; and what it costs to begin one.

Each kind of holder is measured in a process of its own, plain and over TLS, all against the same silent server.
"""

import gc
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import requests

from streamguard import guarded_stream

from .arena import Failed, compete, in_process
from .memory import resident_kib
from .numbers import ratio, spread
from .readers import READERS
from .server import Load, running_server
from .silent import SilentServer, raise_descriptor_limit, silent_server
from .table import Table, times

__all__ = ["SHORT_REFERENCE", "measure", "tables"]

SHORT_REFERENCE = "requests + sseclient-py"
_SHORT = ("requests + sseclient-py", "guarded_stream", "httpx-sse", "openai-python")
_SHORT_EVENTS = 10
_WARM = 20


def open_response(server: SilentServer, number: int, stack: ExitStack) -> None:
    """Hold a response of requests open, without a reader."""
    response = requests.get(f"{server.url}/{number}", stream=True, verify=server.verify)
    next(response.iter_content(1))
    stack.callback(response.close)


def waiting_response(server: SilentServer, number: int, _stack: ExitStack) -> None:
    """Hold one with a thread that waits in it: what a program without a guard has."""
    response = requests.get(f"{server.url}/{number}", stream=True, verify=server.verify)
    pieces = response.iter_content(None)
    next(pieces)
    threading.Thread(target=next, args=(pieces, None), daemon=True).start()


def open_stream(server: SilentServer, number: int, stack: ExitStack) -> None:
    """Hold a guarded stream: its reader waits, its consumer is elsewhere."""
    stream = guarded_stream("GET", f"{server.url}/{number}", idle=600, verify=server.verify)
    next(stream)
    stack.callback(stream.close)


def waiting_stream(server: SilentServer, number: int, stack: ExitStack) -> None:
    """Hold one with a thread that waits in `next()`."""
    stream = guarded_stream("GET", f"{server.url}/{number}", idle=600, verify=server.verify)
    next(stream)
    threading.Thread(target=next, args=(stream, None), daemon=True).start()
    stack.callback(stream.close)


HOLDERS: Mapping[str, Callable[[SilentServer, int, ExitStack], None]] = {
    "requests, open": open_response,
    "requests, a thread waits": waiting_response,
    "guarded_stream, open": open_stream,
    "guarded_stream, a thread waits": waiting_stream,
}


def measure(*, quick: bool) -> dict[str, Any]:
    """Return what waiting streams hold and use, what short ones cost, and what a thread does."""
    count, seconds = (100, 0.5) if quick else (1000, 3.0)
    held = [
        {"holder": holder, "tls": tls, **found} for tls in (False, True) for holder, found in _held(tls, count, seconds)
    ]
    short = _short_streams(*(50, 3) if quick else (300, 5))
    return {"count": count, "seconds": seconds, "held": held, "short": short, "thread_us": in_process(start_threads)}


def _held(tls: bool, count: int, seconds: float) -> list[tuple[str, dict[str, float]]]:
    with silent_server(tls=tls) as server:
        return [(holder, in_process(hold, holder, server, count, seconds)) for holder in HOLDERS]


def hold(holder: str, server: SilentServer, count: int, seconds: float) -> dict[str, float]:
    """Open *count* of them; return KiB for each, and CPU milliseconds of all in a second of nothing."""
    raise_descriptor_limit()
    hold_one = HOLDERS[holder]
    with ExitStack() as stack:
        for number in range(_WARM):
            hold_one(server, number, stack)
        gc.collect()
        before, cpu = resident_kib(), time.process_time()
        for number in range(count):
            hold_one(server, number, stack)
        opening = time.process_time() - cpu
        time.sleep(0.3)
        gc.collect()
        memory = (resident_kib() - before) / count
        cpu = time.process_time()
        time.sleep(seconds)
        idle = (time.process_time() - cpu) / seconds
    return {"kib": memory, "open_us": opening / count * 1e6, "idle_ms": idle * 1e3}


def _short_streams(count: int, rounds: int) -> dict[str, list[float]]:
    """Return CPU microseconds per stream of ten events, from the connect to the end."""
    cpu: dict[str, list[float]] = {name: [] for name in _SHORT if READERS[name].installed}
    functions: dict[str, Callable[..., Any]] = dict.fromkeys(cpu, read_many)
    with running_server(Load(count=_SHORT_EVENTS)) as url, compete(functions) as contenders:
        target = f"{url}/chunked/{_SHORT_EVENTS}"
        for name in cpu:
            contenders[name].run(name, target, 2)
        for _ in range(rounds):
            for name, values in cpu.items():
                values.append(contenders[name].run(name, target, count).cpu / count * 1e6)
    return cpu


def read_many(name: str, url: str, count: int) -> None:
    """Read *count* streams, one after another. Raises Failed if one of them is not whole."""
    read = READERS[name].chat
    assert read is not None
    for _ in range(count):
        if read(url) < _SHORT_EVENTS:
            raise Failed(f"{name} did not see {_SHORT_EVENTS} events")


def start_threads() -> list[float]:
    """Return CPU microseconds for starting and joining a thread that does nothing, round by round."""
    costs = []
    for _ in range(5):
        begun = time.process_time()
        for _ in range(500):
            thread = threading.Thread(target=_nothing)
            thread.start()
            thread.join()
        costs.append((time.process_time() - begun) / 500 * 1e6)
    return costs


def _nothing() -> None:
    return


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Return a table of what is held, and one of what beginning costs."""
    seconds = f"CPU ms per second, all {result['count']}"
    rows = [
        (f"{one['holder']}{', TLS' if one['tls'] else ''}", f"{one['kib']:.0f}", f"{one['idle_ms']:.2f}")
        for one in result["held"]
    ]
    title = f"{result['count']} streams that wait for a silent server"
    return [Table(title, ("", "KiB for each", seconds), tuple(rows)), _short_table(result)]


def _short_table(result: Mapping[str, Any]) -> Table:
    reference = result["short"][SHORT_REFERENCE]
    rows = [
        (name, times(ratio(values, reference)), f"{spread(values)['median']:.0f}")
        for name, values in result["short"].items()
    ]
    threads = result["thread_us"]
    rows.append(("(a thread that does nothing)", times(ratio(threads, reference)), f"{spread(threads)['median']:.0f}"))
    title = f"one stream of {_SHORT_EVENTS} events, from the connect to the end"
    return Table(title, ("", f"× {SHORT_REFERENCE}", "CPU, µs"), tuple(rows))
