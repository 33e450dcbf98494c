"""Session locks: of all the turns that would resume a session, one at a time holds it, in the order they came."""

import queue
import threading
from collections import deque
from enum import Enum

from ..._core import CancelToken


class Entrance(Enum):
    """How waiting for a session ended."""

    YOURS = "yours"
    STOPPED = "stopped"
    """The turn was stopped while it waited."""
    ABANDONED = "abandoned"
    """A thread that could not be stopped may still use the session: begin a new one (T34)."""


class Ticket:
    """A place in the line for one session."""

    __slots__ = ("_locks", "bell", "session")

    def __init__(self, locks: "SessionLocks", session: str) -> None:
        self._locks = locks
        self.session = session
        self.bell: queue.SimpleQueue[Entrance] = queue.SimpleQueue()

    def wait(self, token: CancelToken) -> Entrance:
        """Wait until the session is this ticket's, or *token* is cancelled, or the session is abandoned.

        Only for `YOURS` there is something to release; a ticket that is not served has left the line.
        """
        unregister = token.on_cancel(lambda: self.bell.put(Entrance.STOPPED))
        try:
            entrance = self.bell.get()
        finally:
            unregister()
        if token.cancelled:
            entrance = Entrance.STOPPED
        if entrance is not Entrance.YOURS:
            self.release()
        return entrance

    def release(self) -> None:
        """Leave the line, and let the next one in. Idempotent."""
        self._locks.leave(self)


class SessionLocks:
    """A FIFO lock for each session.

    Limits
        It orders the turns of one process. Two processes that resume one session are not kept apart.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, deque[Ticket]] = {}
        self._abandoned: set[str] = set()

    def queue_up(self, session: str) -> Ticket:
        """Return a ticket for *session*, at the end of its line."""
        ticket = Ticket(self, session)
        with self._lock:
            line = self._lines.setdefault(session, deque())
            line.append(ticket)
            if session in self._abandoned:
                ticket.bell.put(Entrance.ABANDONED)
            elif line[0] is ticket:
                ticket.bell.put(Entrance.YOURS)
        return ticket

    def abandon(self, session: str) -> None:
        """Mark *session* as held by a turn that cannot be stopped: waiting and later turns start a new session.

        It ends when that holder's ticket is released after all.
        """
        with self._lock:
            line = self._lines.get(session)
            if not line:
                return
            self._abandoned.add(session)
            for ticket in list(line)[1:]:
                ticket.bell.put(Entrance.ABANDONED)

    def waiting(self, session: str) -> int:
        """Return how many tickets are in the line, its holder included."""
        with self._lock:
            return len(self._lines.get(session, ()))

    def leave(self, ticket: Ticket) -> None:
        """Take *ticket* out of its line; if it was served, serve the next one."""
        with self._lock:
            line = self._lines.get(ticket.session)
            if line is None or ticket not in line:
                return
            served = line[0] is ticket
            line.remove(ticket)
            if not line:
                del self._lines[ticket.session]
            if served:
                self._abandoned.discard(ticket.session)
                if line:
                    line[0].bell.put(Entrance.YOURS)
