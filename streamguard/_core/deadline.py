"""Deadlines: one monotonic instant, and the ambient one that a `with deadline(...)` block sets.

Nesting only tightens. A stream, call or chain captures the ambient deadline once, when it starts; leaving the block does
not set it free.
"""

import contextvars
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType

from ..errors import UsageError
from .clock import monotonic
from .limits import seconds_of

__all__ = ["Deadline", "current_deadline", "deadline", "shield"]


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """One instant on the monotonic clock, after which nothing may go on."""

    at: float
    """The instant, as `streamguard._core.clock.monotonic()` counts."""

    @classmethod
    def after(cls, seconds: float | str | timedelta) -> "Deadline":
        """Return the instant *seconds* from now; 0 or less is an instant already gone."""
        value = seconds_of("seconds", seconds)
        if value is None:
            raise UsageError("a Deadline needs a number of seconds; to have none, set none")
        return cls(monotonic() + value)

    def remaining(self) -> float:
        """Return the seconds left; never negative."""
        return max(0.0, self.at - monotonic())

    @property
    def expired(self) -> bool:
        """Whether the instant has come."""
        return monotonic() >= self.at

    def clamp(self, limit: float | None) -> float:
        """Return the smaller of *limit* (seconds; None: no limit) and the time that remains."""
        return self.remaining() if limit is None else min(limit, self.remaining())


@dataclass(slots=True, eq=False)
class _Entry:
    """One passage through a block: what it set, and what it found."""

    value: Deadline | None
    outer: "_Entry | None"
    gone: bool = False
    """Left out of order, so that it may still be the innermost one of some context."""


_ambient: contextvars.ContextVar[_Entry | None] = contextvars.ContextVar("streamguard_deadline", default=None)


def current_deadline() -> Deadline | None:
    """Return the ambient deadline of this context, or None."""
    entry = _innermost()
    return None if entry is None else entry.value


def _innermost() -> _Entry | None:
    entry = _ambient.get()
    while entry is not None and entry.gone:
        entry = entry.outer
    return entry


class _Block:
    """Set the ambient deadline for the length of a `with` block."""

    __slots__ = ("_entry", "_token")

    def __init__(self) -> None:
        self._entry: _Entry | None = None
        self._token: contextvars.Token[_Entry | None] | None = None

    def _enter(self, value: Deadline | None) -> None:
        if self._token is not None:
            raise UsageError("this block is already entered; make a new one")
        self._entry = _Entry(value, _innermost())
        self._token = _ambient.set(self._entry)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        token, entry = self._token, self._entry
        self._token = self._entry = None
        if token is None or entry is None:
            return
        innermost = _ambient.get()
        try:
            _ambient.reset(token)
        except ValueError:
            entry.gone = True  # a generator may be closed in another context than it was started in
        else:
            if innermost is not entry:  # two generators may overlap: what the other one has set stays
                entry.gone = True
                _ambient.set(innermost)


class deadline(_Block):
    """Bound everything of streamguard's in the block by one deadline, *seconds* from entering it.

    A surrounding deadline that is nearer stays in force. None adds no deadline; a `Deadline` is taken as it is. The block
    itself is not interrupted, and leaving it late raises nothing: ask the value that `with` gives you (a `Deadline`, or
    None).

    Limits
        Threads that you start yourself do not see it, unless you run them in a copied context, or give them the
        `Deadline` and have them enter a block of their own.
    """

    __slots__ = ("_seconds",)

    def __init__(self, seconds: float | str | timedelta | Deadline | None) -> None:
        super().__init__()
        self._seconds = seconds if isinstance(seconds, Deadline) else seconds_of("deadline", seconds)

    def __enter__(self) -> Deadline | None:
        mine = self._seconds
        if isinstance(mine, float):
            mine = Deadline(monotonic() + mine)
        nearest = min((d for d in (current_deadline(), mine) if d is not None), default=None)
        self._enter(nearest)
        return nearest


class shield(_Block):
    """Let the block run without the ambient deadline: for clean-up that must not be cut short."""

    __slots__ = ()

    def __enter__(self) -> None:
        self._enter(None)
