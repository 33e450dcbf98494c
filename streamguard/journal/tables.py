"""A summary as tables and bars: what both the text and the page show. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from .._svg import format_seconds
from ..telemetry.events import GAP_BOUNDS
from .entries import one_line
from .journal_advice import LimitAdvice, Sureness
from .summary import Summary

__all__ = ["Bars", "Table", "advice_table", "explained", "histograms", "outcome_tables", "title", "unreadable_rows"]

_KINDS = {
    "stream": ("Streams", "phase"),
    "run": ("Runs", "step"),
    "turn": ("Turns", "reason"),
}


@dataclass(frozen=True, slots=True)
class Table:
    """A heading and rows of words. The first column is text, the others are numbers or short."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Bars:
    """A histogram: the upper bound of each bucket, as words, and its count."""

    heading: str
    buckets: tuple[tuple[str, int], ...]


def title(summary: Summary) -> str:
    """Return how much is summed up, and of what time."""
    unreadable = f"; {unreadable_rows(summary.unreadable)}" if summary.unreadable else ""
    if summary.began is None or summary.ended is None:
        if unreadable:
            return f"Nothing to sum up{unreadable}."
        return "Nothing in the journal matches." if summary.narrowed else "The journal is empty."
    totals = {kind: _total(summary, kind) for kind in _KINDS}
    of = ", ".join(f"{total} {kind}{'s' * (total != 1)}" for kind, total in totals.items() if total)
    lost = f"; {summary.lost} more could not be written" if summary.lost else ""
    return f"{of}, from {summary.began:%Y-%m-%d %H:%M} to {summary.ended:%Y-%m-%d %H:%M} UTC{lost}{unreadable}"


def unreadable_rows(count: int) -> str:
    """Return that so many rows are left out: they are damaged, or a newer version's."""
    return f"{count} row{'s' * (count != 1)} could not be read"


def outcome_tables(summary: Summary) -> list[Table]:
    """Return the counts by outcome and place, one table for each kind."""
    return [
        Table(
            heading,
            ("outcome", place, "count", "share"),
            tuple(
                (outcome, one_line(where), str(count), f"{100 * count / _total(summary, kind):.1f} %")
                for outcome, where, count in summary.kind(kind)
            ),
        )
        for kind, (heading, place) in _KINDS.items()
        if _total(summary, kind)
    ]


def histograms(summary: Summary) -> list[Bars]:
    """Return the times to the first chunk, and the gaps, of all streams."""
    found = (
        Bars("Time to the first chunk, by streams", _buckets(summary.first_chunks)),
        Bars("Gaps between chunks", _buckets(summary.gaps)),
    )
    return [bars for bars in found if bars.buckets]


def advice_table(advice: Sequence[LimitAdvice], sureness: Sureness) -> Table:
    """Return a row for each limit."""
    columns = ("limit", "healthy", "fired", "last at", f"spares {100 * sureness.quantile:g} %", "with margin")
    return Table("Advice", columns, tuple(map(_advice_row, advice)))


def explained(sureness: Sureness) -> str:
    """Return what the advice means, and what it does not."""
    return (
        f"The limit that spares {100 * sureness.quantile:g} % of what went well, with {100 * sureness.confidence:g} % "
        f"confidence, which takes {sureness.needed} of them; and the same times 1.5. What a limit cut is not among them: "
        "where one fires often, look at that first. Nothing is applied by itself."
    )


def _advice_row(advice: LimitAdvice) -> tuple[str, ...]:
    return (
        one_line(advice.limit),
        str(advice.samples),
        str(advice.fired),
        "-" if advice.fired_at is None else f"{advice.fired_at:g} s",
        format_seconds(advice.spares),
        format_seconds(advice.suggested),
    )


def _buckets(counts: Sequence[int]) -> tuple[tuple[str, int], ...]:
    """Return the buckets from the first to the last that is not empty."""
    labels = [*(f"up to {bound:g} s" for bound in GAP_BOUNDS), f"above {GAP_BOUNDS[-1]:g} s"]
    full = [number for number, count in enumerate(counts) if count]
    return tuple(zip(labels, counts, strict=True))[full[0] : full[-1] + 1] if full else ()


def _total(summary: Summary, kind: str) -> int:
    return sum(count for _, _, count in summary.kind(kind))
