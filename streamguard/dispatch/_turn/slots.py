"""Who holds which slot, and stops that reach only the turn that is meant.

A slot is a conversation and a member. A stop compares the id of the *execution* that holds it (R10, R11) and the epoch,
which the table counts up with each turn: one execution may run a member twice (A, B, A: T35).
"""

import itertools
import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from ..._core.once import Once
from ...telemetry.logs import log_line
from .._data.status import PREEMPTED, TurnEnd


@dataclass(frozen=True, slots=True, eq=False)
class SlotHold:
    """One turn's hold on a slot."""

    conversation: str
    member: str
    execution_id: str
    epoch: int
    end: Once[TurnEnd]
    wind_down: Callable[[str], object]
    """Called with the reason, outside any lock, once a stop was the first end of this turn."""


class SlotTable:
    """The slots of one process.

    One lock guards the table. A stop is set under it; what it closes is closed after it (T2).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs = itertools.count(1)
        self._holders: dict[tuple[str, str], SlotHold] = {}

    def take(
        self, conversation: str, member: str, *, execution_id: str, end: Once[TurnEnd], wind_down: Callable[[str], object]
    ) -> SlotHold:
        """Make a turn the slot's holder, and return its hold. The turn that holds it is stopped, as `preempted`."""
        slot = (conversation, member)
        with self._lock:
            hold = SlotHold(conversation, member, execution_id, next(self._epochs), end, wind_down)
            before = self._holders.get(slot)
            preempted = before is not None and before.end.set(TurnEnd(stop=PREEMPTED))
            self._holders[slot] = hold
        if before is not None and preempted:
            before.wind_down(PREEMPTED)
        return hold

    def stop(
        self, conversation: str, member: str, reason: str, *, execution_id: str | None = None, epoch: int | None = None
    ) -> bool:
        """Stop the turn that holds the slot, if it is the one that is meant; return whether this stop took effect.

        execution_id: the execution that is meant. Default None: any.
        epoch:        the epoch of the hold that is meant. Default None: any.

        Returns False, and changes nothing, if the slot is free, if another execution or turn holds it, or if its turn has
        already ended or been stopped.
        """
        with self._lock:
            hold = self._holders.get((conversation, member))
            meant = hold is not None and execution_id in (None, hold.execution_id) and epoch in (None, hold.epoch)
            stopped = hold is not None and meant and hold.end.set(TurnEnd(stop=reason))
        if hold is None or not stopped:
            log_line(
                logging.INFO,
                "stop_ignored",
                "a stop was ignored: it was too late, or for another turn",
                member=member,
                reason=reason,
            )
            return False
        hold.wind_down(reason)
        return True

    def release(self, hold: SlotHold) -> None:
        """Free the slot if *hold* still holds it. Idempotent."""
        with self._lock:
            if self._holders.get((hold.conversation, hold.member)) is hold:
                del self._holders[hold.conversation, hold.member]

    def active(self, conversation: str, member: str) -> str | None:
        """Return the id of the execution that holds the slot; None if the slot is free, or its turn is stopped."""
        with self._lock:
            hold = self._holders.get((conversation, member))
        if hold is None or ((end := hold.end.value) and end.stop is not None):
            return None
        return hold.execution_id
