"""Which journal is written to: that of `configure(journal=...)`, else that of the environment, else none."""

import atexit
import logging
import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from .._core.deadline import Deadline
from .._core.limits import NotGiven
from ..errors import UsageError
from ..telemetry.logs import log_line
from .entries import JournalEntry
from .writer import Writer

if TYPE_CHECKING:
    from .store import JournalStore

__all__ = ["VARIABLE", "keep", "open_store", "settle", "use"]

VARIABLE = "STREAMGUARD_JOURNAL"
"""The environment variable that holds the URL of the journal's database."""

_EXIT_PATIENCE = 2.0
_FORK_PATIENCE = 6.0
"""Seconds that a fork waits for a write: more than a write may take."""

_chosen: dict[str, str | None] = {}
_writers: dict[tuple[int, str], Writer | None] = {}
"""By process and URL, for a forked child must not use its parent's connections; None: that URL cannot be used."""

_places: dict[str, str] = {}
"""By URL as the environment has it, the one with an absolute path: that of the directory in which it was first used."""

_pauses: dict[int, list[Callable[[], None]]] = {}
"""What ends the pauses of the writers, by the thread that forks."""


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
    place, writer = _new_writer(url, "journal=")

    def chosen() -> None:
        _adopt(place, writer)
        _chosen["url"] = place

    return chosen


def keep(make: Callable[[], JournalEntry]) -> None:
    """Hand the entry that *make* returns to the journal, if there is one. Never waits, never raises for its sake."""
    url = _chosen["url"] if "url" in _chosen else os.environ.get(VARIABLE)
    if url:
        writer = _writer_of(_places.get(url, url))
        if writer is not None:
            writer.put(make())


def settle(seconds: float = 2.0) -> bool:
    """Wait until all that has ended so far is in the journal, or lost; return whether that took less than *seconds*.

    For tests, and before `os._exit()`: a normal exit of the interpreter waits by itself, 2 s at most.
    """
    deadline = Deadline.after(seconds)
    return all(writer.settle(deadline.remaining()) for writer in _own_writers())


def _writer_of(url: str) -> Writer | None:
    key = (os.getpid(), url)
    if key not in _writers:
        try:
            place, writer = _new_writer(url, VARIABLE)
        except UsageError as exc:
            _writers.setdefault(key, None)
            log_line(logging.WARNING, "journal_failed", "no journal: %s", exc, error_type="UsageError")
        else:
            _adopt(place, writer)
            key = (key[0], _places.setdefault(url, place))
    return _writers[key]


def _new_writer(url: str, option: str) -> tuple[str, Writer]:
    """Return the URL with its path absolute, and a writer to it."""
    store = open_store(url, option=option)
    return store.url, Writer(store)


def _adopt(url: str, writer: Writer) -> None:
    if not _writers:
        _stand_by()
    _writers.setdefault((os.getpid(), url), writer)


def _own_writers() -> list[Writer]:
    pid = os.getpid()
    return [writer for (owner, _), writer in [*_writers.items()] if writer is not None and owner == pid]


def _stand_by() -> None:
    """Be there when the interpreter ends, and when it forks. Only once a journal is kept, for it cannot be undone."""
    atexit.register(settle, _EXIT_PATIENCE)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_pause_all, after_in_parent=_go_on, after_in_child=_pauses.clear)


def _pause_all() -> None:
    pauses = [writer.pause(_FORK_PATIENCE) for writer in _own_writers() if writer.minds_forks]
    _pauses[threading.get_ident()] = pauses


def _go_on() -> None:
    for end_pause in _pauses.pop(threading.get_ident(), ()):
        end_pause()
