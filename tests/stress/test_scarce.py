"""Few descriptors, no further thread, little memory: an error of ours, nothing lost, and all works again after it."""

import sys
from collections.abc import Iterator

import pytest

from ..helpers import finish, started
from .faults import FaultyGateway

pytestmark = [
    pytest.mark.stress,
    pytest.mark.timeout(120),
    pytest.mark.skipif(sys.platform != "linux", reason="sets limits of Linux"),
]

DESCRIPTORS = """
import errno, random, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
URL = sys.argv[1]

def open_descriptors():
    return len(os.listdir("/proc/self/fd"))

def until_none_is_left():
    held = []
    while True:
        try:
            stream = guarded_stream("GET", URL + "/stall/1/chunked/identity", retry=None)
            next(stream)
        except StreamguardError as error:
            return held, error
        held.append(stream)

assert guarded_stream("GET", URL + "/done/3/chunked/identity").read() == "1 2 3 "
before, threads = open_descriptors(), threading.active_count()
for _ in range(30):
    held, error = until_none_is_left()
    assert type(error) is TransportError and error.code == "EMFILE" and error.errno == errno.EMFILE, repr(error)
    assert classify(error).kind == "transport"
    assert 30 <= len(held) <= 64, len(held)
    text = guarded_stream("GET", URL + "/done/3/chunked/identity", retry=None)
    try:
        text.read()
    except TransportError:
        pass
    held.pop().close()
    assert guarded_stream("GET", URL + "/done/3/chunked/identity").read() == "1 2 3 ", "one is free, and was not used"
    for stream in held:
        random.choice((stream.close, stream.cancel))()
    del held, stream
    wait_for(lambda: open_descriptors() == before)
    wait_for(lambda: threading.active_count() == threads)
for _ in range(300):
    stream = guarded_stream("GET", URL + "/stall/1/chunked/identity", idle=0.005, retry=None)
    try:
        stream.read()
    except StreamInactivityTimeoutError:
        pass
wait_for(lambda: open_descriptors() == before)
print("fine")
"""

THREADS = """
import resource
from streamguard.dispatch import CallableMember, Dispatcher
URL = sys.argv[1]

def open_descriptors():
    with os.scandir("/proc/self/fd") as found:
        names = [entry.name for entry in found]
    return sorted(os.readlink(f"/proc/self/fd/{name}") for name in names if os.path.exists(f"/proc/self/fd/{name}"))

GOOD = URL + "/done/3/chunked/identity"

def works():
    assert guarded_stream("GET", GOOD).read() == "1 2 3 "
    assert Session(timeout=20).get(GOOD).status_code == 200
    assert bounded_call(lambda: 7, limit=10) == 7
    assert agent.run()["one"] == 1
    with Dispatcher() as dispatcher:
        assert dispatcher.dispatch("c", [CallableMember("a", lambda p, c: p)], "p")["a"].text == "p"

def refused(act):
    try:
        act()
    except StreamguardError as error:
        assert "thread" in str(error), error
        assert classify(error).diagnosis == "fail-fast"
        return
    raise AssertionError("a thread could be started")

def stream():
    made = guarded_stream("GET", GOOD, retry=3)
    try:
        made.read()
    finally:
        assert made.report.outcome == "error" and made.report.attempts <= 1, made.report
        assert list(made) == []

agent = Chain("agent", deadline=20)
agent.step(lambda ctx: 1, name="one", limit=10)
works()
held = guarded_stream("GET", URL + "/linger/1000/chunked/identity")
numbers = [int(next(held).text)]
wait_for(lambda: not [t for t in threading.enumerate() if "call" in t.name])  # idle workers would serve once more
descriptors = open_descriptors()

threading.stack_size(512 << 20)
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), hard))
for _ in range(50):
    refused(stream)
    refused(lambda: Session(timeout=20).get(GOOD))
    refused(lambda: bounded_call(lambda: 7, limit=10))
    numbers.append(int(next(held).text))
assert open_descriptors() == descriptors

resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
threading.stack_size(0)
works()
numbers += [int(chunk.text) for chunk in held if chunk.text]
assert numbers == list(range(1, 1001)), numbers
print("fine")
"""


@pytest.fixture
def gateway() -> Iterator[FaultyGateway]:
    """Serve, in a process that has no such limits."""
    with FaultyGateway() as gateway:
        yield gateway


def test_few_descriptors(gateway: FaultyGateway) -> None:
    """With 64 of them, thirty times: EMFILE by its name, held streams unharmed, each descriptor back with its stream."""
    with started(DESCRIPTORS, gateway.url) as script:
        assert finish(script, 100) == "fine\n"


def test_no_thread_can_be_started(gateway: FaultyGateway) -> None:
    """When the system grants no thread: one error of ours, at once, no retry; then everything works again."""
    with started(THREADS, gateway.url) as script:
        assert finish(script, 100) == "fine\n"
