"""Threads of this package: the maker's context, a name, the thread hooks, a bounded join, a start that may fail."""

import contextvars
import threading

import pytest

from streamguard import StreamguardError
from streamguard._core import tasks
from streamguard._core.tasks import Task, run_in_worker

from ..helpers import wait_until

word: contextvars.ContextVar[str] = contextvars.ContextVar("word", default="none")


def test_it_runs_in_its_makers_context() -> None:
    """It sees the context in which it was made, not that in which it starts, and changes nothing in either."""
    seen: list[tuple[str, str, bool]] = []
    word.set("made")
    task = Task(lambda: (seen.append((word.get(), threading.current_thread().name, True)), word.set("inside")), name="x")
    word.set("started")
    task.start()
    assert task.join(5)
    assert seen == [("made", "streamguard-x", True)]
    assert word.get() == "started"
    assert task.thread.daemon


def test_join_is_bounded_and_never_waits_for_itself() -> None:
    """It returns whether the thread is gone: at once before the start, in time while it runs, never in itself."""
    release = threading.Event()
    own: list[bool] = []
    task = Task(lambda: (own.append(task.join(5)), release.wait(5)), name="x")
    assert task.join(0)
    task.start()
    assert not task.join(0.01)
    release.set()
    assert task.join(5)
    assert own == [False]


@pytest.mark.parametrize("start", [lambda run: Task(run, name="x").start(), run_in_worker], ids=["task", "worker"])
def test_a_thread_that_cannot_start(start: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a StreamguardError that names the thread, and the function does not run."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(tasks, "_workers", tasks._Workers())
    monkeypatch.setattr(threading.Thread, "start", refuse)
    ran: list[int] = []
    with pytest.raises(StreamguardError, match="cannot start the thread streamguard-") as caught:
        start(lambda: ran.append(1))  # type: ignore[operator]
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert ran == []


def test_calls_in_one_worker_are_isolated() -> None:
    """A reused worker runs in the context of the second caller."""
    seen: list[tuple[int | None, str]] = []

    def note() -> None:
        seen.append((threading.get_ident(), word.get()))
        word.set("left over")

    for value in ("one", "two"):
        word.set(value)
        run_in_worker(note)
        wait_until(lambda value=value: bool(seen) and seen[-1][1] == value)  # type: ignore[misc]
    assert [value for _, value in seen] == ["one", "two"]
