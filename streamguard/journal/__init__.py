"""What happened: the last failures in memory, and, where one is asked for, a journal of everything in a database."""

from .collector import recent
from .entries import JournalEntry, Kind, Moment
from .journal_settings import configure
from .lifecycle import settle

__all__ = ["JournalEntry", "Kind", "Moment", "configure", "recent", "settle"]
