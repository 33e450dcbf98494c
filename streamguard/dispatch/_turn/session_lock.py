"""Locks for sessions: one turn at a time resumes a session, first in, first out."""

import queue
import threading
from collections import deque
from enum import Enum

from ..._core import CancelToken


class Entrance(Enum):
    """How the wait for a session ended."""

    YOURS = "yours"
    STOPPED = "stopped"
    """The turn was stopped while it waited."""
    ABANDONED = "abandoned"
    """A thread that could not be stopped may still use the session: start a new one (T34)."""


class Ticket:
    """A place in the line of one session."""

    __slots__ = ("_locks", "answers", "session")

    def __init__(self, locks: "SessionLocks", session: str) -> None:
        self._locks = locks
        self.session = session
        self.answers: queue.SimpleQueue[Entrance] = queue.SimpleQueue()

    def wait(self, token: CancelToken) -> Entrance:
        """Wait until the session is this ticket's, *token* is cancelled, or the session is abandoned.

        Release the ticket after `YOURS`. In the other cases it has left the line already.
        """
        unregister = token.on_cancel(lambda: self.answers.put(Entrance.STOPPED))
        try:
            entrance = self.answers.get()
        finally:
            unregister()
        if token.cancelled:
            entrance = Entrance.STOPPED
        if entrance is not Entrance.YOURS:
            self.release()
        return entrance

    def release(self) -> None:
        """Leave the line; the next ticket gets the session. Idempotent."""
        self._locks.leave(self)


class SessionLocks:
    """A FIFO lock for each session.

    Limits
        Only the turns of one process wait for each other.
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
                ticket.answers.put(Entrance.ABANDONED)
            elif line[0] is ticket:
                ticket.answers.put(Entrance.YOURS)
        return ticket

    def abandon(self, session: str) -> None:
        """Mark *session* as used by a turn that cannot be stopped: waiting and later turns start a new session.

        The mark ends when the holder's ticket is released.
        """
        with self._lock:
            line = self._lines.get(session)
            if not line:
                return
            self._abandoned.add(session)
            for ticket in list(line)[1:]:
                ticket.answers.put(Entrance.ABANDONED)

    def waiting(self, session: str) -> int:
        """Return the number of tickets in the line, including the holder's."""
        with self._lock:
            return len(self._lines.get(session, ()))

    def leave(self, ticket: Ticket) -> None:
        """Remove *ticket* from its line; if it held the session, serve the next one."""
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
                    line[0].answers.put(Entrance.YOURS)
