"""Cancel tokens: the first reason wins, closers run once, and nothing in them can deadlock."""

import functools
import gc
import logging
import sys
import threading
import weakref

import pytest

from streamguard import CancelToken
from streamguard._core.clock import monotonic
from streamguard.telemetry import flush

from ..helpers import switching_often, wait_until


def test_a_new_token_is_live() -> None:
    """A token that was not cancelled is live."""
    token = CancelToken()
    assert (token.cancelled, token.reason, repr(token)) == (False, None, "<CancelToken live>")


@pytest.mark.parametrize("reason", ["user", None, 0, ValueError("x")])
def test_the_first_reason_wins(reason: object) -> None:
    """Only the first cancel returns True, and its reason stays."""
    token = CancelToken()
    assert token.cancel(reason)
    assert not token.cancel("later")
    assert token.cancelled
    assert token.reason is reason
    assert repr(token) == "<CancelToken cancelled>"


def register(token: CancelToken, count: int) -> list[int]:
    """Register *count* closers, and return the list to which each appends its number."""
    ran: list[int] = []
    for number in range(count):
        token.on_cancel(functools.partial(ran.append, number))
    return ran


def race_to_cancel() -> None:
    token, start = CancelToken(), threading.Barrier(8)
    won: list[int] = []
    ran = register(token, 5)

    def cancel(reason: int) -> None:
        start.wait()
        if token.cancel(reason):
            won.append(reason)

    threads = [threading.Thread(target=cancel, args=(reason,)) for reason in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert won == [token.reason]
    assert sorted(ran) == list(range(5))


def test_of_many_threads_one_wins() -> None:
    """Of eight threads that cancel at once, one gets True, its reason stays, and each closer runs once."""
    with switching_often():
        for _ in range(50):
            race_to_cancel()


def test_a_closer_registered_during_the_cancel_runs_once() -> None:
    """However registration and cancel interleave, each closer runs exactly once."""
    with switching_often():
        for _ in range(200):
            token = CancelToken()
            other = threading.Thread(target=token.cancel)
            other.start()
            ran = register(token, 20)
            other.join()
            assert sorted(ran) == list(range(20))


def test_closers_run_in_the_cancelling_thread_latest_first() -> None:
    """The closers run inside cancel(), in its thread, the latest first."""
    token, ran = CancelToken(), []
    for number in range(3):
        token.on_cancel(lambda number=number: ran.append((number, threading.current_thread())))  # type: ignore[misc]
    other = threading.Thread(target=token.cancel)
    other.start()
    other.join()
    assert ran == [(2, other), (1, other), (0, other)]


def test_a_late_closer_runs_at_once() -> None:
    """On a cancelled token on_cancel() calls the closer before it returns; removing it then does nothing."""
    token, ran = CancelToken(), []
    token.cancel()
    unregister = token.on_cancel(lambda: ran.append("late"))
    assert ran == ["late"]
    unregister()


def test_an_unregistered_closer_does_not_run() -> None:
    """The function that on_cancel() returns removes that registration, at each call, and no other one."""
    token, ran = CancelToken(), []
    unregister = token.on_cancel(lambda: ran.append("first"))
    token.on_cancel(lambda: ran.append("second"))
    unregister()
    unregister()
    token.cancel()
    assert ran == ["second"]


def test_one_function_registered_twice_runs_twice() -> None:
    """Registrations are counted, not functions."""
    token, ran = CancelToken(), []
    closer = lambda: ran.append("x")  # noqa: E731
    token.on_cancel(closer)()
    token.on_cancel(closer)
    token.on_cancel(closer)
    token.cancel()
    assert ran == ["x", "x"]


def test_a_failing_closer_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """An Exception in a closer does not stop the others; its type is logged with the next event, without its text."""
    token, ran = CancelToken(), []

    def fail() -> None:
        raise RuntimeError("a secret")

    token.on_cancel(lambda: ran.append("first"))
    token.on_cancel(fail)
    token.on_cancel(lambda: ran.append("last"))
    flush()
    with caplog.at_level(logging.WARNING, "streamguard"):
        assert token.cancel()
        assert caplog.records == []  # not from here: it may be a signal handler
        flush()
    assert ran == ["last", "first"]
    (record,) = caplog.records
    assert record.streamguard["error_type"] == "RuntimeError"  # type: ignore[attr-defined]
    assert "secret" not in caplog.text


def test_system_exit_in_a_closer_is_raised_after_the_others_ran() -> None:
    """A BaseException propagates from cancel(), but only after every closer has run."""
    token, ran = CancelToken(), []
    token.on_cancel(lambda: ran.append("first"))
    token.on_cancel(sys.exit)
    with pytest.raises(SystemExit):
        token.cancel()
    assert ran == ["first"]
    assert token.cancelled


def test_a_closer_may_cancel_again() -> None:
    """A cancel inside a closer returns False; every closer still runs once, and the first reason stays."""
    token = CancelToken()
    results: list[object] = []
    token.on_cancel(lambda: results.append("first"))
    token.on_cancel(lambda: results.append(token.cancel("again")))
    assert token.cancel("once")
    assert results == [False, "first"]
    assert token.reason == "once"


def test_a_closer_may_register_and_unregister() -> None:
    """A closer may register another one, which runs at once, and remove one that has not run."""
    token, ran = CancelToken(), []
    unregister = token.on_cancel(lambda: ran.append("taken back"))
    token.on_cancel(lambda: (unregister(), token.on_cancel(lambda: ran.append("new"))))
    token.cancel()
    assert ran == ["new"]


def test_a_wait_lasts_its_seconds() -> None:
    """A wait on a live token takes at least its seconds and returns False."""
    begun = monotonic()
    assert not CancelToken().wait(0.1)
    assert monotonic() - begun >= 0.1


@pytest.mark.parametrize("seconds", [0, -5, -1e300])
def test_a_wait_of_nothing_returns_at_once(seconds: float) -> None:
    """With zero or negative seconds it returns at once."""
    assert not CancelToken().wait(seconds)


@pytest.mark.parametrize("seconds", [None, 1e9, 1e300])
def test_a_wait_without_end_is_ended_by_a_cancel(seconds: float | None) -> None:
    """A cancel in another thread ends a wait of any length, also one above the system's maximum."""
    token = CancelToken()
    other = threading.Timer(0.05, token.cancel)
    other.start()
    assert token.wait(seconds)
    other.join()
    assert token.wait(seconds), "on a cancelled token it returns at once"


def test_all_waiters_are_woken() -> None:
    """Ten threads that wait on one token all return True."""
    token, woken = CancelToken(), []
    threads = [threading.Thread(target=lambda: woken.append(token.wait(30))) for _ in range(10)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(token._closers) == 10)
    token.cancel()
    for thread in threads:
        thread.join()
    assert woken == [True] * 10


def test_a_child_is_cancelled_with_its_parent() -> None:
    """A cancel reaches children and grandchildren, with its reason."""
    token = CancelToken()
    child = token.child()
    grandchild = child.child()
    token.cancel("why")
    assert (child.reason, grandchild.reason) == ("why", "why")
    assert token.child().reason == "why", "a child of a cancelled token is born cancelled"


def test_a_childs_cancel_stays_its_own() -> None:
    """Cancelling a child does not cancel its parent or siblings, and its own reason stays."""
    token = CancelToken()
    child, sibling = token.child(), token.child()
    child.cancel("mine")
    assert not token.cancelled
    assert not sibling.cancelled
    token.cancel("theirs")
    assert (child.reason, sibling.reason) == ("mine", "theirs")


def test_a_detached_child_is_not_reached() -> None:
    """After detach(), or the end of a `with` block, the parent's cancel does not reach the child."""
    token = CancelToken()
    child = token.child()
    child.detach()
    child.detach()
    with token.child() as other:
        pass
    token.cancel()
    assert not child.cancelled
    assert not other.cancelled


def test_a_long_lived_token_keeps_no_ended_child() -> None:
    """A token keeps nothing of a thousand children that ended."""
    token = CancelToken()
    children = []
    for _ in range(1000):
        with token.child() as child:
            children.append(weakref.ref(child))
    del child
    gc.collect()
    assert [ref for ref in children if ref() is not None] == []
