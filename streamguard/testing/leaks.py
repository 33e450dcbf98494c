"""The leak check: no thread and no descriptor more than before."""

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

__all__ = ["LeakCheck", "no_leaks"]

_DESCRIPTORS = "/proc/self/fd"
_POLL_SECONDS = 0.005
_HARMLESS_THREADS = ("pytest_timeout", "pydevd.", "IPythonHistorySavingThread", "tqdm")
_HARMLESS_TARGETS = ("/dev/null", "/dev/urandom", "/dev/pts/", "/proc/")


class LeakCheck:
    """Compares the threads and open descriptors of now with those of the moment when it was made.

    ignore: beginnings of thread names that do not count, beside those of known test tools.

    Limits
        Descriptors are seen where the system has `/proc/self/fd` (Linux); elsewhere only threads. Threads that Python
        did not start cannot be told from harmless ones and do not count.
    """

    def __init__(self, *, ignore: Iterable[str] = ()) -> None:
        self._ignored = (*_HARMLESS_THREADS, *ignore)
        self._threads = set(threading.enumerate())
        self._descriptors = _open_descriptors()

    def leftovers(self) -> list[str]:
        """Describe each thread (with its stack) and descriptor that is here now and was not before."""
        return [*map(_describe_thread, self._new_threads()), *map(_describe_descriptor, self._new_descriptors())]

    def check(self, settle: float = 2.0) -> None:
        """Raise AssertionError, listing the leftovers, if any are still here after *settle* seconds.

        What only the cycle collector can free is no leak: it is run once before anything is called a leftover.
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
    """Check that the block leaves no thread and no descriptor behind; it has *settle* seconds to let them go.

    Raises AssertionError, listing what is left, unless the block itself raised.
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
    """Describe both ends of a socket; nothing for what is none, or is closed by now."""
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
        return "nobody"
