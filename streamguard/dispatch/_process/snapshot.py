"""A snapshot of a hanging program's processes and sockets, taken before the kill: after it nothing is left to look at."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from .cpu_activity import ActivityProbe, process_tree

_MOST = 100


@dataclass(frozen=True, slots=True)
class ProcessInfo:
    """One process. Its arguments are left out: they may contain keys and prompts."""

    pid: int
    parent: int
    name: str
    state: str
    """As the system reports it: running, sleeping, disk-sleep, stopped, zombie."""
    cpu_seconds: float
    threads: int
    escaped: bool
    """Whether it has left the program's process group, so that a signal to the group does not reach it."""


@dataclass(frozen=True, slots=True)
class SocketInfo:
    """One socket of one of the processes."""

    pid: int
    local: str
    remote: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSnapshot:
    """The state of a program at one instant."""

    stdout: str
    """The end of standard output."""
    stderr: str
    """The end of standard error."""
    processes: tuple[ProcessInfo, ...] = ()
    sockets: tuple[SocketInfo, ...] = ()
    tools: tuple[str, ...] = ()
    """Names of the tool calls in flight."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for JSON."""
        lists = {name: [asdict(item) for item in getattr(self, name)] for name in ("processes", "sockets")}
        return {"stdout": self.stdout, "stderr": self.stderr, "tools": [*self.tools], **lists}


class SnapshotProbe(ActivityProbe):
    """A probe that also has the snapshot that the process's own thread took before the kill, by calling *taken*."""

    def __init__(self, pid: int, taken: Callable[[], ProcessSnapshot | None]) -> None:
        super().__init__(pid)
        self._taken = taken

    def snapshot(self) -> dict[str, Any] | None:
        """Return the snapshot as plain data; None if none was taken."""
        taken = self._taken()
        return None if taken is None else taken.to_dict()


def take_snapshot(pid: int, *, stdout: str = "", stderr: str = "", tools: tuple[str, ...] = ()) -> ProcessSnapshot:
    """Return a snapshot of the process *pid* and everything below it. Never raises: what cannot be read is left out."""
    processes = [*process_tree(pid)][:_MOST]
    infos = tuple(info for process in processes for info in _describe(process, pid))
    sockets = tuple(socket for process in processes for socket in _sockets(process))[:_MOST]
    return ProcessSnapshot(stdout=stdout, stderr=stderr, processes=infos, sockets=sockets, tools=tools)


def _describe(process: psutil.Process, group: int) -> Iterator[ProcessInfo]:
    with contextlib.suppress(psutil.Error, OSError), process.oneshot():
        times = process.cpu_times()
        yield ProcessInfo(
            process.pid,
            process.ppid(),
            process.name(),
            str(process.status()),
            times.user + times.system,
            process.num_threads(),
            os.getpgid(process.pid) != group,
        )


def _sockets(process: psutil.Process) -> Iterator[SocketInfo]:
    with contextlib.suppress(psutil.Error, OSError):
        look = getattr(process, "net_connections", None) or process.connections  # its name before psutil 6
        for connection in look(kind="inet"):
            yield SocketInfo(process.pid, _address(connection.laddr), _address(connection.raddr), connection.status)


def _address(address: Any) -> str:
    return f"{address.ip}:{address.port}" if address else ""
