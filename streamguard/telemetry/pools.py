"""How many places of a bounded pool are taken, over the whole process."""

from collections.abc import Callable

from .events import ConcurrencyChanged
from .hooks import emit

_taken: dict[str, set[object]] = {}


def take_place(pool: str) -> Callable[[], None]:
    """Tell that a place of *pool*, a constant name, is taken; return what tells that it is free again, once."""
    places, place = _taken.setdefault(pool, set()), object()
    places.add(place)
    _tell(pool, places)

    def free() -> None:
        if place in places:
            places.discard(place)
            _tell(pool, places)

    return free


def _tell(pool: str, places: set[object]) -> None:
    """Emit the number until the last one emitted is current: another thread may have changed it. No lock is held."""
    told = None
    while told != (in_use := len(places)):
        emit(ConcurrencyChanged(pool=pool, in_use=in_use))
        told = in_use
