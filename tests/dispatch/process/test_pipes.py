"""The pipes of a program: input, output, terminals."""

import os
import time
from pathlib import Path

import pytest

from streamguard._core import monotonic
from streamguard.dispatch._command.command import iter_command, run_command
from streamguard.dispatch._data.turn_events import Kind

from ...helpers import wait_until
from ..programs import SLACK, alive, group_is_gone, python, shell


def test_input_is_fed_and_closed() -> None:
    """A large input is fed while the output is read; then the program sees its end."""
    text = "line of input\n" * 100_000
    result = run_command(shell("cat"), input=text, idle=20)
    assert result.ok
    assert result.text == text


def test_input_that_is_not_read() -> None:
    """A program that exits without reading its input is not an error."""
    assert run_command(shell("echo ok"), input=b"x" * 1_000_000).text == "ok\n"


def test_without_input_the_standard_input_is_empty() -> None:
    """The program does not wait for ours."""
    assert run_command(shell("cat; echo end"), idle=10).text == "end\n"


def test_stdin_is_empty_or_fed_and_closed() -> None:
    """B144: `cat >/dev/null; echo ok` ends, with and without input, however large."""
    for data in (None, "", "x" * 1_000_000):
        assert run_command(shell("cat >/dev/null; echo ok"), input=data, idle=10).text == "ok\n"


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


def test_a_flood_on_stderr_does_not_block() -> None:
    """B142: 400 kB on stderr between two lines of stdout: both arrive, stderr as a bounded tail."""
    result = run_command(python("say('one')\nos.write(2, b'e' * 400_000)\nsay('two')"), idle=10)
    assert (result.ok, result.text, len(result.stderr)) == (True, "one\ntwo\n", 65536)


def test_a_reader_that_is_away_does_not_hold_the_program() -> None:
    """Both pipes are read while the events are not, up to 8 MiB of them (B143)."""
    with iter_command(shell("echo READY; head -c 200000 /dev/zero | tr '\\0' x; echo >&2 through")) as stream:
        assert next(stream).text == "READY\n"
        wait_until(lambda: not alive(stream.pid))
        assert len("".join(event.text for event in stream if event.kind is Kind.TEXT)) == 200_000
    assert stream.result.ok


def test_the_pipes_are_read_whatever_the_reader_does(tmp_path: Path) -> None:
    """B143: the reader stops at READY; the program can still write 200 kB more, and go on."""
    note = tmp_path / "note"
    with iter_command(shell(f"echo READY; head -c 200000 /dev/zero; echo done >{note}; sleep 60")) as stream:
        assert next(stream).text == "READY\n"
        wait_until(note.exists)
        assert alive(stream.pid)


def test_a_program_that_is_held_back_is_not_silent() -> None:
    """Above 8 MiB the program waits for its reader; its clock stands still meanwhile, and nothing is lost (T1)."""
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


def test_without_a_pid_descriptor_the_exit_is_still_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no pidfd, the exit is looked for."""
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    begun = monotonic()
    assert run_command(shell("exec >/dev/null 2>&1; sleep 0.2; exit 4")).exit_code == 4
    assert monotonic() - begun < 0.2 + SLACK
