"""Field reports of process supervision, each by its id: what others lost a day to."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from streamguard._core import monotonic
from streamguard.dispatch._command.command import iter_command, run_command
from streamguard.dispatch._data.turn_events import Kind
from streamguard.dispatch._process.spawn import Spec, signal_group, start_child

from ...helpers import ROOT, wait_until
from ..programs import SLACK, alive, group_is_gone, json_lines, python, shell

TEXT = '{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"Hello"}]}}'


def supervised(body: str, **options: object) -> "subprocess.Popen[str]":
    """Start an interpreter that supervises a command itself."""
    code = (
        f"import os, signal, sys, time\nfrom streamguard.dispatch._command.command import iter_command, run_command\n{body}"
    )
    argv = [sys.executable, "-W", "error", "-c", code]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(argv, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)  # type: ignore[call-overload,no-any-return]


def test_b131_whoever_holds_the_pipe_is_not_waited_for() -> None:
    """B131: `sh -c 'sleep & echo; sleep & wait'` under a limit ends at the limit, and so does what holds the pipe."""
    begun = monotonic()
    with iter_command(shell("sleep 4 & echo hi; sleep 4 & wait"), total=0.4) as stream:
        assert [event.text for event in stream if event.kind is Kind.TEXT] == ["hi\n"]
    assert 0.4 <= monotonic() - begun < 3
    assert (stream.result.limit, stream.result.stdout) == ("total", "hi\n")
    assert group_is_gone(stream.pid)


def test_b132_a_worker_does_not_outlive_its_launcher() -> None:
    """B132: a launcher and the worker that inherited its pipe are both stopped."""
    with iter_command(shell("(while :; do sleep 1; done) & wait"), idle=0.3) as stream:
        assert [event.error_code for event in stream] == ["timeout", "timeout"]
    assert group_is_gone(stream.pid)


def test_b133_the_group_is_swept_behind_a_normal_exit() -> None:
    """B133: the leader exits at once, and its child that holds stdout is ended, not waited for."""
    begun = monotonic()
    with iter_command(shell("sleep 60 & echo hi")) as stream:
        assert [event.kind for event in stream] == [Kind.TEXT, Kind.DONE]
    assert monotonic() - begun < 0.5 + SLACK
    assert (stream.result.ok, stream.result.exit_code) == (True, 0)
    assert group_is_gone(stream.pid)


def test_b138_a_stop_without_a_result_event_is_named() -> None:
    """B138: three lines, then silence: killed for idle, with the last line and the seconds in the report."""
    lines = [TEXT, '{"type":"system","subtype":"status"}', '{"type":"rate_limit_event"}']
    result = run_command(json_lines(*lines, then="sleep 60"), format="claude", idle=0.3)
    assert result.limit == "idle"
    assert result.diagnosis is not None
    assert result.diagnosis.silence >= 0.3
    assert result.stdout.splitlines()[-1] == lines[-1]


def test_b139_exit_0_without_the_final_line_is_incomplete() -> None:
    """B139: exit code 0 is not enough where a final line was expected."""
    assert run_command(shell("echo one; echo two"), final="^DONE").outcome == "incomplete"
    assert run_command(json_lines(TEXT, TEXT), format="claude").outcome == "incomplete"
    assert run_command(shell("echo one; echo DONE 2"), final="^DONE").outcome == "completed"


def test_b140_stderr_counts_for_plain_commands() -> None:
    """B140: chatter on stderr keeps a plain command alive, unless stdout_only; the limit is named apart from the signal."""
    script = "for i in 1 2 3 4 5 6 7 8; do echo warn >&2; sleep 0.1; done"
    assert run_command(shell(script), idle=0.6).ok
    result = run_command(shell(script), idle=0.4, stdout_only=True)
    assert (result.outcome, result.limit, result.signal) == ("timeout", "idle", signal.SIGTERM)


def test_b141_a_mode_that_prints_at_the_end_gets_a_hint() -> None:
    """B141: nothing at all came: the message speaks of a streaming mode; with only `total` it completes."""
    script = "sleep 0.8; echo result"
    assert "streaming output mode" in run_command(shell(script), idle=0.3).message
    assert run_command(shell(script), idle=None, total=20).text == "result\n"


def test_b142_a_flood_on_stderr_does_not_block() -> None:
    """B142: 400 kB on stderr between two lines of stdout: both arrive, stderr as a bounded tail."""
    result = run_command(python("say('one')\nos.write(2, b'e' * 400_000)\nsay('two')"), idle=10)
    assert (result.ok, result.text, len(result.stderr)) == (True, "one\ntwo\n", 65536)


def test_b143_the_pipes_are_read_whatever_the_reader_does(tmp_path: Path) -> None:
    """B143: the reader stops at READY; the program can still write 200 kB more, and go on."""
    note = tmp_path / "note"
    with iter_command(shell(f"echo READY; head -c 200000 /dev/zero; echo done >{note}; sleep 60")) as stream:
        assert next(stream).text == "READY\n"
        wait_until(note.exists)
        assert alive(stream.pid)


def test_b144_stdin_is_empty_or_fed_and_closed() -> None:
    """B144: `cat >/dev/null; echo ok` ends, with and without input, however large."""
    for data in (None, "", "x" * 1_000_000):
        assert run_command(shell("cat >/dev/null; echo ok"), input=data, idle=10).text == "ok\n"


def test_b145_python_is_told_not_to_buffer() -> None:
    """B145: a Python program that prints in time is not silent."""
    program = [sys.executable, "-c", "import time\nfor i in range(6): print(i); time.sleep(0.2)"]
    result = run_command(program, idle=0.9)
    assert (result.ok, result.text) == (True, "0\n1\n2\n3\n4\n5\n")


def test_b146_carriage_returns_are_progress() -> None:
    """B146: a progress display without a single newline is output, and splits into records."""
    script = "for i in 1 2 3 4 5 6 7 8; do printf '%s0%%\\r' $i; sleep 0.1; done"
    with iter_command(shell(script), idle=0.6, ignore="no such line") as stream:
        texts = [event.text for event in stream if event.kind is Kind.TEXT]
    assert texts == [f"{i}0%\r" for i in range(1, 9)]
    assert run_command(shell(script), idle=0.6).ok


def test_b147_output_before_the_timeout_is_kept() -> None:
    """B147: both pipes so far are in the result, as text."""
    result = run_command(shell("echo out; echo err >&2; sleep 60"), idle=0.3)
    assert (result.stdout, result.stderr, result.text) == ("out\n", "err\n", "out\n")


def test_b148_term_first_then_kill() -> None:
    """B148: what a program prints on SIGTERM is captured; one that ignores SIGTERM is killed."""
    says = "signal.signal(signal.SIGTERM, lambda *_: (say('saved'), sys.exit(5)))\nsay('ready')\nwhile True: time.sleep(60)"
    result = run_command(python(says), idle=0.3)
    assert (result.stdout, result.exit_code, result.killed, result.outcome) == ("ready\nsaved\n", 5, False, "timeout")
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsay('ready')\nwhile True: time.sleep(60)"
    result = run_command(python(deaf), idle=0.3, grace=0.2)
    assert (result.stdout, result.signal, result.killed) == ("ready\n", signal.SIGKILL, True)


def test_b149_exiting_at_the_moment_of_the_kill() -> None:
    """B149: 200 programs that exit just when they are signalled: no error, and each is reaped."""
    for turn in range(200):
        child = start_child(Spec(argv=("true",)))
        time.sleep(turn % 10 / 2000)
        child.signal(signal.SIGTERM)
        wait_until(child.exited)
        child.signal(signal.SIGKILL)
        assert child.reap() in (0, -signal.SIGTERM)
        child.close()


def test_b150_our_own_group_is_never_signalled() -> None:
    """B150: a process in our own group is signalled alone: this test lives to tell."""
    with subprocess.Popen(["sleep", "60"]) as mine:
        assert os.getpgid(mine.pid) == os.getpgrp()
        signal_group(mine.pid, os.getpgid(mine.pid), signal.SIGTERM)
        assert mine.wait() == -signal.SIGTERM


CHILDREN = "['sh', '-c', 'sleep 60 & echo $$; wait']"


@pytest.mark.parametrize("grace", [0.2, 30])
def test_b151_ctrl_c_ends_the_command_first(grace: float) -> None:
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
def test_b151_the_end_of_the_interpreter_sweeps(leave: str) -> None:
    """B151: a program that ends while a command runs takes it along."""
    body = f"stream = iter_command({CHILDREN})\nprint(next(stream).text, flush=True)\n{leave}\n"
    with supervised(body) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        group = int(parent.stdout.readline())
        assert parent.wait(20) == (3 if "exit" in leave else 1 if "raise" in leave else 0)
        assert re.search("Warning|ignored", parent.stderr.read()) is None
    assert group_is_gone(group)


def test_b127_sigint_to_the_parent_leaves_no_subprocess() -> None:
    """B127: an interrupted `run_command` leaves nothing of its command."""
    body = f"signal.signal(signal.SIGINT, signal.default_int_handler)\nrun_command({CHILDREN}, first=60)"
    with supervised(body) as parent:
        wait_until(lambda: len(psutil.Process(parent.pid).children(recursive=True)) == 2)
        group = psutil.Process(parent.pid).children()[0].pid
        parent.send_signal(signal.SIGINT)
        assert parent.wait(20) == -signal.SIGINT
    assert group_is_gone(group)


def test_b152_a_daemon_cannot_hold_us(tmp_path: Path) -> None:
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
def test_b152_a_tool_in_a_session_of_its_own_is_stopped_too(deaf: str, tmp_path: Path) -> None:
    """B152: a descendant that only left the group is marked in the evidence, and ended: agents run their tools so."""
    note = tmp_path / "pid"
    script = f"setsid sh -c '{deaf}echo $$ >{note}; sleep 60 & wait' & sleep 60"
    result = run_command(shell(script), idle=0.4, grace=0.3)
    escaped = int(note.read_text())
    assert result.evidence is not None
    assert escaped in [info.pid for info in result.evidence.processes if info.escaped]
    assert group_is_gone(escaped)
    assert result.killed == bool(deaf)


def test_b153_a_heartbeat_that_says_still_running() -> None:
    """B153: with a pattern heartbeats do not count; without one they do, and `total` bounds them."""
    script = 'i=0; while :; do i=$((i+1)); echo "[${i}s] agent still running"; sleep 0.05; done'
    assert run_command(shell(script), idle=0.4, ignore=r"^\[\d+s\] agent still running$").limit == "idle"
    assert run_command(shell(script), idle=5, total=0.6).limit == "total"


def test_b154_stderr_chatter_never_defers_a_member() -> None:
    """B154: with a format stderr does not count; the diagnosis has both instants. Progress without stderr goes on."""
    script = f"echo '{TEXT}'; while :; do echo warning >&2; sleep 0.05; done"
    result = run_command(shell(script), format="claude", idle=0.4)
    assert result.limit == "idle"
    known = result.diagnosis
    assert known is not None
    assert known.last_output_at is not None
    assert known.last_signal_at is not None
    assert (known.last_signal_kind, known.last_signal_at > known.last_output_at) == (Kind.STDERR, True)
    quick = json.loads(TEXT)
    progress = "".join(f"echo '{json.dumps({**quick, 'n': n})}'; sleep 0.1; " for n in range(8))
    assert run_command(shell(progress), format="claude", idle=0.6).outcome == "incomplete"


def test_b155_idle_and_total_are_both_on() -> None:
    """B155: a program that is silent after its start ends at idle, a chatty and endless one at total."""
    assert run_command(shell("echo start; sleep 60"), idle=0.3, total=30).limit == "idle"
    assert run_command(shell("while :; do echo x; sleep 0.02; done"), idle=30, total=0.3).limit == "total"
