"""The benchmarks' own arithmetic, and that a part which cannot be measured does not stop the others."""

import time
import xml.etree.ElementTree as ElementTree
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import pytest

from benchmarks import page, run
from benchmarks.arena import Contender, Failed
from benchmarks.bars import Bar
from benchmarks.faults import FAULTS, HEALTHY, script_of
from benchmarks.numbers import Spread, percentile, ratio
from benchmarks.plots import bar_plot, share_plot
from benchmarks.server import EVENT_BYTES, chat_event, named_event
from benchmarks.table import Table
from benchmarks.verdict import cell, right
from streamguard.testing import parse_script

SVG = "{http://www.w3.org/2000/svg}"
SILENT = next(fault for fault in FAULTS if fault.name == "silence after chunks")
LINGERS = next(fault for fault in FAULTS if fault.ends_well)


@pytest.fixture(scope="module", autouse=True)
def _tracker() -> None:
    """Start the helper that multiprocessing keeps for spawned processes, so that no test seems to leave it behind."""
    resource_tracker.ensure_running()


def outcome(seconds: float | None, error: str | None = None, *, freed: bool = True) -> dict[str, Any]:
    return {"seconds": seconds, "error": error, "freed": freed, "attempts": 1, "events": 2}


def test_a_ratio_is_taken_round_by_round() -> None:
    """A machine that is slow in one round for both contenders does not change the ratio."""
    assert ratio([2.0, 20.0, 2.2], [1.0, 10.0, 1.0]) == {"median": 2.0, "low": 2.0, "high": 2.2}


def test_a_round_that_one_has_not_run_is_left_out() -> None:
    """A contender that ran fewer rounds is compared in those that it ran."""
    assert ratio([3.0], [1.0, 2.0, 3.0])["median"] == 3.0


@pytest.mark.parametrize(("share", "value"), [(0.0, 1), (0.5, 51), (0.99, 100), (1.0, 100)])
def test_percentiles(share: float, value: int) -> None:
    """A percentile is one of the values, in whatever order they come, and the last one at most."""
    assert percentile(range(100, 0, -1), share) == value


def test_events_have_the_size_that_is_told() -> None:
    """Chat chunks and named events are as long as the page says, whatever their number."""
    assert {len(make(number)) for make in (chat_event, named_event) for number in (0, 99_999)} == {EVENT_BYTES}


@pytest.mark.parametrize("dialect", ["chat", "anthropic"])
@pytest.mark.parametrize("script", [HEALTHY, *(fault.script for fault in FAULTS)])
def test_faults_can_be_played(script: str, dialect: str) -> None:
    """Each fault is a script that the gateway knows, in both dialects, with no word left over."""
    lines = script_of(script, dialect)
    assert parse_script(lines)
    assert not {"CHUNK", "END", "ERROR"} & set(lines.split("\n"))


def test_what_is_right_when_something_is_wrong() -> None:
    """An error in time, with the connection closed, is right; late, none, or with a connection left open it is not."""
    assert right(SILENT, outcome(0.5, "Timeout"), 2.0)
    assert not right(SILENT, outcome(3.0, "Timeout"), 2.0)
    assert not right(SILENT, outcome(0.5, "Timeout", freed=False), 2.0)
    assert not right(SILENT, outcome(0.5), 2.0)
    assert not right(SILENT, outcome(None), 2.0)


def test_what_is_right_when_the_answer_is_whole() -> None:
    """A whole answer is to be taken at once, and is no error."""
    assert right(LINGERS, outcome(0.01), 2.0)
    assert not right(LINGERS, outcome(0.5), 2.0)
    assert not right(LINGERS, outcome(0.01, "ReadTimeout"), 2.0)


def test_what_is_wrong_is_bold() -> None:
    """In the overview, only what is not right is bold, and says why."""
    assert cell(SILENT, outcome(0.5, "Timeout"), 2.0, 6.0) == "0.50 s"
    assert cell(SILENT, outcome(0.5), 2.0, 6.0) == "**taken as whole**"
    assert cell(SILENT, outcome(None), 2.0, 6.0) == "**blocked > 6 s**"
    assert cell(LINGERS, outcome(0.5, "ReadTimeout"), 2.0, 6.0) == "**0.50 s, error**"


def test_a_missed_bar_says_by_how_much() -> None:
    """A bar is met at its very limit; one that is missed is never called met."""
    assert Bar("x", 1.25, 1.25, "×").verdict == "met"
    assert Bar("x", 2.0, 3.0, "ms").verdict == "**missed: 1.50 times the bar**"
    assert Bar("threads", 0.0, 1, "").verdict == "**missed**"


def test_a_table_for_a_page() -> None:
    """Columns of numbers are aligned to the right, others to the left."""
    table = Table("a title", ("", "cost", "why"), (("one", "1.5", "so"),))
    assert table.markdown() == "**A title**\n\n|  | cost | why |\n| --- | ---: | --- |\n| one | 1.5 | so |"


def test_bars_are_drawn() -> None:
    """A bar plot is well-formed, and the longer bar is that of the greater value; names are escaped."""
    bars: dict[str, Spread] = {
        "a & b": {"low": 1.0, "median": 2.0, "high": 3.0},
        "c": {"low": 1.0, "median": 3.0, "high": 3.0},
    }
    drawn = ElementTree.fromstring(bar_plot("a <title>", "x", bars))
    widths = [float(bar.get("width", 0)) for bar in drawn.findall(f"{SVG}rect") if bar.get("fill") != "#fff"]
    assert widths[0] < widths[1]
    assert "a & b" in [text.text for text in drawn.findall(f"{SVG}text")]


def test_curves_are_drawn() -> None:
    """A curve of shares rises to the right, and ends at the whole."""
    drawn = ElementTree.fromstring(share_plot("t", "ms", {"guarded_stream": [0.5, 3.0, 1.0], "b": [2.0, 9.0]}))
    points = [point.split(",") for point in drawn.findall(f"{SVG}polyline")[0].get("points", "").split()]
    assert points == sorted(points, key=lambda point: float(point[0]))
    assert [float(y) for _x, y in points] == sorted((float(y) for _x, y in points), reverse=True)


def test_a_part_that_is_missing_is_said_on_the_page() -> None:
    """The page is made of what there is; the template has no place that nothing fills."""
    machine = {"python": "3", "system": "s", "processor": "p", "cores": 2, "versions": {}, "missing": ["litellm"]}
    figures = {
        "date": "2020-01-02",
        "quick": True,
        "load": [0.5, 9.0],
        "machine": machine,
        "parts": {"cost": {"failed": "why"}},
    }
    text = page.fill(page.TEMPLATE.read_text(encoding="utf-8"), figures)
    assert "*Not measured in this run: why.*" in text
    assert "left out: litellm" in text
    assert "The machine had other work to do" in " ".join(text.split())
    assert "{{" not in text


def test_a_contender_that_hangs_is_ended() -> None:
    """A contender that takes longer than its bound is reported, and its process is gone."""
    with Contender("sleeper", _sleep) as contender:
        with pytest.raises(Failed, match=r"more than 0\.2 s"):
            contender.run(bound=0.2)
        with pytest.raises(Failed, match="its process has ended"):
            contender.run(bound=5)


def _sleep() -> None:
    time.sleep(60)


def test_a_part_that_fails_is_reported() -> None:
    """A part that cannot even be imported is a part that was not measured, and raises nothing."""
    assert "ModuleNotFoundError" in run.measure_part("no_such_part", quick=True)["failed"]


def test_a_part_is_measured_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run measures a part in another process, prints its table, and keeps the figures that the page is made of."""
    out = tmp_path / "build" / "bench.json"
    assert run.main(["--quick", "--only", "chains", "--out", str(out)]) == 0
    assert "a run of three steps" in capsys.readouterr().out
    assert '"Chain"' in out.read_text()
