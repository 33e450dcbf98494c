"""A summary for a terminal. Pure."""

import textwrap
from collections.abc import Iterator, Sequence

from .entries import JournalEntry
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

_LONGEST_BAR = 40


def report_text(summary: Summary, advice: Sequence[LimitAdvice], options: AdviceOptions) -> str:
    """Return counts, histograms and advice, in lines."""
    return "\n".join(_lines(summary, advice, options))


def failures_text(entries: Sequence[JournalEntry]) -> str:
    """Return one line for each failure, with its id."""
    return "\n".join(_table(failures_table(entries))).lstrip() if entries else "No failures."


def _lines(summary: Summary, advice: Sequence[LimitAdvice], options: AdviceOptions) -> Iterator[str]:
    yield title(summary)
    for table in outcome_tables(summary):
        yield from _table(table)
    for histogram in histograms(summary):
        yield from _bars(histogram)
    if advice:
        yield from _table(advice_table(advice, options))
        yield ""
        yield from textwrap.wrap(explained(options), 100, initial_indent="  ", subsequent_indent="  ")


def _table(table: ReportTable) -> Iterator[str]:
    rows = (table.columns, *table.rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.columns))]
    yield from ("", table.heading)
    for row in rows:
        words = (
            word.ljust(width) if not column else word.rjust(width)
            for column, (word, width) in enumerate(zip(row, widths, strict=True))
        )
        yield f"  {'  '.join(words)}".rstrip()


def _bars(histogram: Histogram) -> Iterator[str]:
    most = max(count for _, count in histogram.buckets)
    yield from ("", histogram.heading)
    for label, count in histogram.buckets:
        length = -(-count * _LONGEST_BAR // most)
        yield f"  {label:>14}  {'#' * length:<{_LONGEST_BAR}}  {count}".rstrip()
