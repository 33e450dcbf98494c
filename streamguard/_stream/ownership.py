"""Whose a stream is: one thread takes its chunks without a lock, for as long as no other thread comes.

A lock costs a quarter of a microsecond for each chunk, nearly as much as all else that `next()` does, and a stream hardly
ever has two consumers. So the first thread that takes a chunk owns the stream, and only notes when it is inside.
Any other thread takes the lock, ends the ownership for good, and waits until the owner is out; from then on all take the
lock. The owner looks twice, before its note and after it, and the other one ends the ownership before it looks for the
note: so one of them always sees the other.
"""

import os
import time
from threading import get_ident

from .._core.forks import forks
from ..errors import UsageError

_LOOK_SECONDS = 0.01
"""How often the first that comes besides the owner looks whether that is out: once for each stream, at the most."""


class HomeProcess:
    """The process that made a stream, the only one that may use it.

    Before any lock: at a fork a thread that the child does not have may have held it.
    """

    __slots__ = ("_pid", "forks")

    def __init__(self) -> None:
        self._pid = os.getpid()
        self.forks = forks.count
        """How many forks there were: as long as there is none more, no process has to be asked for."""

    @property
    def is_here(self) -> bool:
        """Whether this process is the one."""
        return os.getpid() == self._pid

    def require(self) -> None:
        """Raise UsageError in any other process."""
        if not self.is_here:
            raise UsageError("this stream belongs to the parent process: open one in the forked child")


class Ownership:
    """Who owns a stream, and whether it is inside. All methods are for whoever has the lock."""

    __slots__ = ("_given", "inside", "owner")

    def __init__(self) -> None:
        self.owner: int | None = None
        """The thread that needs no lock."""
        self.inside = False
        """Whether it is taking a chunk."""
        self._given = False

    def claim(self) -> None:
        """Make this thread the owner, if there has never been one; else end what another one has."""
        if not self._given:
            self._given, self.owner = True, get_ident()
        self.end()

    def end(self) -> None:
        """Take it from any other thread, and wait until that is out."""
        while not self.end_unless_inside():
            time.sleep(_LOOK_SECONDS)

    def end_unless_inside(self) -> bool:
        """Take it from any other thread; return False if that is still inside."""
        if self.owner == get_ident():
            return True
        self.owner = None
        return not self.inside
