"""A service in a process of its own, used over and over: what its long-lived objects hold must not grow.

Run as a program (`python -m tests.stress.household URL DEED`), so that nothing else is in the process that is measured.
It prints, as JSON, what grew after the warm-up.
"""

import gc
import itertools
import json
import resource
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

from streamguard import CancelToken, Chain, Session, StreamguardError, deadline, guarded_stream
from streamguard.dispatch import CallableMember, Dispatcher
from streamguard.testing import no_leaks

from ..helpers import wait_until
from .faults import FAULTS

KEPT = 1000
"""How many dispatches stay in a dispatcher's memory."""
TIMES = {"cycle": (400, 800), "dispatch": (KEPT + 50, KEPT // 2)}
"""How often a deed is done before what is there is counted, and then again."""

OURS = ("streamguard", "requests", "urllib3", "http", "socket", "ssl", "sseclient", "tenacity", "sqlalchemy")
FAST = sorted(set(FAULTS) - {"stall", "comments", "mute", "html"})
PATHS = [f"/{fault}/5/chunked/identity" for fault in FAST]


class Household:
    """The long-lived objects of a service: one token, one Session, one chain, one dispatcher, used over and over."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.token = CancelToken()
        self.session = Session(timeout=20)
        self.dispatcher = Dispatcher()
        self.chain = Chain("agent", deadline=20)
        self.chain.step(self._ask, name="optional", fallback=None)
        self.chain.step(lambda ctx: ctx.results["optional"], name="critical", needs="optional")
        self.member = CallableMember("a", lambda prompt, context: f"{prompt}!")
        self.paths = itertools.cycle(PATHS)

    def cycle(self) -> None:
        """Use each of them once, with one fault after another."""
        path = next(self.paths)
        with deadline(20):
            self._stream(path)
        self._stream(path, session=self.session, heartbeat=0.01, retry=1)
        self.chain.run()

    def dispatch(self) -> None:
        assert self.dispatcher.dispatch("c", [self.member], "p")["a"].text == "p!"

    def close(self) -> None:
        self.session.close()
        self.dispatcher.close()

    def _stream(self, path: str, **options: Any) -> None:
        try:
            guarded_stream("GET", self.url + path, cancel=self.token, **options).read()
        except StreamguardError:
            return

    def _ask(self, ctx: Any) -> Any:
        return ctx.get_json(self.url + next(self.paths))


def living() -> Counter[str]:
    """Count the objects that are alive, by the module and name of their class: ours, and those of what we stand on."""
    gc.collect()
    kinds = (type(thing) for thing in gc.get_objects())
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
    return Counter(name for name in names if name.startswith(OURS))


def grown(before: Counter[str], after: Counter[str]) -> dict[str, int]:
    """Return the kinds of which there are more than a handful more."""
    return {kind: count - before[kind] for kind, count in after.items() if count - before[kind] > 8}


def resident() -> int:
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def repeat(act: Callable[[], None], times: int) -> None:
    for _ in range(times):
        act()
    # The worker threads of a Session's calls stay for a moment, and hold their last call's context.
    wait_until(lambda: not [t for t in threading.enumerate() if t.name.startswith("streamguard-reader")])


def main(url: str, deed: str) -> None:
    """Warm up, count, do it all again, and print what has grown."""
    with no_leaks(settle=10):
        house = Household(url)
        warm_up, times = TIMES[deed]
        repeat(getattr(house, deed), warm_up)
        objects, memory = living(), resident()
        repeat(getattr(house, deed), times)
        print(
            json.dumps(
                {
                    "objects": grown(objects, living()),
                    "bytes": resident() - memory,
                    "closers": len(house.token._closers),
                }
            )
        )
        house.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
