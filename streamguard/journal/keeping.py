"""Which journal is written to: that of `configure(journal=...)`, else that of the environment, else none."""

import atexit
import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..core.deadline import Deadline
from ..core.limits import NotGiven
from ..errors import UsageError
from .entries import JournalEntry
from .writer import Writer

if TYPE_CHECKING:
    from .store import JournalStore

__all__ = ["VARIABLE", "keep", "open_store", "settle", "use"]

VARIABLE = "STREAMGUARD_JOURNAL"
"""The environment variable that holds the URL of the journal's database."""

_EXIT_PATIENCE = 2.0

_log = logging.getLogger("streamguard")
_chosen: dict[str, str | None] = {}
_writers: dict[tuple[int, str], Writer | None] = {}
"""By process and URL, for a forked child must not use its parent's connections; None: that URL cannot be used."""


def open_store(url: str, *, option: str = "journal=") -> "JournalStore":
    """Return the journal in the database that *url* names; nothing connects yet.

    Raises UsageError for what is no such URL, or if SQLAlchemy is missing. The message never quotes the URL.
    """
    try:
        from .store import JournalStore
    except ImportError as exc:
        raise UsageError(f"{option} needs the package {exc.name}: pip install 'streamguard[dispatch]'") from exc
    return JournalStore(url, option=option)


def use(url: str | NotGiven | None) -> Callable[[], object]:
    """Return what makes *url* the journal from now on: None for no journal, `NOT_GIVEN` for the environment's.

    Raises UsageError for what is no URL of a database.
    """
    if isinstance(url, NotGiven):
        return lambda: _chosen.pop("url", None)
    if url is None:
        return lambda: _chosen.update(url=None)
    writer = _new_writer(url, "journal=")

    def chosen() -> None:
        _adopt(url, writer)
        _chosen["url"] = url

    return chosen


def keep(entry: JournalEntry) -> None:
    """Hand *entry* to the journal, if there is one. Never waits, never raises for the sake of the journal."""
    url = _chosen["url"] if "url" in _chosen else os.environ.get(VARIABLE)
    if url:
        writer = _writer_of(url)
        if writer is not None:
            writer.put(entry)


def settle(seconds: float = 2.0) -> bool:
    """Wait until the journal holds all that has ended so far; return whether it does, after at most *seconds*.

    True as well where no journal is kept. For tests, and before `os._exit()`; a normal exit of the interpreter settles by
    itself.
    """
    deadline, pid = Deadline.after(seconds), os.getpid()
    ours = [writer for (owner, _), writer in [*_writers.items()] if writer is not None and owner == pid]
    return all(writer.settle(deadline.remaining()) for writer in ours)


def _writer_of(url: str) -> Writer | None:
    key = (os.getpid(), url)
    if key not in _writers:
        try:
            _adopt(url, _new_writer(url, VARIABLE))
        except UsageError as exc:
            _writers.setdefault(key, None)
            _log.warning("no journal: %s", exc, extra={"error_type": "UsageError"})
    return _writers[key]


def _new_writer(url: str, option: str) -> Writer:
    return Writer(open_store(url, option=option))


def _adopt(url: str, writer: Writer) -> None:
    if not _writers:
        atexit.register(settle, _EXIT_PATIENCE)
    _writers.setdefault((os.getpid(), url), writer)
