"""Descendants that have left the process group of their program."""

import os
import signal
from pathlib import Path

import pytest

from streamguard._core import monotonic
from streamguard.dispatch._command.command import run_command

from ..programs import SLACK, alive, group_is_gone, shell


def test_a_stranger_that_holds_the_pipe_is_not_waited_for(tmp_path: Path) -> None:
    """What has left the group is left alone by a program that ends by itself, and cannot hold us (B152)."""
    note = tmp_path / "pid"
    begun = monotonic()
    result = run_command(
        shell(f"setsid sh -c 'echo $$ >{note}; exec sleep 60' & while [ ! -s {note} ]; do sleep 0.01; done; echo hi")
    )
    escaped = int(note.read_text())
    try:
        assert monotonic() - begun < 0.5 + SLACK
        assert (result.ok, result.stdout) == (True, "hi\n")
        assert alive(escaped)
    finally:
        os.kill(escaped, signal.SIGKILL)


def test_a_daemon_cannot_hold_us(tmp_path: Path) -> None:
    """B152: a daemon, whose parents have ended, is out of reach (a documented limit), and does not hold us."""
    note = tmp_path / "pid"
    script = f"(setsid sh -c 'echo $$ >{note}; exec sleep 60' &); sleep 60"
    begun = monotonic()
    result = run_command(shell(script), idle=0.4)
    escaped = int(note.read_text())
    try:
        assert 0.4 <= monotonic() - begun < 0.9 + SLACK
        assert (result.limit, result.killed) == ("idle", False)
        assert alive(escaped)
    finally:
        os.kill(escaped, signal.SIGKILL)


@pytest.mark.parametrize("deaf", ["", 'trap "" TERM; '])
def test_a_tool_in_a_session_of_its_own_is_stopped_too(deaf: str, tmp_path: Path) -> None:
    """B152: a descendant that only left the group is marked in the evidence, and ended: agents run their tools so."""
    note = tmp_path / "pid"
    script = f"setsid sh -c '{deaf}echo $$ >{note}; sleep 60 & wait' & sleep 60"
    result = run_command(shell(script), idle=0.4, grace=0.3)
    escaped = int(note.read_text())
    assert result.evidence is not None
    assert escaped in [info.pid for info in result.evidence.processes if info.escaped]
    assert group_is_gone(escaped)
    assert result.killed == bool(deaf)
