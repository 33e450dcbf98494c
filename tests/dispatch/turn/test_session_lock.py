"""Session locks: a line for each session."""

import threading

from streamguard import CancelToken
from streamguard.dispatch._turn.session_lock import Entrance, SessionLocks, Ticket

from ...helpers import wait_until


def waiting_thread(ticket: Ticket, token: CancelToken, results: list[tuple[str, Entrance]], name: str) -> threading.Thread:
    thread = threading.Thread(target=lambda: results.append((name, ticket.wait(token))))
    thread.start()
    return thread


def test_the_line_is_served_in_order() -> None:
    """The turns of one session get it one at a time, first in, first out; other sessions do not wait."""
    locks, token = SessionLocks(), CancelToken()
    results: list[tuple[str, Entrance]] = []
    tickets = [locks.queue_up("s") for _ in range(4)]
    threads = [waiting_thread(t, token, results, str(n)) for n, t in enumerate(tickets)]
    assert locks.queue_up("another").wait(token) is Entrance.YOURS
    for number, ticket in enumerate(tickets):
        wait_until(lambda served=number + 1: len(results) == served)
        assert results[-1] == (str(number), Entrance.YOURS)
        ticket.release()
    for thread in threads:
        thread.join()
    assert locks.waiting("s") == 0


def test_releasing_twice_serves_only_the_next_one() -> None:
    """Release is idempotent: a second release does not serve a third ticket."""
    locks, token = SessionLocks(), CancelToken()
    first, second, third = (locks.queue_up("s") for _ in range(3))
    assert first.wait(token) is Entrance.YOURS
    first.release()
    first.release()
    assert second.wait(token) is Entrance.YOURS
    assert third.answers.empty()


def test_a_stopped_wait_leaves_the_line() -> None:
    """T27: a turn that is stopped while it waits gets `STOPPED`, and leaves the line."""
    locks, stopped, token = SessionLocks(), CancelToken(), CancelToken()
    first, second, third = (locks.queue_up("s") for _ in range(3))
    results: list[tuple[str, Entrance]] = []
    thread = waiting_thread(second, stopped, results, "second")
    stopped.cancel("timeout")
    thread.join()
    assert results == [("second", Entrance.STOPPED)]
    assert locks.waiting("s") == 2
    assert first.wait(token) is Entrance.YOURS
    first.release()
    assert third.wait(token) is Entrance.YOURS


def test_a_ticket_stopped_when_it_is_served_passes_the_session_on() -> None:
    """A ticket that is served and stopped at the same time gives the session to the next one."""
    locks, stopped = SessionLocks(), CancelToken()
    first, second = locks.queue_up("s"), locks.queue_up("s")
    stopped.cancel("timeout")
    assert first.wait(stopped) is Entrance.STOPPED
    assert second.wait(CancelToken()) is Entrance.YOURS


def test_an_abandoned_session_is_not_resumed_until_its_holder_ends() -> None:
    """T34: waiting and later turns get `ABANDONED` until the holder releases the session."""
    locks, token = SessionLocks(), CancelToken()
    holder, waiter = locks.queue_up("s"), locks.queue_up("s")
    locks.abandon("s")
    assert waiter.wait(token) is Entrance.ABANDONED
    assert locks.queue_up("s").wait(token) is Entrance.ABANDONED
    holder.release()
    assert locks.queue_up("s").wait(token) is Entrance.YOURS


def test_abandoning_a_free_session_changes_nothing() -> None:
    """A session that was released in the meantime is not abandoned."""
    locks = SessionLocks()
    locks.abandon("s")
    assert locks.queue_up("s").wait(CancelToken()) is Entrance.YOURS
