"""The functions that run at the end of each thread of this package."""

import threading
from collections.abc import Callable

import pytest

from streamguard import DeadlineExceededError, StreamguardError, bounded_call, guard, guarded_stream
from streamguard._core import thread_hooks
from streamguard._core.thread_hooks import at_thread_end
from streamguard.dispatch import run_command
from streamguard.testing import Gateway

from ..helpers import wait_until

Serve = Callable[..., Gateway]


@pytest.fixture(autouse=True)
def _restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_hooks, "_actions", [])


def ends_in() -> list[str]:
    """Register an action, and return the names of the threads in which it was called."""
    names: list[str] = []
    at_thread_end(lambda: names.append(threading.current_thread().name))
    return names


def test_a_call_s_thread() -> None:
    """It is called in the thread that ran the function, after the function."""
    names = ends_in()
    ran = bounded_call(lambda: (threading.current_thread().name, len(names)))
    wait_until(lambda: bool(names))
    assert (ran, names) == ((names[0], 0), [names[0]])
    assert names != [threading.current_thread().name]


def test_a_reader_s_thread(streamguard_gateway: Serve) -> None:
    """It is called in the reader thread, which ran the caller's hooks and auth, also if the stream was left early."""
    names = ends_in()
    stream = guarded_stream("POST", streamguard_gateway("chat a\nstall").url, json={})
    next(stream)
    stream.close()
    wait_until(lambda: names == [f"streamguard-reader-{stream.report.id}"])


def test_the_thread_of_an_interrupt() -> None:
    """It is called in the thread that ran the caller's `interrupt=` of a source that was cut."""
    names, ran, release = ends_in(), list[str](), threading.Event()

    def interrupt() -> None:
        ran.append(threading.current_thread().name)
        release.set()

    stream = guard(iter(lambda: release.wait(10), True), interrupt=interrupt, first=0.05)
    with pytest.raises(StreamguardError):
        next(stream)
    wait_until(lambda: bool(ran) and ran[0] in names)


def test_a_thread_that_could_not_be_stopped() -> None:
    """It is called when that thread ends, at any later time."""
    names = ends_in()
    release = threading.Event()
    with pytest.raises(DeadlineExceededError):
        bounded_call(lambda: release.wait(10), limit=0.05)
    assert names == []
    release.set()
    wait_until(lambda: len(names) == 1)


def test_the_same_function_is_called_once() -> None:
    """Registering it again changes nothing."""
    calls: list[int] = []

    def action() -> None:
        calls.append(1)

    at_thread_end(action)
    at_thread_end(action)
    thread_hooks.run_thread_hooks()
    assert calls == [1]


def test_an_action_that_raises_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    """Its type is logged, without its text, and the other functions run."""

    def fail() -> None:
        raise ZeroDivisionError("hush")

    at_thread_end(fail)
    names = ends_in()
    assert bounded_call(lambda: 5) == 5
    wait_until(lambda: len(names) == 1)
    assert "a closer failed" in caplog.text
    assert "hush" not in caplog.text


def test_the_thread_of_on_stall() -> None:
    """The caller's `on_stall` runs in such a thread too: connections that a framework keeps for it are closed."""
    names = ends_in()
    ran: list[str] = []
    result = run_command(["sleep", "60"], idle=0.1, on_stall=lambda stall: ran.append(threading.current_thread().name))
    assert result.limit == "idle"
    assert ran == ["streamguard-on-stall"]
    wait_until(lambda: "streamguard-on-stall" in names)
