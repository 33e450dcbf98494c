"""CPU per event at full speed: guarded_stream against the same read and parse with no thread, and against peers.

Every contender reads the same events, makes a parsed chunk of each and takes its text. CPU time of the whole process is
counted, all threads; the rounds are interleaved, so that a machine that slows down slows all of them.
"""

import argparse
import json
import socket
import statistics
import time
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

import requests
import sseclient

from streamguard import Adapter, guarded_stream
from streamguard.http import read_blocks
from streamguard.sse import ChatDecoder, EventClient, MessageAssembler

from .server import running_server


def floor(url: str) -> int:
    """Raw socket, split on blank lines, json.loads: nobody can be cheaper (it does not even unframe)."""
    parts = urlsplit(url)
    seen, rest = 0, b""
    with socket.create_connection((parts.hostname, parts.port)) as sock:
        sock.sendall(f"GET {parts.path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        while data := sock.recv(65536):
            *blocks, rest = (rest + data).split(b"\n\n")
            for block in blocks:
                begin = block.find(b"data: {")
                if begin >= 0:
                    seen += bool(json.loads(block[begin + 6 :])["choices"])
    return seen


def plain_session() -> requests.Session:
    session = requests.Session()
    session.mount("http://", Adapter())
    return session


def no_thread(url: str) -> int:
    """What our reader does, in the calling thread: read, frame, parse, assemble; no queue, no clock, no cut."""
    client, decoder, assembler, seen = EventClient(()), ChatDecoder(), MessageAssembler(), 0
    with plain_session() as session, session.get(url, stream=True) as response:
        for block in read_blocks(response):
            for event in client.feed(block):
                chunk = decoder.decode(event)
                if chunk is not None:
                    assembler.add(chunk)
                    seen += 1
    return seen


def unguarded(url: str) -> int:
    """requests and sseclient-py as their manuals show them."""
    seen = 0
    with requests.get(url, stream=True) as response:
        for event in sseclient.SSEClient(response).events():  # type: ignore[arg-type]
            if event.data != "[DONE]":
                seen += bool(json.loads(event.data)["choices"])
    return seen


def guarded(url: str) -> int:
    """streamguard with its default limits."""
    with guarded_stream("GET", url) as stream:
        return sum(1 for chunk in stream)


def openai_python(url: str) -> int:
    """openai-python's own stream decoder and models, on httpx."""
    import openai

    client = openai.OpenAI(base_url=url, api_key="x", max_retries=0)
    stream = client.chat.completions.create(model="bench", messages=[], stream=True)
    return sum(1 for chunk in stream)


CONTENDERS: dict[str, Callable[[str], int]] = {
    "floor": floor,
    "no thread": no_thread,
    "guarded_stream": guarded,
    "requests + sseclient-py": unguarded,
    "openai-python": openai_python,
}


def measure(url: str, count: int, rounds: int, names: Iterable[str]) -> dict[str, list[float]]:
    """Return CPU microseconds per event of each contender, round by round."""
    cost: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds):
        for name in cost:
            begun = time.process_time()
            seen = CONTENDERS[name](url)
            cost[name].append((time.process_time() - begun) / count * 1e6)
            if seen < count:
                raise RuntimeError(f"{name} saw {seen} events of {count}")
    return cost


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    names = options.only or [name for name in CONTENDERS if _available(name)]
    with running_server(options.count) as url:
        for framing in ("chunked", "close"):
            cost = measure(f"{url}/{framing}", options.count, options.rounds, names)
            reference = statistics.median(cost["no thread"]) if "no thread" in cost else None
            print(f"{framing}: CPU µs per event, {options.count} events of 265 bytes, {options.rounds} rounds")
            for name, values in cost.items():
                median = statistics.median(values)
                ratio = f"  {median / reference:5.2f} x no thread" if reference else ""
                print(f"  {name:<25} {median:6.2f}  ({min(values):.2f} to {max(values):.2f}){ratio}")


def _available(name: str) -> bool:
    if name != "openai-python":
        return True
    try:
        import openai  # noqa: F401
    except ImportError:
        return False
    return True


if __name__ == "__main__":
    main()
