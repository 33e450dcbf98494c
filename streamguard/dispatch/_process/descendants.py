"""Descendants of a program that have left its process group: agents run their tools in sessions of their own.

A signal to the group does not reach them. They are not our children, so their pids may be reused at any time: each is
signalled through a process descriptor if the system has those, otherwise by pid and start time.
"""

import contextlib
import os
import signal

import psutil


class Descendants:
    """The descendants of the program *pid* that are not in *group*, as far as `look()` has seen them.

    Limits
        A process whose parent has exited before a look is not a descendant any more: a daemon is not found.
    """

    def __init__(self, pid: int, group: int) -> None:
        self._pid = pid
        self._group = group
        self._found: set[psutil.Process] = set()

    def look(self) -> None:
        """Add the current ones."""
        for ancestor in (self._pid, *(found.pid for found in self._found)):
            with contextlib.suppress(psutil.Error, OSError):
                below = psutil.Process(ancestor).children(recursive=True)
                self._found.update(process for process in below if _group_of(process) != self._group)

    def signal(self, number: int) -> None:
        """Signal each one that still runs. Never raises."""
        for process in self._found:
            with contextlib.suppress(psutil.Error, OSError):
                _signal(process, number)

    def alive(self) -> list[int]:
        """Return the pids of those that still run."""
        return [process.pid for process in self._found if _runs(process)]


def _signal(process: psutil.Process, number: int) -> None:
    if not hasattr(os, "pidfd_open"):  # pragma: no cover - not Linux
        process.send_signal(number)
        return
    descriptor = os.pidfd_open(process.pid)
    try:
        if process.is_running():  # still the same process, so the descriptor refers to it
            signal.pidfd_send_signal(descriptor, number)
    finally:
        os.close(descriptor)


def _group_of(process: psutil.Process) -> int | None:
    with contextlib.suppress(OSError):
        return os.getpgid(process.pid)
    return None


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
