"""Signals that end a command's work: heard from before it begins, so that none of them leaves a program behind."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals at which the programs that a command has started must be ended."""


class Terminated(KeyboardInterrupt):
    """Raised where a signal other than Ctrl-C's has come: *number* is its own."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


@contextlib.contextmanager
def raised() -> Iterator[None]:
    """Have SIGTERM, SIGHUP and SIGQUIT raise `Terminated` where the main thread is, as Ctrl-C raises."""

    def handler(number: int) -> None:
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise Terminated(number)

    with heard(handler):
        yield


@contextlib.contextmanager
def heard(handler: Callable[[int], object]) -> Iterator[None]:
    """Have *handler* called at each of `ENDING`, unless this process was told to ignore it (`nohup`).

    SIGCHLD is heard as well: where it is ignored, as some supervisors hand it down, no exit code can be known.
    """

    def call(number: int, _frame: FrameType | None) -> None:
        handler(number)

    before = {number: signal.getsignal(number) for number in (*ENDING, signal.SIGCHLD)}
    try:
        if before[signal.SIGCHLD] is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in ENDING:
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, call)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
