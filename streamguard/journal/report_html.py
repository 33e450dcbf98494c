"""A summary, or entries, as one HTML page that loads nothing: plots are inline SVG, there is no script. Pure."""

import html
from collections.abc import Iterator, Sequence

from .._svg import Lane, Span, draw
from .entries import JournalEntry, headline
from .limit_advice import AdviceOptions, LimitAdvice
from .report_tables import (
    Histogram,
    ReportTable,
    advice_table,
    explained,
    failures_table,
    histograms,
    outcome_tables,
    title,
)
from .summary import Summary

_ROW, _LABEL, _BAR, _COUNT = 20, 120, 420, 80
_STYLE = (
    "body{font:14px/1.5 sans-serif;margin:2em auto;max-width:60em;padding:0 1em}"
    "table{border-collapse:collapse}th,td{text-align:right;padding:.15em 1em .15em 0}"
    "th:first-child,td:first-child{text-align:left}th{border-bottom:1px solid}pre{overflow-x:auto}"
)


def report_page(summary: Summary, advice: Sequence[LimitAdvice], options: AdviceOptions) -> str:
    """Return counts, histograms, advice and the last failures as a page."""
    parts = [f"<p>{html.escape(title(summary))}</p>"]
    parts += map(_table, outcome_tables(summary))
    parts += map(_bars, histograms(summary))
    if advice:
        parts += [_table(advice_table(advice, options)), f"<p>{html.escape(explained(options))}</p>"]
    if summary.failures:
        parts.append(_table(failures_table(summary.failures)))
    return _page("streamguard report", parts)


def entries_page(entries: Sequence[JournalEntry]) -> str:
    """Return the text of each of *entries*, with its timeline, as a page."""
    return _page("streamguard report", [part for entry in entries for part in _entry(entry)])


def _entry(entry: JournalEntry) -> Iterator[str]:
    yield f"<h2>{html.escape(headline(entry))}</h2>"
    lanes = _attempts(entry) if entry.kind == "stream" else _steps(entry)
    if lanes:
        yield draw(lanes, entry.seconds)
    _, _, rest = str(entry).partition("\n")
    yield f"<pre>{html.escape(rest)}</pre>"


def _attempts(entry: JournalEntry) -> list[Lane]:
    phases = [moment for moment in entry.moments if moment.what == "phase" and moment.at is not None]
    ends = [*(phase.at for phase in phases[1:]), entry.seconds]
    spans: dict[int | None, list[Span]] = {}
    for phase, end in zip(phases, ends, strict=False):  # without phases there is one end
        spans.setdefault(phase.attempt, []).append(Span(phase.at or 0.0, end or 0.0, phase.name))
    return [Lane(f"attempt {attempt}", tuple(bars)) for attempt, bars in spans.items()]


def _steps(entry: JournalEntry) -> list[Lane]:
    known = [step for step in entry.moments if step.at is not None and step.seconds is not None]
    return [
        Lane(step.name, (Span(step.at or 0.0, (step.at or 0.0) + (step.seconds or 0.0), step.status or ""),))
        for step in known
    ]


def _table(table: ReportTable) -> str:
    head = "".join(f"<th>{html.escape(column)}</th>" for column in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{html.escape(word)}</td>' for word in row)}</tr>" for row in table.rows)
    return f"<h2>{html.escape(table.heading)}</h2><table><tr>{head}</tr>{rows}</table>"


def _bars(histogram: Histogram) -> str:
    width, height = _LABEL + _BAR + _COUNT, len(histogram.buckets) * _ROW
    most = max(count for _, count in histogram.buckets)
    parts = (_bar(number, label, count, most) for number, (label, count) in enumerate(histogram.buckets))
    return (
        f"<h2>{html.escape(histogram.heading)}</h2>"
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" font-family="sans-serif" font-size="12" fill="currentColor">{"".join(parts)}</svg>'
    )


def _bar(number: int, label: str, count: int, most: int) -> str:
    top, length = number * _ROW, _BAR * count / most
    return (
        f'<text x="{_LABEL - 8}" y="{top + 14}" text-anchor="end">{html.escape(label)}</text>'
        f'<rect x="{_LABEL}" y="{top + 3}" width="{length:.1f}" height="14" fill="#6ea8d9"/>'
        f'<text x="{_LABEL + length + 6:.1f}" y="{top + 14}">{count}</text>'
    )


def _page(name: str, parts: Sequence[str]) -> str:
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{name}</title><style>{_STYLE}</style></head>\n<body><h1>{name}</h1>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )
