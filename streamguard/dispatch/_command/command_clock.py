"""The limits of one command. Pure: the time is an argument.

If several limits are used up at one instant, the wider one wins: total before that of a phase.
"""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

from .._data.output_timeout import Activity, Diagnosis, Fire, OutputTimeout
from .._data.turn_events import Event, Kind

FINISHED = "finished"
"""The reason to stop a program that has printed its result and does not exit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLimits:
    """The limits of a command, in seconds; None is off.

    first:        until the first output. Until then it applies in place of *idle*.
    idle:         between outputs; CPU use defers it, up to twice as long.
    total:        the whole run.
    deadline:     the time that the surrounding `deadline()` left at the start.
    tool_timeout: without output while a tool call runs, if longer than *idle*.
    linger:       from the result to the exit.
    frames:       whether the first line of any known kind satisfies *first*, not only output.
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
    """The limit that fired: first, idle, tool, total or deadline."""

    limit: str
    seconds: float
    elapsed: float
    diagnosis: Diagnosis


class CommandClock:
    """The clocks of a command that started at *now*."""

    def __init__(self, limits: CommandLimits, now: float) -> None:
        self._limits = limits
        self._start = now
        self._awaits_first = limits.first is not None
        self._first_since = now
        self._finished_at: float | None = None
        self._output = OutputTimeout(limits.idle or math.inf, now, tool_timeout=limits.tool_timeout)

    @property
    def finished(self) -> bool:
        """Whether the program has printed its result."""
        return self._finished_at is not None

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tool calls without a result."""
        return self._output.tools

    def deferred(self, now: float) -> float:
        """Return the seconds by which CPU use has deferred *idle*, in total."""
        return self._output.deferred(now)

    def observe(self, now: float, event: Event, *, counts: bool) -> None:
        """Observe an event. *counts*: it is output, whatever its kind."""
        was_output = self._output.observe(now, event)
        if counts and not was_output:
            self._output.rearm(now, event.kind)
        framed = self._limits.frames and event.kind not in (Kind.UNKNOWN, Kind.STDERR)
        if was_output or counts or framed:
            self._awaits_first = False
        if event.kind is Kind.DONE and self._finished_at is None:
            self._finished_at = now

    def hold(self, now: float, held: bool) -> None:
        """Stop the clock of silence while the program waits for the reader of its events (T1)."""
        (self._output.pause if held else self._output.resume)(now)

    def excuse(self, now: float, late: float) -> None:
        """Report that the wake-up at *now* was *late* seconds late: see `OutputTimeout.excuse`. It shortens *first* too."""
        self._first_since += self._output.excuse(now, late)

    def needs_sample(self, now: float) -> bool:
        """Whether to measure the program's CPU for `due()`."""
        return not (self._awaits_first or self.finished) and self._output.needs_sample(now)

    def due(self, now: float, activity: Activity, cpu_rate: float | None) -> float | LimitFired | str:
        """Return the seconds to wait, the limit that fired, or `FINISHED`."""
        waits = [math.inf]
        for name, limit, since in self._fixed_limits():
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
        """Return the diagnosis at *now*."""
        return self._output.diagnosis(now, activity, cpu_rate)

    def _fixed_limits(self) -> Iterator[tuple[str, float, float]]:
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
