"""Steps for chains under test: some that hang and listen to their cancel, some that do not."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streamguard import Chain, ChainResult, StepContext
from streamguard._core.clock import monotonic

PROMPT = 1.0
"""Seconds that an idle machine needs a hundredth of: what a busy one may be late."""


def value(result: Any) -> Callable[[StepContext], Any]:
    """Return a step that returns *result* at once."""
    return lambda ctx: result


def raises(error: BaseException) -> Callable[[StepContext], Any]:
    """Return a step that raises *error* at once."""

    def step(ctx: StepContext) -> Any:
        raise error

    return step


def obedient(ctx: StepContext) -> str:
    """Hang until the step is cancelled."""
    ctx.token.wait(30)
    return "too late"


@contextmanager
def stuck_step() -> Iterator[Callable[[StepContext], Any]]:
    """Give a step that ignores its cancel until the end of the block."""
    release = threading.Event()
    gone: list[threading.Thread] = []

    def stuck(ctx: StepContext) -> str:
        gone.append(threading.current_thread())
        release.wait(30)
        return "too late"

    try:
        yield stuck
    finally:
        release.set()
        for thread in gone:
            if thread is not threading.current_thread():
                thread.join(5)


def timed(chain: Chain, **inputs: Any) -> tuple[ChainResult, float]:
    """Run *chain*; return the result and the seconds that it took."""
    begun = monotonic()
    result = chain.run(**inputs)
    return result, monotonic() - begun


def endings(result: ChainResult) -> dict[str, tuple[str, str | None]]:
    """Return each step's status and reason."""
    return {name: (report.status, report.reason) for name, report in result.steps.items()}
