"""Deadlines: one monotonic instant, and the ambient one that a `with deadline(...)` block sets.

Nesting only tightens. A stream, call or chain captures the ambient deadline once, when it starts; leaving the block does
not release it.
"""

from dataclasses import dataclass
from datetime import timedelta

from ..errors import UsageError
from .ambient import Ambient, Block
from .clock import monotonic
from .limits import seconds_of


@dataclass(frozen=True, slots=True, order=True)
class Deadline:
    """One instant on the monotonic clock, after which nothing may continue."""

    at: float
    """The instant, as `streamguard._core.clock.monotonic()` counts."""

    @classmethod
    def after(cls, seconds: float | str | timedelta) -> "Deadline":
        """Return the instant *seconds* from now; with 0 or less it has already passed."""
        value = seconds_of("seconds", seconds)
        if value is None:
            raise UsageError(f"seconds= must be a number of seconds, got {seconds!r}: without a limit, use no Deadline")
        return cls(monotonic() + value)

    @classmethod
    def nearest(cls, *deadlines: "Deadline | None") -> "Deadline | None":
        """Return the earliest of *deadlines*, ignoring None; None if there is none."""
        return min((deadline for deadline in deadlines if deadline is not None), default=None)

    def remaining(self) -> float:
        """Return the seconds left; never negative."""
        return max(0.0, self.at - monotonic())

    @property
    def expired(self) -> bool:
        """Whether the instant has passed."""
        return monotonic() >= self.at

    def clamp(self, limit: float | None) -> float:
        """Return the smaller of *limit* (seconds; None: no limit) and the time that remains."""
        return self.remaining() if limit is None else min(limit, self.remaining())


_ambient: Ambient[Deadline] = Ambient("streamguard_deadline")


def current_deadline() -> Deadline | None:
    """Return the ambient deadline of this context, or None."""
    return _ambient.get()


class deadline(Block[Deadline]):
    """Bound every call of streamguard in the block by one deadline, *seconds* after the block is entered.

    A surrounding deadline that is nearer stays in force. None adds no deadline; a `Deadline` is used as it is. `with`
    returns the deadline in force (a `Deadline`, or None). The block itself is not interrupted, and leaving it late raises
    nothing: check `expired`.

    Limits
        Threads that you start yourself do not see it, unless you run them in a copied context, or pass them the `Deadline`
        for a block of their own.
    """

    __slots__ = ("_seconds",)

    def __init__(self, seconds: float | str | timedelta | Deadline | None) -> None:
        super().__init__(_ambient)
        self._seconds = seconds if isinstance(seconds, Deadline) else seconds_of("deadline", seconds)

    def __enter__(self) -> Deadline | None:
        mine = self._seconds
        if isinstance(mine, float):
            mine = Deadline(monotonic() + mine)
        nearest = Deadline.nearest(current_deadline(), mine)
        self._enter(nearest)
        return nearest


class shield(Block[Deadline]):
    """Run the block without the ambient deadline: for clean-up that must not be cut short."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_ambient)

    def __enter__(self) -> None:
        self._enter(None)
