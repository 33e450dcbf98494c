"""Signals that end a command: handled from before it starts, so that none of them leaves a program running."""

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
"""Signals at which the programs that a command has started must be ended."""


class Terminated(KeyboardInterrupt):
    """Raised when a signal other than SIGINT arrives: *number* is the signal's."""

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

    with handled(handler):
        yield


@contextlib.contextmanager
def handled(handler: Callable[[int], object]) -> Iterator[None]:
    """Have *handler* called at each of `ENDING`, unless this process ignores it (`nohup`).

    SIGCHLD is handled as well: if it is ignored, as under some supervisors, no exit code is available.
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
