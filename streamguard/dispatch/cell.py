"""Where completion, failure and stop of a turn compete: the first one wins, and everyone reads the winner (T5)."""

from .outcome import Ending

__all__ = ["TurnCell"]


class TurnCell:
    """Holds one `Ending`, decided once. Callable from any thread, under any lock and from a signal handler: it has none."""

    __slots__ = ("_decision",)

    def __init__(self) -> None:
        self._decision: dict[str, Ending] = {}

    @property
    def ending(self) -> Ending | None:
        """What won; None while the turn is undecided."""
        return self._decision.get("ending")

    def finish(self) -> bool:
        """The member has said that it is done. Returns whether that came first."""
        return self._settle(Ending(done=True))

    def fail(self, error: str | None, message: str = "") -> bool:
        """The member has failed. Returns whether that came first."""
        return self._settle(Ending(failed=True, error=error, message=message))

    def stop(self, reason: str) -> bool:
        """Somebody stops the turn. Returns whether that came first."""
        return self._settle(Ending(stop=reason))

    def end(self) -> Ending:
        """Return the winner; where there is none, the turn has just ended."""
        self._settle(Ending())
        return self._decision["ending"]

    def _settle(self, ending: Ending) -> bool:
        return self._decision.setdefault("ending", ending) is ending
