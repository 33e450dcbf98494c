"""Run a program under limits on silence: `run_command` for its result, `iter_command` for its events as they come."""

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
    """Run a program, and say how it ended. Nothing of it is left when this returns.

    argv:         the program and its arguments; no shell.
    format:       how its standard output is read: "claude", "codex", "gemini", "opencode", or "lines" (default). With
                  "lines" any output counts, of both pipes; with the others only real output does (`docs/formats.md`).
    first:        seconds to the first output. Default: *idle* rules from the start.
    idle:         seconds between outputs; while the program burns CPU, up to twice as much. Default: off.
    total:        seconds for the whole run. Default: off. A surrounding `deadline()` bounds it too.
    tool_timeout: seconds that a running tool call may take in place of *idle*, where that is more. Default: off.
    pty:          give the program a terminal as its standard output, for those that hold output back in a pipe.
    on_stall:     called with a `Stall` when a limit has fired, before the program is stopped; it may take 10 s.
    cancel:       a token whose cancel stops the program. Default: the current one.
    input:        what the program reads from its standard input, which is then closed. Default: nothing.
    env:          the whole environment of the program. Default: this process's. `PYTHONUNBUFFERED=1` is added, unless set.
    cwd:          the folder to start it in.
    stdout_only:  with "lines": standard error does not count.
    ignore:       regular expressions; lines in which one is found do not count.
    final:        with "lines": regular expressions for the line that ends the run; without it the run is incomplete.
    grace:        seconds between SIGTERM and SIGKILL. Default 3.
    linger:       seconds that the program may take to end once it has said its result. Default 1.

    Raises UsageError for what cannot be right, `CommandStartError` if the program cannot be started. A limit, a cancel and
    a failure are outcomes, and raise nothing. What interrupts the caller (Ctrl-C) stops the program first.

    A program that was to be stopped before its start (a cancelled token, a spent `deadline()`) is not started.

    Limits
        A daemon that has left both its group and its parents is not stopped; it cannot hold us either. A program that
        prints nothing before its end looks silent: use its streaming mode, *pty*, or *total* alone. POSIX only.
    """
    with CommandStream[Event](CommandPlan(argv=argv, events=False, **options)) as stream:
        for _ in stream:
            pass
    return stream.result


def iter_command(argv: Sequence[str], **options: Unpack[CommandOptions]) -> "CommandStream[Event]":
    """Run a program, and return an iterator over its events. The last one is `done`; then `result` says how it ended.

    Takes, and raises, what `run_command` does. Close it, or use it in a `with` statement: that stops the program.

    Limits
        The limits hold whether or not the events are taken. A program whose events are not taken is held back behind
        8 MiB of them, and does not count as silent meanwhile.
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
            self._process: Process[T] = self._made(spec, grace, spent=limits.deadline == 0)
            self._process.start()
        except BaseException:
            self._token.detach()
            raise
        self._over = False
        self._dropped: weakref.finalize[..., Any] = weakref.finalize(self, self._token.cancel, "dropped")

    def _made(self, spec: Spec, grace: float, *, spent: bool) -> Process[T]:
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
        """How it ended. Raises UsageError while it runs."""
        if self._watch.result is None:
            raise UsageError(f"{self.program} is still running: its result exists after its last event")
        return self._watch.result

    @property
    def ended(self) -> bool:
        """Whether the program has ended, so that there is a result."""
        return self._watch.result is not None

    @property
    def stopping(self) -> bool:
        """Whether a limit or a cancel stops it, or has; a program that only lingers after its result is not stopped."""
        return self._token.cancelled and self._token.reason != FINISHED

    @property
    def overflowed(self) -> bool:
        """Whether some of what it said while it was being stopped was dropped, because it was not read."""
        return self._process.overflowed

    def read(self) -> CommandResult:
        """Take, and drop, the rest of the events; return the result."""
        for _ in self:
            pass
        return self.result

    @property
    def pid(self) -> int:
        """The program's process id, which is its group's too; 0 if it was not started, as it was to be stopped already."""
        return self._process.pid

    def look(self) -> ProcessSnapshot:
        """Take a snapshot of the program now: the end of its output, its processes, their sockets."""
        return self._watch.look()

    def signal(self, number: int) -> None:
        """Pass a signal on to the program and its group. Safe in a signal handler."""
        self._process.signal(number)

    def stop(self, reason: object = "cancelled", *, opening: int | None = None) -> bool:
        """Stop the program, and return at once: whether this was the first stop. Safe in a signal handler.

        opening: the number of a signal that it and its group get before SIGTERM. Default: none.
        """
        return self._process.stop(reason, opening)

    def kill(self) -> None:
        """Stop it without a grace. Safe in a signal handler."""
        self._process.kill()

    def close(self, reason: object = "closed") -> None:
        """Stop the program if it still runs, and return when nothing of it is left. Idempotent.

        In a forked child it does nothing: the program is the parent's.
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
        except BaseException:  # a second Ctrl-C: no more grace
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
