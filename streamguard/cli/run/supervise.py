"""Runs a command in the foreground: output and signals pass through."""

import contextlib
import errno
import json
import os
import select
import signal
import stat
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO, Any, TextIO

import click

from ..._core import monotonic
from ..._text import printable
from ...dispatch._command.command import CommandStream, run_command
from ...dispatch._command.command_options import CommandPlan
from ...dispatch._command.command_result import Stall
from ...dispatch._command.command_watch import RawOutput
from ...dispatch._formats import buffered_output
from ...dispatch._process.spawn import CommandStartError
from ...errors import UsageError
from ..exit_codes import ExitCode
from ..signals import handled
from ..stdio import descriptor_of, has_room
from .run_result import RunResult

_ON_STALL_SECONDS = 9.0
_ON_STALL_GRACE = 0.5
_LOOK_SECONDS = 0.2
_REFUSED_SECONDS = 0.02
PATIENCE = 1.0
"""Seconds that a reader may pause (a pager, say) before its output is dropped, if it must not be waited for."""

RawStream = CommandStream[RawOutput]


def supervise(command: Sequence[str], *, out: TextIO, quiet: bool, on_stall: str | None, **options: Any) -> RunResult:
    """Run *command* until it ends or is stopped, with its standard output at *out*; return its result."""
    if not quiet and (option := buffered_output(command)):
        _warn(f"{option} has the command print nothing before its end, and so look silent")
    signals = _SignalPolicy()
    with handled(signals.handle):
        try:
            stream = RawStream(_plan(command, on_stall, options))
        except UsageError as exc:
            raise click.UsageError(str(exc)) from None
        except CommandStartError as exc:
            raise _cannot_start(exc) from None
        through = _PassThrough(stream, signals, out)
        with stream:
            signals.attach(stream)
            for output in stream:
                through.write(output)
    return RunResult(stream.result, through.closed, through.hurried, through.output_lost or stream.overflowed)


def _plan(command: Sequence[str], on_stall: str | None, options: dict[str, Any]) -> CommandPlan:
    grace = options.pop("grace")
    return CommandPlan(
        argv=command,
        on_stall=_on_stall(on_stall) if on_stall else None,
        raw=True,
        events=False,
        inherit_stdin=sys.stdin is not None and not sys.stdin.isatty(),
        grace=3.0 if grace is None else grace,
        **options,
    )


class _PassThrough:
    """Writes what the command wrote, each piece at once, to the same of our outputs."""

    def __init__(self, stream: RawStream, signals: "_SignalPolicy", out: TextIO) -> None:
        self._stream = stream
        self._signals = signals
        self._outputs: dict[str, IO[bytes]] = {"stdout": out.buffer, "stderr": sys.stderr.buffer}
        self.closed = False
        """Whether our standard output is closed: then the command is stopped."""
        self._lossy: set[str] = set()

    @property
    def output_lost(self) -> bool:
        """Whether output was dropped because it was not read in time."""
        return bool(self._lossy)

    @property
    def hurried(self) -> bool:
        """Whether a paused reader must not be waited for: the command is stopped, or a signal ends us."""
        return self._stream.stopping or self._signals.ending

    def write(self, output: RawOutput) -> None:
        """Write it. Raises OSError if it cannot be written; a closed pipe is not an error."""
        out = self._outputs.get(output.stream)
        if out is None:
            return
        try:
            if not self._put(out, output.data, 0.0 if output.stream in self._lossy else PATIENCE):
                self._lossy.add(output.stream)
        except BrokenPipeError:
            del self._outputs[output.stream]
            if output.stream == "stdout":
                self.closed = True
                self._stream.stop("a closed pipe")
            else:
                _forget_stderr()

    def _put(self, out: IO[bytes], data: bytes, patience: float) -> bool:
        """Write all of *data*, however long that takes, and return True.

        If the reader must not be waited for, give up after *patience* seconds without a read, and return False.
        """
        descriptor = descriptor_of(out)
        if descriptor is None:
            out.write(data)
            out.flush()
            return True
        left, since, size = memoryview(data), monotonic(), _at_once(descriptor)
        while left:
            if has_room(descriptor, min(patience, _LOOK_SECONDS) if self.hurried else _LOOK_SECONDS):
                try:
                    left = left[os.write(descriptor, left[:size]) :]
                    since = monotonic()
                    continue
                except BlockingIOError:  # a pipe that does not block may say that there is room, and refuse
                    time.sleep(_REFUSED_SECONDS)
            if self.hurried and monotonic() - since >= patience:
                return False
        return True


class _SignalPolicy:
    """Passes SIGINT on; ends the command at the other signals, and at a second SIGINT, and without a grace at a third one.

    A signal that arrives before the command has started is kept until then.
    """

    def __init__(self) -> None:
        self.ending = False
        """Whether a signal that ends the command has arrived; one that was only passed on does not count."""
        self._stream: RawStream | None = None
        self._early: list[int] = []
        self._interrupts = 0

    def attach(self, stream: RawStream) -> None:
        """Pass the signals that have arrived, and those that follow, on to *stream*."""
        self._stream = stream
        while self._early:
            self.handle(self._early.pop(0))

    def handle(self, number: int) -> None:
        """Act on signal *number*. It runs in a signal handler."""
        if self._stream is None:
            self._early.append(number)
        elif number == signal.SIGINT:
            self._interrupt(self._stream)
        else:
            self.ending = True
            opening = None if number == signal.SIGTERM else number  # SIGTERM is how it is stopped anyway
            self._stream.stop(signal.Signals(number).name, opening=opening)

    def _interrupt(self, stream: RawStream) -> None:
        self._interrupts += 1
        if self._interrupts == 1 and not stream.ended:
            stream.signal(signal.SIGINT)
        else:
            self.ending = True
            stream.stop("SIGINT", opening=signal.SIGINT)
        if self._interrupts > 2:
            stream.kill()


def _at_once(descriptor: int) -> int:
    """Return how many bytes a write takes without blocking once there is room: a page for a pipe, all for a file."""
    return sys.maxsize if stat.S_ISREG(os.fstat(descriptor).st_mode) else select.PIPE_BUF


def _forget_stderr() -> None:
    """Replace the closed standard error: the rest of its buffer would fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with contextlib.suppress(OSError):
        os.dup2(nowhere, sys.stderr.fileno())
    os.close(nowhere)


def _on_stall(shell: str) -> Callable[[Stall], None]:
    def run(stall: Stall) -> None:
        known = {"STREAMGUARD_PID": str(stall.pid), "STREAMGUARD_LIMIT": stall.fired.limit}
        done = run_command(
            ["sh", "-c", shell],
            input=json.dumps(stall.to_dict()),
            env={**os.environ, **known},
            total=_ON_STALL_SECONDS,
            grace=_ON_STALL_GRACE,
        )
        click.echo(done.stdout + done.stderr, nl=False, err=True)
        if not done.ok:
            _warn(f"--on-stall: {done.message}")

    return run


class _NotFound(click.ClickException):
    exit_code = ExitCode.NOT_FOUND


class _NotExecutable(click.ClickException):
    exit_code = ExitCode.NOT_EXECUTABLE


def _cannot_start(exc: CommandStartError) -> click.ClickException:
    kind = _NotFound if exc.errno == errno.ENOENT else _NotExecutable
    return kind(printable(str(exc)))


def _warn(text: str) -> None:
    click.echo(f"streamguard: warning: {text}", err=True)
