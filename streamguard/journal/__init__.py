"""The last failures in memory, and an optional journal of all streams, runs and turns in a database."""

from .collector import recent, recent_failures
from .configuration import configure
from .entries import JournalEntry, Kind, Moment
from .lifecycle import settle

__all__ = ["JournalEntry", "Kind", "Moment", "configure", "recent", "recent_failures", "settle"]
