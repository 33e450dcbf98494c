"""The interface of a member: a name, and a function from a prompt to events."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from ..._core import CancelToken
from .._data.turn_events import Event
from .._process.cpu_activity import ActivityProbe


def _ignore(_probe: ActivityProbe | None) -> None:
    """Do not measure the activity of this turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnContext:
    """The turn that a member runs."""

    token: CancelToken
    """Cancelled when the turn is stopped. The member then ends everything that it started, and returns."""
    session_id: str | None = None
    """The session to resume; None starts a new one."""
    turn_id: str = ""
    probe: Callable[[ActivityProbe | None], None] = _ignore
    """Call it with the probe of the process that the member started, and with None when that process has ended."""
    first: float | None = None
    """Start-up limit: seconds until the first frame of any kind. None: no limit."""


@runtime_checkable
class Member(Protocol):
    """One configured agent."""

    name: str

    def run(self, prompt: str, context: TurnContext) -> Iterator[Event]:
        """Yield the agent's events. The last one is `done`, unless the turn was stopped.

        The iterator must end soon after `context.token` is cancelled, and must end its processes when it is closed.
        """
        ...
