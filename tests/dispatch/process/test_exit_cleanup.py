"""The end of the supervising program: Ctrl-C, and the exit of the interpreter."""

import os
import re
import signal
import subprocess
import sys
import time

import psutil
import pytest

from ...helpers import ROOT, wait_until
from ..programs import alive, group_is_gone


def supervised(body: str, **options: object) -> "subprocess.Popen[str]":
    """Start an interpreter that supervises a command itself."""
    code = (
        f"import os, signal, sys, time\nfrom streamguard.dispatch._command.command import iter_command, run_command\n{body}"
    )
    argv = [sys.executable, "-W", "error", "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(argv, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]


CHILDREN = "['sh', '-c', 'sleep 60 & echo $$; wait']"


def test_sigint_to_the_parent_leaves_no_subprocess() -> None:
    """B127: an interrupted `run_command` leaves nothing of its command."""
    body = f"signal.signal(signal.SIGINT, signal.default_int_handler)\nrun_command({CHILDREN}, first=60)"
    with supervised(body) as parent:
        wait_until(lambda: len(psutil.Process(parent.pid).children(recursive=True)) == 2)
        group = psutil.Process(parent.pid).children()[0].pid
        parent.send_signal(signal.SIGINT)
        assert parent.wait(20) == -signal.SIGINT
    assert group_is_gone(group)


@pytest.mark.parametrize("grace", [0.2, 30])
def test_ctrl_c_ends_the_command_first(grace: float) -> None:
    """B151: KeyboardInterrupt ends the group, and then propagates; a second one does not wait for the grace."""
    deaf = "['sh', '-c', 'trap \"\" TERM INT; echo $$; while :; do sleep 0.05; done']"
    body = (
        f"signal.signal(signal.SIGINT, signal.default_int_handler)\nwith iter_command({deaf}, grace={grace}) as stream:\n"
    )
    body += "    print(next(stream).text, flush=True)\n    for _ in stream: pass\n"
    with supervised(body) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        group = int(parent.stdout.readline())
        parent.send_signal(signal.SIGINT)
        if grace > 1:
            time.sleep(0.3)
            assert alive(group)
            parent.send_signal(signal.SIGINT)
        assert parent.wait(20) == -signal.SIGINT
        assert parent.stderr.read().splitlines()[-1].startswith("KeyboardInterrupt")
    assert group_is_gone(group)


@pytest.mark.parametrize("leave", ["sys.exit(3)", "pass", "raise ValueError"])
def test_the_end_of_the_interpreter_sweeps(leave: str) -> None:
    """B151: a program that ends while a command runs takes it along."""
    body = f"stream = iter_command({CHILDREN})\nprint(next(stream).text, flush=True)\n{leave}\n"
    with supervised(body) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        group = int(parent.stdout.readline())
        assert parent.wait(20) == (3 if "exit" in leave else 1 if "raise" in leave else 0)
        assert re.search("Warning|ignored", parent.stderr.read()) is None
    assert group_is_gone(group)
