"""`streamguard dispatch FILE.toml`."""

import contextlib
import json
import os
import pty
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import psutil
import pytest

from streamguard.dispatch._records.records import RecordStore

from ...dispatch.programs import alive
from ...helpers import wait_until
from ..runs import invoke, last_line, process

BEATS = 'echo begun; while :; do echo \'{"type":"system"}\'; sleep 0.1; done'

TWO = f"""
prompt = "a prompt"
output_timeout = "500ms"

[[members]]
name = "beats"
command = ["sh", "-c", '''{BEATS}''']
format = "claude"

[[members]]
name = "talks"
command = ["sh", "-c", "for n in 1 2 3 4; do echo $n; sleep 0.2; done"]
"""

ONE = """
prompt = "a prompt"

[[members]]
name = "a"
command = ["sh", "-c", '''%s''']
"""
CLAUDE = ONE + 'format = "claude"\n'

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Return a function that writes a file, and returns its path."""

    def write(text: str) -> str:
        path = tmp_path / "review.toml"
        path.write_text(text)
        return str(path)

    return write


def run(file: str, *args: str, tmp_path: Path) -> tuple[Any, dict[str, Any]]:
    report = tmp_path / "report.json"
    result = invoke("dispatch", file, "--report", str(report), *args)
    return result, json.loads(report.read_text())


def test_members_are_run_and_those_that_hang_are_stopped(write: Write, tmp_path: Path) -> None:
    """One beats without output and is stopped, the other one completes: table, report, last line and exit code say so."""
    result, report = run(write(TWO), tmp_path=tmp_path)
    assert result.exit_code == report["exit_code"] == 124
    rows = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert "failed" in rows["beats"]
    assert "timeout" in rows["beats"]
    assert "completed" in rows["talks"]
    assert "1 2 3 4" in rows["talks"]
    assert (report["status"], report["conversation"], report["mode"]) == ("failed", "review", "parallel")
    turns = {turn["member"]: turn for turn in report["turns"]}
    assert turns["beats"]["signal"] == "provider_timeout"
    assert turns["beats"]["diagnosis"]["uncounted"]["status"] > 1
    assert turns["beats"]["evidence"]["processes"]
    assert turns["talks"]["text"] == "1\n2\n3\n4\n"
    assert last_line(result).startswith("streamguard: failed: timeout; 2 turns, ")
    assert "│" not in result.stdout, "a table for terminals"


def test_when_all_succeed(write: Write, tmp_path: Path) -> None:
    """Exit code 0; `--quiet` shows nothing at all; the prompt is the program's standard input."""
    file = write(ONE % "cat")
    result, report = run(file, "--quiet", "--prompt", "another", tmp_path=tmp_path)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert report["turns"][0]["text"] == "another"
    assert last_line(invoke("dispatch", file)).startswith("streamguard: succeeded; 1 turn, ")


def test_any_other_failure_is_one(write: Write, tmp_path: Path) -> None:
    """A member that fails by itself is exit code 1, with its code in the table."""
    result, report = run(write(ONE % "exit 7"), tmp_path=tmp_path)
    assert (result.exit_code, report["reason"]) == (1, "exit_7")
    assert "exit_7" in result.stdout


def test_a_prompt_file_a_serial_mode_and_records(write: Write, tmp_path: Path) -> None:
    """`prompt_file` and folders are relative to the file; `records` keeps what happened."""
    (tmp_path / "prompt.md").write_text("from a file")
    (tmp_path / "sub").mkdir()
    records = f"sqlite:///{tmp_path}/records.db"
    file = write(
        f"""
        prompt_file = "prompt.md"
        conversation = "c"
        mode = "serial"
        records = "{records}"
        output_timeout = 20

        [[members]]
        name = "a"
        command = ["cat"]

        [[members]]
        name = "b"
        command = ["sh", "-c", "basename $PWD; echo $VARIABLE"]
        cwd = "sub"
        env = {{ VARIABLE = "set" }}
        """
    )
    result, report = run(file, tmp_path=tmp_path)
    assert result.exit_code == 0
    assert [turn["text"] for turn in report["turns"]] == ["from a file", "sub\nset\n"]
    store = RecordStore(records)
    assert [response.text for response in store.responses(report["execution_id"])] == ["from a file", "sub\nset\n"]
    store.close()


def test_an_endpoint_as_a_member(write: Write, tmp_path: Path, streamguard_gateway: Any, monkeypatch: Any) -> None:
    """A URL is asked as a chat, with the key of an environment variable, which is in no output."""
    monkeypatch.setenv("THE_KEY", "a-secret-key")
    gateway = streamguard_gateway(["chat Hello", "finish", "done"])
    file = write(
        f"""
        prompt = "p"
        [[members]]
        name = "api"
        url = "{gateway.url}"
        model = "m"
        auth_env = "THE_KEY"
        """
    )
    result, report = run(file, tmp_path=tmp_path)
    assert report["turns"][0]["text"] == "Hello"
    assert gateway.requests[0].headers["Authorization"] == "Bearer a-secret-key"
    assert "a-secret-key" not in result.stdout + result.stderr + json.dumps(report)


def test_the_output_timeout_can_be_given(write: Write, tmp_path: Path) -> None:
    """`--output-timeout` comes before the file's; `off` is never."""
    result, report = run(write(TWO), "--output-timeout", "200ms", tmp_path=tmp_path)
    assert [turn["reason"] for turn in report["turns"] if turn["member"] == "beats"] == ["timeout"]
    assert report["turns"][0]["diagnosis"]["timeout"] == 0.2
    assert result.exit_code == 124
    result, _ = run(write(ONE % "sleep 0.4"), "--output-timeout", "off", tmp_path=tmp_path)
    assert result.exit_code == 0


MEMBER = '[[members]]\nname = "a"\ncommand = ["true"]\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "at least one [[members]] table"),
        ("nonsense", "invalid TOML"),
        ('prompt = "p"\nmembers = 3', "at least one [[members]] table"),
        (MEMBER, "either prompt or prompt_file"),
        ('prompt = "p"\nprompt_file = "p"\n' + MEMBER, "either prompt or prompt_file"),
        ('prompt_file = "none.md"\n' + MEMBER, "prompt_file cannot be read"),
        ('prompt = ""\n' + MEMBER, "prompt takes text"),
        ('prompt = "p"\ntimeout = 3\n' + MEMBER, "no key 'timeout'; known are"),
        ('prompt = "p"\noutput_timeout = "soon"\n' + MEMBER, "output_timeout takes seconds"),
        ('prompt = "p"\noutput_timeout = true\n' + MEMBER, "output_timeout takes seconds"),
        ('prompt = "p"\noutput_timeout = -1\n' + MEMBER, "output_timeout= must be >= 0 seconds"),
        ('prompt = "p"\nmode = "both"\n' + MEMBER, "mode="),
        ('prompt = "p"\nrecords = "nonsense"\n' + MEMBER, "records="),
        ('prompt = "p"\n' + MEMBER + MEMBER, "names 'a' twice"),
        ('prompt = "p"\n[[members]]\nname = "a"', "exactly one of command, program and url"),
        ('prompt = "p"\n[[members]]\ncommand = ["true"]', "name takes text"),
        ('prompt = "p"\n' + MEMBER + "timeout = 3", "member 'a' has no key 'timeout'"),
        ('prompt = "p"\n[[members]]\nname = "a"\ncommand = []', "member 'a':"),
        ('prompt = "p"\n[[members]]\nname = "a"\ncommand = "true"', "member 'a':"),
        ('prompt = "p"\n[[members]]\nprogram = "nothing"', "member 'nothing': unknown preset"),
        ('prompt = "p"\n[[members]]\nname = "a"\ncommand = ["sleep", 1]', "member 'a': command takes a list of texts"),
        ('prompt = "p"\n' + MEMBER + "cwd = 5", "member 'a': cwd takes text"),
        ('prompt = "p"\n' + MEMBER + 'env = "x"', "member 'a': env takes a table of texts"),
        ('prompt = "p"\n' + MEMBER + "env = { A = 1 }", "member 'a': env takes a table of texts"),
        ('prompt = "p"\n' + MEMBER + 'resume = "x"', "member 'a': resume takes a list of texts"),
        ('prompt = "p"\n' + MEMBER + 'pty = "no"', "member 'a': pty takes true or false"),
        ('prompt = "p"\n' + MEMBER + "ignore = 5", "'a': ignore takes text that is not empty, or a list of texts"),
        ('prompt = "p"\n' + MEMBER + 'final = ""', "'a': final takes text that is not empty, or a list of texts"),
        ('prompt = "p"\n[[members]]\nprogram = "claude"\narguments = "-v"', "'claude': arguments takes a list of texts"),
        ('prompt = "p"\n[[members]]\nname = "a"\nurl = 5\nmodel = "m"', "member 'a': url takes text"),
        ('prompt = "p"\n[[members]]\nname = "a"\nurl = "u"\nmodel = 5', "member 'a': model takes text"),
        ('prompt = "p"\n[[members]]\nname = "a"\nurl = "u"\nmodel = "m"\nheaders = "x"', "headers takes a table of texts"),
        ('prompt = "p"\n' + MEMBER + 'format = "yaml"', "member 'a':"),
        (
            'prompt = "p"\n[[members]]\nname = "a"\nurl = "u"\nmodel = "m"\nauth_env = "NOT_SET"',
            "NOT_SET of auth_env is not set",
        ),
    ],
)
def test_a_file_that_cannot_be_right(write: Write, text: str, complaint: str) -> None:
    """What cannot be right is wrong usage, with the file's name and the key, and nothing is run."""
    file = write(text)
    result = invoke("dispatch", file)
    assert result.exit_code == 2
    assert complaint in " ".join(result.stderr.split())
    assert "review.toml" in result.stderr


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """A missing file is wrong usage that says so."""
    result = invoke("dispatch", str(tmp_path / "none.toml"))
    assert result.exit_code == 2
    assert "No such file" in result.stderr


@pytest.mark.parametrize(
    ("numbers", "code"),
    [
        ([signal.SIGINT], 130),
        ([signal.SIGTERM], 143),
        ([signal.SIGHUP], 129),
        ([signal.SIGQUIT], 131),
        ([signal.SIGTERM, signal.SIGTERM], 143),
    ],
)
def test_signals_stop_the_members(write: Write, tmp_path: Path, numbers: list[int], code: int) -> None:
    """The first signal ends the members' programs, then the command; a second one hurries it; the report is written."""
    report = tmp_path / "report.json"
    pids = tmp_path / "pids"
    file = write(ONE % f"echo $$ >{pids}; echo begun; trap 'sleep 0.4; exit' TERM; while :; do sleep 0.1; done")
    with process("dispatch", file, "--report", str(report)) as running:
        wait_until(lambda: pids.exists() and pids.read_text().strip(), 20)
        wait_until(lambda: psutil.Process(running.pid).children(), 20)
        for number in numbers:
            running.send_signal(number)
            time.sleep(0.1)
        _, err = running.communicate(timeout=30)
    assert running.returncode == code
    assert b"cancelled: user_cancel" in err
    assert b"Traceback" not in err
    assert json.loads(report.read_text())["turns"][0]["reason"] == "user_cancel"
    assert not alive(int(pids.read_text()))


DEAF = """
prompt = "a prompt"
[[members]]
name = "a"
grace = "40s"
command = ["sh", "-c", "trap '' TERM; echo $$ >%s; while :; do sleep 0.05; done"]
"""


@pytest.mark.parametrize("more", [1, 2])
def test_further_signals_do_not_wait_for_the_grace(write: Write, tmp_path: Path, more: int) -> None:
    """The second signal kills the members' programs, and all is told; a third one ends at once. Nothing is left."""
    report, pids = tmp_path / "report.json", tmp_path / "pids"
    with process("dispatch", write(DEAF % pids), "--report", str(report)) as running:
        wait_until(lambda: pids.exists() and pids.read_text().strip(), 20)
        begun = time.monotonic()
        running.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert running.poll() is None
        if more == 2:
            os.kill(running.pid, signal.SIGSTOP)  # so that both are there when it looks
        running.send_signal(signal.SIGHUP)
        if more == 2:
            running.send_signal(signal.SIGINT)
            os.kill(running.pid, signal.SIGCONT)
        running.communicate(timeout=30)
    assert time.monotonic() - begun < 20
    if more == 1:
        assert (running.returncode, json.loads(report.read_text())["exit_code"]) == (143, 143)
    else:
        assert running.returncode in (-signal.SIGINT, -signal.SIGHUP)
    wait_until(lambda: not alive(int(pids.read_text())))


def everything(screen: IO[bytes]) -> bytes:
    """Return what is shown until nobody holds the terminal any more, which is an error to its reader."""
    shown = b""
    with contextlib.suppress(OSError):
        while piece := screen.read(4096):
            shown += piece
    return shown


def test_a_terminal_shows_a_live_table(write: Write) -> None:
    """On a terminal the table is drawn while the members run, and once more at the end."""
    master, terminal = pty.openpty()
    with os.fdopen(master, "rb", buffering=0) as screen:
        environment = {"TERM": "xterm", "COLUMNS": "100"}
        with process("dispatch", write(ONE % "echo one; sleep 1.2"), stdout=terminal, env=environment) as running:
            os.close(terminal)
            shown = everything(screen).decode()
            running.wait(timeout=30)
    assert "running" in shown
    assert "completed" in shown
    assert shown.count("last words") > 1


def test_what_a_member_says_does_not_steer_the_terminal(write: Write) -> None:
    """Escape sequences and rich's markup in a member's words are shown as text."""
    file = write(ONE % "printf '\\\\033[31mred [bold]x[/nonsense]'")
    result = invoke("dispatch", file, env={"COLUMNS": "120"})
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "red [bold]x[/nonsense]" in result.stdout


def test_the_folder_of_the_file_may_be_given_as_nothing(write: Write, tmp_path: Path) -> None:
    """`cwd = ""` is the file's own folder."""
    result, report = run(write(ONE % "basename $PWD" + 'cwd = ""\n'), tmp_path=tmp_path)
    assert (result.exit_code, report["turns"][0]["text"]) == (0, f"{tmp_path.name}\n")


def test_an_empty_prompt_is_refused(write: Write) -> None:
    """`--prompt ""` (an unset variable, say) does not fall back on the file's prompt."""
    result = invoke("dispatch", write(ONE % "cat"), "--prompt", "")
    assert result.exit_code == 2
    assert "--prompt must not be empty" in result.stderr


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
@pytest.mark.parametrize("words", [r"\ud83d", r"\ud83d\ude00", "[/red]", "[red]"])
def test_whatever_a_member_says_can_be_shown(write: Write, words: str, encoding: str) -> None:
    """Halves of surrogate pairs, markup in error codes, an output that knows ASCII only: no traceback, and the table."""
    line = f'{{"type":"result","subtype":"error_{words}","result":"R"}}'
    with process("dispatch", write(CLAUDE % f"printf '%s' '{line}'"), env={"PYTHONIOENCODING": encoding}) as running:
        out, err = running.communicate(timeout=30)
    assert running.returncode == 1
    assert b"error_" in out
    assert b"Traceback" not in err


def test_a_reader_that_has_left_costs_no_report(write: Write, tmp_path: Path) -> None:
    """`| true` ends it as other commands (141), and the report is there."""
    report = tmp_path / "report.json"
    read, end = os.pipe()
    os.close(read)
    with process("dispatch", write(ONE % "echo hi"), "--report", str(report), stdout=end) as running:
        os.close(end)
        assert running.wait(30) == 141
    assert json.loads(report.read_text())["turns"][0]["text"] == "hi\n"


def test_a_report_that_cannot_be_written_is_told(write: Write) -> None:
    """A full disk costs the report, and says so."""
    result = invoke("dispatch", write(ONE % "true"), "--report", "/dev/full")
    assert result.exit_code == 1
    assert "cannot write the report: No space left" in result.stderr


def test_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    """A name that is no UTF-8 is the conversation's name as well, and costs nothing."""
    path = os.fsencode(tmp_path) + b"/caf\xe9.toml"
    with open(path, "w", encoding="utf-8") as file:
        file.write(ONE % "echo hi")
    with process("dispatch", os.fsdecode(path)) as running:
        _, err = running.communicate(timeout=30)
    assert running.returncode == 0
    assert b"streamguard: succeeded; 1 turn, " in err


PAIR = f"""
prompt = "p"
output_timeout = "500ms"
[[members]]
name = "lint"
command = ["sh", "-c", "echo no such rule; exit 3"]
[[members]]
name = "beats"
command = ["sh", "-c", '''{BEATS}''']
format = "claude"
"""


def test_the_last_line_and_the_exit_code_agree(write: Write) -> None:
    """124 is a timeout in the last line too, whichever member failed first (C250)."""
    result = invoke("dispatch", write(PAIR))
    assert result.exit_code == 124
    assert last_line(result).startswith("streamguard: failed: timeout, exit_3; 2 turns, ")


def test_each_failure_has_its_reason(write: Write) -> None:
    """A line on standard error for each member that failed has its reason and its message (C250)."""
    lines = invoke("dispatch", write(PAIR)).stderr.splitlines()
    assert any(line.startswith("streamguard: lint: exit_3: ") for line in lines)
    assert any(line.startswith("streamguard: beats: timeout: ") for line in lines)


def test_the_last_words_are_the_last_ones(write: Write) -> None:
    """The table shows the end of what a member wrote, not its beginning (C250)."""
    file = write(ONE % "for n in 1 2 3 4 5 6 7 8 9; do echo the words number $n; done")
    words = invoke("dispatch", file).stdout.splitlines()[1]
    assert words.endswith("the words number 9")
    assert "number 1" not in words


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_a_dumb_terminal_has_a_plain_table(write: Write, term: str) -> None:
    """`TERM=dumb` is a terminal without a live table, borders and escape sequences (C250)."""
    master, terminal = pty.openpty()
    with (
        os.fdopen(master, "rb", buffering=0) as screen,
        process("dispatch", write(ONE % "echo one"), stdout=terminal, env={"TERM": term}) as running,
    ):
        os.close(terminal)
        shown = everything(screen).decode()
        running.wait(timeout=30)
    assert "one" in shown
    assert ("\x1b" in shown, "━" in shown) == ((False, False) if term == "dumb" else (True, True))


def test_a_report_on_standard_output_is_alone_there(write: Write) -> None:
    """With `--report -` standard output is JSON and nothing else (C249)."""
    result = invoke("dispatch", write(ONE % "echo hi"), "--report", "-", "--answers")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["turns"][0]["text"] == "hi\n"
    assert "## a" in result.stderr


def test_a_report_into_a_closed_pipe(write: Write) -> None:
    """`--report - | true` ends with 141 and without a traceback (C249)."""
    read, end = os.pipe()
    os.close(read)
    with process("dispatch", write(ONE % "echo hi"), "--report", "-", stdout=end) as running:
        os.close(end)
        _, err = running.communicate(timeout=30)
    assert running.returncode == 141
    assert b"Traceback" not in err
    assert b"Exception" not in err


def test_answers_on_standard_output(write: Write) -> None:
    """`--answers` prints each answer after its member's name, and the table on standard error."""
    result = invoke("dispatch", write(ONE % "echo one; printf two"), "--answers")
    assert result.stdout == "## a\n\none\ntwo\n"
    assert "last words" in result.stderr


def test_answers_in_a_folder(write: Write, tmp_path: Path) -> None:
    """`--output-dir` writes a file for each member; a name with a slash does not leave the folder."""
    folder = tmp_path / "new" / "answers"
    text = (ONE % "echo one").replace('"a"', '"../a/b"')
    assert invoke("dispatch", write(text), "--output-dir", str(folder)).exit_code == 0
    assert [(path.name, path.read_text()) for path in folder.iterdir()] == [("..%2Fa%2Fb.txt", "one\n")]
    result = invoke("dispatch", write(text), "--output-dir", "/dev/null/x")
    assert (result.exit_code, "cannot make the folder" in result.stderr) == (2, True)


def test_no_timeout_at_all_is_a_warning(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dispatch in which nothing ends a hung member says so, unless that is asked for."""
    monkeypatch.delenv("CLI_TIMEOUT_MS", raising=False)
    warning = "streamguard: warning: no output timeout"
    assert warning in invoke("dispatch", write(ONE % "true")).stderr
    assert warning not in invoke("dispatch", write(ONE % "true"), "--output-timeout", "off").stderr
    assert warning not in invoke("dispatch", write(ONE % "true"), "--output-timeout", "20s").stderr
