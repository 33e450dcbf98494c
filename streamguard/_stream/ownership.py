"""Which thread and which process may use a stream.

One thread takes the chunks without a lock, as long as no other thread comes: a lock costs a quarter of a microsecond for
each chunk, nearly as much as the rest of `next()`, and a stream rarely has two consumers. So the first thread that takes a
chunk owns the stream, and only sets a flag when it is inside. Any other thread takes the lock, ends the ownership for good,
and waits until the owner is out; from then on all threads take the lock. The owner looks twice, before it sets its flag and
after, and the other thread ends the ownership before it looks at the flag: so one of them always sees the other.
"""

import os
import time
from threading import get_ident

from .._core.forks import forks
from ..errors import UsageError

_LOOK_SECONDS = 0.01
"""How often the first other thread looks whether the owner is out: this wait happens once for a stream, at most."""


class HomeProcess:
    """The process that made a stream, the only one that may use it.

    It is asked before any lock: at a fork, a thread that the child does not have may hold the lock.
    """

    __slots__ = ("_pid", "forks")

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.forks = forks.count
        """The number of forks at that time: until there is another one, `os.getpid()` need not be called."""

    @property
    def is_here(self) -> bool:
        """Whether this is that process."""
        return os.getpid() == self._pid

    def require(self) -> None:
        """Raise UsageError in any other process."""
        if not self.is_here:
            raise UsageError("this stream belongs to the parent process: open one in the forked child")


class Ownership:
    """Which thread owns a stream, and whether it is inside. All methods are called with the lock held."""

    __slots__ = ("_given", "inside", "owner")

    def __init__(self) -> None:
        self.owner: int | None = None
        """The thread that needs no lock."""
        self.inside = False
        """Whether the owner is taking a chunk."""
        self._given = False

    def claim(self) -> None:
        """Make this thread the owner, if there has never been one; otherwise end the ownership of another thread."""
        if not self._given:
            self._given, self.owner = True, get_ident()
        self.end()

    def end(self) -> None:
        """End the ownership of any other thread, and wait until that one is out."""
        while not self.end_unless_inside():
            time.sleep(_LOOK_SECONDS)

    def end_unless_inside(self) -> bool:
        """End the ownership of any other thread; return False if that one is still inside."""
        if self.owner == get_ident():
            return True
        self.owner = None
        return not self.inside
