"""Added latency per event: guarded_stream against the same read and parse with no thread, side by side.

Each event carries the monotonic time at which the server, in its own process on the same machine, sent it. Both contenders
read at the same time from their own connections, so that the machine treats them alike.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

from streamguard import guarded_stream
from streamguard.http import read_blocks
from streamguard.sse import ChatDecoder, EventClient

from .cost import plain_session
from .server import running_server


def _bare(url: str) -> Iterator[dict[str, Any]]:
    client, decoder = EventClient(), ChatDecoder()
    with plain_session() as session, session.get(url, stream=True) as response:
        for block in read_blocks(response):
            for event in client.feed(block):
                chunk = decoder.decode(event)
                if chunk is not None:
                    yield chunk


def _guarded(url: str) -> Iterator[dict[str, Any]]:
    with guarded_stream("GET", url) as stream:
        yield from stream


CONTENDERS: dict[str, Callable[[str], Iterator[dict[str, Any]]]] = {"no thread": _bare, "guarded_stream": _guarded}


def _collect(name: str, url: str, result: Connection) -> None:
    delays = [time.monotonic() - chunk["sent"] for chunk in CONTENDERS[name](url) if "sent" in chunk]
    result.send(delays)


def measure(url: str) -> dict[str, list[float]]:
    """Return the delays in seconds of each contender, each in a process of its own."""
    context = multiprocessing.get_context("spawn")
    running = []
    for name in CONTENDERS:
        here, there = context.Pipe()
        process = context.Process(target=_collect, args=(name, url, there))
        process.start()
        running.append((name, here, process))
    delays = {}
    for name, here, process in running:
        delays[name] = sorted(here.recv())
        process.join()
    return delays


def percentile(ordered: list[float], share: float) -> float:
    """Return the value below which *share* of the *ordered* values lie."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    options = parser.parse_args()
    for rate in (100, 1000):
        with running_server(int(rate * options.seconds), rate) as url:
            delays = measure(f"{url}/chunked")
        print(f"latency in µs at {rate} events a second, {len(delays['no thread'])} events")
        for name, values in delays.items():
            row = "".join(f"  p{share:g} {percentile(values, share / 100) * 1e6:7.0f}" for share in (50, 90, 99))
            print(f"  {name:<16}{row}")


if __name__ == "__main__":
    main()
