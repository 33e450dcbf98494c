"""A wait that ended late: the reader gets one more moment, once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamguard import Timeouts
from streamguard._core.cancel import CancelToken
from streamguard._stream.timing.clocks import Alarm, Due, Phase, StreamClocks
from streamguard._stream.timing.waiting import Waiting
from streamguard.testing import Gateway

ROOT = Path(__file__).parent.parent.parent.parent
LIMIT = 0.05


class Starved:
    """A reader whose consumer oversleeps its first wait; then something comes whenever it is waited for."""

    def __init__(self, *coming: object) -> None:
        self.waits: list[float] = []
        self._coming = list(coming)

    def take(self, seconds: float | None) -> object | None:
        if not seconds:
            return None
        self.waits.append(seconds)
        if len(self.waits) == 1:
            time.sleep(seconds + 0.2)
            return None
        return self._coming.pop(0) if self._coming else None


def starved(*coming: object) -> Waiting:
    """Return a stream's waiting in phase idle, whose process stands still once."""
    clocks = StreamClocks(Timeouts(idle=LIMIT), None, lambda phase: None)
    clocks.enter(Phase.IDLE)
    return Waiting(clocks, CancelToken(), Starved(*coming).take)


def received(waiting: Waiting, calls: int) -> list[Any]:
    return [waiting.receive() for _ in range(calls)]


def test_what_the_starved_reader_brings_is_taken() -> None:
    """After a wait that ended late, an item that arrives within a moment counts as in time."""
    assert "chunk" in received(starved("chunk"), 2)


def test_comments_after_a_late_wake_up_do_not_hold_off_the_limit() -> None:
    """One moment, not one for each comment: otherwise a server that sends only comments would never time out."""
    items = received(starved(*["comment"] * 50), 4)
    assert Due.LIMIT in [item.due for item in items if isinstance(item, Alarm)]


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="nothing can be stopped here")
@pytest.mark.parametrize("options", ["", ", counts=has_content"], ids=["comments", "chunks that do not count"])
def test_a_stopped_process_still_sees_the_silence(streamguard_gateway: Callable[..., Gateway], options: str) -> None:
    """A process that was stopped for longer than its limit times out when it goes on, though heartbeats arrive."""
    beat = "comment ping" if not options else 'event {"choices": [{"delta": {}}]}'
    gateway = streamguard_gateway(f"chat hello\nloop forever\nwait 0.02\n{beat}\nendloop")
    code = f"""
import sys
from streamguard import *
try:
    for chunk in guarded_stream("GET", sys.argv[1], idle=1.0{options}):
        print("chunk", flush=True)
except StreamInactivityTimeoutError as error:
    print(error.phase, flush=True)
"""
    command = [sys.executable, "-c", code, gateway.url]
    with subprocess.Popen(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "chunk\n"
        client.send_signal(signal.SIGSTOP)
        time.sleep(1.5)
        client.send_signal(signal.SIGCONT)
        try:
            output, _ = client.communicate(timeout=10)
        finally:
            client.kill()
    assert output.splitlines()[-1] == "idle"
