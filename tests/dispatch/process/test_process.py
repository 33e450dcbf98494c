"""Starting, draining and ending real processes."""

import errno
import os
import signal
import subprocess
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from streamguard import CancelToken, StreamguardError, UsageError, deadline
from streamguard._core import monotonic
from streamguard.dispatch._command.command import CommandStream, iter_command, run_command
from streamguard.dispatch._command.command_options import CommandPlan
from streamguard.dispatch._data.turn_events import Event, Kind
from streamguard.dispatch._process.spawn import CommandStartError, Spec, signal_group, start_child

from ...helpers import wait_until
from ..programs import SLACK, alive, group_is_gone, python, shell

IGNORES_TERM = "signal.signal(signal.SIGTERM, signal.SIG_IGN); say('ready')\nwhile True: time.sleep(60)"


def pid_in(text: str) -> int:
    return int(text.split()[0])


def first_text(stream: CommandStream[Event]) -> str:
    return next(event.text for event in stream if event.kind is Kind.TEXT)


def test_everything_of_a_normal_run() -> None:
    """Output, errors, exit code and the last event of a program that just works."""
    with iter_command(shell("echo out; echo err >&2; exit 0")) as stream:
        events = [*stream]
    assert sorted((event.kind, event.text) for event in events[:-1]) == [("stderr", "err\n"), ("text", "out\n")]
    assert events[-1] == Event.done()
    result = stream.result
    assert (result.ok, result.exit_code, result.signal, result.stopped, result.killed) == (True, 0, None, False, False)
    assert (result.text, result.stdout, result.stderr) == ("out\n", "out\n", "err\n")
    assert [*stream] == []


@pytest.mark.parametrize(("script", "exit_code", "number"), [("exit 3", 3, None), ("kill -9 $$", None, 9)])
def test_a_failing_run(script: str, exit_code: int | None, number: int | None) -> None:
    """The exit code, or the signal, and a reason in words."""
    result = run_command(shell(script))
    assert (result.outcome, result.exit_code, result.signal) == ("failed", exit_code, number)
    assert result.error_code == (f"exit_{exit_code}" if number is None else f"signal_{number}")
    assert result.message


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
    """Who ignores SIGTERM gets the grace, then SIGKILL (T19)."""
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


def test_a_child_that_ignores_term_gets_the_grace_too() -> None:
    """The ladder is for the group: a child that stays behind its parent is killed."""
    code = f"import subprocess\nsubprocess.Popen({python(IGNORES_TERM)!r})\ntime.sleep(60)"
    with iter_command(python(code), grace=0.3) as stream:
        assert next(stream).text == "ready\n"
        group = stream.pid
        stream.close()
    assert group_is_gone(group)
    assert (stream.result.signal, stream.result.killed) == (signal.SIGTERM, True)


def test_a_stopped_process_hears_sigterm() -> None:
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


def test_the_leader_stays_unreaped_until_its_group_is_gone() -> None:
    """While children of a dead leader live, its pid is a zombie of ours: nobody else can get it (T18)."""
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
    """gevent's Popen waits without end where SIGCHLD is ignored: then the code is unknown."""

    def never(timeout: float) -> int:
        raise subprocess.TimeoutExpired("true", timeout)

    child = start_child(Spec(argv=("true",)))
    os.waitpid(child.pid, 0)
    with monkeypatch.context() as patched:
        patched.setattr(child._popen, "wait", never)
        assert child.reap() is None
    child._popen.wait()
    child.close()
    assert not child.signal(signal.SIGTERM)


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


def test_input_is_fed_and_closed() -> None:
    """A large input is fed while the output is read; then the program sees its end."""
    text = "line of input\n" * 100_000
    result = run_command(shell("cat"), input=text, idle=20)
    assert result.ok
    assert result.text == text


def test_input_that_nobody_wants() -> None:
    """A program that does not read its input, and exits, is no error."""
    assert run_command(shell("echo ok"), input=b"x" * 1_000_000).text == "ok\n"


def test_without_input_the_standard_input_is_empty() -> None:
    """The program does not wait for ours."""
    assert run_command(shell("cat; echo end"), idle=10).text == "end\n"


def test_a_terminal_for_programs_that_hold_back() -> None:
    """With pty=True standard output is a terminal, whose line ends stay as they are; errors come by themselves."""
    result = run_command(
        python("print(sys.stdout.isatty(), sys.stderr.isatty()); print('oops', file=sys.stderr)"), pty=True
    )
    assert (result.text, result.stderr) == ("True False\n", "oops\n")


def test_a_terminal_of_which_children_are_left() -> None:
    """The end of a terminal is seen like that of a pipe; what is left in the group is ended."""
    with iter_command(shell("sleep 60 & echo hi"), pty=True, grace=0.3) as stream:
        assert "hi\n" in "".join(event.text for event in stream)
    assert stream.result.ok
    assert group_is_gone(stream.pid)


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
    """A folder that does not exist, and a script whose interpreter does not, are told apart from a missing program."""
    with pytest.raises(CommandStartError, match="cannot enter the folder of cwd="):
        run_command(["true"], cwd=str(tmp_path / "gone"))
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(CommandStartError, match="interpreter in its first line"):
        run_command([str(script)], pty=True)


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


def test_the_environment_and_the_folder(tmp_path: Path) -> None:
    """*env* is the whole environment, but for PYTHONUNBUFFERED (B145); *cwd* is where it runs."""
    result = run_command(["/usr/bin/env"], env={"A": "b"}, cwd=tmp_path)
    assert set(result.text.split()) == {"A=b", "PYTHONUNBUFFERED=1"}
    assert "PYTHONUNBUFFERED=\n" in run_command(["/usr/bin/env"], env={"PYTHONUNBUFFERED": ""}).text
    assert run_command(shell("pwd -P"), cwd=tmp_path).text == f"{tmp_path.resolve()}\n"


def test_our_own_group_is_never_signalled() -> None:
    """A process that is in our group is signalled alone (B150)."""
    with subprocess.Popen(["sleep", "60"]) as mine:
        assert signal_group(mine.pid, os.getpgrp(), signal.SIGKILL)
        assert mine.wait() == -signal.SIGKILL


def test_signals_of_what_is_gone_are_swallowed() -> None:
    """Nobody to signal is an answer, not an error (B149)."""
    child = start_child(Spec(argv=("true",)))
    wait_until(child.exited)
    assert child.signal(signal.SIGTERM)  # the zombie is still ours
    child.reap()
    child.close()
    assert not signal_group(child.pid, child.group, signal.SIGTERM)


def test_a_reader_that_is_away_does_not_hold_the_program() -> None:
    """Both pipes are read while nobody takes the events, up to 8 MiB of them (B143)."""
    with iter_command(shell("echo READY; head -c 200000 /dev/zero | tr '\\0' x; echo >&2 through")) as stream:
        assert next(stream).text == "READY\n"
        wait_until(lambda: not alive(stream.pid))
        assert len("".join(event.text for event in stream if event.kind is Kind.TEXT)) == 200_000
    assert stream.result.ok


def test_a_program_that_is_held_back_is_not_silent() -> None:
    """Behind 8 MiB the program waits for its reader; its clock stands still meanwhile, and nothing is lost (T1)."""
    size = 12 * 1024 * 1024
    with iter_command(
        python(f"out = b'x' * 65535 + b'\\n'\nfor _ in range({size >> 16}): os.write(1, out)"), idle=0.3
    ) as stream:
        taken = len(next(stream).text)
        time.sleep(1.0)
        assert alive(stream.pid)
        for event in stream:
            taken += len(event.text)
    assert (stream.result.outcome, taken) == ("completed", size)


def test_limits_hold_with_no_reader() -> None:
    """The limit fires though nobody asks for the next event."""
    with iter_command(shell("sleep 60"), idle=0.2) as stream:
        wait_until(lambda: not alive(stream.pid), 5)
        assert [event.kind for event in stream] == [Kind.ERROR, Kind.DONE]
    assert stream.result.limit == "idle"


def test_leaving_a_with_block_stops_it() -> None:
    """Breaking out of the loop inside `with` leaves nothing running."""
    with iter_command(shell("while :; do echo x; sleep 0.01; done")) as stream:
        for _ in stream:
            break
    assert group_is_gone(stream.pid)


def test_a_stream_that_is_dropped_stops_it() -> None:
    """A stream that nobody holds any more ends its program."""
    stream = iter_command(shell("while :; do echo x; sleep 0.01; done"))
    next(stream)
    group = stream.pid
    del stream
    wait_until(lambda: group_is_gone(group))


def test_the_result_is_not_there_while_it_runs() -> None:
    """Asking too early is a UsageError that says so."""
    with iter_command(shell("sleep 60")) as stream, pytest.raises(UsageError, match="still running"):
        _ = stream.result


def test_a_cancelled_token_starts_and_stops_at_once() -> None:
    """A token that is cancelled before the start ends the run as cancelled."""
    token = CancelToken()
    token.cancel("before")
    begun = monotonic()
    result = run_command(shell("sleep 60"), cancel=token)
    assert (result.outcome, result.reason) == ("cancelled", "before")
    assert monotonic() - begun < SLACK


def test_many_at_once_from_many_threads() -> None:
    """Thirty trees that hang, stopped at once, leave nothing: the leak checks are the witness."""
    token = CancelToken()
    results = []

    def run() -> None:
        results.append(run_command(shell("sleep 60 & sleep 60"), cancel=token))

    threads = [threading.Thread(target=run) for _ in range(30)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(psutil.Process().children(recursive=True)) >= 90, 20)
    token.cancel()
    for thread in threads:
        thread.join(20)
    assert [result.outcome for result in results] == ["cancelled"] * 30


def test_without_a_pid_descriptor_the_exit_is_still_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no pidfd, the exit is looked for."""
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    begun = monotonic()
    assert run_command(shell("exec >/dev/null 2>&1; sleep 0.2; exit 4")).exit_code == 4
    assert monotonic() - begun < 0.2 + SLACK


def test_a_thread_that_cannot_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no thread can be had, the program is ended again, and the error is ours."""

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with pytest.raises(StreamguardError, match="cannot start the thread"):
        run_command(shell("sleep 60"))


@pytest.mark.stress
def test_200_hanging_trees_leave_nothing() -> None:
    """200 runs, each of a tree that hangs, one after another: no process, thread or descriptor is left."""
    for _ in range(200):
        result = run_command(shell("sleep 60 & (sleep 60 & wait) & echo hi; wait"), idle=0.02)
        assert result.limit == "idle"


@pytest.mark.parametrize(
    "options",
    [{"env": {"A=B": "1"}}, {"env": {"A": "a\0b"}}, {"cwd": "a\0b"}, {"env": {"A": None}}, {"input": "\ud800"}],
    ids=str,
)
def test_what_the_system_cannot_take_is_wrong_usage_and_leaks_nothing(options: dict[str, Any]) -> None:
    """Impossible names, values and folders are refused, and no terminal stays open."""
    with pytest.raises(UsageError):
        run_command(["true"], pty=True, **options)


def test_a_missing_program_is_looked_for_where_the_system_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of that name in the current folder is not on the PATH; a path is read from cwd=."""
    (tmp_path / "not-on-the-path").write_text("#!/bin/sh\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CommandStartError, match="not found on the PATH"):
        run_command(["not-on-the-path"])
    with pytest.raises(CommandStartError, match="program not found"):
        run_command(["./not-on-the-path"], cwd="/")


@pytest.mark.parametrize("grace", [timedelta(seconds=1e10), timedelta.max])
def test_an_endless_grace_is_one(grace: Any) -> None:
    """What is longer than any wait is waited for as long as can be."""
    assert run_command(["true"], grace=grace, linger=grace).ok
    with iter_command(["sleep", "60"], grace=grace) as stream:
        stream.close()
    assert stream.result.outcome == "cancelled"


def test_what_was_to_be_stopped_before_its_start_is_not_started(tmp_path: Path) -> None:
    """A spent deadline, a cancelled token: the outcome is theirs, and the program has done nothing."""
    mark = tmp_path / "mark"
    with deadline(0):
        late = run_command(["touch", str(mark)])
    assert (late.outcome, late.limit, late.stopped, late.exit_code) == ("timeout", "deadline", False, None)
    token = CancelToken()
    token.cancel("early")
    with iter_command(["touch", str(mark)], cancel=token) as stream:
        assert [event.error_code for event in stream] == ["cancelled"]
    assert (stream.result.outcome, stream.result.reason, stream.pid) == ("cancelled", "early", 0)
    assert "not started" in late.message
    assert not mark.exists()
