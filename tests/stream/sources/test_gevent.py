"""Under gevent a guarded source blocks its own greenlet only: a socket of httpx, a pipe, an iterator with `interrupt=`."""

import pytest

from ...helpers import Serve, run_script

pytest.importorskip("gevent")

_SCRIPT = """
from gevent import monkey
monkey.patch_all()
import gevent, os, sys, threading, httpx
from streamguard import StreamInactivityTimeoutError, guard

def ended(stream):
    try:
        list(stream)
    except StreamInactivityTimeoutError as error:
        return error.phase, error.chunks, stream.report.abandoned_threads

def of_httpx():
    with httpx.Client() as client:
        return ended(guard(lambda: client.stream("GET", sys.argv[1]), idle=0.3))

def of_a_pipe():
    read, write = os.pipe()
    os.write(write, b"x")
    return ended(guard(read, idle=0.3))

def of_an_iterator():
    off = threading.Event()
    return ended(guard(iter(off.wait, True), interrupt=off.set, first=0.3))

jobs = [gevent.spawn(job) for job in (of_httpx, of_a_pipe, of_an_iterator)]
ticks = 0
while not all(job.ready() for job in jobs):
    gevent.sleep(0.01)
    ticks += 1
print([job.value for job in jobs], ticks > 5)
"""


def test_under_gevent(streamguard_gateway: Serve) -> None:
    """Each is cut on time while the other greenlets run, and none is left."""
    gateway = streamguard_gateway("chat hello\nstall")
    seen = run_script(_SCRIPT, gateway.url, prelude="")
    assert seen == "[('idle', 1, 0), ('idle', 1, 0), ('first', 0, 0)] True\n"
    assert gateway.wait_left().during == "stall"
