"""Counts and histograms, as words and as a page."""

import dataclasses
import re
from html.parser import HTMLParser
from typing import Any

from streamguard.journal import JournalEntry, Moment
from streamguard.journal.html import report_page, story_page
from streamguard.journal.journal_advice import Sureness, advise
from streamguard.journal.summary import Summary, summed_up
from streamguard.journal.text import report_text

from .causes import NO_GAPS, stream_entry

SURE = Sureness(0.5, 0.9, min_count=1)
EVIL = "<script>alert('x')</script>\x1b[31m\n"


def step(name: str, status: str, **values: Any) -> Moment:
    return Moment(what="step", name=name, status=status, **values)


def entry(kind: Any, outcome: str, stopped_in: str | None, **values: Any) -> JournalEntry:
    """Return an entry of a run or a turn."""
    defaults: dict[str, Any] = {"kind": kind, "outcome": outcome, "stopped_in": stopped_in, "moments": (), "numbers": {}}
    return dataclasses.replace(stream_entry(), **{**defaults, **values})


def gaps(**counts: int) -> list[list[float]]:
    return [[counts.get(f"b{number}", 0), 0.0] for number in range(len(NO_GAPS))]


ENTRIES = [
    *[stream_entry(gaps=gaps(b0=3, b2=1))] * 3,
    stream_entry(outcome="timeout", stopped_in="first", time_to_first_chunk=None, gaps=NO_GAPS),
    stream_entry(time_to_first_chunk=500.0, gaps=gaps(b14=1)),
    entry(
        *("run", "waiting_external_service", "policy"),
        name="agent",
        moments=(
            step("profile", "ok", at=0.0, seconds=0.25),
            step("policy", "timeout", at=0.25, seconds=0.5, limit=0.5, reason="step_limit"),
        ),
    ),
    entry("turn", "failed", "timeout", name="claude", numbers={"silence": 600.0}),
    entry("turn", "succeeded", None, name="claude", numbers={"silence": 20.0}),
    entry("gap", "lost", None, numbers={"entries": 4}),
]


def text_of(summary: Summary) -> str:
    return report_text(summary, advise(summary, SURE), SURE)


def test_counts_by_outcome_and_place() -> None:
    """Each kind has its groups, the largest first, and what could not be written is no group."""
    summary = summed_up(ENTRIES)
    assert summary.kind("stream") == [("completed", "done", 4), ("timeout", "first", 1)]
    assert summary.kind("run") == [("waiting_external_service", "policy", 1)]
    assert summary.kind("turn") == [("failed", "timeout", 1), ("succeeded", "-", 1)]
    assert summary.lost == 4


def test_histograms_have_a_bucket_above_the_last_bound() -> None:
    """A value equal to a bound is below it; gaps are added up, bucket by bucket."""
    summary = summed_up([*ENTRIES, stream_entry(time_to_first_chunk=0.01)])
    assert {number: count for number, count in enumerate(summary.first_chunks) if count} == {0: 1, 7: 3, 14: 1}
    assert {number: count for number, count in enumerate(summary.gaps) if count} == {0: 9, 2: 3, 14: 1}


def test_steps_and_members_have_samples_too() -> None:
    """A step that was ok gives its duration, a turn that succeeded its longest silence; what fired is counted."""
    summary = summed_up(ENTRIES)
    assert summary.samples["step agent/profile"] == [0.25]
    assert summary.samples["member claude"] == [20.0]
    assert (summary.fired["step agent/policy"], summary.fired_at["step agent/policy"]) == (1, 0.5)
    assert (summary.fired["member claude"], summary.samples["step agent/policy"]) == (1, [])


def test_a_phase_that_broke_off_is_no_sample() -> None:
    """Only a phase that the next one followed, in the same attempt, tells how long it takes."""
    phases = [("connect", 0.0, 1), ("retry", 5.0, 1), ("connect", 6.0, 2), ("response", 6.5, 2), ("first", 7.5, 2)]
    moments = tuple(Moment(what="phase", name=name, at=at, attempt=attempt) for name, at, attempt in phases)
    summary = summed_up([stream_entry(moments=moments)])
    assert (summary.samples["connect"], summary.samples["response"]) == ([0.5], [1.0])


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
    assert "Nothing is applied by itself." in text


def test_an_empty_journal_says_so() -> None:
    """No table, no bar, no advice; and it is not called empty where only a part of it was asked for."""
    summary = Summary()
    assert text_of(summary) == "The journal is empty."
    summary.narrowed = True
    assert text_of(summary) == "Nothing in the journal matches."


class Page(HTMLParser):
    """What a browser would see: tags, and the attributes that would load something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.loads: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open += [] if tag == "meta" else [tag]
        self.loads += [value for name, value in attrs if name in ("src", "href", "data", "action")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone() -> None:
    """One plot for each histogram, no script, nothing that is loaded, every tag closed."""
    summary = summed_up(ENTRIES)
    text = report_page(summary, advise(summary, SURE), SURE)
    page = Page(text)
    assert page.open == []
    assert page.loads == []
    assert page.tags.count("svg") == 2
    assert page.tags.count("rect") == 8 + 15
    assert "script" not in page.tags
    assert "url(" not in text


def test_a_name_cannot_steer_a_page_or_a_terminal() -> None:
    """Names are shown as text: no tag, no control character, no line of its own."""
    evil = [
        stream_entry(name=EVIL),
        entry("run", "waiting_external_service", EVIL, name=EVIL, moments=(step(EVIL, "error", at=0.0, seconds=1.0),)),
        entry("turn", "failed", EVIL, name=EVIL, parent=EVIL, numbers={"silence": None}),
    ]
    summary = summed_up(evil)
    for page in (report_page(summary, advise(summary, SURE), SURE), story_page(evil)):
        assert "script" not in Page(page).tags
        assert "alert" in page
    for text in (text_of(summary), *map(str, evil)):
        assert not re.search(r"[^\n\x20-\x7e]", text)
        assert "\n\n\n" not in text
    assert len(str(evil[0]).splitlines()) == 10


def test_a_storys_page_has_a_timeline() -> None:
    """Each attempt of a stream is a row, each step of a run one; a turn has none."""
    stream, run, turn = ENTRIES[0], ENTRIES[5], ENTRIES[6]
    assert Page(story_page([stream])).tags.count("rect") == 4
    assert Page(story_page([run])).tags.count("rect") == 2
    assert "svg" not in Page(story_page([turn])).tags
