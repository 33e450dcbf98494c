"""Draw timelines for notebooks and pages: lanes of spans as an inline SVG, and a card with numbers around it. Pure.

All text from users and servers is escaped. The output loads nothing and contains no script.
Each package builds its own lanes; this module only draws them.
"""

import html
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
    """A phase or a status. It decides the colour, and is in the tooltip."""


@dataclass(frozen=True, slots=True)
class Lane:
    """A row of a timeline: bars, ticks on them, and gaps to highlight."""

    label: str
    spans: tuple[Span, ...]
    ticks: tuple[float, ...] = ()
    gaps: tuple[tuple[float, float], ...] = ()
    """The start of each, and its seconds."""


def draw(lanes: Sequence[Lane], seconds: float) -> str:
    """Return an SVG of *lanes*, one below the other, on an axis from 0 to *seconds* or to the end of the last span."""
    ends = [span.end for lane in lanes for span in lane.spans]
    scale = (_WIDTH - _LABEL - 10) / max(1e-9, seconds, *ends, 0.0)
    height = len(lanes) * _ROW + _AXIS
    parts = [part for number, lane in enumerate(lanes) for part in _lane(lane, number * _ROW, scale)]
    axis = _axis((_WIDTH - _LABEL - 10) / scale, height)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}" '
        f'role="img" font-family="sans-serif" font-size="11" fill="currentColor">{"".join((*parts, *axis))}</svg>'
    )


def card(title: str, outcome: str, why: str | None, rows: Sequence[tuple[str, str]], svg: str) -> str:
    """Return a report as HTML: *title*, *outcome* (and *why*), the drawing *svg*, and a table of *rows*."""
    colour = _COLOURS.get(outcome, _GREY)
    ending = html.escape(outcome if why is None or why == outcome else f"{outcome} ({why})")
    left = '<td style="text-align:left">'
    cells = "".join(f"<tr>{left}{html.escape(name)}</td>{left}{html.escape(value)}</td></tr>" for name, value in rows)
    return (
        f'<div class="streamguard-report"><div><b>{html.escape(title)}</b>: '
        f'<b style="color:{colour}">{ending}</b></div>{svg}<table>{cells}</table></div>'
    )


def format_seconds(value: float | None) -> str:
    """Return *value* seconds as text; `-` for None."""
    return "-" if value is None else f"{value:.3f} s"


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
