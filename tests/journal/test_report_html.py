"""The summary, and entries, as a page that loads nothing."""

import re
from html.parser import HTMLParser

from streamguard.journal.limit_advice import advise
from streamguard.journal.report_html import entries_page, report_page
from streamguard.journal.summary import summed_up

from .causes import ENTRIES, SURE, entry, step, stream_entry, text_of

EVIL = "<script>alert('x')</script>\x1b[31m\n"


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
    for page in (report_page(summary, advise(summary, SURE), SURE), entries_page(evil)):
        assert "script" not in Page(page).tags
        assert "alert" in page
    for text in (text_of(summary), *map(str, evil)):
        assert not re.search(r"[^\n\x20-\x7e]", text)
        assert "\n\n\n" not in text
    assert len(str(evil[0]).splitlines()) == 10


def test_a_storys_page_has_a_timeline() -> None:
    """Each attempt of a stream is a row, each step of a run one; a turn has none."""
    stream, run, turn = ENTRIES[0], ENTRIES[5], ENTRIES[6]
    assert Page(entries_page([stream])).tags.count("rect") == 4
    assert Page(entries_page([run])).tags.count("rect") == 2
    assert "svg" not in Page(entries_page([turn])).tags
