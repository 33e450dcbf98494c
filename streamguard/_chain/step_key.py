"""The key with which the value of a step is looked up."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepKey(Generic[T]):
    """The name of a step, with the type of its value: `result[step]` returns a `T`."""

    name: str
