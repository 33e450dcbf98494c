"""Added latency per event: guarded_stream against the same read and parse with no thread, and against its peers.

Each event carries the monotonic time at which the server, in its own process on the same machine, sent it. The contenders
of one group read at the same time from their own connections, so that the machine treats them alike; with a thread that
burns CPU beside each, they read one after another, since two such processes would leave the server no core.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import requests
import sseclient

from streamguard import guarded_stream
from streamguard._core.clock import monotonic
from streamguard._http import read_blocks
from streamguard._sse import ChatDecoder, EventClient

from .arena import Contender, Failed, compete
from .numbers import percentile
from .packages import imported
from .readers import READERS, plain_session
from .server import Load, running_server
from .table import Table, milliseconds

__all__ = ["GUARDED", "REFERENCE", "added", "measure", "tables"]

REFERENCE = "no thread"
GUARDED = "guarded_stream"
RATES = (100, 1000)
_SHARES = (0.5, 0.9, 0.99)


def bare(url: str) -> Iterator[str]:
    """What our reader does, in the calling thread."""
    client, decoder = EventClient(), ChatDecoder()
    with plain_session() as session, session.get(url, stream=True) as response:
        for block in read_blocks(response):
            for event in client.feed(block):
                chunk = decoder.decode(event)
                if chunk is not None:
                    yield chunk.text


def guarded(url: str) -> Iterator[str]:
    """streamguard with its default limits."""
    with guarded_stream("GET", url) as stream:
        for chunk in stream:
            yield chunk.text


def unguarded(url: str) -> Iterator[str]:
    """requests and sseclient-py as their manuals show them."""
    decoder = ChatDecoder()
    with requests.get(url, stream=True) as response:
        for event in sseclient.SSEClient(response).events():  # type: ignore[arg-type]
            chunk = decoder.decode(event)
            if chunk is not None:
                yield chunk.text


def openai_python(url: str) -> Iterator[str]:
    """openai-python, with its models."""
    client = imported("openai").OpenAI(base_url=url, api_key="x", max_retries=0)
    for chunk in client.chat.completions.create(model="bench", messages=[], stream=True):
        yield chunk.choices[0].delta.content or ""


def _delays_of(texts: Callable[[str], Iterator[str]], url: str, busy: bool) -> list[float]:
    """Return how many seconds after it was sent each event was here."""
    done = threading.Event()
    if busy:
        threading.Thread(target=_burn, args=(done,), daemon=True).start()
    delays = [monotonic() - float(text) for text in texts(url) if text]
    done.set()
    return delays


def _burn(done: threading.Event) -> None:
    while not done.is_set():
        sum(range(1000))


def time_bare(url: str, busy: bool) -> list[float]:
    """Time the bare read."""
    return _delays_of(bare, url, busy)


def time_guarded(url: str, busy: bool) -> list[float]:
    """Time guarded_stream."""
    return _delays_of(guarded, url, busy)


def time_unguarded(url: str, busy: bool) -> list[float]:
    """Time requests with sseclient-py."""
    return _delays_of(unguarded, url, busy)


def time_openai(url: str, busy: bool) -> list[float]:
    """Time openai-python."""
    return _delays_of(openai_python, url, busy)


_TIMED: Mapping[str, Callable[[str, bool], list[float]]] = {
    REFERENCE: time_bare,
    GUARDED: time_guarded,
    "requests + sseclient-py": time_unguarded,
    "openai-python": time_openai,
}
_GROUPS = ((REFERENCE, GUARDED), ("requests + sseclient-py",), ("openai-python",))


def measure(*, quick: bool) -> dict[str, Any]:
    """Return the delays of each contender in seconds, for each rate, without and with a busy thread beside it."""
    seconds = 1.0 if quick else 5.0
    groups = _GROUPS[:1] if quick else [group for group in _GROUPS if READERS[group[0]].installed]
    timed = {name: _TIMED[name] for group in groups for name in group}
    cases = []
    with compete(timed) as contenders:
        for rate in RATES:
            count = int(rate * seconds)
            with running_server(Load(rate=rate)) as url:
                target = f"{url}/chunked/{count}"
                together = [[contenders[name] for name in group] for group in groups]
                cases.append({"rate": rate, "busy": False, "delays": _delays(together, target, busy=False)})
                alone = [[contenders[name]] for name in _GROUPS[0]]
                cases.append({"rate": rate, "busy": True, "delays": _delays(alone, target, busy=True)})
    return {"seconds": seconds, "cases": cases}


def _delays(groups: list[list[Contender]], url: str, *, busy: bool) -> dict[str, list[float]]:
    """Run the groups one after another, the contenders of a group side by side."""
    for group in groups:
        for contender in group:
            contender.run(url.rpartition("/")[0] + "/10", False)  # it imports, and connects for the first time
    delays: dict[str, list[float]] = {}
    for group in groups:
        with ThreadPoolExecutor(len(group)) as pool:
            running = {one.name: pool.submit(one.run, url, busy) for one in group}
        for name, future in running.items():
            delays[name] = sorted(future.result().result)
            if not delays[name]:
                raise Failed(f"{name} saw no event")
    return delays


def added(case: Mapping[str, Any], share: float) -> float:
    """Return how many seconds guarded_stream adds to the bare read at that percentile (0 to 1)."""
    delays = case["delays"]
    return percentile(delays[GUARDED], share) - percentile(delays[REFERENCE], share)


def tables(result: Mapping[str, Any]) -> list[Table]:
    """Return a table of percentiles for each rate and neighbour."""
    return [_table(case) for case in result["cases"]]


def _table(case: Mapping[str, Any]) -> Table:
    beside = ", a thread that burns CPU beside it" if case["busy"] else ""
    rows = [
        (name, *(milliseconds(percentile(values, share)) for share in _SHARES)) for name, values in case["delays"].items()
    ]
    rows.append(("added by guarded_stream", *(milliseconds(added(case, share)) for share in _SHARES)))
    title = f"{case['rate']} events per second{beside}: ms from the server's write to the consumer"
    return Table(title, ("", "p50", "p90", "p99"), tuple(rows))
