"""Plots as SVG: horizontal bars, and cumulative shares, both on a logarithmic scale. Pure."""

import math
from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

from .numbers import Spread

__all__ = ["bar_plot", "share_plot"]

_WIDTH = 760
_LEFT = 190
_RIGHT = 70
_TOP = 46
_ROW = 26
_PLOT_HEIGHT = 240
_OURS = "guarded_stream"
_COLOURS = ("#4c78a8", "#9d9da1", "#72b7b2", "#b279a2", "#eeca3b", "#ff9da6")
_OUR_COLOUR = "#e4572e"


class _Scale:
    """A logarithmic scale over whole decades."""

    def __init__(self, values: Sequence[float], left: float, right: float) -> None:
        self._first = math.floor(math.log10(min(values)))
        self._decades = max(1, math.ceil(math.log10(max(values))) - self._first)
        self._left, self._right = left, right

    def at(self, value: float) -> float:
        """Return where on the axis *value* lies."""
        share = (math.log10(value) - self._first) / self._decades
        return self._left + min(max(share, 0.0), 1.0) * (self._right - self._left)

    def ticks(self) -> list[float]:
        """Return the whole powers of ten."""
        return [10.0 ** (self._first + number) for number in range(self._decades + 1)]


def bar_plot(title: str, axis: str, bars: Mapping[str, Spread]) -> str:
    """Return a bar for each median, with a line from the lowest round to the highest."""
    height = _TOP + len(bars) * _ROW + 44
    values = [value for bar in bars.values() for value in (bar["low"], bar["high"])]
    scale = _Scale(values, _LEFT, _WIDTH - _RIGHT)
    parts = [*_grid(scale, height), *(part for row, bar in enumerate(bars.items()) for part in _bar(scale, row, *bar))]
    return _document(title, axis, height, parts)


def _bar(scale: _Scale, row: int, name: str, bar: Spread) -> Iterator[str]:
    top = _TOP + row * _ROW
    middle, end = top + _ROW / 2, scale.at(bar["median"])
    colour = _OUR_COLOUR if name == _OURS else _COLOURS[0]
    yield _text(_LEFT - 8, middle + 4, name, anchor="end")
    yield f'<rect x="{_LEFT}" y="{top + 5}" width="{end - _LEFT:.1f}" height="{_ROW - 10}" fill="{colour}"/>'
    yield _line(scale.at(bar["low"]), middle, scale.at(bar["high"]), middle, "#222", 1.5)
    yield _text(max(end, scale.at(bar["high"])) + 6, middle + 4, f"{bar['median']:.3g}")


def share_plot(title: str, axis: str, curves: Mapping[str, Sequence[float]]) -> str:
    """Return, for each curve, which share of its values lies below a value; those must be above zero."""
    height = _TOP + _PLOT_HEIGHT + 44
    scale = _Scale([value for curve in curves.values() for value in curve], 60, _WIDTH - 200)
    parts = [*_grid(scale, height), *_shares()]
    colours = iter(_COLOURS)
    for row, (name, values) in enumerate(curves.items()):
        colour = _OUR_COLOUR if name == _OURS else next(colours)
        parts += [_curve(scale, sorted(values), colour), *_legend(row, name, colour)]
    return _document(title, axis, height, parts)


def _curve(scale: _Scale, values: Sequence[float], colour: str) -> str:
    step = max(1, len(values) // 300)
    kept = sorted({*range(0, len(values), step), len(values) - 1})
    points = " ".join(f"{scale.at(values[n]):.1f},{_share_at((n + 1) / len(values)):.1f}" for n in kept)
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _share_at(share: float) -> float:
    return _TOP + _PLOT_HEIGHT * (1 - share)


def _shares() -> Iterator[str]:
    for share in (0.0, 0.5, 0.9, 1.0):
        yield _line(60, _share_at(share), _WIDTH - 200, _share_at(share), "#ddd", 1)
        yield _text(52, _share_at(share) + 4, f"{share:.0%}", anchor="end")


def _legend(row: int, name: str, colour: str) -> tuple[str, str]:
    top = _TOP + 12 + row * 20
    return _line(_WIDTH - 188, top, _WIDTH - 164, top, colour, 3), _text(_WIDTH - 158, top + 4, name)


def _grid(scale: _Scale, height: int) -> Iterator[str]:
    for tick in scale.ticks():
        yield _line(scale.at(tick), _TOP - 4, scale.at(tick), height - 40, "#ddd", 1)
        yield _text(scale.at(tick), height - 26, f"{tick:g}", anchor="middle")


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, width: float) -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width:g}"/>'


def _text(x: float, y: float, text: str, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'


def _document(title: str, axis: str, height: int, parts: Sequence[str]) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" font-family="sans-serif" fill="#222">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>',
        _text(12, 24, title, size=15),
        *parts,
        _text(_WIDTH / 2, height - 8, axis, anchor="middle"),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"
