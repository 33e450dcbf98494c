"""The summary as text."""

from streamguard.journal.summary import Summary, summed_up

from .causes import ENTRIES, text_of


def test_the_text_shows_all_of_it() -> None:
    """Counts with shares, bars as long as their counts, advice, and what that means."""
    text = text_of(summed_up(ENTRIES))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0] == (
        "5 streams, 1 run, 2 turns, from 2026-01-02 03:04 to 2026-01-02 03:04 UTC; 4 more could not be written"
    )
    for line in (
        "completed done 4 80.0 %",
        "waiting_external_service policy 1 100.0 %",
        "failed timeout 1 50.0 %",
        f"up to 0.01 s {'#' * 40} 9",
        f"up to 0.04 s {'#' * 14} 3",
        "limit healthy fired last at spares 50 % with margin",
        "total 4 0 - 2.000 s 3.000 s",
        "step agent/policy 0 1 0.5 s - -",
    ):
        assert line in lines
    assert "Nothing is applied automatically." in text


def test_an_empty_journal_says_so() -> None:
    """No table, no bar, no advice; and it is not called empty where only a part of it was asked for."""
    summary = Summary()
    assert text_of(summary) == "The journal is empty."
    summary.narrowed = True
    assert text_of(summary) == "No entry of the journal matches."
