"""Limit how many threads cut at a time.

When a thousand limits fire in one instant, two thousand threads compete for the interpreter lock. Each waiting thread wakes
every few milliseconds to request it, and its holder releases it at each system call, so that little else runs. A few
threads at a time are faster, while the others sleep.
"""

import queue
from types import TracebackType

CUT_SECONDS = 0.002
"""How long one thread that is being stopped may delay the other cuts."""
_STUCK_SECONDS = 0.5


class CutThrottle:
    """A context manager that at most *count* threads are in at a time, while the others wait.

    If no thread has left it for half a second, the waiting threads enter: a thread inside may be stuck, or an exception of
    a signal handler may have lost its place. It uses no semaphore: a handler that interrupts one while it is locked would
    block.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._ended = 0
        self._made: dict[str, queue.SimpleQueue[None]] = {}

    @property
    def _free(self) -> "queue.SimpleQueue[None]":
        """The free places. Made when the first is taken: gevent may have patched queues by then."""
        try:
            return self._made["free"]
        except KeyError:
            return self._made.setdefault("free", self._filled())

    def _filled(self) -> "queue.SimpleQueue[None]":
        free: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(self._count):
            free.put(None)
        return free

    def __enter__(self) -> None:
        while True:
            ended = self._ended
            try:
                return self._free.get(timeout=_STUCK_SECONDS)
            except queue.Empty:
                if self._ended == ended:
                    return None

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended += 1  # not exact between threads, but never the same as before
        self._free.put(None)


cut_throttle = CutThrottle(2)
"""For all cuts of the process. More than two at a time are slower: they share one interpreter lock."""
