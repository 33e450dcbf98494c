"""Run a program with limits on silence: `run_command` returns its result, `iter_command` its events as they arrive."""

import os
import queue
import weakref
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, Generic, Self, TypeVar, Unpack

from ..._core.clock import monotonic
from ..._core.pump import End
from ...errors import UsageError
from .._data.turn_events import Event
from .._process.process import Process, StopDecision, Unstarted
from .._process.snapshot import ProcessSnapshot
from .._process.spawn import Spec, check_argv
from .command_clock import FINISHED, CommandClock
from .command_options import CommandOptions, CommandPlan
from .command_result import CommandResult
from .command_watch import CommandWatch, RawOutput

T = TypeVar("T", Event, RawOutput)


def run_command(argv: Sequence[str], **options: Unpack[CommandOptions]) -> CommandResult:
    """Run a program to its end, and return how it ended. No process of it is left.

    argv:         the program and its arguments; no shell.
    format:       how its standard output is read: "claude", "codex", "gemini", "opencode", or "lines" (default). With
                  "lines" any output of both pipes counts; with the others only what docs/formats.md calls output.
    first:        seconds until the first output. Default None: *idle* applies from the start.
    idle:         seconds between outputs; up to twice as much while the program uses CPU. Default None: off.
    total:        seconds for the whole run. Default None: off. A surrounding `deadline()` also applies.
    tool_timeout: seconds that a running tool call may take without output, if longer than *idle*. Default None: off.
    pty:          give the program a terminal as standard output, for programs that buffer their output in a pipe.
    on_stall:     called with a `Stall` when a limit has fired, before the program is stopped; it may take 10 s.
    cancel:       a token whose cancel stops the program. Default: the current token.
    input:        text or bytes for standard input, which is then closed. Default None: standard input is empty.
    env:          the whole environment. Default: this process's. `PYTHONUNBUFFERED=1` is added unless it is set.
    cwd:          the folder to start in.
    stdout_only:  with "lines": standard error does not count.
    ignore:       regular expressions; matching lines do not reset the limits on silence.
    final:        with "lines": regular expressions for the line that ends the run; without that line it is incomplete.
    grace:        seconds between SIGTERM and SIGKILL. Default 3.
    linger:       seconds that the program may take to exit after its result. Default 1.

    Raises UsageError or TypeError for an invalid argument, `CommandStartError` if the program cannot be started. A limit, a
    cancel and a failure are outcomes: they raise nothing. Ctrl-C stops the program, and is raised.

    The program is not started if the token is already cancelled or the surrounding `deadline()` is spent.

    Limits
        A daemon that has left both its group and its parents is not stopped; it does not block the caller. A program that
        prints only at its end looks silent: use its streaming mode, *pty*, or *total* alone. POSIX only.
    """
    with CommandStream[Event](CommandPlan(argv=argv, events=False, **options)) as stream:
        for _ in stream:
            pass
    return stream.result


def iter_command(argv: Sequence[str], **options: Unpack[CommandOptions]) -> "CommandStream[Event]":
    """Start a program, and return an iterator over its events. The last event is `done`; then `result` exists.

    Takes the arguments of `run_command`, and raises the same errors. Use it in a `with` block, or close it: that stops the
    program.

    Limits
        The limits apply whether or not the events are read. While 8 MiB of events are unread, the program has to wait, and
        the limits on silence are paused.
    """
    return CommandStream(CommandPlan(argv=argv, **options))


class CommandStream(Generic[T], Iterator[T]):
    """The events of a running program, as `iter_command` returns them."""

    def __init__(self, plan: CommandPlan) -> None:
        spec, grace = plan.spec(), plan.grace_seconds()
        self.program = os.path.basename(spec.argv[0]) if spec.argv else ""
        limits = plan.limits()
        self._watch = CommandWatch(self.program, plan.readers(), CommandClock(limits, monotonic()), plan.on_stall)
        self._token = plan.token()
        try:
            self._process: Process[T] = self._make(spec, grace, spent=limits.deadline == 0)
            self._process.start()
        except BaseException:
            self._token.detach()
            raise
        self._over = False
        self._dropped: weakref.finalize[..., Any] = weakref.finalize(self, self._token.cancel, "dropped")

    def _make(self, spec: Spec, grace: float, *, spent: bool) -> Process[T]:
        check_argv(spec.argv)
        if self._token.cancelled:
            return Unstarted(self._watch, self._token.reason, token=self._token)
        if spent and isinstance(due := self._watch.due(monotonic()), StopDecision):
            return Unstarted(self._watch, due.reason, token=self._token)
        process: Process[T] = Process(spec, self._watch, token=self._token, grace=grace, name=self.program)
        self._watch.attach(process.pid)
        return process

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        if self._over:
            raise StopIteration
        if not self._process.ours:
            raise UsageError("this command belongs to the parent process: start one in the forked child")
        try:
            item = self._process.get(None)
        except BaseException:
            self.close("interrupted")
            raise
        if not isinstance(item, End):
            return item
        self._finish()
        if item.failure is not None:
            raise item.failure
        raise StopIteration

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def result(self) -> CommandResult:
        """The result. Raises UsageError while the program runs."""
        if self._watch.result is None:
            raise UsageError(f"{self.program} is still running: its result exists after its last event")
        return self._watch.result

    @property
    def ended(self) -> bool:
        """Whether the program has ended: `result` exists."""
        return self._watch.result is not None

    @property
    def stopping(self) -> bool:
        """Whether a limit or a cancel stops, or stopped, the program. Its end after `linger` does not count."""
        return self._token.cancelled and self._token.reason != FINISHED

    @property
    def overflowed(self) -> bool:
        """Whether output during the stop was dropped because the events were not read."""
        return self._process.overflowed

    def read(self) -> CommandResult:
        """Drop the other events, and return the result."""
        for _ in self:
            pass
        return self.result

    @property
    def pid(self) -> int:
        """The id of the program's process and of its group; 0 if it was not started."""
        return self._process.pid

    def look(self) -> ProcessSnapshot:
        """Take a snapshot of the program now: the end of its output, its processes, their sockets."""
        return self._watch.look()

    def signal(self, number: int) -> None:
        """Send a signal to the program's process group. Safe in a signal handler."""
        self._process.signal(number)

    def stop(self, reason: object = "cancelled", *, opening: int | None = None) -> bool:
        """Stop the program, and do not wait; return whether this was the first stop. Safe in a signal handler.

        opening: the number of a signal that its group gets before SIGTERM. Default None.
        """
        return self._process.stop(reason, opening)

    def kill(self) -> None:
        """Stop the program without a grace. Safe in a signal handler."""
        self._process.kill()

    def close(self, reason: object = "closed") -> None:
        """Stop the program if it still runs, and wait until no process of its group is left. Idempotent.

        In a forked child it does nothing.
        """
        if self._over:
            return
        if not self._process.ours:
            self._over = True
            self._dropped.detach()
            return
        self._token.cancel(reason)
        try:
            self._wait()
        except BaseException:  # a second Ctrl-C ends the grace
            self._process.kill()
            self._wait()
            raise
        finally:
            self._finish()

    def _wait(self) -> None:
        end = monotonic() + self._process.longest_end
        while (left := end - monotonic()) > 0:
            try:
                if isinstance(self._process.get(left), End):
                    return
            except queue.Empty:
                return

    def _finish(self) -> None:
        self._over = True
        self._dropped.detach()
        self._token.detach()
        self._process.join(self._process.longest_end)
