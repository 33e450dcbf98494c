"""What happened: the last failures in memory, and, where one is asked for, a journal of everything in a database."""

from .entries import JournalEntry, Kind, Moment
from .keeping import settle
from .recorder import recent
from .settings import configure

__all__ = ["JournalEntry", "Kind", "Moment", "configure", "recent", "settle"]
