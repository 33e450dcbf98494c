"""Under gevent each wait is a greenlet's and does not block the others, early and late patches alike."""

from collections.abc import Callable
from typing import Any

import pytest

from ..helpers import run_script

pytest.importorskip("gevent")

Serve = Callable[..., Any]

_PATCH = """
import warnings
warnings.simplefilter("ignore")  # gevent's own, of a late patch
from gevent import monkey
monkey.patch_all()
"""

_IMPORT = "from streamguard import *\n"

_SCRIPT = """
import gevent, sys, time

def consume(stream):
    try:
        return stream.read()
    except StreamguardError as error:
        return f"{type(error).__name__} {error.partial_text}"

def start(function, *arguments):
    greenlet = gevent.spawn(function, *arguments)
    gevent.sleep(0.05)
    return greenlet

def result(greenlet):
    greenlet.join(10)
    return greenlet.value

url, begun = sys.argv[1], time.monotonic()
greenlets = [gevent.spawn(consume, guarded_stream("GET", url, idle=0.3)) for _ in range(20)]
assert {result(greenlet) for greenlet in greenlets} == {"StreamInactivityTimeoutError hello"}
assert time.monotonic() - begun < 20 * 0.3 / 2, "they waited one after the other"

token = CancelToken()
waiting = start(token.wait, 10)
stream = guarded_stream("GET", url, cancel=token)
consuming = start(consume, stream)
token.cancel()
assert result(waiting) is True
assert result(consuming) == "StreamCancelledError hello"

stream = guarded_stream("GET", url)
consuming = start(consume, stream)
stream.close()
assert result(consuming) == "hello"
assert stream.report.outcome == "closed"
print("fine")
"""


@pytest.mark.parametrize("beginning", [_PATCH + _IMPORT, _IMPORT + _PATCH], ids=["patched first", "imported first"])
def test_twenty_silent_streams_in_greenlets(streamguard_gateway: Serve, beginning: str) -> None:
    """Twenty silent streams time out together; cancel and close reach a waiting greenlet; all connections close."""
    gateway = streamguard_gateway("chat hello\nstall")
    assert run_script(beginning + _SCRIPT, gateway.url, prelude="") == "fine\n"
    gateway.wait_connections(22, still_open=0)
