"""Which journal the process writes to: the one of `configure(journal=...)`, else of the environment, else none."""

import atexit
import logging
import os
import threading
import warnings
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

VARIABLE = "STREAMGUARD_JOURNAL"
"""The environment variable that holds the URL of the journal's database."""

_EXIT_PATIENCE = 2.0
_FORK_PATIENCE = 6.0
"""Seconds that a fork waits for a write: more than the longest write."""

_chosen: dict[str, str | None] = {}
_writers: dict[tuple[int, str], Writer | None] = {}
"""By process and URL, because a forked child must not use the connections of its parent; None: an invalid URL."""

_places: dict[str, str] = {}
"""For each URL in the environment the URL with an absolute path, of the directory in which it was first used."""

_pauses: dict[int, list[Callable[[], None]]] = {}
"""The functions that end the pauses of the writers, by the thread that forks."""


def open_store(url: str, *, option: str = "journal=") -> "JournalStore":
    """Return the journal in the database that *url* names, without a connection.

    Raises UsageError for an invalid URL, or if SQLAlchemy is missing. The message never quotes the URL.
    """
    try:
        from .store import JournalStore
    except ImportError as exc:
        raise UsageError(f"{option} needs the package {exc.name}: pip install 'streamguard[dispatch]'") from exc
    return JournalStore(url, option=option)


def use(url: str | NotGiven | None) -> Callable[[], object]:
    """Return a function that makes *url* the journal: None for no journal, `NOT_GIVEN` for the one of the environment.

    Raises UsageError for an invalid URL.
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
    """Pass the entry that *make* returns to the journal, if there is one. Never waits, and never raises its errors."""
    url = _chosen["url"] if "url" in _chosen else os.environ.get(VARIABLE)
    if url:
        writer = _writer_of(_places.get(url, url))
        if writer is not None:
            writer.put(make())


def settle(seconds: float = 2.0) -> bool:
    """Wait until all entries so far are written or lost; return whether that took less than *seconds* (default 2).

    For tests, and before `os._exit()`. A normal exit of the interpreter also waits, at most 2 s.
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
            warnings.warn(f"no journal is kept: {exc}", UserWarning, stacklevel=2)  # the log may have no handler
        else:
            _adopt(place, writer)
            key = (key[0], _places.setdefault(url, place))
    return _writers[key]


def _new_writer(url: str, option: str) -> tuple[str, Writer]:
    """Return the URL with an absolute path, and a writer to it."""
    store = open_store(url, option=option)
    return store.url, Writer(store)


def _adopt(url: str, writer: Writer) -> None:
    if not _writers:
        _register_exit_and_forks()
    _writers.setdefault((os.getpid(), url), writer)


def _own_writers() -> list[Writer]:
    pid = os.getpid()
    return [writer for (owner, _), writer in [*_writers.items()] if writer is not None and owner == pid]


def _register_exit_and_forks() -> None:
    """Register for the exit and the forks of the interpreter: only once a journal is used, because it cannot be undone."""
    atexit.register(settle, _EXIT_PATIENCE)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=_pause_all, after_in_parent=_go_on, after_in_child=_pauses.clear)


def _pause_all() -> None:
    pauses = [writer.pause(_FORK_PATIENCE) for writer in _own_writers() if writer.pauses_for_forks]
    _pauses[threading.get_ident()] = pauses


def _go_on() -> None:
    for end_pause in _pauses.pop(threading.get_ident(), ()):
        end_pause()
