"""A value that holds for the length of a `with` block, in the context that runs it and in contexts copied from that one."""

import contextvars
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, TypeVar

from ..errors import UsageError

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Entry(Generic[T]):
    """One use of a block: the value that it sets, and the entry that was innermost before."""

    value: T | None
    outer: "_Entry[T] | None"
    gone: bool = False
    """Whether its block was left out of order. It may still be the innermost entry of some context."""


class Ambient(Generic[T]):
    """The innermost value in each context; None outside of all blocks."""

    def __init__(self, name: str) -> None:
        self._entries: contextvars.ContextVar[_Entry[T] | None] = contextvars.ContextVar(name, default=None)

    def get(self) -> T | None:
        """Return the value in this context."""
        entry = self._innermost()
        return None if entry is None else entry.value

    def set(self, value: T | None) -> None:
        """Set the value for the rest of this context: for the context that a thread of ours runs in."""
        self._entries.set(_Entry(value, None))

    def _innermost(self) -> _Entry[T] | None:
        entry = self._entries.get()
        while entry is not None and entry.gone:
            entry = entry.outer
        return entry


class Block(Generic[T]):
    """Set an ambient value for the length of a `with` block. Leaving it in another context does not raise."""

    __slots__ = ("_ambient", "_entry", "_token")

    def __init__(self, ambient: Ambient[T]) -> None:
        self._ambient = ambient
        self._entry: _Entry[T] | None = None
        self._token: contextvars.Token[_Entry[T] | None] | None = None

    def _enter(self, value: T | None) -> None:
        if self._token is not None:
            raise UsageError("this block is already entered: make a new one for each `with` statement")
        self._entry = _Entry(value, self._ambient._innermost())
        self._token = self._ambient._entries.set(self._entry)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        token, entry = self._token, self._entry
        self._token = self._entry = None
        if token is None or entry is None:
            return
        entries = self._ambient._entries
        innermost = entries.get()
        try:
            entries.reset(token)
        except ValueError:
            entry.gone = True  # a generator may be closed in another context than it was started in
        else:
            if innermost is not entry:  # two generators may overlap: the other one's value stays
                entry.gone = True
                entries.set(innermost)
