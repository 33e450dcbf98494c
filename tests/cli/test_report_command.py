"""`streamguard report`: counts, histograms, advice, and one story, out of a journal that real streams left."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

import streamguard
from streamguard._core import NOT_GIVEN
from streamguard.journal import settle
from streamguard.journal.lifecycle import VARIABLE
from streamguard.journal.store import JournalStore
from streamguard.testing import Gateway

from ..journal.causes import failing_stream, good_stream, run_that_waits, stream_entry, turn_that_hangs
from .runs import invoke

Serve = Callable[..., Gateway]


def kept(url: str, *causes: Callable[[], object]) -> list[object]:
    """Let *causes* happen while a journal is kept at *url*; return what they return."""
    streamguard.configure(journal=url)
    try:
        results = [cause() for cause in causes]
        assert settle(10)
    finally:
        streamguard.configure(journal=NOT_GIVEN)
    return results


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The URL of a journal that does not exist yet."""
    return f"sqlite:///{tmp_path}/journal.db"


def filled(url: str, count: int) -> None:
    """Write *count* complete streams, each longer than the one before, to the journal at *url*."""
    with closing(JournalStore(url)) as store:
        store.add([stream_entry(id=f"s{number}", seconds=number / 100) for number in range(1, count + 1)])


def words(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


def test_it_counts_by_outcome_and_place(url: str) -> None:
    """Streams, runs and turns of a real program, each with where it ended."""
    kept(url, good_stream, good_stream, failing_stream, run_that_waits, turn_that_hangs)
    result = invoke("report", "--journal", url)
    assert result.exit_code == 0, result.stderr
    lines = words(result.stdout)
    assert lines[0].startswith("3 streams, 1 run, 1 turn, from ")
    for line in (
        "completed done 2 66.7 %",
        "timeout idle 1 33.3 %",
        "waiting_external_service policy 1 100.0 %",
        "failed timeout 1 100.0 %",
        "idle 2 1 0.1 s - -",
        "member agent-1 0 1 - - -",
    ):
        assert line in lines
    assert "Time to the first chunk, by streams" in lines
    assert "Gaps between chunks" in lines


def test_the_variable_names_the_journal(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that a program keeps is the one that is shown."""
    filled(url, 1)
    monkeypatch.setenv(VARIABLE, url)
    assert invoke("report").stdout.startswith("1 stream, from ")


def test_advice_needs_enough_samples_and_says_how_sure_it_is(url: str) -> None:
    """298 streams suggest nothing at 99 % and 95 %, 299 do; with less asked for, less is needed."""
    filled(url, 299)
    (total,) = [line for line in words(invoke("report", "--journal", url).stdout) if line.startswith("total ")]
    assert total == "total 299 0 - 2.990 s 4.485 s"
    stricter = words(invoke("report", "--journal", url, "--confidence", "0.96").stdout)
    assert "total 299 0 - - -" in stricter
    looser = invoke("report", "--journal", url, "--quantile", "0.5", "--confidence", "0.6").stdout
    assert "spares 50 %" in looser
    assert "total 299 0 - 1.530 s 2.295 s" in words(looser)


def test_a_name_and_a_time_narrow_it(url: str) -> None:
    """Only what has that name; only what began so long ago at most."""
    kept(url, good_stream, lambda: good_stream(name="other"))
    filled(url, 5)
    assert invoke("report", "--journal", url, "--name", "other").stdout.startswith("1 stream,")
    assert invoke("report", "--journal", url, "--since", "1h").stdout.startswith("2 streams,")
    assert invoke("report", "--journal", url).stdout.startswith("7 streams,")


@pytest.mark.parametrize("options", [("--name", "nobody"), ("--since", "1s"), ("--name", "chat", "--since", "1s")])
def test_what_matches_nothing_is_no_empty_journal(url: str, options: tuple[str, ...]) -> None:
    """There are entries, of other names or older ones."""
    filled(url, 1)
    assert invoke("report", "--journal", url, *options).stdout == "No entry of the journal matches.\n"


def late_stream() -> object:
    """Return the id of a stream that took longer than its total."""
    return failing_stream(total=0.2, idle=None)


def stream_under_a_deadline() -> object:
    """Return the id of a stream for which a surrounding deadline was too short."""
    with streamguard.deadline(0.2):
        return failing_stream(total=30, idle=None)


def test_only_a_total_of_its_own_is_advised_on(url: str) -> None:
    """The row of `total` counts it, with its value; a surrounding deadline is in the story of its stream alone."""
    _, total, deadline = kept(url, good_stream, late_stream, stream_under_a_deadline)
    lines = words(invoke("report", "--journal", url).stdout)
    assert "total 1 1 0.2 s - -" in lines
    assert not [line for line in lines if line.startswith("deadline")]
    ends = ["s  limit total=0.2 fired", "s  the surrounding deadline() passed"]
    for id, end in zip((total, deadline), ends, strict=True):
        story = invoke("report", "--journal", url, "--id", str(id)).stdout
        assert [other for other in ends if other in story] == [end]


def test_a_story_by_its_id(url: str) -> None:
    """What was asked, each phase of the attempt, and where it stopped."""
    _, id = kept(url, good_stream, failing_stream)
    result = invoke("report", "--journal", url, "--id", str(id))
    assert result.exit_code == 0
    lines = words(result.stdout)
    assert lines[0].startswith(f"stream chat, id {id}, a call of a model")
    assert lines[1].startswith("timeout in phase idle after 0.")
    assert [line.split()[-1] for line in lines[3:7]] == ["connect", "response", "first", "idle"]


def test_a_dispatch_is_the_story_of_its_turns(url: str) -> None:
    """The id of an execution finds them."""
    ((turn, execution),) = kept(url, turn_that_hangs)  # type: ignore[misc]
    shown = invoke("report", "--journal", url, "--id", execution).stdout  # type: ignore[has-type]
    assert shown.startswith(f"turn agent-1, id {turn} of execution {execution}, started ")  # type: ignore[has-type]
    assert words(shown)[1].startswith("failed for timeout after 0.")


def test_an_id_that_is_unknown_is_a_failure(url: str) -> None:
    """Exit code 1, and nothing on standard output."""
    filled(url, 1)
    result = invoke("report", "--journal", url, "--id", "nobody")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "the journal has no such id\n"


@pytest.mark.parametrize("options", [(), ("--id", "s1")])
def test_a_page_is_written_to_a_file(url: str, tmp_path: Path, options: tuple[str, ...]) -> None:
    """With plots, and nothing on standard output."""
    filled(url, 3)
    result = invoke("report", "--journal", url, "--html", str(tmp_path / "report.html"), *options)
    assert (result.exit_code, result.stdout) == (0, "")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert page.startswith("<!DOCTYPE html>")
    assert "<svg " in page


def test_without_a_journal_it_says_what_to_do() -> None:
    """Wrong usage: exit code 2, both ways named."""
    result = invoke("report")
    assert result.exit_code == 2
    assert "--journal URL" in result.stderr
    assert VARIABLE in result.stderr


def test_a_url_that_is_none_is_wrong_usage() -> None:
    """The complaint does not quote it: a password may be in it."""
    result = invoke("report", "--journal", "mysql://user:hunter2@host/x")
    assert result.exit_code == 2
    assert "--journal takes" in result.stderr
    assert "hunter2" not in result.stderr


def test_a_file_that_does_not_exist_is_a_failure(url: str, tmp_path: Path) -> None:
    """It is not made."""
    result = invoke("report", "--journal", url)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "does not exist" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_database_is_a_failure(url: str, tmp_path: Path) -> None:
    """One line with the kind of the error."""
    (tmp_path / "journal.db").write_text("no database\n" * 100)
    result = invoke("report", "--journal", url)
    assert (result.exit_code, result.stderr) == (1, "Error: the journal cannot be read: DatabaseError\n")


def test_a_journal_is_read_while_it_is_written(url: str, tmp_path: Path) -> None:
    """A writer's lock does not hold a reader up."""
    filled(url, 1)
    with closing(sqlite3.connect(tmp_path / "journal.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        assert invoke("report", "--journal", url).stdout.startswith("1 stream,")
        writer.rollback()


DAMAGE = {
    "bad JSON": "moments = '{oops'",
    "no list": "moments = '5'",
    "an unknown kind": "kind = 'batch'",
    "missing numbers": "numbers = '{}'",
    "other buckets": "numbers = json_set(numbers, '$.gaps', json('[[1, 0.5]]'))",
    "a number that is none": "moments = json_set(moments, '$[0].at', 'soon')",
    "an absurd time": "started_at = 1e300",
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_row_that_cannot_be_read_is_counted(url: str, tmp_path: Path, damage: str) -> None:
    """It keeps nobody from the others, in the summary, on a page, and in a story."""
    filled(url, 2)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as database, database:
        database.execute(f"update streamguard_journal set {DAMAGE[damage]} where id = 's1'")
    result = invoke("report", "--journal", url)
    assert result.exit_code == 0, result.stderr
    title = result.stdout.splitlines()[0]
    assert title.startswith("1 stream, ")
    assert title.endswith("; 1 row could not be read")
    told = invoke("report", "--journal", url, "--id", "s1")
    assert (told.exit_code, told.stderr) == (1, "1 row could not be read\nthe journal has no such id\n")


def test_a_key_of_a_newer_version_is_left_out(url: str, tmp_path: Path) -> None:
    """A moment that knows more than we do is told as far as we know it."""
    filled(url, 1)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as database, database:
        database.execute("update streamguard_journal set moments = json_set(moments, '$[0].colour', 'red')")
    assert "connect" in invoke("report", "--journal", url, "--id", "s1").stdout
    assert invoke("report", "--journal", url).stdout.startswith("1 stream, ")


def test_a_journal_that_nobody_can_read_says_so(url: str, tmp_path: Path) -> None:
    """It is not told as an empty one."""
    filled(url, 2)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as database, database:
        database.execute("update streamguard_journal set moments = '{oops'")
    assert invoke("report", "--journal", url).stdout == "No entries; 2 rows could not be read.\n"


def test_failures_are_listed_with_their_ids(url: str, tmp_path: Path) -> None:
    """`--failures` lists each failure with its id, under which `--id` shows it; the page shows the ids too."""
    _, stream, run, turn = kept(url, good_stream, failing_stream, run_that_waits, lambda: turn_that_hangs()[0])
    lines = words(invoke("report", "--journal", url, "--failures").stdout)
    assert lines[:2] == ["Failures", "started (UTC) kind name id outcome stopped in took error"]
    assert [line.split()[2:5] for line in lines[2:]] == [
        ["stream", "chat", stream],
        ["run", "agent", run],
        ["turn", "agent-1", turn],
    ]
    assert lines[2].endswith("StreamInactivityTimeoutError")
    narrowed = words(invoke("report", "--journal", url, "--failures", "--name", "agent").stdout)
    assert [line.split()[4] for line in narrowed[2:]] == [run]
    for options in ([], ["--failures"]):
        page = tmp_path / "page.html"
        assert invoke("report", "--journal", url, "--html", str(page), *options).exit_code == 0
        assert all(str(id) in page.read_text(encoding="utf-8") for id in (stream, run, turn))


def test_without_failures_the_list_says_so(url: str) -> None:
    """A journal of successes has no failures: that is a success of the command, too."""
    filled(url, 1)
    result = invoke("report", "--journal", url, "--failures")
    assert (result.exit_code, result.stdout) == (0, "No failures.\n")
    assert json.loads(invoke("report", "--journal", url, "--failures", "--json").stdout) == []


def test_json_is_one_document(url: str) -> None:
    """`--json` prints the summary, the failures, or the entry of an id, as JSON and nothing else."""
    _, stream, _ = kept(url, good_stream, failing_stream, run_that_waits)
    summary = json.loads(invoke("report", "--journal", url, "--json").stdout)
    assert {"kind": "stream", "outcome": "timeout", "stopped_in": "idle", "count": 1} in summary["outcomes"]
    assert summary["failures"][0]["id"] == stream
    advice = {each["limit"]: each for each in summary["advice"]}
    assert (advice["idle"]["fired"], advice["idle"]["fired_at"], advice["idle"]["suggested"]) == (1, 0.1, None)
    assert sum(bucket["count"] for bucket in summary["time_to_first_chunk"]) == 2
    assert summary["gaps"][-1]["up_to"] is None
    failures = json.loads(invoke("report", "--journal", url, "--failures", "--json").stdout)
    assert [(entry["kind"], entry["outcome"]) for entry in failures] == [
        ("stream", "timeout"),
        ("run", "waiting_external_service"),
    ]
    assert datetime.fromisoformat(failures[0]["started_at"]).tzinfo is not None
    (entry,) = json.loads(invoke("report", "--journal", url, "--id", str(stream), "--json").stdout)
    assert entry == failures[0]
    missing = invoke("report", "--journal", url, "--id", "none", "--json")
    assert (missing.exit_code, json.loads(missing.stdout)) == (1, [])


def test_the_summary_of_an_empty_journal_is_json_too(url: str) -> None:
    """Without entries there are no times, and no advice."""
    filled(url, 1)
    empty = json.loads(invoke("report", "--journal", url, "--name", "none", "--json").stdout)
    assert (empty["from"], empty["outcomes"], empty["advice"], empty["failures"]) == (None, [], [], [])
