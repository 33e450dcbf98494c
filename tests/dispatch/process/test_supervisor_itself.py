"""The supervising process itself: it is stopped, forked, or started with SIGCHLD ignored."""

import os
import signal
import subprocess
import sys
import time

import pytest

from ...helpers import FORKING, run_script

TALKS = ["sh", "-c", "i=0; while [ $i -lt 24 ]; do echo x; sleep 0.05; i=$((i+1)); done"]
BEGINS_LATE = ["sh", "-c", "sleep 0.6; echo x; sleep 0.6"]

RUN = "result = run_command({argv}, {limit}); print(result.outcome, result.limit)"
DISPATCH = f"""
with Dispatcher() as dispatcher:
    turn = dispatcher.dispatch("c", [CommandMember("a", {TALKS})], "p", output_timeout=0.4)["a"]
print(turn.status, turn.reason)
"""
PRELUDE = "import os, signal, sys\nfrom streamguard import UsageError\nfrom streamguard.dispatch import *\n"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (RUN.format(argv=TALKS, limit="idle=0.4"), "completed None"),
        (RUN.format(argv=BEGINS_LATE, limit="first=0.8"), "completed None"),
        (DISPATCH, "completed completed"),
    ],
    ids=["idle", "first", "dispatch"],
)
def test_a_program_that_talks_while_we_are_stopped_is_not_silent(script: str, expected: str) -> None:
    """^Z, SIGSTOP, a paused container: the output that arrived meanwhile is read before a limit is measured."""
    code = f"{PRELUDE}print('ready', flush=True)\n{script}"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        time.sleep(0.3)
        os.kill(running.pid, signal.SIGSTOP)
        time.sleep(0.7)
        os.kill(running.pid, signal.SIGCONT)
        assert running.communicate(timeout=30)[0].strip() == expected


def test_an_ignored_sigchld_makes_no_success_of_a_failure() -> None:
    """Where the system keeps no exit code, it is not known: never 0."""
    assert run_script(
        f"""{PRELUDE}
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for script in ("exit 3", "kill -9 $$", "exit 0"):
    result = run_command(["sh", "-c", script])
    print(result.outcome, result.error_code, result.exit_code)
with Dispatcher() as dispatcher:
    print(dispatcher.dispatch("c", [CommandMember("a", ["sh", "-c", "exit 3"])], "p")["a"].reason)
"""
    ).split("\n")[:4] == ["failed unknown_exit None"] * 3 + ["unknown_exit"]


def test_a_forked_child_has_nothing_of_its_parents() -> None:
    """next() is refused in the child, close() returns at once, and the parent's programs, members and records go on."""
    output = run_script(
        f"""{PRELUDE}
{FORKING}
import tempfile
folder = tempfile.mkdtemp()
gates = [os.path.join(folder, name) for name in ("a", "b")]
for gate in gates:
    os.mkfifo(gate)
argvs = [["sh", "-c", f"echo one; read line <{{gate}}; echo two"] for gate in gates]
dispatcher = Dispatcher(f"sqlite:///{{folder}}/records.db")
events = iter_command(argvs[0])
stream = dispatcher.stream("c", [CommandMember("a", argvs[1])], "p")
assert next(events).text == "one\\n" == next(stream).event.text

assert in_child(lambda: (refused(lambda: next(events)), refused(lambda: next(stream))))
assert in_child(lambda: (events.close(), stream.close(), dispatcher.close()))
assert in_child(lambda: (stream.stop("a"), stream.cancel_all(), dispatcher.cancel_all()))
for gate in gates:
    with open(gate, "w") as line:
        line.write("go\\n")
print(events.read().text.split(), stream.read()["a"].text.split(), stream.outcome.lost_records)
dispatcher.close()
"""
    )
    assert output.strip() == "['one', 'two'] ['one', 'two'] ()"
