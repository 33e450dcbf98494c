"""Reports as HTML for a notebook: some numbers, and the timeline as a small inline SVG. Pure: reports in, text out.

Everything that a user or a server wrote is escaped; nothing is loaded from anywhere, and no script is in it.
"""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._chain.chain_report import ChainResult, StepReport
    from ._stream.recorder import StreamReport
    from ._stream.timing.trace import Trace
    from .dispatch._data.outcome import DispatchOutcome

__all__ = ["Lane", "Span", "chain_html", "dispatch_html", "draw", "stream_html"]

_GREY, _BLUE, _GREEN, _AMBER, _RED, _VIOLET = "#9aa4b2", "#6ea8d9", "#5fa777", "#d9a441", "#cc5f5f", "#9a7bc8"
_COLOURS = {
    **dict.fromkeys(("new", "connect", "skipped"), _GREY),
    **dict.fromkeys(("response", "first"), _BLUE),
    **dict.fromkeys(("idle", "grace", "done", "ok", "completed", "succeeded", "incomplete"), _GREEN),
    **dict.fromkeys(("retry", "completed_with_fallback", "waiting_external_service"), _AMBER),
    **dict.fromkeys(("timeout", "error", "failed"), _RED),
    **dict.fromkeys(("cancelled", "closed", "interrupted"), _VIOLET),
}
_WIDTH, _LABEL, _ROW = 640, 110, 20
_AXIS = 18


@dataclass(frozen=True, slots=True)
class Span:
    """A bar of a timeline. Times are seconds."""

    start: float
    end: float
    kind: str
    """What it is: a phase or a status. It decides the colour, and is shown where the pointer rests."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of a timeline: bars, ticks on them, and stretches to point out."""

    label: str
    spans: tuple[Span, ...]
    ticks: tuple[float, ...] = ()
    gaps: tuple[tuple[float, float], ...] = ()
    """When each began, and its seconds."""


def stream_html(report: "StreamReport") -> str:
    """Return how a stream went: a row for each attempt, a tick for each arrival, in red the longest gap."""
    rows = [
        ("phase", report.phase),
        ("attempts", str(report.attempts)),
        ("chunks", f"{report.chunks} ({report.bytes} bytes, {report.comments} heartbeats)"),
        ("first chunk after", _seconds(report.time_to_first_chunk)),
        ("longest gap", _seconds(report.max_gap)),
        ("lifetime", _seconds(report.lifetime)),
        ("finish reason", report.finish_reason or "-"),
    ]
    title = f"stream {report.name or report.id} from {report.host}"
    return _card(title, report.outcome, report.error_type, rows, draw(_attempts(report), report.lifetime))


def chain_html(result: "ChainResult") -> str:
    """Return how a run went: one row of the timeline for each step."""
    lanes = [Lane(step.name, _step_span(step)) for step in result.steps.values()]
    rows = [(step.name, _step_words(step)) for step in result.steps.values()]
    title = f"run {result.name} {result.id}"
    return _card(title, result.status, None, [*rows, ("elapsed", _seconds(result.elapsed))], draw(lanes, result.elapsed))


def dispatch_html(outcome: "DispatchOutcome") -> str:
    """Return how a dispatch went: one row of the timeline for each turn.

    *Limits*: a turn keeps how long it took, not when it began: turns side by side are drawn from
    the left, others end to end.
    """
    lanes, began = [], 0.0
    for turn in outcome.turns:
        lanes.append(Lane(turn.member, (Span(began, began + turn.duration, str(turn.status)),)))
        began += turn.duration if outcome.mode == "serial" else 0.0
    rows = [(turn.member, f"{turn.status}, {_seconds(turn.duration)}") for turn in outcome.turns]
    title = f"dispatch {outcome.execution_id}"
    return _card(title, str(outcome.status), outcome.reason, rows, draw(lanes, outcome.duration))


def draw(lanes: Sequence[Lane], seconds: float) -> str:
    """Return an SVG of *lanes* one below the other, on an axis from 0 to *seconds*, or as far as they reach."""
    ends = [span.end for lane in lanes for span in lane.spans]
    scale = (_WIDTH - _LABEL - 10) / max(1e-9, seconds, *ends, 0.0)
    height = len(lanes) * _ROW + _AXIS
    parts = [part for number, lane in enumerate(lanes) for part in _lane(lane, number * _ROW, scale)]
    axis = _axis((_WIDTH - _LABEL - 10) / scale, height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" font-family="sans-serif" font-size="11" fill="currentColor">{"".join((*parts, *axis))}</svg>'
    )


def _attempts(report: "StreamReport") -> list[Lane]:
    marks = report.trace.phases
    ends = (*(mark.at for mark in marks[1:]), report.lifetime)
    spans: dict[int, list[Span]] = {}
    for mark, end in zip(marks, ends, strict=False):
        spans.setdefault(mark.attempt, []).append(Span(mark.at, max(mark.at, end), mark.phase))
    lanes = [_attempt(number, tuple(bars), report.trace) for number, bars in spans.items()]
    if lanes and report.outcome == "timeout":
        lanes[-1] = _with_last_silence(lanes[-1], report.lifetime)
    return lanes


def _attempt(number: int, spans: tuple[Span, ...], trace: "Trace") -> Lane:
    began, ended = spans[0].start, spans[-1].end
    ticks = tuple(at for at in trace.arrivals if began <= at <= ended)
    gaps = sorted((gap for gap in trace.gaps if began <= gap[0] <= ended), key=lambda gap: gap[1])
    return Lane(f"attempt {number}", spans, ticks, tuple(gaps[-1:]))


def _with_last_silence(lane: Lane, ended: float) -> Lane:
    """Point out the silence that ended it: no gap, since nothing came behind it."""
    began = max(lane.spans[-1].start, *lane.ticks[-1:], 0.0)
    return replace(lane, gaps=(*lane.gaps, (began, ended - began)))


def _step_span(step: "StepReport") -> tuple[Span, ...]:
    if step.started_after is None or step.duration is None:
        return ()
    return (Span(step.started_after, step.started_after + step.duration, step.status),)


def _step_words(step: "StepReport") -> str:
    why = f" ({step.reason})" if step.reason else ""
    stand_in = f", fallback {step.fallback}" if step.fallback else ""
    return f"{step.status}{why}{stand_in}, {_seconds(step.duration)}"


def _lane(lane: Lane, top: float, scale: float) -> Iterable[str]:
    yield f'<text x="0" y="{top + 14}">{html.escape(lane.label[:18])}</text>'
    for span in lane.spans:
        width = max(1.0, (span.end - span.start) * scale)
        title = html.escape(f"{span.kind}: {span.end - span.start:.3f} s, from {span.start:.3f} s")
        colour = _COLOURS.get(span.kind, _GREY)
        yield (
            f'<rect class="{html.escape(span.kind, quote=True)}" x="{_x(span.start, scale)}" y="{top + 3}" '
            f'width="{width:.1f}" height="14" fill="{colour}"><title>{title}</title></rect>'
        )
    if lane.ticks:
        path = "".join(f"M{_x(at, scale)} {top + 4}v12" for at in lane.ticks)
        yield f'<path class="chunks" d="{path}" stroke="#1d2b3a" stroke-width="1" opacity="0.55"/>'
    for began, seconds in lane.gaps:
        yield (
            f'<path class="gap" d="M{_x(began, scale)} {top + 18}h{seconds * scale:.1f}" stroke="{_RED}" stroke-width="2">'
            f"<title>silence: {seconds:.3f} s</title></path>"
        )


def _axis(seconds: float, height: int) -> Iterable[str]:
    for part in range(5):
        x = _LABEL + part * (_WIDTH - _LABEL - 10) / 4
        anchor = "start" if part == 0 else "end" if part == 4 else "middle"
        yield f'<text x="{x:.1f}" y="{height - 4}" text-anchor="{anchor}" opacity="0.7">{seconds * part / 4:.3g} s</text>'


def _x(at: float, scale: float) -> str:
    return f"{_LABEL + at * scale:.1f}"


def _card(title: str, outcome: str, why: str | None, rows: Sequence[tuple[str, str]], svg: str) -> str:
    colour = _COLOURS.get(outcome, _GREY)
    ending = html.escape(outcome if why is None or why == outcome else f"{outcome} ({why})")
    left = '<td style="text-align:left">'
    cells = "".join(f"<tr>{left}{html.escape(name)}</td>{left}{html.escape(value)}</td></tr>" for name, value in rows)
    return (
        f'<div class="streamguard-report"><div><b>{html.escape(title)}</b>: '
        f'<b style="color:{colour}">{ending}</b></div>{svg}<table>{cells}</table></div>'
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f} s"
