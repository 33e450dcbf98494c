"""Contenders take turns: each in a process of its own, or all in this one.

A process of its own keeps what one library has imported, allocated or leaked out of the others' figures. The rounds
are interleaved, so that a machine that slows down slows all of them.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["SPAWN", "Contender", "Failed", "Round", "compete", "in_process", "take_turns"]

SPAWN = multiprocessing.get_context("spawn")
"""Fresh interpreters: nothing is inherited from the process that measures."""
_START_SECONDS = 60.0


class Failed(Exception):
    """Raised when a contender did not do what it was asked to do, or took too long."""


@dataclass(frozen=True, slots=True)
class Round:
    """What one round of one contender cost, and what it returned."""

    cpu: float
    """Seconds of CPU time of its process, all threads."""
    wall: float
    """Seconds that passed."""
    result: Any


class Contender:
    """Runs *function*, again and again, in a process of its own. A context manager that ends the process."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = name
        self._here, there = SPAWN.Pipe()
        self._process = SPAWN.Process(target=_perform, args=(function, there), daemon=True)
        self._process.start()
        there.close()

    def __enter__(self) -> "Contender":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._process.kill()
        self._process.join()
        self._here.close()

    def run(self, *arguments: object, bound: float = _START_SECONDS) -> Round:
        """Run one round. Raises Failed if it fails, or takes more than *bound* seconds; then the process is gone."""
        try:
            self._here.send(arguments)
            if not self._here.poll(bound):
                self._process.kill()
                raise Failed(f"took more than {bound:g} s")
            answer = self._here.recv()
        except (EOFError, OSError):
            raise Failed("its process has ended") from None
        if isinstance(answer, Round):
            return answer
        raise Failed(str(answer))


def _perform(function: Callable[..., Any], orders: Connection) -> None:
    while True:
        try:
            arguments = orders.recv()
        except EOFError:
            return
        try:
            answer: object = _timed(function, arguments)
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"[:300]
        orders.send(answer)


def _timed(function: Callable[..., Any], arguments: Iterable[object]) -> Round:
    cpu, wall = time.process_time(), time.monotonic()
    result = function(*arguments)
    return Round(time.process_time() - cpu, time.monotonic() - wall, result)


@contextmanager
def compete(functions: Mapping[str, Callable[..., Any]]) -> Iterator[dict[str, Contender]]:
    """Start a contender for each function; give them by name."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(Contender(name, function)) for name, function in functions.items()}


def take_turns(calls: Mapping[str, Callable[[], object]], count: int, rounds: int) -> dict[str, list[float]]:
    """Return CPU microseconds per call of each, round by round, all in this process; *count* calls are a round."""
    cost: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            begun = time.process_time()
            for _ in range(count):
                call()
            cost[name].append((time.process_time() - begun) / count * 1e6)
    return cost


def in_process(function: Callable[..., Any], *arguments: object, bound: float = 300.0) -> Any:
    """Run *function* once in a process of its own, and return what it returns. Raises Failed."""
    with Contender(function.__name__, function) as contender:
        return contender.run(*arguments, bound=bound).result
