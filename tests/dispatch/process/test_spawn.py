"""Child processes: how they start, are signalled and are reaped."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamguard import StreamguardError, UsageError
from streamguard.dispatch._command.command import CommandStream, run_command
from streamguard.dispatch._command.command_options import CommandPlan
from streamguard.dispatch._process.spawn import CommandStartError, Spec, signal_group, start_child

from ...helpers import wait_until
from ..programs import alive, shell


def test_the_leader_stays_unreaped_until_its_group_is_gone() -> None:
    """While children of a dead leader live, its pid is a zombie of ours, which no other process can get (T18)."""
    child = start_child(Spec(argv=tuple(shell("sleep 60 & exit 3"))))
    try:
        wait_until(child.exited)
        assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
        (left,) = child.others()
        assert child.signal(signal.SIGKILL)
        wait_until(lambda: not alive(left))
        assert child.reap() == 3
        assert not child.signal(signal.SIGTERM)
    finally:
        child.close()


def test_an_exit_code_that_never_comes_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """gevent's Popen waits for ever if SIGCHLD is ignored: then the code is unknown."""

    def never(_popen: object, timeout: float) -> int:
        raise subprocess.TimeoutExpired("true", timeout)

    child = start_child(Spec(argv=("true",)))
    os.waitpid(child.pid, 0)
    with monkeypatch.context() as patched:
        patched.setattr(subprocess.Popen, "wait", never)
        assert child.reap() is None
    child.reap()
    child.close()
    assert not child.signal(signal.SIGTERM)


@pytest.mark.parametrize(
    ("argv", "number", "complaint"),
    [
        (["no-such-program-here"], errno.ENOENT, "program not found"),
        (["/etc/passwd"], errno.EACCES, "Permission denied"),
        (["/"], errno.EACCES, "Permission denied"),
    ],
)
def test_a_program_that_cannot_be_started(argv: list[str], number: int, complaint: str) -> None:
    """The error says which program, and why, and pickles like all of ours."""
    with pytest.raises(CommandStartError, match=complaint) as failed:
        run_command(argv)
    assert (failed.value.program, failed.value.errno) == (argv[0], number)
    assert isinstance(failed.value, StreamguardError)


def test_other_reasons_not_to_start(tmp_path: Path) -> None:
    """A missing folder and a script with a missing interpreter have messages of their own."""
    with pytest.raises(CommandStartError, match="cannot enter the folder of cwd="):
        run_command(["true"], cwd=str(tmp_path / "gone"))
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(CommandStartError, match="interpreter in its first line"):
        run_command([str(script)], pty=True)


def test_a_program_is_searched_as_the_system_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of that name in the current folder is not on the PATH; a path is read from cwd=."""
    (tmp_path / "not-on-the-path").write_text("#!/bin/sh\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandStartError, match="not found on the PATH"):
        run_command(["not-on-the-path"])
    with pytest.raises(CommandStartError, match="program not found"):
        run_command(["./not-on-the-path"], cwd="/")


@pytest.mark.parametrize(
    "options",
    [
        {"argv": []},
        {"argv": [""]},
        {"argv": "ls -l"},
        {"argv": ["ls", "a\0b"]},
        {"argv": ["ls"], "total": 0},
        {"argv": ["ls"], "grace": -1},
        {"argv": ["ls"], "grace": None},
        {"argv": ["ls"], "format": "cobol"},
        {"argv": ["ls"], "input": b"x", "inherit_stdin": True},
    ],
)
def test_what_cannot_be_right_starts_nothing(options: dict[str, object]) -> None:
    """Misuse is a UsageError, and no process is started."""
    before = psutil.Process().children()
    with pytest.raises(UsageError):
        CommandStream(CommandPlan(**options))  # type: ignore[arg-type]
    assert psutil.Process().children() == before


@pytest.mark.parametrize(
    "options",
    [{"env": {"A=B": "1"}}, {"env": {"A": "a\0b"}}, {"cwd": "a\0b"}, {"env": {"A": None}}, {"input": "\ud800"}],
    ids=str,
)
def test_what_the_system_cannot_take_is_wrong_usage_and_leaks_nothing(options: dict[str, Any]) -> None:
    """Impossible names, values and folders are refused, and no terminal stays open."""
    with pytest.raises(UsageError):
        run_command(["true"], pty=True, **options)


def test_the_environment_and_the_folder(tmp_path: Path) -> None:
    """*env* is the whole environment, but for PYTHONUNBUFFERED (B145); *cwd* is where it runs."""
    result = run_command(["/usr/bin/env"], env={"A": "b"}, cwd=tmp_path)
    assert set(result.text.split()) == {"A=b", "PYTHONUNBUFFERED=1"}
    assert "PYTHONUNBUFFERED=\n" in run_command(["/usr/bin/env"], env={"PYTHONUNBUFFERED": ""}).text
    assert run_command(shell("pwd -P"), cwd=tmp_path).text == f"{tmp_path.resolve()}\n"


def test_python_is_told_not_to_buffer() -> None:
    """B145: a Python program that prints in time is not silent."""
    program = [sys.executable, "-c", "import time\nfor i in range(6): print(i); time.sleep(0.2)"]
    result = run_command(program, idle=0.9)
    assert (result.ok, result.text) == (True, "0\n1\n2\n3\n4\n5\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_our_own_group_is_never_signalled(number: int) -> None:
    """B150: a process in our own group is signalled alone: this test survives it."""
    with subprocess.Popen(["sleep", "60"]) as mine:
        assert os.getpgid(mine.pid) == os.getpgrp()
        assert signal_group(mine.pid, os.getpgid(mine.pid), number)
        assert mine.wait() == -number


def test_signals_of_what_is_gone_are_swallowed() -> None:
    """A signal to a process that is gone returns False and raises nothing (B149)."""
    child = start_child(Spec(argv=("true",)))
    wait_until(child.exited)
    assert child.signal(signal.SIGTERM)  # the zombie is still ours
    child.reap()
    child.close()
    assert not signal_group(child.pid, child.group, signal.SIGTERM)


def test_exiting_at_the_moment_of_the_kill() -> None:
    """B149: 200 programs that exit just when they are signalled: no error, and each is reaped."""
    for turn in range(200):
        child = start_child(Spec(argv=("true",)))
        time.sleep(turn % 10 / 2000)
        child.signal(signal.SIGTERM)
        wait_until(child.exited)
        child.signal(signal.SIGKILL)
        assert child.reap() in (0, -signal.SIGTERM)
        child.close()
