"""The pump: a reader thread, a queue in order, back-pressure by bytes, and a consumer that is never blocked for ever."""

import contextvars
import gc
import queue
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from streamguard import CancelToken, StreamguardError, guarded_stream
from streamguard._core.clock import monotonic
from streamguard._core.pump import End, Feed, Pump

from ..helpers import PROMPT, wait_until


def pump(read: Callable[[Feed], Any], token: CancelToken | None = None, **options: Any) -> Pump[Any]:
    """Return a running pump."""
    made: Pump[Any] = Pump(read, token or CancelToken(), **options)
    made.start()
    return made


def everything(running: Pump[Any]) -> list[object]:
    """Take all items up to the end marker."""
    items: list[object] = []
    while not isinstance(item := running.get(10), End):
        items.append(item)
    return items


def test_items_arrive_in_order_and_the_result_last() -> None:
    """A thousand items arrive in order, then the end with the reader's result."""

    def read(feed: Feed) -> str:
        for number in range(1000):
            feed.put(number)
        return "done"

    running = pump(read)
    assert everything(running) == list(range(1000))
    assert running.get(0) == End("done")
    assert running.join(PROMPT)


def test_an_exception_of_the_reader_is_the_end() -> None:
    """An exception of the reader, of any type, arrives after the items before it; the thread prints nothing."""
    for failure in (OSError("reset"), SystemExit(3), KeyboardInterrupt()):

        def read(feed: Feed, failure: BaseException = failure) -> None:
            feed.put("item")
            raise failure

        running = pump(read)
        assert running.get(10) == "item"
        end = running.get(10)
        assert isinstance(end, End)
        assert end.failure is failure
        assert running.join(PROMPT)


def test_the_end_stays() -> None:
    """Each further `get` returns the end again, from several threads too, without a wait."""
    running, ends = pump(lambda feed: 7), []
    threads = [threading.Thread(target=lambda: ends.append(running.get(10))) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends == [End(7)] * 5
    assert running.get(None) == running.get(0) == running.get(-1) == End(7)


@pytest.mark.parametrize("seconds", [0, -1, 0.1])
def test_without_an_item_get_raises_empty(seconds: float) -> None:
    """Without an item `get` raises Empty, after its seconds and not before."""
    release = threading.Event()
    running = pump(lambda feed: release.wait(10))
    begun = monotonic()
    with pytest.raises(queue.Empty):
        running.get(seconds)
    assert monotonic() - begun >= max(0, seconds)
    release.set()
    assert running.join(PROMPT)


@pytest.mark.parametrize("seconds", [None, 1e9, 1e300, float("inf")])
def test_a_wait_of_any_length(seconds: float | None) -> None:
    """A wait may be longer than the system's maximum; an item ends it."""
    release = threading.Event()
    running = pump(lambda feed: release.wait(10))
    threading.Timer(0.05, release.set).start()
    assert running.get(seconds) == End(True)
    assert running.join(PROMPT)


def test_a_cancel_frees_the_consumer_though_the_reader_is_stuck() -> None:
    """The cancelling thread puts the end at once; later items of the stuck reader are dropped."""
    stuck, release = threading.Event(), threading.Event()

    def read(feed: Feed) -> str:
        feed.put("before")
        stuck.set()
        release.wait(10)
        feed.put("late")
        return "late"

    token = CancelToken()
    running = pump(read, token)
    assert stuck.wait(10)
    token.cancel()
    assert running.get(10) == "before"
    assert running.get(0) == End()
    assert not running.join(0.05), "the reader is still stuck"
    release.set()
    assert running.join(PROMPT)


def test_a_late_error_of_the_reader_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a cancel an exception of the reader is dropped: it is neither in the queue nor on stderr."""
    shouts: list[object] = []
    monkeypatch.setattr(threading, "excepthook", shouts.append)
    release = threading.Event()

    def read(feed: Feed) -> None:
        release.wait(10)
        raise OSError("the cut")

    token = CancelToken()
    running = pump(read, token)
    token.cancel()
    release.set()
    assert running.join(PROMPT)
    assert [running.get(0) for _ in range(3)] == [End()] * 3
    assert shouts == []


def test_a_pump_of_a_cancelled_token_has_ended() -> None:
    """A pump made after the cancel returns its end at once, even if it never starts."""
    token = CancelToken()
    token.cancel()
    never: Pump[Any] = Pump(lambda feed: None, token)
    assert never.get(0) == End()
    assert never.join(0)


def test_stop_says_whether_the_thread_is_gone() -> None:
    """`stop` cancels with its reason, waits at most its grace, and returns whether the thread ended."""
    release = threading.Event()
    running = pump(lambda feed: release.wait(10))
    begun = monotonic()
    assert not running.stop("why", 0.05)
    assert monotonic() - begun >= 0.05
    assert running.token.reason == "why"
    release.set()
    assert running.stop("again", PROMPT)
    assert running.token.reason == "why"


def test_join_never_waits_for_itself() -> None:
    """A join inside the reader, as a closer that it runs may do, returns at once."""
    joined: list[bool] = []
    made: list[Pump[Any]] = []
    started = threading.Event()

    def read(feed: Feed) -> None:
        started.wait(10)
        joined.append(made[0].join(10))

    made.append(pump(read))
    started.set()
    assert made[0].join(PROMPT)
    assert joined == [False]


class Puts:
    """A reader that puts *size* bytes in a loop, and counts."""

    def __init__(self, size: int, times: int = 1000) -> None:
        self.size, self.times, self.done = size, times, 0

    def __call__(self, feed: Feed) -> None:
        for _ in range(self.times):
            feed.put(self.size, self.size)
            self.done += 1


def paused(feed: Feed) -> bool:
    """Return whether the reader waits for room."""
    return feed._pausing and feed._room.empty()


def test_a_slow_consumer_pauses_the_reader() -> None:
    """Above its capacity the reader pauses, and each take lets it put as many bytes."""
    puts = Puts(60)
    running = pump(puts, capacity=100)
    wait_until(lambda: paused(running.feed))
    assert puts.done == 1, "the second put blocks: 120 bytes are waiting"
    for taken in range(1, 5):
        assert running.get(0) == 60
        running.feed.take(60)
        wait_until(lambda taken=taken: puts.done == taken + 1 and paused(running.feed))  # type: ignore[misc]
    assert running.stop("enough", PROMPT)


def test_an_item_without_bytes_never_waits() -> None:
    """Phases, ends and other items without bytes always pass."""
    running = pump(Puts(0), capacity=1)
    assert len(everything(running)) == 1000
    assert running.join(PROMPT)


def test_an_item_larger_than_the_capacity_passes() -> None:
    """One huge item is handed over before the reader pauses."""
    running = pump(Puts(10_000, times=2), capacity=100)
    for _ in range(2):
        assert running.get(10) == 10_000
        running.feed.take(10_000)
    assert running.get(10) == End()
    assert running.join(PROMPT)


def test_a_cancel_wakes_a_reader_that_waits_for_room() -> None:
    """No socket can wake a paused reader: the cancel does."""
    running = pump(Puts(60), capacity=100)
    wait_until(lambda: paused(running.feed))
    running.token.cancel()
    assert running.join(PROMPT)


def test_everything_passes_through_a_narrow_pump() -> None:
    """At any number of pauses nothing is lost and no wake is missed."""
    running = pump(Puts(3, times=5000), capacity=4)
    count = 0
    while not isinstance(item := running.get(10), End):
        assert item == 3
        count += 1
        running.feed.take(3)
    assert count == 5000
    assert running.join(PROMPT)


def test_the_thread_is_a_named_daemon() -> None:
    """The reader does not delay the interpreter's exit, and its name in a dump shows its owner."""
    running = pump(lambda feed: threading.current_thread(), name="reader-x")
    assert running.get(10) == End(running.thread)
    assert running.thread.daemon
    assert running.thread.name == "streamguard-reader-x"
    assert running.join(PROMPT)


def test_the_reader_runs_in_a_copy_of_the_context() -> None:
    """It sees the caller's context variables at the creation of the pump; its own changes stay inside."""
    variable = contextvars.ContextVar("variable", default="default")
    variable.set("caller's")

    def read(feed: Feed) -> str:
        seen = variable.get()
        variable.set("reader's")
        return seen

    running = pump(read)
    assert running.get(10) == End("caller's")
    assert variable.get() == "caller's"
    assert running.join(PROMPT)


def test_the_reader_does_not_keep_the_pump() -> None:
    """An unreferenced pump is collected while its reader still runs."""
    release = threading.Event()
    token = CancelToken()
    running = pump(lambda feed: release.wait(10), token)
    ref, thread = weakref.ref(running), running.thread
    del running
    gc.collect()
    assert ref() is None
    assert thread.is_alive()
    token.cancel()
    release.set()
    thread.join(PROMPT)


def refuse(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system refuses a thread, start() raises a StreamguardError, and nothing stays registered."""
    monkeypatch.setattr(threading.Thread, "start", refuse)
    token = CancelToken()
    made: Pump[Any] = Pump(lambda feed: None, token)
    with pytest.raises(
        StreamguardError, match="cannot start the thread streamguard-reader: can't start new thread"
    ) as caught:
        made.start()
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert made.join(0)
    ref = weakref.ref(made)
    del made, caught
    gc.collect()
    assert ref() is None, "the token keeps nothing of a pump that did not start"


def test_a_join_while_the_thread_is_starting() -> None:
    """A starting thread has an identity before it can be joined: closing a stream then raises nothing."""
    made: Pump[Any] = Pump(lambda feed: None, CancelToken())
    made.thread._set_ident()  # type: ignore[attr-defined]
    assert made.join(0)


def test_a_stream_without_a_thread_fails_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that gets no thread raises that once, then is at its end; nothing was sent."""
    stream = guarded_stream("GET", "http://127.0.0.1:9/", retry=5)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(StreamguardError, match="cannot start the thread"):
            next(stream)
    assert list(stream) == []
    assert (stream.report.outcome, stream.report.error_type) == ("error", "StreamguardError")
