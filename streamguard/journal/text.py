"""A summary for a terminal. Pure."""

import textwrap
from collections.abc import Iterator, Sequence

from .journal_advice import LimitAdvice, Sureness
from .summary import Summary
from .tables import Bars, Table, advice_table, explained, histograms, outcome_tables, title

__all__ = ["report_text"]

_LONGEST_BAR = 40


def report_text(summary: Summary, advice: Sequence[LimitAdvice], sureness: Sureness) -> str:
    """Return counts, histograms and advice, in lines."""
    return "\n".join(_lines(summary, advice, sureness))


def _lines(summary: Summary, advice: Sequence[LimitAdvice], sureness: Sureness) -> Iterator[str]:
    yield title(summary)
    for table in outcome_tables(summary):
        yield from _table(table)
    for bars in histograms(summary):
        yield from _bars(bars)
    if advice:
        yield from _table(advice_table(advice, sureness))
        yield ""
        yield from textwrap.wrap(explained(sureness), 100, initial_indent="  ", subsequent_indent="  ")


def _table(table: Table) -> Iterator[str]:
    rows = (table.columns, *table.rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(table.columns))]
    yield from ("", table.heading)
    for row in rows:
        words = (
            word.ljust(width) if not column else word.rjust(width)
            for column, (word, width) in enumerate(zip(row, widths, strict=True))
        )
        yield f"  {'  '.join(words)}".rstrip()


def _bars(bars: Bars) -> Iterator[str]:
    most = max(count for _, count in bars.buckets)
    yield from ("", bars.heading)
    for label, count in bars.buckets:
        length = -(-count * _LONGEST_BAR // most)
        yield f"  {label:>14}  {'#' * length:<{_LONGEST_BAR}}  {count}".rstrip()
