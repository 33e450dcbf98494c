"""A thousand stalls, breaks and cancels leave no thread, no descriptor and no memory behind."""

import gc
import os
import queue
import resource
import sys
import threading
from collections.abc import Callable

import pytest

from streamguard import CancelToken, GuardedStream, StreamCancelledError, StreamInactivityTimeoutError, guarded_stream
from streamguard.testing import Gateway, no_leaks

from ..helpers import wait_until

pytestmark = [pytest.mark.stress, pytest.mark.timeout(300)]

COUNT = 1000
SIDE_BY_SIDE = 50
MEBIBYTE = 1 << 20
FLAT = 12 * MEBIBYTE
"""How much more a thousand streams may leave resident: the allocator's noise, and the gateway's own notes of each."""

Stream = GuardedStream[object]
Ending = Callable[[Gateway], None]


def start(gateway: Gateway, *, idle: float, cancel: CancelToken | None = None) -> Stream:
    """Return a stream that has handed over its first chunk."""
    verify = gateway.ca if gateway.url.startswith("https") else True
    stream = guarded_stream("GET", gateway.url, verify=verify, idle=idle, first=60, retry=None, cancel=cancel)
    next(stream)
    return stream


def stall(gateway: Gateway) -> None:
    """Wait for a chunk that never comes."""
    stream = start(gateway, idle=0.05)
    with pytest.raises(StreamInactivityTimeoutError):
        next(stream)


def leave_with_close(gateway: Gateway) -> None:
    """Break out of a `with` block."""
    with start(gateway, idle=60) as stream:
        for _ in stream:
            break


def drop(gateway: Gateway) -> None:
    """Break out of a loop, and drop the last reference."""
    for _ in start(gateway, idle=60):
        break


def cancel_from_a_thread(gateway: Gateway) -> None:
    """Be cancelled by another thread while waiting."""
    stream = start(gateway, idle=60)
    timer = threading.Timer(0.02, stream.cancel)
    timer.start()
    with pytest.raises(StreamCancelledError):
        list(stream)
    timer.join()


def cancel_by_token(gateway: Gateway) -> None:
    """Be cancelled by a token that several streams share."""
    token = CancelToken()
    streams = [start(gateway, idle=60, cancel=token) for _ in range(2)]
    token.cancel()
    for stream in streams:
        with pytest.raises(StreamCancelledError):
            list(stream)


def run(end: Ending, gateway: Gateway, count: int) -> None:
    """Do it *count* times, `SIDE_BY_SIDE` at once; raise what the first failing one raised."""
    tickets: queue.SimpleQueue[int] = queue.SimpleQueue()
    failures: list[BaseException] = []
    for number in range(count):
        tickets.put(number)

    def work() -> None:
        while not failures:
            try:
                tickets.get_nowait()
            except queue.Empty:
                return
            try:
                end(gateway)
            except BaseException as failure:
                failures.append(failure)

    threads = [threading.Thread(target=work, daemon=True) for _ in range(SIDE_BY_SIDE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    for failure in failures:
        raise failure


def resident() -> int:
    """Return the bytes of memory that this process holds, garbage collected."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def readers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("streamguard-reader")]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize(
    ("end", "script"),
    [
        (stall, "chat a\nstall"),
        (leave_with_close, "chat a\nstall"),
        (leave_with_close, "loop forever\ntick\nwait 0.001\nendloop"),
        (drop, "chat a\nchat b\nstall"),
        (cancel_from_a_thread, "chat a\nstall"),
        (cancel_from_a_thread, "loop forever\ntick\nwait 0.001\nendloop"),
        (cancel_by_token, "chat a\nstall"),
    ],
    ids=["stall", "break silent", "break flowing", "drop", "cancel silent", "cancel flowing", "cancel shared"],
)
def test_a_thousand_leave_nothing(end: Ending, script: str, tls: bool) -> None:
    """No reader, no connection at the server, no descriptor, and the memory of a warm process."""
    if end is leave_with_close and "stall" in script:
        script = script.replace("stall", "chat b\nstall")
    with no_leaks(settle=5), Gateway(script, tls=tls) as gateway:
        run(end, gateway, COUNT // 4)
        gateway.wait_connections(COUNT // 4, still_open=0, timeout=10)
        before, descriptors = resident(), len(os.listdir("/proc/self/fd"))
        run(end, gateway, COUNT)
        gateway.wait_connections(COUNT, still_open=0, timeout=10)
        # Dropping a stream does not wait: the last readers may still be ending.
        wait_until(lambda: readers() == [])
        wait_until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors)
        assert resident() - before < FLAT
