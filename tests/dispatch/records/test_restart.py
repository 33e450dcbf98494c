"""A dispatcher's process that is killed in the middle, and what the next one makes of its records (T32)."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamguard.dispatch import Dispatcher, DispatchQueue

from ...helpers import ROOT, wait_until
from ..scripted import says

pytestmark = pytest.mark.timeout(180)  # PostgreSQL may have to be installed first

PROCESS = """
import sys
from streamguard.dispatch import CommandMember, Dispatcher, DispatchQueue
command = ["/bin/sh", "-c", f"echo $$ >>{sys.argv[2]}; echo begun; exec sleep 300"]
with Dispatcher(sys.argv[1]) as dispatcher:
    queue = DispatchQueue(dispatcher, [CommandMember("a", command), CommandMember("b", command)])
    runs = queue.submit("c", ["a"], "p", output_timeout=600)
    waits = queue.submit("c", ["a"], "p", output_timeout=600)
    queue.start()
    with dispatcher.stream("d", [CommandMember("b", command)], "p", output_timeout=600) as stream:
        next(stream)
        print(stream.execution_id, runs, waits, flush=True)
        stream.read()
"""


@pytest.fixture
def killed(shared_records: str, tmp_path: Path) -> Iterator[list[str]]:
    """Start a process that dispatches and queues, kill it with SIGKILL while all of it runs; return what it ran."""
    programs = tmp_path / "programs"
    command = [sys.executable, "-c", PROCESS, shared_records, str(programs)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ids = process.stdout.readline().split()
        wait_until(lambda: len(programs.read_text().split()) == 2)
        process.send_signal(signal.SIGKILL)
    yield ids
    # The members' programs still run, as no process was left to stop them: a documented limit.
    for pid in map(int, programs.read_text().split()):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_after_sigkill_the_next_start_ends_it_once(killed: list[str], shared_records: str) -> None:
    """What ran is failed/process_restart, once, in execution, turn and response; what waited is run."""
    direct, runs, waits = killed
    with Dispatcher(shared_records) as dispatcher:
        assert sorted(dispatcher.restarted) == sorted([direct, runs])
        for execution in (direct, runs):
            record = dispatcher.records.execution(execution)
            assert record is not None
            assert (record.status, record.reason) == ("failed", "process_restart")
            (turn,) = dispatcher.records.turns(execution)
            assert (turn.status, turn.terminal_reason) == ("failed", "process_restart")
            (response,) = dispatcher.records.responses(execution)
            assert (response.status, response.reason) == ("failed", "process_restart")
        with Dispatcher(shared_records) as another:
            assert another.restarted == []
        with DispatchQueue(dispatcher, [says("a", "x")], poll=0.05) as queue:
            assert queue.wait(waits, 20).status == "succeeded"
            assert queue.entry(runs).reason == "process_restart"
