"""The limits of one command. Pure: the time is an argument.

At one instant the wider limit wins: total before a phase's.
"""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

from .._data.output_timeout import Activity, Diagnosis, Fire, OutputTimeout
from .._data.turn_events import Event, Kind

FINISHED = "finished"
"""The reason to stop a program that has said its result, and lingers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    """What may take how long, in seconds; None is off.

    first:        to the first output. While it is on and nothing has come, it rules, and *idle* does not.
    idle:         between outputs; burning CPU defers it to twice as much at most.
    total:        the whole run.
    deadline:     the time left in the surrounding `deadline()` when it started.
    tool_timeout: what a running tool call may take in place of *idle*, where it is more.
    linger:       what the program may take to end once it has said its result.
    frames:       whether the first line of any kind satisfies *first*, and not only output.
    """

    first: float | None = None
    idle: float | None = None
    total: float | None = None
    deadline: float | None = None
    tool_timeout: float | None = None
    linger: float = 1.0
    frames: bool = False


@dataclass(frozen=True, slots=True)
class LimitFired:
    """The limit that was used up: first, idle, tool, total or deadline."""

    limit: str
    seconds: float
    elapsed: float
    diagnosis: Diagnosis


class CommandClock:
    """All clocks of a command that was started at *now*."""

    def __init__(self, limits: CommandLimits, now: float) -> None:
        self._limits = limits
        self._start = now
        self._awaits_first = limits.first is not None
        self._first_since = now
        self._finished_at: float | None = None
        self._output = OutputTimeout(limits.idle or math.inf, now, tool_timeout=limits.tool_timeout)

    @property
    def finished(self) -> bool:
        """Whether the program has said its result."""
        return self._finished_at is not None

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tool calls in flight."""
        return self._output.tools

    def deferred(self, now: float) -> float:
        """Return for how many seconds burning CPU has put *idle* off, in all."""
        return self._output.deferred(now)

    def observe(self, now: float, event: Event, *, counts: bool) -> None:
        """Note an event. *counts* says that it is output, whatever its kind."""
        was_output = self._output.observe(now, event)
        if counts and not was_output:
            self._output.rearm(now, event.kind)
        framed = self._limits.frames and event.kind not in (Kind.UNKNOWN, Kind.STDERR)
        if was_output or counts or framed:
            self._awaits_first = False
        if event.kind is Kind.DONE and self._finished_at is None:
            self._finished_at = now

    def hold(self, now: float, held: bool) -> None:
        """Note that the program is, or no longer is, held back by us: that is not its own silence (T1)."""
        (self._output.pause if held else self._output.resume)(now)

    def excuse(self, now: float, late: float) -> None:
        """Note that the wake-up at *now* was *late* seconds late: see `OutputTimeout.excuse`. It holds for *first* too."""
        self._first_since += self._output.excuse(now, late)

    def needs_sample(self, now: float) -> bool:
        """Whether the program's CPU is to be measured for `due()`."""
        return not (self._awaits_first or self.finished) and self._output.needs_sample(now)

    def due(self, now: float, activity: Activity, cpu_rate: float | None) -> float | LimitFired | str:
        """Return the seconds to wait, the limit that has fired, or `FINISHED`."""
        waits = [math.inf]
        for name, limit, since in self._fixed():
            if now - since >= limit:
                return name if name == FINISHED else self._fired(name, limit, now - since, (now, activity, cpu_rate))
            waits.append(limit - (now - since))
        if not (self._awaits_first or self.finished):
            due = self._output.due(now, activity, cpu_rate)
            if isinstance(due, Fire):
                return self._silent(due.diagnosis)
            waits.append(due.seconds)
        return min(waits)

    def diagnosis(self, now: float, activity: Activity, cpu_rate: float | None) -> Diagnosis:
        """Return what is known at *now*."""
        return self._output.diagnosis(now, activity, cpu_rate)

    def _fixed(self) -> Iterator[tuple[str, float, float]]:
        limits = self._limits
        for name, limit in (("total", limits.total), ("deadline", limits.deadline)):
            if limit is not None:
                yield name, limit, self._start
        if self._finished_at is not None:
            yield FINISHED, limits.linger, self._finished_at
        elif self._awaits_first and limits.first is not None:
            yield "first", limits.first, self._first_since

    def _fired(self, name: str, limit: float, elapsed: float, known: tuple[float, Activity, float | None]) -> LimitFired:
        return LimitFired(name, limit, elapsed, dataclasses.replace(self.diagnosis(*known), timeout=limit))

    def _silent(self, diagnosis: Diagnosis) -> LimitFired:
        by_tool = bool(diagnosis.tools) and diagnosis.timeout == self._limits.tool_timeout
        return LimitFired("tool" if by_tool else "idle", diagnosis.timeout, diagnosis.silence, diagnosis)
