"""A summary, or entries, as data for JSON. Pure."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..telemetry.events import GAP_BOUNDS
from .entries import JournalEntry
from .entry_json import plain
from .limit_advice import AdviceOptions, LimitAdvice
from .summary import KINDS, Summary


def summary_data(summary: Summary, advice: Sequence[LimitAdvice], options: AdviceOptions) -> dict[str, Any]:
    """Return counts, histograms, advice and the last failures."""
    return {
        "from": None if summary.began is None else summary.began.isoformat(),
        "to": None if summary.ended is None else summary.ended.isoformat(),
        "lost": summary.lost,
        "unreadable": summary.unreadable,
        "outcomes": [
            {"kind": kind, "outcome": outcome, "stopped_in": None if place == "-" else place, "count": count}
            for kind in KINDS
            for outcome, place, count in summary.kind(kind)
        ],
        "time_to_first_chunk": _buckets(summary.first_chunks),
        "gaps": _buckets(summary.gaps),
        "quantile": options.quantile,
        "confidence": options.confidence,
        "advice": [asdict(each) for each in advice],
        "failures": entries_data(summary.failures),
    }


def entries_data(entries: Sequence[JournalEntry]) -> list[dict[str, Any]]:
    """Return each of *entries*, with its start as text in ISO format."""
    return [{**plain(entry), "started_at": entry.started_at.isoformat()} for entry in entries]


def _buckets(counts: Sequence[int]) -> list[dict[str, Any]]:
    """Return the upper bound of each bucket in seconds (None: there is none), and its count."""
    return [{"up_to": bound, "count": count} for bound, count in zip((*GAP_BOUNDS, None), counts, strict=True)]
