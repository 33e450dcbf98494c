"""SIGTERM, grace, SIGKILL: the steps with made-up times, and the ends of real process groups."""

import signal
from datetime import timedelta
from typing import Any

import psutil
import pytest

from streamguard import CancelToken
from streamguard._core import monotonic
from streamguard.dispatch._command.command import CommandStream, iter_command, run_command
from streamguard.dispatch._data.turn_events import Event, Kind
from streamguard.dispatch._process.termination import Escalation

from ...helpers import wait_until
from ..programs import SLACK, group_is_gone, python, shell

TERM, KILL = signal.SIGTERM, signal.SIGKILL


def test_each_step_is_taken_once() -> None:
    """TERM at once, KILL after the grace, and the end after the drain."""
    escalation = Escalation(100, grace=3, drain=0.5)
    assert escalation.signals(100) == [TERM]
    assert (escalation.signals(102.9), escalation.wait(102), escalation.killing) == ([], 1, False)
    assert escalation.signals(103) == [KILL]
    assert (escalation.killing, escalation.over(103.4), escalation.over(103.5)) == (True, False, True)
    assert escalation.signals(999) == []


def test_hurry_skips_the_grace() -> None:
    """After `hurry()` KILL is due at once, and once."""
    escalation = Escalation(100, grace=3, drain=0.5)
    escalation.signals(100)
    escalation.hurry(101)
    assert escalation.signals(101) == [KILL]
    escalation.hurry(102)
    assert escalation.signals(102) == []
    assert escalation.over(101.5)


def test_a_late_look_still_waits_for_the_drain() -> None:
    """After a late look, the drain counts from KILL."""
    escalation = Escalation(100, grace=3, drain=0.5)
    assert escalation.signals(200) == [TERM, KILL]
    assert not escalation.over(200.4)
    assert escalation.over(200.5)


IGNORES_TERM = "signal.signal(signal.SIGTERM, signal.SIG_IGN); say('ready')\nwhile True: time.sleep(60)"


def pid_in(text: str) -> int:
    return int(text.split()[0])


def first_text(stream: CommandStream[Event]) -> str:
    return next(event.text for event in stream if event.kind is Kind.TEXT)


def test_the_whole_group_ends_when_the_program_is_stopped() -> None:
    """Children and grandchildren end with the program (T18)."""
    with iter_command(shell("sleep 60 & (sleep 60 & wait) & echo $$; wait")) as stream:
        group = pid_in(first_text(stream))
        wait_until(lambda: len(psutil.Process(group).children(recursive=True)) == 3)
        begun = monotonic()
        stream.close()
    assert group_is_gone(group)
    assert monotonic() - begun < SLACK
    assert stream.result.outcome == "cancelled"


def test_term_then_grace_then_kill() -> None:
    """A program that ignores SIGTERM gets the grace, then SIGKILL (T19)."""
    token = CancelToken()
    with iter_command(python(IGNORES_TERM), cancel=token, grace=0.3) as stream:
        next(stream)
        begun = monotonic()
        token.cancel("enough")
        for _ in stream:
            pass
    assert 0.3 <= monotonic() - begun < 0.3 + SLACK
    result = stream.result
    assert (result.signal, result.killed, result.reason) == (signal.SIGKILL, True, "enough")


def test_term_first_then_kill() -> None:
    """B148: what a program prints on SIGTERM is captured; one that ignores SIGTERM is killed."""
    says = "signal.signal(signal.SIGTERM, lambda *_: (say('saved'), sys.exit(5)))\nsay('ready')\nwhile True: time.sleep(60)"
    result = run_command(python(says), idle=0.3)
    assert (result.stdout, result.exit_code, result.killed, result.outcome) == ("ready\nsaved\n", 5, False, "timeout")
    deaf = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nsay('ready')\nwhile True: time.sleep(60)"
    result = run_command(python(deaf), idle=0.3, grace=0.2)
    assert (result.stdout, result.signal, result.killed) == ("ready\n", signal.SIGKILL, True)


def test_a_child_that_ignores_term_gets_the_grace_too() -> None:
    """The steps are for the group: a child that outlives its parent is killed."""
    code = f"import subprocess\nsubprocess.Popen({python(IGNORES_TERM)!r})\ntime.sleep(60)"
    with iter_command(python(code), grace=0.3) as stream:
        assert next(stream).text == "ready\n"
        group = stream.pid
        stream.close()
    assert group_is_gone(group)
    assert (stream.result.signal, stream.result.killed) == (signal.SIGTERM, True)


def test_a_stopped_process_receives_sigterm() -> None:
    """SIGTERM is followed by SIGCONT: a program in `T` leaves by itself."""
    with iter_command(shell("echo $$; kill -STOP $$; sleep 60"), grace=10) as stream:
        pid = pid_in(first_text(stream))
        wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
        begun = monotonic()
        stream.close()
    assert monotonic() - begun < 5
    assert not stream.result.killed


def test_kill_skips_the_grace() -> None:
    """`kill()` does not wait for the grace."""
    with iter_command(python(IGNORES_TERM), grace=60) as stream:
        next(stream)
        begun = monotonic()
        stream.kill()
        stream.close()
    assert monotonic() - begun < SLACK


@pytest.mark.parametrize("grace", [timedelta(seconds=1e10), timedelta.max])
def test_an_endless_grace_is_one(grace: Any) -> None:
    """A grace that is longer than any wait is the longest possible wait."""
    assert run_command(["true"], grace=grace, linger=grace).ok
    with iter_command(["sleep", "60"], grace=grace) as stream:
        stream.close()
    assert stream.result.outcome == "cancelled"


def test_a_process_that_holds_the_pipe_is_not_waited_for() -> None:
    """B131: `sh -c 'sleep & echo; sleep & wait'` under a limit ends at the limit, and so does what holds the pipe."""
    begun = monotonic()
    with iter_command(shell("sleep 4 & echo hi; sleep 4 & wait"), total=0.4) as stream:
        assert [event.text for event in stream if event.kind is Kind.TEXT] == ["hi\n"]
    assert 0.4 <= monotonic() - begun < 3
    assert (stream.result.limit, stream.result.stdout) == ("total", "hi\n")
    assert group_is_gone(stream.pid)


def test_a_worker_does_not_outlive_its_launcher() -> None:
    """B132: a launcher and the worker that inherited its pipe are both stopped."""
    with iter_command(shell("(while :; do sleep 1; done) & wait"), idle=0.3) as stream:
        assert [event.error_code for event in stream] == ["timeout", "timeout"]
    assert group_is_gone(stream.pid)


def test_the_group_is_ended_after_a_normal_exit() -> None:
    """B133: the leader exits at once, and its child that holds stdout is ended, not waited for."""
    begun = monotonic()
    with iter_command(shell("sleep 60 & echo hi")) as stream:
        assert [event.kind for event in stream] == [Kind.TEXT, Kind.DONE]
    assert monotonic() - begun < 0.5 + SLACK
    assert (stream.result.ok, stream.result.exit_code) == (True, 0)
    assert group_is_gone(stream.pid)
