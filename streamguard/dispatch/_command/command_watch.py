"""Watches one command: reads its output in its format, keeps its clocks, and makes its result."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from ..._core.clock import monotonic
from .._data.lines import Tail
from .._data.output_timeout import Activity, Diagnosis
from .._data.turn_events import Event, Kind
from .._formats import Format
from .._process.cpu_activity import ActivityProbe
from .._process.process import ProcessExit, StopDecision
from .._process.snapshot import ProcessSnapshot, take_snapshot
from .command_clock import FINISHED, CommandClock, LimitFired
from .command_result import CommandResult, Stall, timeout_sentence

_TAIL_BYTES = 64 * 1024
_TEXT_BYTES = 16 * 1024 * 1024
_EVENT_BYTES = 512


@dataclass(frozen=True, slots=True)
class RawOutput:
    """Bytes as the program wrote them, to `stdout` or `stderr`."""

    stream: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputReaders:
    """How the two outputs are read.

    stdout, stderr: the formats; output on stderr becomes `stderr` events.
    stderr_counts:  whether output on stderr resets the limits on silence.
    raw:            yield bytes.
    events:         yield events.
    for_turn:       yield `done` when the result line is read, not at the exit; take a snapshot before every stop.
    """

    stdout: Format
    stderr: Format
    stderr_counts: bool
    raw: bool = False
    events: bool = True
    for_turn: bool = False


class CommandWatch:
    """The watch of one command (see `process.Watch`). *on_stall* runs before the stop if a limit fired."""

    def __init__(
        self, program: str, readers: OutputReaders, clock: CommandClock, on_stall: Callable[[Stall], object] | None = None
    ) -> None:
        self.result: CommandResult | None = None
        self._program = program
        self._readers = readers
        self._clock = clock
        self._on_stall = on_stall
        self._start = monotonic()
        self._tails = {"stdout": Tail(_TAIL_BYTES), "stderr": Tail(_TAIL_BYTES)}
        self._text = Tail(_TEXT_BYTES)
        self._session_id: str | None = None
        self._complaint = ""
        self._settled: Event | LimitFired | _StopReason | None = None
        self._done_sent = False
        self._pid = 0
        self._probe: ActivityProbe | None = None
        self._snapshot: ProcessSnapshot | None = None

    def attach(self, pid: int) -> None:
        """Set the process that is watched."""
        self._pid = pid
        self._probe = ActivityProbe(pid)

    def received(self, now: float, stream: str, data: bytes) -> Iterator[tuple[Event | RawOutput, int]]:
        """Read bytes, update the clocks, and yield events, bytes, or both, with their sizes."""
        self._tails[stream].add(data)
        if self._readers.raw:
            yield RawOutput(stream, data), len(data)
        for event in self._read(now, stream, data):
            if self._readers.events and (event.kind is not Kind.DONE or self._sends_early(event)):
                yield event, len(event.text) + len(event.raw) + _EVENT_BYTES

    def due(self, now: float) -> float | StopDecision:
        """Check the clocks; measure the CPU if the check needs it."""
        activity, rate = Activity.UNKNOWN, None
        if self._probe is not None and self._clock.needs_sample(now):
            activity, rate = self._probe.activity(now), self._probe.rate
        due = self._clock.due(now, activity, rate)
        if isinstance(due, LimitFired):
            fired = dataclasses.replace(due, diagnosis=_since(self._start, due.diagnosis))
            return StopDecision(fired, self._stall if self._on_stall else None)
        return StopDecision(FINISHED) if isinstance(due, str) else due

    def stopped(self, now: float, reason: object) -> None:
        """Record the reason, and take a snapshot if a limit fired or the program is a member's: after the kill it is late.

        A run whose result line was read is settled already.
        """
        if isinstance(reason, LimitFired) or (self._readers.for_turn and reason != FINISHED):
            self._snapshot = self.look()
        if self._settled is None:
            self._settled = reason if isinstance(reason, LimitFired) else _StopReason(reason)

    def held_back(self, now: float, held: bool) -> None:
        """Stop the clock of silence while the program is held back."""
        self._clock.hold(now, held)

    def woken_late(self, now: float, late: float) -> None:
        """Subtract the time in which nothing could be read."""
        self._clock.excuse(now, late)

    def ended(self, now: float, exit: ProcessExit) -> Iterator[Event]:
        """Yield the last events; the last one is `done`."""
        code = None if exit.stopped else exit.code
        events = [*self._observe(now, self._readers.stderr.close(None), Kind.STDERR)]
        events += self._observe(now, self._readers.stdout.close(code))
        self.result = self._result(now, exit)
        if self._readers.events:
            yield from (event for event in events if event.kind is not Kind.DONE)
            if isinstance(self._settled, LimitFired):
                yield Event.failure(self.result.message, "timeout", data={"diagnosis": self._settled.diagnosis.to_dict()})
            if not self._done_sent:
                data = self._settled.data if isinstance(self._settled, Event) else {}
                yield Event.done(self.result.error_code, data=data)

    def look(self) -> ProcessSnapshot:
        """Return a snapshot of the process now."""
        if not self._pid:
            return ProcessSnapshot(stdout="", stderr="")
        tools = self._clock.tools
        stdout, stderr = (self._tails[stream].text(4096) for stream in ("stdout", "stderr"))
        return take_snapshot(self._pid, stdout=stdout, stderr=stderr, tools=tools)

    def _read(self, now: float, stream: str, data: bytes) -> Iterator[Event]:
        if stream == "stdout":
            yield from self._observe(now, self._readers.stdout.feed(data))
        else:
            yield from self._observe(now, self._readers.stderr.feed(data), Kind.STDERR)

    def _observe(self, now: float, events: Iterable[Event], kind: Kind | None = None) -> Iterator[Event]:
        for event in events:
            counts = kind is not None and self._readers.stderr_counts and event.is_output
            observed = event if kind is None else dataclasses.replace(event, kind=kind)
            self._clock.observe(now, observed, counts=counts)
            self._keep(observed)
            yield observed

    def _sends_early(self, event: Event) -> bool:
        if not self._readers.for_turn or event is not self._settled or self._done_sent:
            return False
        self._done_sent = True
        return True

    def _keep(self, event: Event) -> None:
        if event.kind is Kind.TEXT:
            self._text.add(event.text.encode("utf-8", "replace"))
        elif event.kind is Kind.SESSION:
            self._session_id = event.session_id
        elif event.kind is Kind.ERROR:
            self._complaint = event.text
        elif event.kind is Kind.DONE and self._settled is None:
            self._settled = event

    def _stall(self) -> None:
        if self._on_stall is not None and isinstance(self._settled, LimitFired) and self._snapshot is not None:
            self._on_stall(Stall(pid=self._pid, program=self._program, fired=self._settled, evidence=self._snapshot))

    def _result(self, now: float, exit: ProcessExit) -> CommandResult:
        settled = self._settled
        fired = settled if isinstance(settled, LimitFired) else None
        outcome, error_code, message = self._summary()
        return CommandResult(
            outcome=outcome,
            program=self._program,
            message=message,
            exit_code=exit.code if exit.code is not None and exit.code >= 0 else None,
            signal=-exit.code if exit.code is not None and exit.code < 0 else None,
            limit=fired.limit if fired else None,
            limit_seconds=fired.seconds if fired else None,
            error_code=error_code,
            reason=settled.reason if isinstance(settled, _StopReason) else None,
            diagnosis=fired.diagnosis if fired else None,
            evidence=self._snapshot,
            text=self._text.text(),
            stdout=self._tails["stdout"].text(),
            stderr=self._tails["stderr"].text(),
            session_id=self._session_id,
            duration=now - self._start,
            deferred_by_cpu=self._clock.deferred(now),
            stopped=exit.stopped,
            killed=exit.killed,
        )

    def _summary(self) -> tuple[str, str | None, str]:
        settled, program = self._settled, self._program
        if isinstance(settled, LimitFired):
            not_started = f"{program} was not started: the surrounding deadline() is spent"
            return "timeout", "timeout", timeout_sentence(program, settled) if self._pid else not_started
        if isinstance(settled, _StopReason):
            return "cancelled", "cancelled", f"{program} was cancelled{'' if self._pid else ' before it was started'}"
        if settled is None:
            return "failed", "unknown_exit", f"{program}: unknown exit code; check whether this process ignores SIGCHLD"
        if settled.error_code is None:
            return "completed", None, f"{program} completed"
        outcome = "incomplete" if settled.error_code == "incomplete" else "failed"
        return outcome, settled.error_code, f"{program}: {self._complaint or settled.error_code}"


@dataclass(frozen=True, slots=True)
class _StopReason:
    reason: object


def _since(start: float, diagnosis: Diagnosis) -> Diagnosis:
    """Return *diagnosis* with seconds since *start* in place of monotonic instants."""
    instants = {name: getattr(diagnosis, name) for name in ("first_output_at", "last_output_at", "last_signal_at")}
    return dataclasses.replace(diagnosis, **{name: at - start for name, at in instants.items() if at is not None})
