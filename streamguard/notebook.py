"""The face for notebooks: `show(stream)`. `pip install 'streamguard[notebook]'`; the manual's page is docs/notebook.md."""

import html
import io
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from IPython.display import display

from ._core import monotonic
from ._sse import Event, text_of
from ._stream import HEARTBEAT, GuardedStream, StreamReport
from ._stream.any_stream import guarded_from
from ._text import counted
from .errors import StreamguardError

__all__ = ["show"]

_EVERY = 0.2
_LIVE_CHARACTERS = 20_000
_RATE_SECONDS = 3.0


def show(stream: Any, *, text: Callable[[Any], str] | None = None) -> StreamReport:
    """Show *stream* below the cell as it arrives, the text and a status line, and return its report.

    stream: a guarded stream, or one that `guard()` takes without options, such as the stream of an SDK.
    text: converts a chunk to the text that is shown. Default: a chat chunk's text, an event's data and a line end, `str()`
          of anything else.

    Everything happens in the cell's own thread. Interrupting the kernel stops it at once, in silence too: the upstream is
    closed, the text so far stays on display, and KeyboardInterrupt ends the cell. An error of the stream is shown with its
    timeline, and raised. Raises TypeError for anything that is not such a stream.

    *Limits*: the stream's own `heartbeat` is changed. While it runs, the last 20 000 characters are shown. There is no
    stop button: a kernel handles a widget's clicks only after the cell has ended.
    """
    guarded = guarded_from(stream, "show")
    view = _View(guarded, text or _text_of)
    try:
        view.run()
    except BaseException as exc:
        guarded.close()
        view.finish(exc)
        raise
    view.finish(None)
    return guarded.report


class _Handle(Protocol):
    def update(self, obj: object) -> object:
        """Replace what is on display."""


class _View:
    """The display of one stream, drawn at most five times a second."""

    def __init__(self, stream: GuardedStream[Any], text: Callable[[Any], str]) -> None:
        self._stream = stream
        self._text_of = text
        self._text = io.StringIO()
        self._rate = _Rate()
        self._drawn = monotonic()
        self._rate.at(self._drawn)
        self._handle: _Handle = display(_Page("", "new"), display_id=True)  # type: ignore[no-untyped-call]

    def run(self) -> None:
        """Consume the stream."""
        self._stream.heartbeat = _EVERY
        for chunk in self._stream:
            if chunk is HEARTBEAT:
                self._draw(HEARTBEAT.phase, HEARTBEAT.silence, HEARTBEAT.left)
                continue
            self._text.write(self._text_of(chunk))
            self._rate.count += 1
            if monotonic() - self._drawn >= _EVERY:
                self._draw("idle", 0.0, None)

    def finish(self, error: BaseException | None) -> None:
        """Draw it for the last time: the whole text, and how it ended."""
        report = self._stream.report
        words = f"{report.outcome} after {report.lifetime:.1f} s, {counted(report.chunks, 'chunk')}"
        below = "" if error is None else report._repr_html_()
        if isinstance(error, StreamguardError):
            words = f"{words}: {error}"
        self._handle.update(_Page(self._text.getvalue(), words, below))

    def _draw(self, phase: str, silence: float, left: float | None) -> None:
        now = self._drawn = monotonic()
        words = f"[{phase}] {self._rate.at(now):.1f} chunks/s, silent for {silence:.1f} s"
        until = "" if left is None else f", {left:.1f} s left"
        self._handle.update(_Page(self._text.getvalue()[-_LIVE_CHARACTERS:], words + until))


class _Page:
    """Text, a status line, and what is below it: for a notebook, and in plain text for anything else."""

    def __init__(self, text: str, status: str, below: str = "") -> None:
        self._text = text
        self._status = status
        self._below = below

    def __repr__(self) -> str:
        return f"{self._text}\n{self._status}"

    def _repr_html_(self) -> str:
        return (
            '<div class="streamguard-show">'
            f'<div style="white-space:pre-wrap">{html.escape(self._text)}</div>'
            f'<div style="opacity:0.7;font-size:90%">{html.escape(self._status)}</div>{self._below}</div>'
        )


class _Rate:
    """Chunks per second, over the last three seconds."""

    def __init__(self) -> None:
        self.count = 0
        self._seen: deque[tuple[float, int]] = deque()

    def at(self, now: float) -> float:
        """Return the rate at *now*."""
        self._seen.append((now, self.count))
        while len(self._seen) > 2 and self._seen[1][0] <= now - _RATE_SECONDS:
            self._seen.popleft()
        since, before = self._seen[0]
        return (self.count - before) / max(now - since, _EVERY)


def _text_of(chunk: Any) -> str:
    if isinstance(chunk, Event):
        return f"{chunk.data}\n"
    text = text_of(chunk)
    return str(chunk) if text is None else text
