"""The display of `tail`: the chunks, and on standard error the status line and notes."""

import math
import shutil
import sys
from types import TracebackType
from typing import Any, Self

import click
import tenacity

from ..._core import Timeouts, monotonic
from ..._stream import HEARTBEAT, StreamReport
from ..._text import printable
from ..output import Output, reader_has_left
from ..stdio import main_output
from .status_line import StatusLine, status_text
from .tail_options import TailOptions

_TICK = 0.25
"""Seconds between two looks at a silent stream."""


class Screen:
    """Shows one stream. A terminal gets the status line; `--heartbeat` adds a note after each such period of silence."""

    def __init__(self, options: TailOptions, limits: Timeouts) -> None:
        self._limits = limits
        self._quiet = options.quiet
        out = main_output(options.report)
        self._out = out.buffer
        self._beside_text = out.isatty()
        self._output = Output(self._out, decode=options.decode, reasoning=options.reasoning, terminal=self._beside_text)
        self._status = self._status_line()
        self._note_after = math.inf if options.heartbeat is None or options.quiet else options.heartbeat
        self._quiet_since = self._drawn = monotonic()
        self.tick = min(self._note_after, _TICK)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._clear()

    def chunk(self, chunk: Any, report: StreamReport) -> None:
        """Show *chunk*."""
        self._quiet_since = monotonic()
        if self._beside_text:
            self._clear()
        self._output.write(chunk)
        if not self._beside_text and self._quiet_since - self._drawn >= _TICK:
            self._draw(report, report.phase, 0.0)

    def silence(self, report: StreamReport) -> None:
        """Show that nothing arrives. Raises BrokenPipeError if the output is closed."""
        if reader_has_left(self._out):
            raise BrokenPipeError
        now = monotonic()
        if now - self._quiet_since >= self._note_after:
            self._quiet_since = now
            text = status_text(report, self._limits, phase=HEARTBEAT.phase, silence=HEARTBEAT.silence)
            self.note(f"streamguard: {text}")
        self._draw(report, HEARTBEAT.phase, HEARTBEAT.silence)

    def retrying(self, state: tenacity.RetryCallState) -> None:
        """Note that an attempt failed and another one follows: tenacity's `before_sleep`."""
        error = state.outcome.exception() if state.outcome else None
        pause = state.next_action.sleep if state.next_action else 0.0
        phase = getattr(error, "phase", "?")
        number = state.attempt_number
        if not self._quiet:
            self.note(
                f"streamguard: attempt {number} failed, {type(error).__name__} in phase {phase}; "
                f"attempt {number + 1} follows in {pause:.1f} s"
            )

    def note(self, text: str) -> None:
        """Write one line to standard error."""
        self._clear()
        click.echo(printable(text), err=True)

    def finish(self) -> None:
        """Leave the cursor where the next line can begin."""
        self._output.finish()

    def _status_line(self) -> StatusLine | None:
        if self._quiet or not sys.stderr.isatty():
            return None
        return StatusLine(sys.stderr, shutil.get_terminal_size().columns)

    def _draw(self, report: StreamReport, phase: str, silence: float) -> None:
        self._drawn = monotonic()
        if self._status:
            self._status.show(status_text(report, self._limits, phase=phase, silence=silence))

    def _clear(self) -> None:
        if self._status:
            self._status.clear()
