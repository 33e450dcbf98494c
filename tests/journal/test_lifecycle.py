"""The journal of a process: which database, which entries, exits and forks."""

import contextlib
import logging
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

import streamguard
from streamguard import UsageError, recent_failures
from streamguard._core import NOT_GIVEN, monotonic
from streamguard.journal import settle
from streamguard.journal.lifecycle import VARIABLE
from streamguard.journal.store import JournalStore

from ..helpers import ROOT, wait_until
from .causes import failing_stream, good_stream, run_that_waits, stream_entry, turn_that_hangs
from .conftest import Read, locked, reader

PROGRAM = """
import sys
from streamguard import guarded_stream
from streamguard.testing import Gateway
with Gateway("chat a\\ndone") as gateway:
    for number in range(int(sys.argv[1])):
        guarded_stream("POST", gateway.url, name=sys.argv[2], json={"stream": True}).read()
"""


def program(url: str, count: int, name: str) -> "subprocess.Popen[bytes]":
    """Start a process that ends after *count* streams, and has its journal in the environment."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: url}
    return subprocess.Popen([sys.executable, "-W", "error", "-c", PROGRAM, str(count), name], env=environment)


def test_streams_runs_and_turns_are_kept(kept: Read) -> None:
    """Well ended or not, in order, and as they are in memory where they failed."""
    good, bad, run = good_stream(), failing_stream(), run_that_waits()
    turn, execution = turn_that_hangs()
    entries = kept()
    assert [(e.kind, e.id, e.outcome) for e in entries] == [
        ("stream", good, "completed"),
        ("stream", bad, "timeout"),
        ("run", run, "waiting_external_service"),
        ("turn", turn, "failed"),
    ]
    assert entries[1:] == recent_failures()[-3:]
    assert entries[3].parent == execution


def test_several_processes_write_at_once(url: str) -> None:
    """Four processes, ended as soon as their last stream: nothing is lost, not even the last entry."""
    running = [program(url, 25, f"p{number}") for number in range(4)]
    assert [process.wait(50) for process in running] == [0] * 4
    assert Counter(entry.name for entry in reader(url)()) == {f"p{number}": 25 for number in range(4)}


def test_a_forked_child_has_connections_of_its_own(kept: Read) -> None:
    """What child and parent write at once is all there, though the fork came while the parent was writing."""
    forks = 5
    for _ in range(forks):
        good_stream()
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                good_stream(name="child")
                os._exit(0 if settle(10) else 1)
            os._exit(2)
        good_stream()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert Counter(entry.name for entry in kept()) == {"chat": 2 * forks, "child": forks}


def test_the_environment_names_a_journal_and_configure_beats_it(
    tmp_path: Path, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """configure(journal=None) keeps none; NOT_GIVEN returns to the one of the environment."""
    other = f"sqlite:///{tmp_path}/other.db"
    monkeypatch.setenv(VARIABLE, sqlite_url)
    first = good_stream()
    streamguard.configure(journal=other)
    second = good_stream()
    streamguard.configure(journal=None)
    good_stream()
    streamguard.configure(journal=NOT_GIVEN)
    last = good_stream()
    assert [entry.id for entry in reader(sqlite_url)()] == [first, last]
    assert [entry.id for entry in reader(other)()] == [second]


@pytest.mark.parametrize("configured", [True, False])
def test_a_relative_path_is_of_the_directory_where_it_was_chosen(
    configured: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that changes its directory goes on in the same file."""
    monkeypatch.chdir(tmp_path)
    if configured:
        streamguard.configure(journal="sqlite:///here.db")
    else:
        monkeypatch.setenv(VARIABLE, f"sqlite:///here-{tmp_path.name}.db")
    first = run_that_waits()
    assert settle(10)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    wait_until(lambda: not any("journal" in thread.name for thread in threading.enumerate()))  # it closes the file
    second = run_that_waits()
    (file,) = tmp_path.rglob("*.db")
    assert [entry.id for entry in reader(f"sqlite:///{file}")()] == [first, second]
    assert file.parent == tmp_path


@pytest.mark.parametrize(
    "bad",
    [
        "mysql://user:hunter2@host/x",
        "no-url-hunter2",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x.db?uri=true",
        "sqlite:///file:x?mode=memory&uri=true",
    ],
)
def test_an_invalid_url_is_refused(bad: str) -> None:
    """configure() raises at once, without quoting it; nothing has changed."""
    with pytest.raises(UsageError, match="journal=") as refused:
        streamguard.configure(journal=bad, idle=5)
    assert "hunter2" not in str(refused.value)
    assert streamguard.Timeouts().source("idle") == "default"


def test_a_bad_url_in_the_environment_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning, on standard error too where no log is configured, names the variable and not the URL; streams go on."""
    monkeypatch.setenv(VARIABLE, "mysql://user:hunter2@host/x")
    with caplog.at_level(logging.WARNING, "streamguard"), pytest.warns(UserWarning, match=VARIABLE) as warned:
        assert [good_stream() for _ in range(2)]
    assert len(warned) == 1
    (message,) = [record.getMessage() for record in caplog.records if "journal" in record.getMessage()]
    assert VARIABLE in message
    assert "hunter2" not in caplog.text + str(warned[0].message)


def test_the_variable_without_sqlalchemy_is_reported() -> None:
    """A program whose journal cannot be kept says so on standard error, and runs."""
    source = (
        "import sys\n"
        "sys.modules['sqlalchemy'] = None\n"
        "import streamguard\n"
        "chain = streamguard.Chain('c')\n"
        "chain.step(lambda ctx: 1, name='a')\n"
        "print(chain.run().status)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: "sqlite:///x.db"}
    done = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, timeout=50, check=False, env=environment
    )
    assert (done.returncode, done.stdout) == (0, "completed\n")
    assert f"{VARIABLE} needs the package sqlalchemy: pip install" in done.stderr


def test_without_sqlalchemy_the_error_names_the_extra() -> None:
    """configure(journal=...) needs the extra; nothing else does, and nothing else loads it."""
    source = (
        "import sys\n"
        "sys.modules['sqlalchemy'] = None\n"
        "import streamguard\n"
        "from streamguard.testing import Gateway\n"
        "with Gateway('chat a\\nreset') as gateway:\n"
        "    stream = streamguard.guarded_stream('GET', gateway.url)\n"
        "    try: stream.read()\n"
        "    except streamguard.TransportError: pass\n"
        "assert [entry.id for entry in streamguard.recent_failures()] == [stream.report.id]\n"
        "try: streamguard.configure(journal='sqlite:///x.db')\n"
        "except streamguard.UsageError as exc: print(exc)\n"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=50, check=False, cwd=ROOT)
    assert done.stderr == ""
    assert done.stdout == "journal= needs the package sqlalchemy: pip install 'streamguard[dispatch]'\n"


def test_an_exit_waits_for_a_bounded_time_only(tmp_path: Path, sqlite_url: str) -> None:
    """A program whose journal is locked ends all the same, some two seconds late."""
    with contextlib.closing(JournalStore(sqlite_url)) as store:
        store.add([stream_entry()])
    with locked(tmp_path / "journal.db"):
        began = monotonic()
        assert program(sqlite_url, 1, "late").wait(40) == 0
        assert monotonic() - began >= 2
