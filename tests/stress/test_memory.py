"""An hour's worth of cycles, compressed: what long-lived objects hold does not grow with what passes through them."""

import gc
import itertools
import resource
import sys
import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from streamguard import CancelToken, Chain, Session, StreamguardError, deadline, guarded_stream
from streamguard.dispatch import CallableMember, Dispatcher
from streamguard.testing import no_leaks

from ..core.helpers import wait_until
from .faults import FAULTS, FaultyGateway

pytestmark = [
    pytest.mark.stress,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

WARM_UP = 200
CYCLES = 1000
KEPT = 1000
"""How many dispatches stay in a dispatcher's memory."""
MEBIBYTE = 1 << 20
FLAT = 10 * MEBIBYTE

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


def test_a_household_does_not_grow() -> None:
    """After a thousand cycles of faults no object of ours is left over, and the memory is that of a warm process."""
    with no_leaks(settle=10), FaultyGateway() as gateway:
        house = Household(gateway.url)
        repeat(house.cycle, WARM_UP)
        gateway.forget()
        objects, memory = living(), resident()
        repeat(house.cycle, CYCLES)
        gateway.forget()
        assert grown(objects, living()) == {}
        assert house.token._closers == {}
        assert resident() - memory < FLAT
        house.close()


def test_a_dispatcher_does_not_grow() -> None:
    """It keeps the last thousand dispatches in its memory, and no more than those."""
    with no_leaks(settle=10), FaultyGateway() as gateway:
        house = Household(gateway.url)
        repeat(house.dispatch, KEPT + 50)
        objects, memory = living(), resident()
        repeat(house.dispatch, KEPT // 2)
        assert grown(objects, living()) == {}
        assert resident() - memory < FLAT
        house.close()
