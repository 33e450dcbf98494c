"""Descendants of a program that have left its process group: agents run their tools in sessions of their own.

A signal to the group does not reach them. They are not our children either, so their pids may be used again at any time:
each is signalled through a descriptor for the process, where the system has those, and by pid and start time elsewhere.
"""

import contextlib
import os
import signal

import psutil


class Descendants:
    """Those below the program *pid* that are not in *group*, as far as they have been seen.

    Limits
        Whose parent has ended before a look is no descendant any more: a daemon is not found.
    """

    def __init__(self, pid: int, group: int) -> None:
        self._pid = pid
        self._group = group
        self._found: set[psutil.Process] = set()

    def look(self) -> None:
        """Add those that are there now."""
        for ancestor in (self._pid, *(stray.pid for stray in self._found)):
            with contextlib.suppress(psutil.Error, OSError):
                below = psutil.Process(ancestor).children(recursive=True)
                self._found.update(process for process in below if _group_of(process) != self._group)

    def signal(self, number: int) -> None:
        """Signal each that still runs. Never raises."""
        for stray in self._found:
            with contextlib.suppress(psutil.Error, OSError):
                _signal(stray, number)

    def alive(self) -> list[int]:
        """Return the pids of those that still run."""
        return [stray.pid for stray in self._found if _runs(stray)]


def _signal(process: psutil.Process, number: int) -> None:
    if not hasattr(os, "pidfd_open"):  # pragma: no cover - not Linux
        process.send_signal(number)
        return
    descriptor = os.pidfd_open(process.pid)
    try:
        if process.is_running():  # the same one, so the descriptor is its
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
