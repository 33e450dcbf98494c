"""Reports as HTML: they show the right numbers, are well formed, and contain no other markup."""

import time
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard import Chain, StepContext, StreamguardError, before_first_chunk, guarded_stream
from streamguard._svg import Lane, Span, draw
from streamguard.dispatch import DispatchOutcome, ExecutionStatus, ResponseStatus, TurnOutcome, TurnStatus
from streamguard.testing import Gateway

Serve = Callable[..., Gateway]
EVIL = "<script>alert('x')</script>\"&"
SVG = "{http://www.w3.org/2000/svg}"

seconds = st.floats(0, 1e6, allow_nan=False)
words = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=30)
spans = st.builds(lambda start, length, kind: Span(start, start + length, kind), seconds, seconds, words)
lanes = st.builds(
    Lane,
    words,
    st.lists(spans, max_size=5).map(tuple),
    st.lists(seconds, max_size=5).map(tuple),
    st.lists(st.tuples(seconds, seconds), max_size=3).map(tuple),
)


def parse(html: str) -> Any:
    """Read HTML that is also XML, as ours is."""
    return ElementTree.fromstring(html)


@given(st.lists(lanes, max_size=6), seconds)
def test_any_timeline_is_well_formed(drawn: list[Lane], length: float) -> None:
    """With any text it is XML, with one bar for each span, and no bar outside the picture."""
    svg = parse(draw(drawn, length))
    bars = svg.findall(f"{SVG}rect")
    assert len(bars) == sum(len(lane.spans) for lane in drawn)
    assert all(float(bar.get("x")) + float(bar.get("width")) <= 641 for bar in bars)


def bars_of(html: str) -> list[tuple[str, float]]:
    """Return the class and width of each bar."""
    return [(bar.get("class"), float(bar.get("width"))) for bar in parse(html).iter(f"{SVG}rect")]


def test_a_stream(streamguard_gateway: Serve) -> None:
    """A row for each attempt, its phases as bars, a tick for each arrival, and the silence that ended it in red."""
    gateway = streamguard_gateway("headers\nstall", "chat a\nwait 0.1\nchat b\nstall")
    retry = before_first_chunk(1, wait=lambda state: 0.1)
    stream = guarded_stream("POST", gateway.url, json={}, idle=0.3, retry=retry, name=EVIL)
    with pytest.raises(StreamguardError):
        stream.read()
    html = stream.report._repr_html_()
    kinds = [kind for kind, _ in bars_of(html)]
    assert kinds == ["connect", "response", "first", "retry", "connect", "response", "first", "idle"]
    widths = dict(bars_of(html))
    assert widths["idle"] > widths["retry"] > widths["response"]
    paths = {path.get("class"): path for path in parse(html).iter(f"{SVG}path")}
    assert paths["chunks"].get("d").count("M") == 2
    assert "silence: 0.3" in paths["gap"].find(f"{SVG}title").text
    assert "timeout (StreamInactivityTimeoutError)" in html
    assert EVIL not in html
    assert "&lt;script&gt;" in html


def test_a_stream_that_never_started() -> None:
    """Its report can be drawn as well."""
    stream = guarded_stream("GET", "http://127.0.0.1:9/")
    assert bars_of(stream.report._repr_html_()) == []
    stream.close()


def test_a_run() -> None:
    """A row for each step, in the colour of its status, as long as it took; its fallback is named."""
    chain = Chain("agent", deadline=5)

    @chain.step(limit=0.1, fallback=1, fallback_name=EVIL)
    def profile(ctx: StepContext) -> int:
        ctx.token.wait(5)
        return 0

    @chain.step()
    def policy(ctx: StepContext) -> int:
        time.sleep(0.05)
        return 2

    html: str = chain.run()._repr_html_()  # type: ignore[operator]
    assert [kind for kind, _ in bars_of(html)] == ["timeout", "ok"]
    assert "completed_with_fallback" in html
    assert EVIL not in html


def turn(member: str, status: ResponseStatus, duration: float) -> TurnOutcome:
    return TurnOutcome(
        member=member,
        turn_id="t",
        status=status,
        reason="r",
        turn_status=TurnStatus.FAILED,
        turn_reason="r",
        queue_status=ExecutionStatus.SUCCEEDED,
        signal="s",
        duration=duration,
    )


@pytest.mark.parametrize(("mode", "second_starts"), [("serial", 2.0), ("parallel", 0.0)])
def test_a_dispatch(mode: str, second_starts: float) -> None:
    """A row for each turn: end to end if they ran one after another, from the left if they ran side by side."""
    outcome = DispatchOutcome(
        execution_id="e",
        conversation="c",
        mode=mode,
        status=ExecutionStatus.FAILED,
        reason="timeout",
        turns=(turn(EVIL, ResponseStatus.COMPLETED, 2.0), turn("b", ResponseStatus.FAILED, 1.0)),
        duration=3.0,
    )
    html: str = outcome._repr_html_()  # type: ignore[operator]
    assert [kind for kind, _ in bars_of(html)] == ["completed", "failed"]
    titles = [title.text for title in parse(html).iter(f"{SVG}title")]
    assert titles == ["completed: 2.000 s, from 0.000 s", f"failed: 1.000 s, from {second_starts:.3f} s"]
    assert "failed (timeout)" in html
    assert EVIL not in html
