"""The leak check: as many threads and descriptors after a block as before."""

import gc
import os
import socket
import stat
import sys
import threading
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from .._core.clock import monotonic

_DESCRIPTORS = "/proc/self/fd"
_POLL_SECONDS = 0.005
_HARMLESS_THREADS = ("pytest_timeout", "pydevd.", "IPythonHistorySavingThread", "tqdm")
_HARMLESS_TARGETS = ("/dev/null", "/dev/urandom", "/dev/pts/", "/proc/")


class LeakCheck:
    """Compares the current threads and open descriptors with those at the time of its creation.

    ignore: prefixes of thread names that do not count, in addition to those of known test tools.

    Limits
        Descriptors are checked only if the system has `/proc/self/fd` (Linux). Threads that Python did not start do not
        count.
    """

    def __init__(self, *, ignore: Iterable[str] = ()) -> None:
        self._ignored = (*_HARMLESS_THREADS, *ignore)
        self._threads = set(threading.enumerate())
        self._descriptors = _open_descriptors()

    def leftovers(self) -> list[str]:
        """Describe each thread (with its stack) and descriptor that is new."""
        return [*map(_describe_thread, self._new_threads()), *map(_describe_descriptor, self._new_descriptors())]

    def check(self, settle: float = 2.0) -> None:
        """Raise AssertionError, listing the leftovers, if any remain after *settle* seconds.

        Objects that the cycle collector frees are not leaks: it runs once before the check.
        """
        if not self._clean():
            gc.collect()
        end = monotonic() + settle
        while not self._clean():
            if monotonic() >= end:
                self._fail()
            time.sleep(_POLL_SECONDS)

    def _fail(self) -> None:
        leftovers = self.leftovers()
        if leftovers:
            raise AssertionError("\n".join((f"left behind: {len(leftovers)}", *leftovers)))

    def _clean(self) -> bool:
        return not self._new_threads() and not self._new_descriptors()

    def _new_threads(self) -> list[threading.Thread]:
        new = (thread for thread in threading.enumerate() if thread not in self._threads)
        return [thread for thread in new if not self._harmless(thread)]

    def _harmless(self, thread: threading.Thread) -> bool:
        foreign = isinstance(thread, threading._DummyThread)
        return foreign or thread.name.startswith(self._ignored)

    def _new_descriptors(self) -> list[tuple[int, str]]:
        return sorted(_open_descriptors() - self._descriptors)


@contextmanager
def no_leaks(settle: float = 2.0, *, ignore: Iterable[str] = ()) -> Iterator[LeakCheck]:
    """Check that no thread and no descriptor of the block remains *settle* seconds after it.

    Raises AssertionError, listing the leftovers, unless the block itself raised.
    """
    check = LeakCheck(ignore=ignore)
    yield check
    check.check(settle)


def _open_descriptors() -> set[tuple[int, str]]:
    if not os.path.isdir(_DESCRIPTORS):
        return set()
    found = ((int(name), _target(name)) for name in os.listdir(_DESCRIPTORS))
    return {(number, target) for number, target in found if target and not target.startswith(_HARMLESS_TARGETS)}


def _target(name: str) -> str:
    try:
        return os.readlink(f"{_DESCRIPTORS}/{name}")
    except OSError:
        return ""  # closed since it was listed, as the listing's own descriptor is


def _describe_thread(thread: threading.Thread) -> str:
    frame = sys._current_frames().get(thread.ident or 0)
    stack = "".join(traceback.format_stack(frame)) if frame else "  (not running)\n"
    return f"thread {thread.name!r}{' (daemon)' if thread.daemon else ''} is at\n{stack.rstrip()}"


def _describe_descriptor(found: tuple[int, str]) -> str:
    number, target = found
    return f"descriptor {number}: {target}{_ends(number)}"


def _ends(descriptor: int) -> str:
    """Describe both ends of a socket; return "" for other descriptors and closed ones."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return ""
        with socket.socket(fileno=os.dup(descriptor)) as sock:
            return f" {sock.getsockname()} -> {_peer(sock)}"
    except OSError:
        return ""


def _peer(sock: socket.socket) -> object:
    try:
        return sock.getpeername()
    except OSError:
        return "not connected"
