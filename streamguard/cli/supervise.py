"""Runs a command in the foreground: output and signals pass through."""

import contextlib
import errno
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import IO, Any

import click

from ..dispatch.command import CommandStream, run_command
from ..dispatch.command_plan import CommandPlan
from ..dispatch.command_watch import RawOutput
from ..dispatch.formats import buffered_output
from ..dispatch.result import Stall
from ..dispatch.spawn import CommandStartError
from ..errors import UsageError
from .exits import Exit
from .output import printable
from .run_verdict import RunVerdict

__all__ = ["supervise"]

_ON_STALL_SECONDS = 9.0
_ON_STALL_GRACE = 0.5

RawStream = CommandStream[RawOutput]


def supervise(command: Sequence[str], *, quiet: bool, on_stall: str | None, **options: Any) -> RunVerdict:
    """Run *command* until it has ended, or was stopped; return how."""
    if not quiet and (option := buffered_output(command)):
        _warn(f"{option} has the command print nothing before its end, and so look silent")
    try:
        stream = RawStream(_plan(command, on_stall, options))
    except UsageError as exc:
        raise click.UsageError(str(exc)) from None
    except CommandStartError as exc:
        raise _cannot_start(exc) from None
    passage = _Passage(stream)
    with stream, _forwarded(stream):
        for output in stream:
            passage.write(output)
    return RunVerdict(stream.result, options["format"], passage.closed)


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


class _Passage:
    """Writes what the command wrote, each piece at once, to the same of our outputs."""

    def __init__(self, stream: RawStream) -> None:
        self._stream = stream
        self._outputs: dict[str, IO[bytes]] = {"stdout": sys.stdout.buffer, "stderr": sys.stderr.buffer}
        self.closed = False
        """Whether nobody reads our standard output any more: then the command is stopped."""

    def write(self, output: RawOutput) -> None:
        """Write it. Raises OSError if it cannot be written for another reason than that nobody reads it."""
        out = self._outputs.get(output.stream)
        if out is None:
            return
        try:
            out.write(output.data)
            out.flush()
        except BrokenPipeError:
            del self._outputs[output.stream]
            if output.stream == "stdout":
                self.closed = True
                self._stream.stop("a closed pipe")
            else:
                _forget_stderr()


@contextlib.contextmanager
def _forwarded(stream: RawStream) -> Iterator[None]:
    """Pass SIGINT on; end the command at SIGTERM, SIGHUP, and a second SIGINT, and without a grace at a third one."""
    interrupts = 0

    def interrupted(number: int, _frame: FrameType | None) -> None:
        nonlocal interrupts
        interrupts += 1
        if interrupts == 1:
            stream.signal(number)
        else:
            stream.stop("SIGINT", opening=number)
        if interrupts > 2:
            stream.kill()

    def ended(number: int, _frame: FrameType | None) -> None:
        opening = None if number == signal.SIGTERM else number  # SIGTERM is how it is stopped anyway
        stream.stop(signal.Signals(number).name, opening=opening)

    wanted = {signal.SIGINT: interrupted, signal.SIGTERM: ended, signal.SIGHUP: ended}
    before = {number: signal.getsignal(number) for number in wanted}
    try:
        for number, handler in wanted.items():
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, handler)
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _forget_stderr() -> None:
    """Lead standard error, which nobody reads, to nowhere: what is left in its buffer would fail again."""
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
    exit_code = Exit.NOT_FOUND


class _NotExecutable(click.ClickException):
    exit_code = Exit.NOT_EXECUTABLE


def _cannot_start(exc: CommandStartError) -> click.ClickException:
    kind = _NotFound if exc.errno == errno.ENOENT else _NotExecutable
    return kind(printable(str(exc)))


def _warn(text: str) -> None:
    click.echo(f"streamguard: warning: {text}", err=True)
