"""A child process in a session and group of its own, observed without being reaped.

A group may be signalled only while its leader is not reaped: after that, its id may belong to another group (T18). So the
exit is observed with `waitid(WNOWAIT)`, and reaping is a separate step, the last one.
"""

import contextlib
import errno
import os
import signal
import subprocess
import termios
import time
import tty
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import psutil

from ..._core.clock import monotonic
from ...errors import StreamguardError, UsageError
from .descendants import Descendants

_TERMINAL_SIZE = (50, 200)
_REAP_SECONDS = 1.0
_LOOK_SECONDS = 0.005


class CommandStartError(StreamguardError):
    """Raised when a program cannot be started: it does not exist, is not executable, or its folder does not exist."""

    program: str | None = None
    errno: int | None = None
    """The system's error number; `ENOENT` if the program does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """The program to start.

    argv:  the program and its arguments; no shell.
    env:   the whole environment; None: this process's. `PYTHONUNBUFFERED=1` is added unless it is set.
    cwd:   the folder to start in.
    input: bytes for standard input, which is then closed. None: standard input is empty, unless *inherit_stdin*.
    pty:   give the program a terminal as standard output, for programs that buffer their output in a pipe.
    """

    argv: tuple[str, ...] = field(repr=False)
    env: Mapping[str, str] | None = field(default=None, repr=False)
    cwd: str | os.PathLike[str] | None = None
    input: bytes | None = field(default=None, repr=False)
    inherit_stdin: bool = False
    pty: bool = False


class Child:
    """A started program, with our ends of its pipes (non-blocking descriptors)."""

    def __init__(self, popen: "subprocess.Popen[bytes]", stdout: int, *, terminal: bool) -> None:
        self._popen = popen
        self._terminal = stdout if terminal else None
        self._reaped = False
        self._code: int | None = None
        self._descendants = Descendants(popen.pid, popen.pid)
        self.pid = popen.pid
        self.group = popen.pid
        """The group's id, stored at the start: the leader may exit before its group."""
        self.stdout = stdout
        self.stderr = popen.stderr.fileno() if popen.stderr else -1
        self.stdin = popen.stdin.fileno() if popen.stdin else None
        for descriptor in (self.stdout, self.stderr, *([] if self.stdin is None else [self.stdin])):
            os.set_blocking(descriptor, False)

    def exited(self) -> bool:
        """Whether the program itself has exited. It is not reaped."""
        if self._reaped:
            return True
        try:
            status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG)
        except ChildProcessError:  # already reaped elsewhere: SIGCHLD is ignored, or gevent's Popen is in use
            return True
        if status is not None:
            self._code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        return status is not None

    def signal(self, number: int) -> bool:
        """Signal the group; return whether a process received it. Never raises; does nothing once the program is reaped."""
        return not self._reaped and signal_group(self.pid, self.group, number)

    def end(self, number: int) -> None:
        """Signal the group, and the descendants that have left it."""
        self._descendants.look()
        self.signal(number)
        self._descendants.signal(number)

    def others(self) -> list[int]:
        """Return the pids of the group's other processes and of the signalled descendants that still run."""
        found = self._descendants.alive()
        for pid in psutil.pids():
            with contextlib.suppress(psutil.Error, OSError):
                member = pid != self.pid and os.getpgid(pid) == self.group
                if member and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    found.append(pid)
        return found

    def close_stdin(self) -> None:
        """Close the program's standard input."""
        self.stdin = None
        if self._popen.stdin:
            with contextlib.suppress(OSError):
                self._popen.stdin.close()

    def reap(self) -> int | None:
        """Collect and return the exit code (negative: a signal). The pid is free after this.

        None if the process still runs after SIGKILL, or if the code is unknown because it was collected elsewhere.
        """
        until = monotonic() + _REAP_SECONDS
        while not self.exited():
            if monotonic() >= until:  # pragma: no cover - a process that not even SIGKILL ends
                return None
            time.sleep(_LOOK_SECONDS)
        code: int | None = None
        with contextlib.suppress(subprocess.TimeoutExpired):  # gevent's Popen waits for ever if SIGCHLD is ignored
            code = self._popen.wait(_REAP_SECONDS)
        self._reaped = True
        # subprocess reports 0 if the code was collected elsewhere. gevent's Popen collects it itself and knows it.
        return self._code if type(self._popen).__module__ == "subprocess" else code

    def close(self) -> None:
        """Close our ends of the pipes."""
        self.close_stdin()
        if self._terminal is not None:
            os.close(self._terminal)
            self._terminal = None
        for pipe in (self._popen.stdout, self._popen.stderr):
            if pipe:
                pipe.close()


def start_child(spec: Spec) -> Child:
    """Start the program of *spec*.

    Raises UsageError for an invalid argv, environment or folder, `CommandStartError` if the program cannot be started.
    """
    check_argv(spec.argv)
    master, slave = _terminal() if spec.pty else (None, None)
    try:
        popen = subprocess.Popen(
            spec.argv,
            stdin=_stdin(spec),
            stdout=subprocess.PIPE if slave is None else slave,
            stderr=subprocess.PIPE,
            env=_environment(spec.env),
            cwd=spec.cwd,
            bufsize=0,
            start_new_session=True,
        )
    except BaseException as exc:
        if master is not None:
            os.close(master)
        if isinstance(exc, OSError):
            raise _start_error(spec, exc) from exc
        if isinstance(exc, ValueError | TypeError):
            raise UsageError(f"invalid argv=, env= or cwd=: {exc}") from exc
        raise
    finally:
        if slave is not None:
            os.close(slave)
    if master is not None:
        return Child(popen, master, terminal=True)
    return Child(popen, popen.stdout.fileno() if popen.stdout else -1, terminal=False)


def check_argv(argv: Sequence[str]) -> None:
    """Raise UsageError if *argv* cannot be started."""
    if os.name != "posix":  # pragma: no cover - Windows
        raise UsageError("commands can be supervised on POSIX systems only: other systems have no process groups")
    if not argv or not argv[0]:
        raise UsageError("argv= must be a program and its arguments; the list or its first word is empty")
    if any("\0" in word for word in argv):
        raise UsageError("argv= must not contain a null character: the system passes arguments as C strings")


def signal_group(pid: int, group: int, number: int) -> bool:
    """Signal *group*, or *pid* alone if *group* is our own; return whether a process received the signal."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if group == os.getpgrp():
            os.kill(pid, number)
        else:
            os.killpg(group, number)
            if number == signal.SIGTERM:
                os.killpg(group, signal.SIGCONT)  # a stopped process receives SIGTERM only when it continues
        return True
    return False


def _stdin(spec: Spec) -> int | None:
    if spec.inherit_stdin:
        return None
    return subprocess.DEVNULL if spec.input is None else subprocess.PIPE


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    return {"PYTHONUNBUFFERED": "1", **(os.environ if env is None else env)}


def _terminal() -> tuple[int, int]:
    master, slave = os.openpty()
    tty.setraw(slave)  # no echo, and line ends are not changed
    termios.tcsetwinsize(slave, _TERMINAL_SIZE)
    return master, slave


def _start_error(spec: Spec, exc: OSError) -> CommandStartError:
    program = os.fsdecode(spec.argv[0])
    reason = exc.strerror or type(exc).__name__
    if spec.cwd is not None and exc.filename == spec.cwd:
        reason = f"cannot enter the folder of cwd=: {reason}"
    elif exc.errno == errno.ENOENT and "/" not in program:
        reason = "program not found on the PATH"
    elif exc.errno == errno.ENOENT:
        found = os.path.exists(os.path.join(os.fsdecode(spec.cwd or ""), program))
        reason = "the interpreter in its first line does not exist" if found else "program not found"
    return CommandStartError(f"cannot start {program!r}: {reason}", program=program, errno=exc.errno)
