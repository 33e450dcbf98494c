"""The live line below a stream's output: where the stream is, and how long it may still be silent."""

from typing import IO

from ..._core import Timeouts
from ..._stream import StreamReport
from ..._text import counted

# Index (which scrolls, if it must) and one up again make room below; the cursor moves only between save and restore.
_ROOM_BELOW = "\x1bD\x1b[A"
_BELOW, _BACK = "\x1b7\x1b[B\r\x1b[K", "\x1b8"


class StatusLine:
    """A line below the cursor of a terminal, which leaves a half-written line of text where it is."""

    def __init__(self, err: IO[str], width: int) -> None:
        self._err = err
        self._width = width
        self._shown = False

    def show(self, text: str) -> None:
        """Show *text*, in place of the previous text."""
        self._put(f"{_ROOM_BELOW}{_BELOW}\x1b[2m{text[: self._width - 1]}\x1b[0m{_BACK}")
        self._shown = True

    def clear(self) -> None:
        """Remove the line, before anything else is written."""
        if self._shown:
            self._put(f"{_BELOW}{_BACK}")
            self._shown = False

    def _put(self, text: str) -> None:
        self._err.write(text)
        self._err.flush()


def status_text(report: StreamReport, limits: Timeouts, *, phase: str, silence: float) -> str:
    """Return the line's text for a stream in *phase* that has been silent for *silence* seconds."""
    text = f"[{phase}] silent for {silence:.1f} s{_left(report, limits, phase, silence)}, {counted(report.chunks, 'chunk')}"
    if report.comments:
        text += f", {counted(report.comments, 'heartbeat')}"
    return f"{text}, attempt {report.attempts}" if report.attempts > 1 else text


def _left(report: StreamReport, limits: Timeouts, phase: str, silence: float) -> str:
    limit = getattr(limits, phase, None)
    left = [] if limit is None else [limit - silence]
    if limits.total is not None:
        left.append(limits.total - report.lifetime)
    return f", {max(0.0, min(left)):.1f} s left" if left else ""
