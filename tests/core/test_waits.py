"""A signal ends a wait at any instant, also just before it; a wait ends when the clock says so."""

import queue
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from streamguard import (
    CancelToken,
    Chain,
    Session,
    StreamInactivityTimeoutError,
    TotalTimeoutError,
    bounded_call,
    guarded_stream,
)
from streamguard._core import waits
from streamguard._core.clock import monotonic
from streamguard.dispatch import CallableMember, Dispatcher
from streamguard.testing import Gateway

Serve = Callable[..., Gateway]


class JustBefore:
    """Something to wait for, and a signal that does not end the wait, as one that came the instant before would not.

    It is blocked while the wait lasts, so that its handler runs when the main thread runs Python code again.
    """

    def __init__(self) -> None:
        self._sent = False

    def _wait(self, timeout: float | None) -> None:
        if not self._sent:
            self._sent = True
            threading.Timer(0.05, signal.pthread_kill, (threading.main_thread().ident, signal.SIGUSR1)).start()
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
        try:
            threading.Event().wait(timeout)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)

    def get(self, timeout: float | None) -> object:
        """Act as a queue without items."""
        self._wait(timeout)
        raise queue.Empty

    def wait(self, timeout: float | None) -> bool:
        """Act as an event that does not happen."""
        self._wait(timeout)
        return False


class Interrupted(Exception):
    """The exception of the handler."""


@pytest.fixture
def _interrupting() -> Any:
    def handler(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGUSR1, handler)
    yield
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.usefixtures("_interrupting")
@pytest.mark.parametrize("seconds", [None, 30.0])
@pytest.mark.parametrize("wait", [waits.take, waits.happens])
def test_a_signal_that_comes_just_before_the_wait(
    wait: Callable[[Any, float | None], object], seconds: float | None
) -> None:
    """Its handler runs within half a second, and not when the wait is over."""
    begun = monotonic()
    with pytest.raises(Interrupted):
        wait(JustBefore(), seconds)
    assert monotonic() - begun < 15


def silent_stream(gateway: Gateway) -> None:
    with pytest.raises(StreamInactivityTimeoutError):
        list(guarded_stream("GET", gateway.url, first=1.6, retry=None))


def silent_call(gateway: Gateway) -> None:
    with pytest.raises(TotalTimeoutError), Session() as session:
        session.get(gateway.url, timeout=0.7)


def slow_step(gateway: Gateway) -> None:
    chain = Chain("slow")
    chain.step(lambda ctx: ctx.token.wait(0.7), name="slow")
    assert chain.run().status == "completed"


def silent_member(gateway: Gateway) -> None:
    member = CallableMember("slow", lambda prompt, context: str(context.token.wait(5)))
    with Dispatcher() as dispatcher:
        assert dispatcher.dispatch("c", [member], "p", output_timeout=0.7)["slow"].reason == "timeout"


def bounded(gateway: Gateway) -> None:
    bounded_call(lambda: CancelToken().wait(0.7), limit=30)


def token(gateway: Gateway) -> None:
    assert not CancelToken().wait(0.7)


@pytest.mark.parametrize("wait", [silent_stream, silent_call, slow_step, silent_member, bounded, token])
def test_the_main_thread_waits_in_parts(
    streamguard_gateway: Serve, wait: Callable[[Gateway], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams, calls, chains, dispatches, bounded calls and tokens wait at most half a second at once."""
    parts: list[float | None] = []
    part_of = waits._part

    def noting(left: float | None) -> float | None:
        part = part_of(left)
        if threading.current_thread() is threading.main_thread():
            parts.append(part)
        return part

    monkeypatch.setattr(waits, "_part", noting)
    wait(streamguard_gateway("headers\nstall"))
    assert len(parts) >= 2
    assert all(part is not None and part <= 0.5 for part in parts)


def test_another_thread_waits_in_one_part() -> None:
    """Only the main thread runs signal handlers."""
    asked: list[float | None] = []
    other = threading.Thread(target=lambda: asked.extend(map(waits._part, (None, 15.0, -1.0))))
    other.start()
    other.join()
    assert asked == [None, 15.0, 0.0]


@pytest.mark.parametrize("seconds", [0.0, -1.0, 0.05, 0.7])
def test_a_wait_lasts_as_long_as_it_should(seconds: float) -> None:
    """It is never shorter, in the main thread and elsewhere; one that is over does not wait."""
    lasted: list[float] = []

    def wait() -> None:
        begun = monotonic()
        with pytest.raises(queue.Empty):
            waits.take(queue.SimpleQueue(), seconds)
        assert not waits.happens(threading.Event(), seconds)
        lasted.append(monotonic() - begun)

    wait()
    other = threading.Thread(target=wait)
    other.start()
    other.join()
    assert len(lasted) == 2
    assert all(2 * max(seconds, 0) <= spent < 2 * max(seconds, 0) + 15 for spent in lasted)


def test_an_item_that_is_there_is_taken_at_once() -> None:
    """With any limit, an item that is there is taken at once."""
    items: queue.SimpleQueue[int] = queue.SimpleQueue()
    items.put(1)
    assert waits.take(items, None) == 1
    over = threading.Event()
    over.set()
    assert waits.happens(over, None)
