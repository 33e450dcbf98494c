"""The random faults once more, in a process that gevent has patched: hundreds of greenlets, one real thread."""

from collections.abc import Iterator

import pytest

from ..helpers import finish, started
from .faults import FaultyGateway

pytest.importorskip("gevent")

pytestmark = [pytest.mark.stress, pytest.mark.timeout(120)]

_SCRIPT = """
import warnings
warnings.simplefilter("ignore")
from gevent import monkey
monkey.patch_all()
import gevent, gevent.pool, random, sys, time
from streamguard import *

URL, COUNT = sys.argv[1], 1000
FAULTS = {
    "done": (None,),
    "finish": (None,),
    "stall": (StreamInactivityTimeoutError,),
    "comments": (StreamInactivityTimeoutError,),
    "reset": (TransportError,),
    "cut": (TransportError, IncompleteStreamError, EmptyStreamError),
    "malformed": (MalformedChunkError,),
    "mute": (TransportTimeoutError,),
    "busy": (HTTPStatusError,),
}
chance = random.Random(5)
wrong, seen = [], set()

def live(fault, count, act, moment):
    limit = 0.5 if fault in ("stall", "comments") else 60
    response = 0.5 if fault == "mute" else 60
    path = f"/{fault}/{count}/chunked/identity"
    stream = guarded_stream("GET", URL + path, idle=limit, first=limit, response=response, retry=None)
    end = {"close": stream.close, "cancel": stream.cancel}.get(act)
    timer = gevent.spawn_later(moment, end) if end else None
    numbers, error = [], None
    try:
        for chunk in stream:
            if chunk.text:
                numbers.append(int(chunk.text))
    except StreamguardError as raised:
        error = raised
    if timer is not None:
        timer.join()
    stream.close()
    seen.add((fault, act))
    kind = None if error is None else type(error)
    acted = (act == "cancel" and kind is StreamCancelledError) or (act == "close" and kind is None)
    ends = kind in FAULTS[fault] or acted
    if numbers != list(range(1, len(numbers) + 1)) or not ends or (kind is None and not acted and len(numbers) != count):
        wrong.append((fault, count, act, numbers[-3:], repr(error)))

pool = gevent.pool.Pool(100)
for _ in range(COUNT):
    fault, count = chance.choice(sorted(FAULTS)), chance.choice((0, 1, 7, 60))
    count = count or (fault not in ("done", "finish"))  # a complete answer has a chunk
    pool.spawn(live, fault, int(count), chance.choice(("read", "read", "close", "cancel")), chance.random() / 5)
assert pool.join(90), "greenlets hang"
assert not wrong, wrong[:5]
assert {fault for fault, _ in seen} == FAULTS.keys()
deadline_end = time.monotonic() + 10
import threading
while [t for t in threading.enumerate() if "reader" in t.name] and time.monotonic() < deadline_end:
    gevent.sleep(0.01)
assert not [t for t in threading.enumerate() if "reader" in t.name]
print("fine")
"""


@pytest.fixture
def gateway() -> Iterator[FaultyGateway]:
    """Serve, in a process with real threads."""
    with FaultyGateway() as gateway:
        yield gateway


def test_a_thousand_streams_in_greenlets(gateway: FaultyGateway) -> None:
    """A hundred at a time: each ends as its fault or its act says, its chunks in order, and no connection is left."""
    with started(_SCRIPT, gateway.url, prelude="") as script:
        assert finish(script, 100) == "fine\n"
    gateway.wait_connections(500, still_open=0, timeout=10)
