"""Who holds which slot, and the stop that hits only the turn it is meant for.

A slot is a conversation and a member. Its active *execution* id is what a stop compares (R10, R11), together with the epoch
that the slot counts for each taking, as one execution may come back to a member (A, B, A: T35).
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
    turn_id: str
    epoch: int
    end: Once[TurnEnd]
    wind_down: Callable[[str], object]
    """Called with the reason, outside any lock, once this turn's stop has won."""


class SlotTable:
    """The slots of one process.

    One lock guards the table; a stop is marked under it, and what must then be closed is called after it (T2).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epochs = itertools.count(1)
        self._holders: dict[tuple[str, str], SlotHold] = {}
        self._tombstones: dict[int, SlotHold] = {}

    def take(
        self,
        conversation: str,
        member: str,
        *,
        execution_id: str,
        turn_id: str,
        end: Once[TurnEnd],
        wind_down: Callable[[str], object],
    ) -> SlotHold:
        """Make this turn the slot's holder. A turn that held it is stopped, with the reason `preempted`."""
        slot = (conversation, member)
        with self._lock:
            hold = SlotHold(conversation, member, execution_id, turn_id, next(self._epochs), end, wind_down)
            before = self._holders.get(slot)
            preempted = before is not None and self._bury(before, PREEMPTED)
            self._holders[slot] = hold
        if before is not None and preempted:
            before.wind_down(PREEMPTED)
        return hold

    def stop(
        self, conversation: str, member: str, reason: str, *, execution_id: str | None = None, epoch: int | None = None
    ) -> bool:
        """Stop the turn that holds the slot, if it is the one meant; return whether this stop took effect.

        execution_id: the execution that is meant. Default None: the active one.
        epoch:        the very hold that is meant. Default None: the active one.

        Returns False, and changes nothing, if the slot is free or held by another execution or turn, or if its turn has
        already finished or been stopped.
        """
        with self._lock:
            hold = self._holders.get((conversation, member))
            meant = hold is not None and execution_id in (None, hold.execution_id) and epoch in (None, hold.epoch)
            stopped = hold is not None and meant and self._bury(hold, reason)
        if hold is None or not stopped:
            log_line(
                logging.INFO,
                "stop_ignored",
                "a stop came too late, or was not for this turn",
                member=member,
                reason=reason,
            )
            return False
        hold.wind_down(reason)
        return True

    def stop_execution(self, execution_id: str, reason: str) -> list[str]:
        """Stop every turn of an execution; return the members whose stop took effect."""
        with self._lock:
            mine = [hold for hold in self._holders.values() if hold.execution_id == execution_id]
            stopped = [hold for hold in mine if self._bury(hold, reason)]
        for hold in stopped:
            hold.wind_down(reason)
        return [hold.member for hold in stopped]

    def release(self, hold: SlotHold) -> None:
        """Free what *hold* holds, and forget its tombstone. Idempotent; never frees another turn's hold."""
        with self._lock:
            self._tombstones.pop(hold.epoch, None)
            if self._holders.get((hold.conversation, hold.member)) is hold:
                del self._holders[hold.conversation, hold.member]

    def active(self, conversation: str, member: str) -> str | None:
        """Return the execution id that holds the slot; None for a free slot and for a tombstone."""
        with self._lock:
            hold = self._holders.get((conversation, member))
            return None if hold is None else hold.execution_id

    def tombstones(self, execution_id: str) -> dict[str, str]:
        """Return the members of an execution that are stopped and not yet torn down, each with its first reason."""
        with self._lock:
            mine = [hold for hold in self._tombstones.values() if hold.execution_id == execution_id]
        return {hold.member: end.stop for hold in mine if (end := hold.end.value) and end.stop}

    def _bury(self, hold: SlotHold, reason: str) -> bool:
        if not hold.end.set(TurnEnd(stop=reason)):
            return False
        self._tombstones[hold.epoch] = hold
        del self._holders[hold.conversation, hold.member]
        return True
