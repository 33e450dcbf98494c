"""A summary as tables and histograms, for the text and for the page. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .._svg import format_seconds
from .._text import counted, one_line
from ..telemetry.events import GAP_BOUNDS
from .entries import JournalEntry
from .limit_advice import AdviceOptions, LimitAdvice
from .summary import Summary

_KINDS = {
    "stream": ("Streams", "phase"),
    "run": ("Runs", "step"),
    "turn": ("Turns", "reason"),
}


@dataclass(frozen=True, slots=True)
class ReportTable:
    """A heading and rows of words. The first column is text, the others are numbers or short words."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Histogram:
    """The upper bound of each bucket, as words, and its count."""

    heading: str
    buckets: tuple[tuple[str, int], ...]


def title(summary: Summary) -> str:
    """Return the number of streams, runs and turns, and the time that they cover."""
    unreadable = f"; {unreadable_rows(summary.unreadable)}" if summary.unreadable else ""
    if summary.began is None or summary.ended is None:
        if unreadable:
            return f"No entries{unreadable}."
        return "No entry of the journal matches." if summary.narrowed else "The journal is empty."
    totals = {kind: _total(summary, kind) for kind in _KINDS}
    of = ", ".join(counted(total, kind) for kind, total in totals.items() if total)
    lost = f"; {summary.lost} more could not be written" if summary.lost else ""
    return f"{of}, from {summary.began:%Y-%m-%d %H:%M} to {summary.ended:%Y-%m-%d %H:%M} UTC{lost}{unreadable}"


def unreadable_rows(count: int) -> str:
    """Return the note about *count* rows that are damaged, or of a newer version."""
    return f"{counted(count, 'row')} could not be read"


def outcome_tables(summary: Summary) -> list[ReportTable]:
    """Return the counts by outcome and place, one table for each kind."""
    return [
        ReportTable(
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


def failures_table(entries: Iterable[JournalEntry]) -> ReportTable:
    """Return a row for each of *entries*, with its id."""
    columns = ("started (UTC)", "kind", "name", "id", "outcome", "stopped in", "took", "error")
    return ReportTable("Failures", columns, tuple(map(_failure_row, entries)))


def histograms(summary: Summary) -> list[Histogram]:
    """Return the times to the first chunk, and the gaps, of all streams."""
    found = (
        Histogram("Time to the first chunk, by streams", _buckets(summary.first_chunks)),
        Histogram("Gaps between chunks", _buckets(summary.gaps)),
    )
    return [histogram for histogram in found if histogram.buckets]


def advice_table(advice: Sequence[LimitAdvice], options: AdviceOptions) -> ReportTable:
    """Return a row for each limit."""
    columns = ("limit", "healthy", "fired", "last at", f"spares {100 * options.quantile:g} %", "with margin")
    return ReportTable("Advice", columns, tuple(map(_advice_row, advice)))


def explained(options: AdviceOptions) -> str:
    """Return what the advice means, and its limits."""
    share, confidence = 100 * options.quantile, 100 * options.confidence
    return (
        f"spares {share:g} %: the upper {confidence:g} % bound of the {share:g} % quantile of the successes (needs "
        f"{options.needed} of them); with margin: 1.5 times that. Calls that a limit cut are not among the successes: if a "
        "limit fires often, look at that first. Nothing is applied automatically."
    )


def _failure_row(entry: JournalEntry) -> tuple[str, ...]:
    known = (entry.kind, entry.name, entry.id, entry.outcome, entry.stopped_in)
    words = (one_line(word or "-") for word in known)
    return f"{entry.started_at:%Y-%m-%d %H:%M:%S}", *words, format_seconds(entry.seconds), entry.error_type or "-"


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
