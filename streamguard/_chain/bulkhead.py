"""A bound on the steps that call one service at once, over all runs, chains and threads of the process."""

import queue
from collections.abc import Callable

from .._core.clock import monotonic
from .._core.limits import Limit, seconds_of, whole_number
from .._core.once import Once
from ..telemetry.pools import take_place


class Bulkhead:
    """At most *limit* steps at once that call one service: give it to each of them, `@chain.step(bulkhead=policies)`.

    limit: how many steps, of all runs, chains and threads of this process.
    name:  a constant, for the gauge of places in use. Default None: no gauge.
    wait:  seconds that a step waits for a place before it starts; its deadline bounds the wait. Default 0.

    A step without a place is `skipped`, `bulkhead_full`; its fallback is used. A step keeps its place for all attempts, and
    for its `verify=`. A thread that was abandoned keeps the place until it ends.

    Raises TypeError or UsageError, naming the argument.

    Limits
        For this process; a forked child starts with the places that are taken. Steps that wait get free places in no
        particular order.
    """

    def __init__(self, limit: int, *, name: str | None = None, wait: Limit = 0.0) -> None:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"name= must be a str, got {type(name).__name__}")
        self.limit = whole_number("limit", limit, 1)
        self.name = name
        self.wait = max(0.0, seconds_of("wait", wait) or 0.0)
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()
        """One item for each free place: its methods are single steps, so no lock is needed."""
        for _ in range(limit):
            self._free.put(None)
        self._waiting: dict[object, Callable[[], object]] = {}

    def __repr__(self) -> str:
        return f"<Bulkhead {self.name or 'without a name'}: {self.in_use} of {self.limit} in use>"

    @property
    def in_use(self) -> int:
        """How many places are taken."""
        return self.limit - self._free.qsize()

    def _enter(self) -> "Place | None":
        """Return a place, or None if there is none."""
        try:
            self._free.get_nowait()
        except queue.Empty:
            return None
        return Place(self._leave, take_place(self.name) if self.name else None)

    def _leave(self) -> None:
        self._free.put(None)
        for wake in [*self._waiting.values()]:
            wake()

    def _call_when_free(self, wake: Callable[[], object]) -> Callable[[], object]:
        """Call *wake* each time that a place becomes free; return the function that ends this."""
        key = object()
        self._waiting[key] = wake
        return lambda: self._waiting.pop(key, None)


class Place:
    """A place in a bulkhead. It is free again when all of its users have left: the run, and the threads of the step."""

    def __init__(self, leave: Callable[[], None], free: Callable[[], None] | None) -> None:
        self._leave, self._free = leave, free
        self._users: set[object] = set()
        self._left: Once[bool] = Once()

    def use(self) -> Callable[[], None]:
        """Add a user; return the function with which it leaves."""
        user = object()
        self._users.add(user)

        def leave() -> None:
            self._users.discard(user)
            if not self._users and self._left.set(True):
                if self._free is not None:
                    self._free()
                self._leave()

        return leave


class Places:
    """The places of one run's steps, by the name of the step, and the waits for them. *wake* wakes the run."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._held: dict[str, tuple[Place, Callable[[], None]]] = {}
        self._waits: dict[str, tuple[float, Callable[[], object]]] = {}
        """The end of each wait, and the function that ends it."""

    def enter(self, name: str, bulkhead: Bulkhead | None, latest: float) -> bool:
        """Take a place for the step *name*; if there is none, begin to wait, at most until the instant *latest*."""
        if bulkhead is None:
            return True
        place = bulkhead._enter()
        if place is None and bulkhead.wait > 0 and name not in self._waits:
            until = min(latest, monotonic() + bulkhead.wait)
            self._waits[name] = until, bulkhead._call_when_free(self._wake)
            place = bulkhead._enter()  # it may have become free before
        if place is not None:
            self._held[name] = place, place.use()
        return place is not None

    def waits(self, name: str) -> bool:
        """Whether the step *name* still waits for a place."""
        return name in self._waits and monotonic() < self._waits[name][0]

    def next_instant(self) -> float | None:
        """Return the instant at which the first wait ends."""
        return min((until for until, _ in self._waits.values()), default=None)

    def end_wait(self, name: str) -> None:
        """Wait no longer for a place of the step *name*."""
        if name in self._waits:
            self._waits.pop(name)[1]()

    def use(self, name: str) -> Callable[[], None]:
        """Add a thread to the users of the place of the step *name*, if it has one; return the function that ends it."""
        return self._held[name][0].use() if name in self._held else _nothing

    def leave(self, name: str) -> None:
        """Give the place of the step *name* back, if it has one, once its threads have ended."""
        if name in self._held:
            self._held.pop(name)[1]()

    def close(self) -> None:
        """End all waits, and give all places back: the run has ended."""
        for name in [*self._waits]:
            self.end_wait(name)
        for name in [*self._held]:
            self.leave(name)


def _nothing() -> None:
    """There is no place to leave."""
