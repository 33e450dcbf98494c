"""The number of taken places of each bounded pool, in the whole process."""

from collections.abc import Callable

from .events import ConcurrencyChanged
from .hooks import emit

_taken: dict[str, set[object]] = {}


def take_place(pool: str) -> Callable[[], None]:
    """Report that a place of *pool*, a constant name, is taken; return a function that reports, once, that it is free."""
    places, place = _taken.setdefault(pool, set()), object()
    places.add(place)
    _report(pool, places)

    def free() -> None:
        if place in places:
            places.discard(place)
            _report(pool, places)

    return free


def _report(pool: str, places: set[object]) -> None:
    """Emit the number until the last emitted one is current: another thread may have changed it. No lock is held."""
    emitted = None
    while emitted != (in_use := len(places)):
        emit(ConcurrencyChanged(pool=pool, in_use=in_use))
        emitted = in_use
