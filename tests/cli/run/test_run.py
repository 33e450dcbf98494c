"""`streamguard run`: a timeout(1) for silence."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from streamguard._core import monotonic

from ...dispatch.programs import SLACK, alive, group_is_gone, python
from ...helpers import wait_until
from ..runs import invoke, process

SECONDS = 30


def run(*args: str) -> tuple[int, str, list[str]]:
    """Run `streamguard run ARGS` to its end, in this process: exit code, stdout, lines of stderr."""
    result = invoke("run", *args)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    return result.exit_code, result.stdout, result.stderr.splitlines()


def child_of(running: "subprocess.Popen[bytes]") -> int:
    """Return the pid of the supervised command, once it is there."""
    wait_until(lambda: psutil.Process(running.pid).children())
    return psutil.Process(running.pid).children()[0].pid


def test_output_passes_through_and_the_exit_code_is_the_commands() -> None:
    """Both outputs arrive as they are, bytes and all; the last line says what happened."""
    script = "printf 'a\\377b\\n'; echo err >&2; exit 7"
    with process("run", "--idle", "10", "--", "sh", "-c", script) as running:
        out, err = running.communicate(timeout=SECONDS)
    assert (running.returncode, out) == (7, b"a\xffb\n")
    first, last = err.decode().splitlines()
    assert first == "err"
    assert last.startswith("streamguard: failed: sh: the program ended with exit code 7; ")


def test_a_command_that_completes() -> None:
    """Exit code 0, without a line of our own unless `--verbose` asks for one, as timeout(1) does (C250)."""
    assert run("--idle", "10", "echo", "hi") == (0, "hi\n", [])
    code, out, err = run("--verbose", "--idle", "10", "echo", "hi")
    assert (code, out) == (0, "hi\n")
    assert len(err) == 1
    assert err[0].startswith("streamguard: echo completed; exit code 0; ")


def test_output_comes_at_once() -> None:
    """Each piece is passed on when it comes, unfinished lines too."""
    with process("run", "--idle", "10", "--", "sh", "-c", "printf half; sleep 60") as running:
        assert running.stdout is not None
        assert os.read(running.stdout.fileno(), 100) == b"half"
        running.terminate()
        assert running.wait(SECONDS) == 143


def test_silence_is_124_and_the_last_line_says_which_limit() -> None:
    """124 as with timeout(1); the line names the limit, the silence, and that CPU did not defer it."""
    begun = monotonic()
    code, out, err = run("--idle", "300ms", "--", "sh", "-c", "echo hi; sleep 60")
    assert 0.3 <= monotonic() - begun < 2 + SLACK
    assert (code, out) == (124, "hi\n")
    assert err[-1].startswith("streamguard: timeout, --idle 0.3 s: sh was stopped: no output for 0.")
    assert "; not deferred by CPU; terminated (SIGTERM); exit code 124; " in err[-1]


def test_the_last_line_says_that_cpu_deferred_it() -> None:
    """A command that burns CPU gets up to twice the limit, and the line says so."""
    code, _, err = run("--idle", "0.5", "--", *python("while True: pass"))
    assert code == 124
    assert "; deferred by CPU for 0." in err[-1] or "; deferred by CPU for 1." in err[-1]


@pytest.mark.parametrize(
    ("option", "script"), [("--first", "sleep 60"), ("--total", "while :; do echo x; sleep 0.05; done")]
)
def test_first_and_total(option: str, script: str) -> None:
    """The other limits fire under their own names."""
    code, _, err = run(option, "0.3", "--", "sh", "-c", script)
    assert code == 124
    assert f"timeout, {option} 0.3 s" in err[-1]


def test_all_of_it_is_stopped() -> None:
    """Children of the command do not survive it."""
    with process("run", "--idle", "0.5", "--", "sh", "-c", "sleep 60 & sleep 60") as running:
        group = child_of(running)
        assert running.wait(SECONDS) == 124
    assert group_is_gone(group)


def test_a_command_that_ignores_sigterm_is_killed() -> None:
    """Behind `--grace` comes SIGKILL, and the line says so."""
    deaf = python("signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(60)")
    code, _, err = run("--idle", "0.5", "--grace", "0.2", "--", *deaf)
    assert code == 124
    assert "killed (SIGKILL), since it did not exit after SIGTERM; exit code 124; " in err[-1]


def test_stderr_counts_unless_stdout_only() -> None:
    """Any output counts; `--stdout-only` narrows it."""
    script = "for i in 1 2 3 4 5 6 7; do echo x >&2; sleep 0.2; done"
    assert run("--idle", "0.9", "--", "sh", "-c", script)[0] == 0
    assert run("--idle", "0.9", "--stdout-only", "--", "sh", "-c", script)[0] == 124


def test_ignored_lines_do_not_count() -> None:
    """Heartbeat lines pass through, and do not re-arm (B153)."""
    script = "while :; do echo still running; sleep 0.05; done"
    code, out, _ = run("--idle", "0.5", "--ignore", "^still", "--", "sh", "-c", script)
    assert code == 124
    assert "still running\n" in out


def test_a_final_line() -> None:
    """`--final` ends a run that lingers with 0; without that line exit code 0 becomes 1 (B139)."""
    code, out, err = run("-v", "--idle", "10", "--final", "^DONE", "--", "sh", "-c", "echo DONE; sleep 60")
    assert (code, out) == (0, "DONE\n")
    assert "completed" in err[-1]
    code, _, err = run("--idle", "10", "--final", "^DONE", "--", "echo", "hi")
    assert code == 1
    assert "incomplete: echo: the program ended without a line that matches final=" in err[-1]


RESULT = '{"type":"result","subtype":"success","is_error":false,"result":"x"}'
FAILURE = '{"type":"result","subtype":"error_max_turns","is_error":true}'


def test_a_format_tells_what_counts() -> None:
    """With `--format` only real output counts, and the format says whether it is complete."""
    script = 'while :; do echo \'{"type":"system","subtype":"status"}\'; sleep 0.05; done'
    assert run("--idle", "0.5", "--format", "claude", "--", "sh", "-c", script)[0] == 124
    assert run("--idle", "9", "--format", "claude", "--", "sh", "-c", f"echo '{RESULT}'; exit 3")[0] == 0
    code, out, err = run("--idle", "9", "--format", "claude", "--", "echo", FAILURE)
    assert (code, out) == (1, f"{FAILURE}\n")
    assert "failed: echo: error_max_turns" in err[-1]


def test_stdin_passes_through() -> None:
    """What is piped in reaches the command."""
    with process("run", "--idle", "10", "cat", stdin=subprocess.PIPE) as running:
        out, _ = running.communicate(b"piped\n", timeout=SECONDS)
    assert (running.returncode, out) == (0, b"piped\n")


def test_a_terminal_is_not_passed_on() -> None:
    """A terminal as standard input belongs to another session: the command gets an empty one."""
    master, slave = os.openpty()
    try:
        with process("run", "--idle", "10", "--", "sh", "-c", "test -t 0; echo $?; cat", stdin=slave) as running:
            out, _ = running.communicate(timeout=SECONDS)
        assert (running.returncode, out) == (0, b"1\n")
    finally:
        os.close(master)
        os.close(slave)


def test_a_terminal_for_the_command() -> None:
    """`--pty` makes its standard output a terminal."""
    assert run("--idle", "10", "--pty", "--", "sh", "-c", "test -t 1; echo $?")[1] == "0\n"


def test_sigint_is_passed_on() -> None:
    """The first Ctrl-C is the command's own affair; its exit code comes through."""
    code = "signal.signal(signal.SIGINT, lambda *_: (say('bye'), sys.exit(9)))\nsay('ready')\nwhile True: time.sleep(60)"
    with process("run", "--idle", "20", "--", *python(code)) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"ready\n"
        running.send_signal(signal.SIGINT)
        out, err = running.communicate(timeout=SECONDS)
    assert (running.returncode, out) == (9, b"bye\n")
    assert b"Traceback" not in err


def test_a_second_and_a_third_sigint_end_it() -> None:
    """A command that ignores Ctrl-C is stopped at the second one, and killed at the third."""
    deaf = """
        for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)
        say('ready')
        while True: time.sleep(60)
    """
    with process("run", "--idle", "60", "--grace", "60", "--", *python(deaf)) as running:
        assert running.stdout is not None
        running.stdout.readline()
        for _ in range(3):
            time.sleep(0.3)
            assert running.poll() is None
            running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=SECONDS)
    assert running.returncode == 128 + signal.SIGKILL
    assert err.decode().splitlines()[-1].startswith("streamguard: stopped by SIGINT; ")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_sighup_end_the_group(number: signal.Signals) -> None:
    """What ends us ends the command, with its children, by the same ladder."""
    with process("run", "--idle", "60", "--", "sh", "-c", "sleep 60 & echo ready; wait") as running:
        assert running.stdout is not None
        running.stdout.readline()
        group = child_of(running)
        running.send_signal(number)
        _, err = running.communicate(timeout=SECONDS)
    assert running.returncode == 128 + number
    assert f"stopped by {number.name}" in err.decode()
    assert group_is_gone(group)


def test_the_report(tmp_path: Path) -> None:
    """`--report` has outcome, limit, diagnosis, and the evidence from before the kill."""
    file = tmp_path / "report.json"
    run("--idle", "0.3", "--report", str(file), "--", "sh", "-c", "echo out; echo err >&2; sleep 60")
    report = json.loads(file.read_text())
    wanted = {"outcome": "timeout", "limit": "idle", "limit_seconds": 0.3, "exit_code": 124, "signal": 15, "program": "sh"}
    assert report | wanted == report
    assert report["diagnosis"]["silence"] >= 0.3
    assert (report["evidence"]["stdout"], report["evidence"]["stderr"]) == ("out\n", "err\n")
    assert [info["name"] for info in report["evidence"]["processes"]] == ["sh", "sleep"]


def test_on_stall(tmp_path: Path) -> None:
    """`--on-stall` runs while the command still lives, with pid, limit, and what is known on stdin."""
    file = tmp_path / "known.json"
    shell = f'kill -0 $STREAMGUARD_PID && echo "looking at $STREAMGUARD_LIMIT"; cat >{file}; exit 5'
    code, _, err = run("--idle", "0.3", "--on-stall", shell, "--", "sh", "-c", "echo hi; sleep 60")
    assert code == 124
    assert err[0] == "looking at idle"
    assert err[1].startswith("streamguard: warning: --on-stall: sh: the program ended with exit code 5")
    assert json.loads(file.read_text())["evidence"]["stdout"] == "hi\n"


@pytest.mark.parametrize(
    ("args", "code", "complaint"),
    [
        (["--idle", "1", "no-such-program"], 127, "cannot start 'no-such-program': program not found on the PATH"),
        (["--idle", "1", "/etc/passwd"], 126, "cannot start '/etc/passwd': Permission denied"),
        (["--idle", "1"], 125, "missing COMMAND"),
        (["true"], 125, "give at least one of"),
        (["--idle", "soon", "true"], 125, "invalid duration"),
        (["--idle", "1", "--nonsense", "true"], 125, "No such option"),
        (["--idle", "1", "--ignore", "(", "true"], 125, "ignore= must be a regular expression"),
        (["--idle", "1", "--format", "claude", "--final", "x", "true"], 125, "final= is for"),
    ],
)
def test_what_cannot_be_run(args: list[str], code: int, complaint: str) -> None:
    """125 to 127, as timeout(1) uses them, each with its sentence."""
    result = invoke("run", *args)
    assert result.exit_code == code
    assert complaint in result.stderr


def test_buffered_output_is_warned_of() -> None:
    """A command line that asks for output at the end gets a warning (B141)."""
    _, _, err = run("--idle", "10", "--", "echo", "--output-format", "json")
    assert err[0].startswith("streamguard: warning: --output-format json")
    assert run("-q", "--idle", "10", "--", "echo", "--output-format", "json")[2] == []


@pytest.mark.parametrize("both", [False, True])
def test_a_closed_pipe_ends_the_command(both: bool) -> None:
    """When nobody reads any more (`| head`) the command is stopped, without a word."""
    streams = {"stderr": subprocess.STDOUT} if both else {}
    with process("run", "--idle", "20", "--", "sh", "-c", "while :; do echo x; done", **streams) as running:
        assert running.stdout is not None
        group = child_of(running)
        os.read(running.stdout.fileno(), 1)
        running.stdout.close()
        assert running.wait(SECONDS) == 141
        assert running.stderr is None or running.stderr.read() == b""
    assert group_is_gone(group)


def test_standard_error_that_nobody_reads_is_no_reason_to_stop() -> None:
    """The command goes on, and its exit code comes through."""
    read, write = os.pipe()
    os.close(read)
    with process(
        "run", "--idle", "20", "--", "sh", "-c", "echo err >&2; sleep 0.1; echo err >&2; echo hi", stderr=write
    ) as running:
        os.close(write)
        out, _ = running.communicate(timeout=SECONDS)
    assert (running.returncode, out) == (0, b"hi\n")


def test_a_reader_that_is_slow_does_not_make_it_silent() -> None:
    """A blocked pager is no silence of the command."""
    code = "out = b'x' * 65535 + b'\\n'\nfor _ in range(300): os.write(1, out)"
    with process("run", "--idle", "0.5", "--", *python(code)) as running:
        assert running.stdout is not None
        time.sleep(1.2)
        assert alive(running.pid)
        out, _ = running.communicate(timeout=SECONDS)
    assert (running.returncode, len(out)) == (0, 300 * 65536)


@pytest.mark.parametrize(("name", "code"), [("TERM", 143), ("HUP", 129), ("QUIT", 131)])
def test_a_signal_at_the_very_start_leaves_nothing(tmp_path: Path, name: str, code: int) -> None:
    """The handlers are there before the command is: one that signals us in its first instant is ended."""
    pids = tmp_path / "pid"
    script = f"echo $$ >{pids}; kill -{name} $PPID; exec sleep 60"
    with process("run", "--idle", "60", "-q", "--", "sh", "-c", script) as running:
        running.communicate(timeout=SECONDS)
    assert running.returncode == code
    assert not alive(int(pids.read_text()))


def test_a_final_line_decides_whatever_the_exit_code() -> None:
    """With the line that ends the run it is complete, and its own exit code says nothing."""
    assert run("--idle", "10", "--final", "^DONE$", "--", "sh", "-c", "echo DONE; exit 3")[0] == 0


def test_no_grace_at_all() -> None:
    """`--grace 0` kills at once; off, which would be never, is refused."""
    assert run("--total", "0.2", "--grace", "0", "--", "sh", "-c", 'trap "" TERM; sleep 60')[0] == 124
    assert run("--idle", "10", "--grace", "off", "--", "true")[0] == 125


@pytest.mark.parametrize(
    ("closing", "code", "err"),
    [(">&-", 3, "failed"), ("2>&-", 3, ""), (">&- 2>&- <&-", 3, ""), (">/dev/full", 125, "cannot write the output")],
)
def test_outputs_that_are_closed_or_full(closing: str, code: int, err: str) -> None:
    """An output that was closed at the start is nowhere; one that is full is our own failure, and that is 125."""
    script = f'exec "$0" -m streamguard.cli run --idle 10 -- sh -c "echo hi; echo err >&2; exit 3" {closing}'
    found = subprocess.run(
        ["sh", "-c", script, sys.executable], capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert found.returncode == code
    assert "Traceback" not in found.stderr
    assert err in found.stderr


def test_a_report_that_cannot_be_written_is_told() -> None:
    """A full disk costs the report, and says so, with the code of our own failures."""
    result = invoke("run", "--idle", "10", "--report", "/dev/full", "--", "sh", "-c", "exit 3")
    assert result.exit_code == 125
    assert "cannot write the report: No space left" in result.stderr
    assert "failed: sh: the program ended with exit code 3; " in result.stderr.splitlines()[0]


def test_a_report_that_nobody_reads(tmp_path: Path) -> None:
    """It ends as other commands do where a pipe has no reader any more."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    with process("run", "--idle", "10", "--report", str(pipe), "--", "sh", "-c", "echo hi; cat") as running:
        assert running.stdout is not None
        running.stdout.readline()
        os.close(reader)
        _, err = running.communicate(timeout=SECONDS)
    assert running.returncode == 141
    assert b"Traceback" not in err


@pytest.mark.parametrize(("options", "number", "code"), [(["--total", "0.5"], None, 124), ([], signal.SIGTERM, 143)])
def test_a_paused_reader_does_not_hold_the_end(options: list[str], number: int | None, code: int) -> None:
    """Where nobody takes our output (a paused pager), a limit and a signal end us all the same."""
    read, write = os.pipe()
    with process("run", "--idle", "60", *options, "--", "yes", stdout=write, stderr=write) as running:
        os.close(write)
        group = child_of(running)
        time.sleep(0.3)
        if number is not None:
            running.send_signal(number)
        assert running.wait(10) == code
    os.close(read)
    assert group_is_gone(group)


LINES = "out = b'x' * 99 + b'\\n'\nfor _ in range(3000): os.write(1, out)\n"


def test_a_slow_reader_of_what_is_complete_loses_nothing(tmp_path: Path) -> None:
    """A command that lingers behind its final line is ended, and all that it had said is there for a late reader."""
    report = tmp_path / "report.json"
    code = LINES + "say('FINAL')\ntime.sleep(60)"
    with process("run", "--idle", "20", "--final", "^FINAL", "--report", str(report), "--", *python(code)) as running:
        assert running.stdout is not None
        group = child_of(running)
        wait_until(lambda: group_is_gone(group))
        time.sleep(1.5)
        out, _ = running.communicate(timeout=SECONDS)
    assert (running.returncode, len(out)) == (0, 300_006)
    assert json.loads(report.read_text())["output_lost"] is False


def test_a_sigint_that_is_only_passed_on_loses_nothing() -> None:
    """A command that survives Ctrl-C goes on, and so does its output, however slow the reader."""
    code = "signal.signal(signal.SIGINT, signal.SIG_IGN)\nsay('ready')\n" + LINES
    with process("run", "--idle", "20", "--", *python(code)) as running:
        assert running.stdout is not None
        os.read(running.stdout.fileno(), 6)
        running.send_signal(signal.SIGINT)
        time.sleep(2)
        out, _ = running.communicate(timeout=SECONDS)
    assert (running.returncode, len(out)) == (0, 300_000)


@pytest.mark.parametrize("blocking", [True, False])
def test_output_that_was_dropped_is_told(tmp_path: Path, blocking: bool) -> None:
    """Where nobody could wait for a paused reader, the report and the last line say that something is missing.

    What comes once there is room again is written, as long as the command runs.
    """
    report = tmp_path / "report.json"
    code = "signal.signal(signal.SIGTERM, lambda *_: None)\n" + LINES + "time.sleep(4)\nsay('END')\ntime.sleep(60)"
    read, write = os.pipe()
    os.set_blocking(write, blocking)
    command = ["--total", "1", "--grace", "8", "--report", str(report), "--", *python(code)]
    with process("run", *command, stdout=write) as running:
        os.close(write)
        time.sleep(3)
        out = os.read(read, 1 << 20)
        while piece := os.read(read, 1 << 20):
            out += piece
        _, err = running.communicate(timeout=SECONDS)
    os.close(read)
    assert running.returncode == 124
    assert out.endswith(b"END\n")
    assert json.loads(report.read_text())["output_lost"] is True
    assert b"; output was dropped because it was not read in time; " in err


def test_a_pipe_that_refuses_what_it_has_room_for_is_asked_slowly() -> None:
    """A full pipe that does not block costs no processor while nobody reads it, and loses nothing."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    with process("run", "--idle", "20", "--", *python(LINES), stdout=write) as running:
        os.close(write)
        time.sleep(2)
        used = sum(psutil.Process(running.pid).cpu_times()[:2])
        time.sleep(2)
        assert sum(psutil.Process(running.pid).cpu_times()[:2]) - used < 0.5
        out = b""
        while piece := os.read(read, 1 << 20):
            out += piece
        assert running.wait(SECONDS) == 0
    os.close(read)
    assert len(out) == 300_000


def test_sigchld_is_heard_even_if_it_was_handed_down_as_ignored() -> None:
    """A supervisor that ignores SIGCHLD does not hide the exit code of the command."""
    ignoring = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.executable, sys.argv[1:])"
    )
    command = [sys.executable, "-m", "streamguard.cli", "run", "--idle", "10", "--", "sh", "-c", "exit 3"]
    argv = [sys.executable, "-c", ignoring, *command]
    assert subprocess.run(argv, capture_output=True, timeout=SECONDS, check=False).returncode == 3


def test_a_report_on_standard_output_is_alone_there() -> None:
    """With `--report -` standard output is JSON, and the command's own goes to standard error (C249)."""
    code, out, err = run("--idle", "10", "--report", "-", "--", "echo", "hi")
    assert (code, err) == (0, ["hi"])
    assert json.loads(out)["exit_code"] == 0


def test_a_report_into_a_closed_pipe() -> None:
    """`--report - | true` ends with 141 and without a traceback (C249)."""
    read, end = os.pipe()
    os.close(read)
    with process("run", "--idle", "10", "--report", "-", "--", "echo", "hi", stdout=end) as running:
        os.close(end)
        _, err = running.communicate(timeout=SECONDS)
    assert (running.returncode, err) == (141, b"hi\n")
