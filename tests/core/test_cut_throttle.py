"""Few at a time, and nobody waits for ever."""

import threading
import time
from collections.abc import Callable

from streamguard._core.clock import monotonic
from streamguard._core.cut_throttle import CutThrottle

from ..helpers import wait_until


def all_of(count: int, run: Callable[[], None]) -> list[threading.Thread]:
    threads = [threading.Thread(target=run, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_so_many_at_a_time() -> None:
    """Never more, and all of them in the end."""
    turns, inside, most = CutThrottle(2), list[int](), list[int]()

    def take_one() -> None:
        with turns:
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.005)
            inside.pop()

    for thread in all_of(20, take_one):
        thread.join()
    assert len(most) == 20
    assert max(most) <= 2


def test_turns_that_move_are_waited_for() -> None:
    """However long it takes until one's own comes: more than half a second here."""
    turns, inside, most = CutThrottle(1), list[int](), list[int]()

    def take_one() -> None:
        with turns:
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.15)
            inside.pop()

    for thread in all_of(6, take_one):
        thread.join()
    assert most == [1] * 6


def test_those_behind_one_that_is_stuck_go_on() -> None:
    """Half a second after the last turn has ended."""
    turns, stuck, free, through = CutThrottle(1), threading.Event(), threading.Event(), list[float]()

    def be_stuck() -> None:
        with turns:
            stuck.set()
            free.wait(20)

    (holder,) = all_of(1, be_stuck)
    assert stuck.wait(20)
    begun = monotonic()

    def pass_through() -> None:
        with turns:
            through.append(monotonic() - begun)

    all_of(3, pass_through)
    wait_until(lambda: len(through) == 3)
    assert min(through) >= 0.5
    free.set()
    holder.join()


def test_a_turn_that_was_lost_comes_back() -> None:
    """What a signal handler raises in the very instant may lose one: the next is late, and those behind it are not."""
    turns = CutThrottle(1)
    turns.__enter__()
    with turns:
        pass
    begun = monotonic()
    for _ in range(20):
        with turns:
            pass
    assert monotonic() - begun < 5
