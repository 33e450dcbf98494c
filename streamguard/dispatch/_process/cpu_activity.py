"""CPU use of a process and everything below it.

A rate over a process tree needs care (T12): the sum falls when a child exits, and what the child used is then added to what
its parent has waited for. So CPU time is counted for each process, by pid and start time, and no difference is negative.
psutil reports it in ticks; `ps` has whole seconds only (T13).
"""

import contextlib
import os
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from ..._core.clock import monotonic
from .._data.output_timeout import Activity

BUSY_RATE = 0.15
"""Processors: a tree above this rate is busy. An agent program that waits for its API uses 0.01 to 0.04 of one (T14)."""

_LEAST_CPU = 0.03
_LEAST_AGE = 0.05
_MOST_AGE = 5.0
_SAMPLES = 16


@dataclass(frozen=True, slots=True)
class Usage:
    """CPU seconds that one process has used: by itself, and through children that it has waited for."""

    own: float
    waited: float


Key = tuple[int, float]


@dataclass(frozen=True, slots=True)
class _Sample:
    at: float
    alive: bool
    tree: dict[Key, Usage]


def cpu_used(before: dict[Key, Usage], after: dict[Key, Usage]) -> float:
    """Return the CPU seconds that a tree used between two samples. Pure; never negative (T12).

    What a vanished process had used before the first sample is subtracted from what its parent has waited for since.
    """
    common = before.keys() & after.keys()
    own = sum(max(0.0, after[key].own - before[key].own) for key in common)
    new = sum(after[key].own + after[key].waited for key in after.keys() - before.keys())
    waited = sum(max(0.0, after[key].waited - before[key].waited) for key in common)
    known = sum(before[key].own + before[key].waited for key in before.keys() - after.keys())
    return own + new + max(0.0, waited - known)


def process_tree(pid: int) -> Iterator[psutil.Process]:
    """Yield the process, its descendants, and the other processes of its session (orphans whose parent has exited)."""
    seen = set()
    for process in (*_descendants(pid), *_in_session(pid)):
        if process.pid not in seen:
            seen.add(process.pid)
            yield process


class ActivityProbe:
    """Measures the process *pid*, and everything below it, on each call.

    Limits
        A rate needs two samples that are at least 0.05 s and at most 5 s apart (T11). Before that, or if the system denies
        access, the activity is `unknown`. The system counts in ticks of 10 ms.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.rate: float | None = None
        """Processors kept busy at the last measurement; None if unknown."""
        self._samples: deque[_Sample] = deque(maxlen=_SAMPLES)

    def sample(self, now: float | None = None) -> None:
        """Take a sample for a later `activity()` to compare with."""
        self._samples.append(_sample(self.pid, monotonic() if now is None else now))

    def activity(self, now: float | None = None) -> Activity:
        """Take a sample, and return the activity since an earlier one."""
        self.sample(now)
        last = self._samples[-1]
        earlier = next((s for s in self._samples if _LEAST_AGE <= last.at - s.at <= _MOST_AGE), None)
        self.rate = None
        if not last.alive:
            return Activity.DEAD
        if earlier is None:
            return Activity.UNKNOWN
        used, seconds = cpu_used(earlier.tree, last.tree), last.at - earlier.at
        self.rate = used / seconds
        return Activity.BUSY if used >= _LEAST_CPU and self.rate >= BUSY_RATE else Activity.IDLE


def _sample(pid: int, now: float) -> _Sample:
    tree = {}
    alive = False
    for process in process_tree(pid):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            waited = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
            tree[process.pid, process.create_time()] = Usage(times.user + times.system, waited)
            alive = alive or (process.pid == pid and process.status() != psutil.STATUS_ZOMBIE)
    return _Sample(now, alive, tree)


def _descendants(pid: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    return []


def _in_session(pid: int) -> Iterator[psutil.Process]:
    for other in psutil.pids():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(other) == pid:
                yield psutil.Process(other)
