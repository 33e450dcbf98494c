"""Where completion, failure and stop of a turn compete: the first one wins, and everyone reads the winner (T5)."""

from .._data.status import TurnEnd


class TurnCell:
    """Holds one `TurnEnd`, decided once. It has no lock: callable from any thread, and under any other's lock."""

    __slots__ = ("_decision",)

    def __init__(self) -> None:
        self._decision: dict[str, TurnEnd] = {}

    @property
    def ending(self) -> TurnEnd | None:
        """What won; None while the turn is undecided."""
        return self._decision.get("ending")

    def finish(self) -> bool:
        """The member has said that it is done. Returns whether that came first."""
        return self._settle(TurnEnd(done=True))

    def fail(self, error: str | None, message: str = "") -> bool:
        """The member has failed. Returns whether that came first."""
        return self._settle(TurnEnd(failed=True, error=error, message=message))

    def stop(self, reason: str) -> bool:
        """Somebody stops the turn. Returns whether that came first."""
        return self._settle(TurnEnd(stop=reason))

    def end(self) -> TurnEnd:
        """Return the winner; where there is none, the turn has just ended."""
        self._settle(TurnEnd())
        return self._decision["ending"]

    def _settle(self, ending: TurnEnd) -> bool:
        return self._decision.setdefault("ending", ending) is ending
