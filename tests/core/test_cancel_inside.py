"""Cancel inside of cancel: from a signal handler, and from a finalizer that the collector runs there."""

import contextlib
import gc
import signal
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator

import pytest

from streamguard import CancelToken
from streamguard._core import cancel as cancel_module
from streamguard._core.clock import monotonic

from ..helpers import PROMPT


@pytest.fixture
def eager_collector() -> Iterator[None]:
    """Let the collector run at every other allocation, only on objects of the test."""
    threshold = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(1, 1, 1)
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        gc.unfreeze()


@contextlib.contextmanager
def handling(number: int, handler: Callable[[], object]) -> Iterator[None]:
    """Call *handler* on the signal *number*."""
    before = signal.signal(number, lambda *_: handler())
    try:
        yield
    finally:
        signal.signal(number, before)


class Node:
    """An object that only the collector can free."""

    def __init__(self) -> None:
        self.me = self


def leave_garbage(finalizer: Callable[[], object]) -> None:
    """Make a young cycle whose collection calls *finalizer*."""
    gc.disable()
    weakref.finalize(Node(), finalizer)
    gc.enable()


class Saboteur:
    """A finalizer that cancels the token when it runs for the *nth* time in the middle of the cancel module."""

    def __init__(self, token: CancelToken, nth: int) -> None:
        self.token, self.nth = token, nth
        self.struck: list[str] = []
        self.won: list[bool] = []
        self.times = 0

    def __call__(self) -> None:
        self.times += 1
        inside = functions_of_ours_on_the_stack()
        self.struck += inside
        self.nth -= bool(inside)
        if self.nth == 0 and not self.won:
            self.won.append(self.token.cancel("finalizer"))
        if self.times < 100:
            leave_garbage(self)


def functions_of_ours_on_the_stack() -> set[str]:
    """Name the functions of the cancel module that run in this thread."""
    frames = traceback.walk_stack(None)
    return {frame.f_code.co_name for frame, _ in frames if frame.f_code.co_filename == cancel_module.__file__}


def test_cancel_from_a_signal_handler_inside_cancel() -> None:
    """A handler that cancels inside a cancel of the same thread gets False, and nothing blocks."""
    token = CancelToken()
    results: list[object] = []
    token.on_cancel(lambda: results.append("first"))
    token.on_cancel(lambda: signal.raise_signal(signal.SIGUSR1))
    with handling(signal.SIGUSR1, lambda: results.append(token.cancel("signal"))):
        assert token.cancel("caller")
    assert sorted(map(str, results)) == ["False", "first"]
    assert token.reason == "caller"


def test_cancel_from_a_signal_handler_ends_a_wait() -> None:
    """A handler that cancels the token that its own thread waits on ends that wait."""
    token = CancelToken()
    main = threading.main_thread().ident
    assert main is not None
    sender = threading.Timer(0.05, signal.pthread_kill, (main, signal.SIGUSR1))
    with handling(signal.SIGUSR1, lambda: token.cancel("signal")):
        sender.start()
        begun = monotonic()
        assert token.wait(30)
        assert monotonic() - begun < 0.05 + PROMPT
        sender.join()
    assert token.reason == "signal"


def test_cancel_from_a_finalizer_inside_a_closer() -> None:
    """A finalizer that runs inside a cancel may cancel the same token."""
    token = CancelToken()
    results: list[object] = []
    token.on_cancel(lambda: results.append("first"))
    token.on_cancel(gc.collect)
    leave_garbage(lambda: results.append(token.cancel("finalizer")))
    assert token.cancel("caller")
    assert results == [False, "first"]


STEPS: dict[str, Callable[[CancelToken], object]] = {
    "on_cancel": lambda token: token.on_cancel(list),
    "child": lambda token: token.child().detach(),
    "wait": lambda token: token.wait(0),
    "cancel": lambda token: token.cancel("step"),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.usefixtures("eager_collector")
def test_a_finalizer_inside_any_step_of_a_token_may_cancel_it(step: str) -> None:
    """At any step in which the collector runs, one cancel wins, each closer runs once, and nothing blocks."""
    struck: list[str] = []
    for nth in range(1, 50):
        token = CancelToken()
        ran: list[object] = []
        saboteur = Saboteur(token, nth % 10)
        # What is allocated in a closer is what makes the collector run inside of cancel().
        token.on_cancel(lambda ran=ran: ran.append([Node() for _ in range(5)]))  # type: ignore[misc]
        leave_garbage(saboteur)
        STEPS[step](token)
        saboteur.times = 100
        saboteur.won.append(token.cancel("caller"))
        struck += saboteur.struck
        assert saboteur.won.count(True) == (token.reason != "step")
        assert len(ran) == 1
    assert step in struck
