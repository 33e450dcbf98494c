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
    """The instant, as `streamguard.core.clock.monotonic()` counts."""

    @classmethod
    def after(cls, seconds: float | timedelta) -> "Deadline":
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


_ambient: contextvars.ContextVar[Deadline | None] = contextvars.ContextVar("streamguard_deadline", default=None)


def current_deadline() -> Deadline | None:
    """Return the ambient deadline of this context, or None."""
    return _ambient.get()


class _Ambient:
    """Hold a value in the ambient variable for the length of a block."""

    __slots__ = ("_mine", "_outer", "_token")

    def __init__(self) -> None:
        self._token: contextvars.Token[Deadline | None] | None = None

    def _enter(self, value: Deadline | None) -> None:
        if self._token is not None:
            raise UsageError("this block is already entered; make a new one")
        self._outer, self._mine = _ambient.get(), value
        self._token = _ambient.set(value)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        token, self._token = self._token, None
        if token is None:
            return
        try:
            _ambient.reset(token)
        except ValueError:
            # A generator may be closed in another context than it was started in. There, take back only what is ours.
            if _ambient.get() is self._mine:
                _ambient.set(self._outer)


class deadline(_Ambient):
    """Bound everything of streamguard's in the block by one deadline, *seconds* from entering it.

    A surrounding deadline that is nearer stays in force. None adds no deadline. The block itself is not interrupted, and
    leaving it late raises nothing: ask the value that `with` gives you (a `Deadline`, or None).

    Limits
        Threads that you start yourself do not see it, unless you run them in a copied context.
    """

    __slots__ = ("_seconds",)

    def __init__(self, seconds: float | timedelta | None) -> None:
        super().__init__()
        self._seconds = seconds_of("deadline", seconds)

    def __enter__(self) -> Deadline | None:
        outer = _ambient.get()
        mine = None if self._seconds is None else Deadline(monotonic() + self._seconds)
        nearest = min((d for d in (outer, mine) if d is not None), default=None)
        self._enter(nearest)
        return nearest


class shield(_Ambient):
    """Let the block run without the ambient deadline: for clean-up that must not be cut short."""

    __slots__ = ()

    def __enter__(self) -> None:
        self._enter(None)
