"""What a member is: something with a name that turns a prompt into events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..._core import CancelToken
from .._data.turn_events import Event
from .._process.cpu_activity import ActivityProbe


def _unheard(_probe: ActivityProbe | None) -> None:
    """The activity of this turn is not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """What a member knows of the turn that it runs."""

    token: CancelToken
    """Cancelled when the turn is to stop; the member then ends, with everything that it started."""
    session_id: str | None = None
    """The session to resume; None: a new one."""
    turn_id: str = ""
    probe: Callable[[ActivityProbe | None], None] = _unheard
    """Called with the probe of the process that the member started, and with None when that process is gone."""
    first: float | None = None
    """Start-up limit: seconds to the first frame of any kind (R26). None: no limit."""


@runtime_checkable
class Member(Protocol):
    """One configured agent."""

    name: str

    def run(self, prompt: str, context: TurnContext) -> Iterator[Event]:
        """Yield what the agent says; the last event is `done`, unless the turn was stopped.

        The iterator ends soon once `context.token` is cancelled, and leaves no process behind when it is closed.
        """
        ...
