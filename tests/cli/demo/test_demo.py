"""`streamguard demo`, played as a whole."""

import io
import os
import signal
import sys
from dataclasses import dataclass

import pytest
from rich.console import Console

from streamguard.cli.demo import demo, demo_scenes
from streamguard.cli.demo.demo_console import DemoConsole
from streamguard.cli.demo.demo_scenes import DemoScene
from streamguard.cli.exit_codes import ExitCode

from ..runs import process

SECONDS = 50


@dataclass
class Played:
    code: int
    out: str
    err: str
    arrivals: int


@pytest.fixture(scope="module")
def played() -> Played:
    """The demo without a terminal, behind a proxy that is not there, read as it comes."""
    pieces: list[bytes] = []
    with process("demo", env={"http_proxy": "http://127.0.0.1:9", "COLUMNS": "100", "STREAMGUARD_IDLE": "0.01"}) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        while piece := os.read(running.stdout.fileno(), 65536):
            pieces.append(piece)
        code, err = running.wait(SECONDS), running.stderr.read()
    return Played(code, b"".join(pieces).decode("ascii"), err.decode(), len(pieces))


def test_everything_shown_really_happened(played: Played) -> None:
    """It exits 0 only after its own claims hold; without a terminal it is plain ASCII text."""
    assert (played.code, played.err) == (0, "")
    assert "claims were checked" in played.out
    assert "\x1b" not in played.out
    assert "\r" not in played.out


def test_the_story_is_told(played: Played) -> None:
    """The bare call is stuck, the guarded one is retried and completes, the stalled one keeps its text."""
    out = " ".join(played.out.split())
    told = [
        "timeout=1.5 never fired",
        "first=1.5 fired",
        demo_scenes.ANSWER,
        "Outcome: completed, at attempt 2",
        demo_scenes.BEGINNING,
        "StreamInactivityTimeoutError: no further chunk for 1.5 s",
        f"error.partial_text == {demo_scenes.BEGINNING!r}",
    ]
    places = [out.find(line) for line in told]
    assert -1 not in places
    assert places == sorted(places)


def test_the_words_come_one_by_one(played: Played) -> None:
    """The text is streamed live: words are written as they come, not all at once."""
    assert played.arrivals > len(demo_scenes.ANSWER.split())


def test_the_table_has_a_row_for_each_call(played: Played) -> None:
    """The table at the end has attempts, phase, chunks, outcome, and when the server saw the client leave."""
    rows = [line.split() for line in played.out.splitlines() if line.startswith(("requests  ", "guarded, "))]
    chunks = str(len(demo_scenes.BEGINNING.split()))
    assert rows[0][-3:] == ["s", "never", "left"]
    assert rows[1][:3] == ["guarded,", "retried", "2"]
    assert "completed" in rows[1]
    assert rows[2][:6] == ["guarded,", "stalled", "1", "idle", chunks, "timeout"]
    assert [row[-4:-2] for row in rows[1:]] == [["left", "after"]] * 2


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and terminals")
def test_ctrl_c_leaves_cleanly() -> None:
    """Ctrl-C in a narrow terminal: exit code 130, no traceback, the prompt on a new line; the counter had been in place."""
    master, slave = os.openpty()
    try:
        with process("demo", env={"COLUMNS": "30", "TERM": "xterm"}, stdout=slave, stderr=slave) as running:
            seen = b""
            while seen.count(b"stuck for") < 4:
                seen += os.read(master, 65536)
            running.send_signal(signal.SIGINT)
            assert running.wait(SECONDS) == 130
            seen += os.read(master, 65536)
        assert b"Traceback" not in seen
        assert seen.endswith(b"\r\n")
        lines = seen.replace(b"\r\n", b"\n").split(b"\n")
        assert any(line.count(b"\r") >= 3 for line in lines)
    finally:
        os.close(master)
        os.close(slave)


def scene(name: str, *claims: tuple[str, bool]) -> DemoScene:
    return DemoScene(name, (name, "1", "idle", "0", "timeout", "1.0 s", "never left"), claims)


def told(width: int, *played: DemoScene) -> tuple[ExitCode, str]:
    out = io.StringIO()
    code = demo.finale(DemoConsole(Console(file=out, width=width)), played)
    return code, out.getvalue()


def test_a_claim_that_fails_is_said_and_ends_with_1() -> None:
    """If one thing did not happen as it was told, the demo says which, and exits with 1."""
    code, out = told(100, scene("one", ("it rained", True)), scene("two", ("it shone", False), ("it blew", True)))
    assert code == 1
    assert "This did not happen: two: it shone" in out
    assert "hold" not in out


def test_a_narrow_terminal_gets_lists() -> None:
    """Where the table does not fit, each row becomes a list, and no line is cut."""
    code, out = told(30, scene("one", ("it rained", True)))
    assert code == 0
    assert "one\n  attempts: 1\n  phase: idle\n" in out
    assert max(map(len, out.splitlines())) <= 30


def test_words_are_wrapped_between_words() -> None:
    """Streamed words go to the next line whole, on any width."""
    out = io.StringIO()
    console = DemoConsole(Console(file=out, width=12))
    for word in ("The", " tide", " comes", " in", " twice"):
        console.word(word)
    console.end_words()
    assert out.getvalue() == "The tide\ncomes in\ntwice\n"
