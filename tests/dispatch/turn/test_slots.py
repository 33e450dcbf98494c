"""Slots: who holds them, and which turn a stop reaches."""

import threading
from typing import Any

from streamguard._core.once import Once
from streamguard.dispatch._data.status import PREEMPTED, TIMEOUT, USER_CANCEL, TurnEnd
from streamguard.dispatch._turn.slots import SlotHold, SlotTable

DONE = TurnEnd(done=True)


class Turns:
    """Takes slots, and records whose wind-down was called with which reason."""

    def __init__(self) -> None:
        self.table = SlotTable()
        self.wound_down: list[tuple[str, str]] = []

    def take(self, execution: str, turn: str, member: str = "a", conversation: str = "c") -> SlotHold:
        return self.table.take(
            conversation,
            member,
            execution_id=execution,
            end=Once(),
            wind_down=lambda reason: self.wound_down.append((turn, reason)),
        )

    def stop(self, reason: str, **meant: Any) -> bool:
        return self.table.stop("c", "a", reason, **meant)


def test_a_new_turn_preempts_the_old_one_on_its_slot_only() -> None:
    """A new turn on a slot stops the old one as `preempted`; other members and conversations are not touched."""
    turns = Turns()
    old = turns.take("e1", "t1")
    sibling = turns.take("e1", "t2", member="b")
    elsewhere = turns.take("e1", "t3", conversation="d")
    turns.take("e2", "t4")
    assert turns.wound_down == [("t1", PREEMPTED)]
    assert old.end.value == TurnEnd(stop=PREEMPTED)
    assert (sibling.end.value, elsewhere.end.value) == (None, None)
    assert turns.table.active("c", "a") == "e2"


def test_a_stop_for_another_execution_changes_nothing() -> None:
    """R10: a late timer of an earlier execution gets False, and the current turn goes on."""
    turns = Turns()
    turns.table.release(turns.take("e1", "t1"))
    now = turns.take("e2", "t2")
    assert not turns.stop(TIMEOUT, execution_id="e1")
    assert now.end.value is None
    assert turns.wound_down == []


def test_the_turns_id_is_not_the_executions_id() -> None:
    """R11: the slot compares the id of the execution; with the id of the turn a stop would silently never work."""
    turns = Turns()
    turns.take("e1", "t1")
    assert not turns.stop(TIMEOUT, execution_id="t1")
    assert turns.stop(TIMEOUT, execution_id="e1")


def test_the_epoch_tells_two_turns_of_one_execution_apart() -> None:
    """T35: in a serial execution A, B, A the timer of the first A does not stop the second one."""
    turns = Turns()
    first = turns.take("e1", "t1")
    turns.table.release(first)
    turns.table.release(turns.take("e1", "t2", member="b"))
    second = turns.take("e1", "t3")
    assert not turns.stop(TIMEOUT, execution_id="e1", epoch=first.epoch)
    assert second.end.value is None
    assert turns.stop(TIMEOUT, execution_id="e1", epoch=second.epoch)


def test_a_tombstone_has_no_active_execution_and_keeps_its_first_reason() -> None:
    """R14: after a user's stop the timer's does nothing, and the other way round; released, the slot is free."""
    for first, second in ((USER_CANCEL, TIMEOUT), (TIMEOUT, USER_CANCEL)):
        turns = Turns()
        hold = turns.take("e1", "t1")
        assert turns.stop(first)
        assert not turns.stop(second)
        assert turns.table.active("c", "a") is None
        assert hold.end.value == TurnEnd(stop=first)
        assert turns.wound_down == [("t1", first)]
        turns.table.release(hold)
        turns.take("e2", "t2")
        assert turns.wound_down == [("t1", first)]
        assert turns.table.active("c", "a") == "e2"


def test_a_finished_turn_cannot_be_stopped_any_more() -> None:
    """T5: a completion that came first stays; the stop returns False, and winds nothing down."""
    turns = Turns()
    hold = turns.take("e1", "t1")
    assert hold.end.set(DONE)
    assert not turns.stop(TIMEOUT)
    turns.take("e2", "t2")
    assert hold.end.value == DONE
    assert turns.wound_down == []


def test_releasing_is_idempotent_and_frees_only_ones_own_hold() -> None:
    """A preempted turn that ends late does not take the slot from its successor."""
    turns = Turns()
    old = turns.take("e1", "t1")
    turns.take("e2", "t2")
    turns.table.release(old)
    turns.table.release(old)
    assert turns.table.active("c", "a") == "e2"


def test_a_wind_down_may_use_the_table() -> None:
    """T2: a wind-down runs outside the lock, so it may use the table."""
    table = SlotTable()
    seen = []

    def wind_down(reason: str) -> None:
        seen.append((reason, table.active("c", "a"), table.stop("c", "a", "again")))

    table.take("c", "a", execution_id="e1", end=Once(), wind_down=wind_down)
    assert table.stop("c", "a", USER_CANCEL)
    assert seen == [(USER_CANCEL, None, False)]


def test_of_many_stops_and_a_completion_exactly_one_wins() -> None:
    """T5: of eight threads that end one turn, one gets True, and the turn's end is its own."""
    for _ in range(200):
        turns = Turns()
        hold = turns.take("e1", "t1")
        start = threading.Barrier(8)
        winners: list[str] = []

        def race(reason: str, start: threading.Barrier, hold: SlotHold, turns: Turns, winners: list[str]) -> None:
            start.wait()
            if hold.end.set(DONE) if reason == "done" else turns.stop(reason, execution_id="e1"):
                winners.append(reason)

        reasons = ["done", *(f"stop {number}" for number in range(7))]
        threads = [threading.Thread(target=race, args=(reason, start, hold, turns, winners)) for reason in reasons]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        end = hold.end.value
        assert end is not None
        assert winners == ["done" if end.done else end.stop]
        assert len(turns.wound_down) == (0 if end.done else 1)
