"""Forks at random moments, while streams flow in other threads: the parent loses nothing, each child works."""

import os
from collections.abc import Iterator

import pytest

from ..helpers import finish, started
from .faults import FaultyGateway

pytestmark = [
    pytest.mark.stress,
    pytest.mark.timeout(120),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here"),
]

_SCRIPT = """
import random, warnings
import streamguard
from streamguard.dispatch import CallableMember, Dispatcher
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

URL, FORKS = sys.argv[1], 40
chance = random.Random(7)
session = streamguard.Session(timeout=20)
agent = Chain("agent", deadline=20)
agent.step(lambda ctx: 1, name="one", limit=10)
chunks, errors = [], []
stop = threading.Event()

def whole(stream):
    numbers = [int(chunk.text) for chunk in stream if chunk.text]
    assert numbers == list(range(1, len(numbers) + 1)), numbers
    return len(numbers)

def flow(act):
    try:
        while not stop.is_set():
            act()
    except BaseException as error:
        errors.append(error)

def read():
    count = whole(guarded_stream("GET", URL + "/done/300/chunked/identity"))
    assert count == 300, count
    chunks.append(count)

def call():
    assert session.get(URL + "/done/3/chunked/identity").status_code == 200
    assert agent.run()["one"] == 1
    try:
        guarded_stream("GET", URL + "/reset/3/chunked/identity", retry=None).read()
    except StreamguardError:
        recent_failures()

def in_child(mine):
    "What each child does with a world of its own, and with what it has from its parent."
    try:
        next(mine)
    except UsageError:
        pass
    else:
        return 1
    mine.close()
    if whole(guarded_stream("GET", URL + "/done/20/chunked/identity", total=20, idle=10)) != 20:
        return 2
    if streamguard.Session(timeout=20).get(URL + "/done/3/chunked/identity").status_code != 200:
        return 3
    if agent.run()["one"] != 1 or bounded_call(lambda: 7, limit=10) != 7:
        return 4
    with Dispatcher() as dispatcher:
        if dispatcher.dispatch("c", [CallableMember("a", lambda prompt, context: prompt)], "p")["a"].text != "p":
            return 5
    return 0

def wait(pid, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return "hangs"

threads = [threading.Thread(target=flow, args=(act,)) for act in [read] * 4 + [call] * 2]
for thread in threads:
    thread.start()
mine = guarded_stream("GET", URL + "/done/100000/chunked/identity")
seen, codes = [int(next(mine).text)], []
for _ in range(FORKS):
    time.sleep(chance.random() / 100)
    pid = os.fork()
    if not pid:
        code = 9
        try:
            code = in_child(mine)
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    codes.append(wait(pid))
    seen.append(int(next(mine).text))
stop.set()
for thread in threads:
    thread.join(20)
    assert not thread.is_alive(), "a thread of the parent hangs"
assert codes == [0] * FORKS, codes
assert errors == [], errors
assert seen == list(range(1, FORKS + 2)), seen
assert len(chunks) >= 4
mine.close()
session.close()
print("fine")
"""


@pytest.fixture
def gateway() -> Iterator[FaultyGateway]:
    """Serve."""
    with FaultyGateway() as gateway:
        yield gateway


def test_forks_in_the_middle_of_everything(gateway: FaultyGateway) -> None:
    """40 forks among six busy threads: no child finds a lock that is never released, no stream of the parent is cut."""
    with started(_SCRIPT, gateway.url) as script:
        assert finish(script, 100) == "fine\n"
    gateway.wait_connections(40, still_open=0, timeout=10)
