"""The cut throttle: a few threads at a time, and none waits for ever."""

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


def test_at_most_count_threads_are_inside() -> None:
    """At most *count* threads are inside, and all of them get in."""
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


def test_threads_wait_while_places_are_released() -> None:
    """While places are released, a thread waits longer than half a second."""
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


def test_waiting_threads_pass_a_stuck_one() -> None:
    """They enter half a second after the last thread has left."""
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


def test_a_lost_place_is_replaced() -> None:
    """An exception of a signal handler may lose one place: the next thread is late, and those after it are not."""
    turns = CutThrottle(1)
    turns.__enter__()
    with turns:
        pass
    begun = monotonic()
    for _ in range(20):
        with turns:
            pass
    assert monotonic() - begun < 5
