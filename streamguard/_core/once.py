"""A value that is decided once."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Once(Generic[T]):
    """Hold the first value that is set. Later ones are refused.

    There is no lock: `dict.setdefault` is a single step of the interpreter. So it can be set from any thread, from a signal
    handler, and from a finalizer that runs in the middle of `set()`.
    """

    __slots__ = ("decision",)

    def __init__(self) -> None:
        self.decision: dict[str, tuple[T]] = {}
        """Empty until a value is set: the cheapest way to ask, for loops that ask each time."""

    def set(self, value: T) -> bool:
        """Set *value*; return whether it is the first."""
        mine = (value,)
        return self.decision.setdefault("value", mine) is mine

    @property
    def value(self) -> T | None:
        """The value; None before one is set."""
        decision = self.decision.get("value")
        return decision[0] if decision else None

    def __bool__(self) -> bool:
        return bool(self.decision)
