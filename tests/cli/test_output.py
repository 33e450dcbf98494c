"""Chunks as bytes of standard output, and the status line."""

import io
import os
from typing import Any

import pytest
import sseclient

from streamguard import Chunk, Timeouts
from streamguard._reports import StreamReport
from streamguard._stream.recorder import Recorder
from streamguard._text import printable
from streamguard.cli.output import Output, reader_has_left
from streamguard.cli.tail.status_line import StatusLine, status_text


def chat(text: str, **delta: str) -> Chunk:
    return Chunk({"choices": [{"index": 0, "delta": {"content": text, **delta}}]})


def written(decode: str, *chunks: Any, terminal: bool = False, reasoning: bool = False) -> bytes:
    out = io.BytesIO()
    output = Output(out, decode=decode, reasoning=reasoning, terminal=terminal)
    for chunk in chunks:
        output.write(chunk)
    output.finish()
    return out.getvalue()


def report(**fields: Any) -> StreamReport:
    recorder = Recorder(name=None, host="a.test", summary=lambda: (None, None))
    for name, value in fields.items():
        setattr(recorder, name, value)
    return recorder.snapshot()


@pytest.mark.parametrize(
    ("decode", "chunk", "expected"),
    [
        ("chat", chat("tide\n\x1b[2J"), b"tide\n\x1b[2J"),
        ("chat", chat("\ud800"), "\ufffd".encode()),
        ("chat", chat(""), b""),
        ("events", sseclient.Event(event="ping", data="a\nb\rc"), b"ping\ta\\nb\\rc\n"),
        ("json", {"a": ["ü", 1.5, None]}, '{"a":["ü",1.5,null]}\n'.encode()),
        ("json", "\ud800", b'"\\ud800"\n'),
        ("bytes", b"\x00\xff\n", b"\x00\xff\n"),
    ],
)
def test_each_decoding_has_its_form(decode: str, chunk: Any, expected: bytes) -> None:
    """Text as it is, one line for each event, JSON lines, or bytes unchanged; all of it can be written."""
    assert written(decode, chunk) == expected


def test_a_terminal_is_not_steered_by_the_server() -> None:
    """On a terminal, control characters in text are left out, and the last line is ended; raw bytes stay raw."""
    assert written("chat", chat("a\x1b[2J\x07b\tc"), terminal=True) == b"a[2Jb\tc\n"
    assert written("bytes", b"\x1b[2J\n", terminal=True) == b"\x1b[2J\n"
    assert printable("a\r\x9b\x7fb\n") == "ab\n"


def test_reasoning_goes_to_stderr_and_only_if_asked(capfd: pytest.CaptureFixture[str]) -> None:
    """Reasoning never mixes with the text: it is left out, or shown on standard error on lines of its own."""
    chunks = [chat("", reasoning_content="hm"), chat("", reasoning_content="..."), chat("text")]
    assert written("chat", *chunks) == b"text"
    assert capfd.readouterr().err == ""
    assert written("chat", *chunks, reasoning=True) == b"text"
    assert capfd.readouterr().err == "hm...\n"


def test_a_reader_that_has_left_is_noticed_without_a_write() -> None:
    """A pipe whose reading end is closed is told from one that is read, and from what is no pipe."""
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as out:
        assert not reader_has_left(out)
        os.close(reader)
        assert reader_has_left(out)
    assert not reader_has_left(out)
    assert not reader_has_left(io.BytesIO())


def test_the_status_says_what_may_still_happen() -> None:
    """The status names phase, chunks, silence, and the time left: of the phase's limit or of the total, the smaller."""
    limits = Timeouts(first=60, idle=30, total=100)
    text = status_text(report(chunks=3, comments=2, attempts=2), limits, phase="first", silence=12.34)
    assert text == "[first] silent for 12.3 s, 47.7 s left, 3 chunks, 2 heartbeats, attempt 2"
    assert status_text(report(), Timeouts(first=None), phase="first", silence=1) == "[first] silent for 1.0 s, 0 chunks"
    late = status_text(report(started=0.0), limits, phase="first", silence=1)
    assert late == "[first] silent for 1.0 s, 0.0 s left, 0 chunks"


def test_the_status_line_leaves_the_text_alone() -> None:
    """The line is written below the cursor, which comes back; it is cut to the terminal, and cleared only if shown."""
    err = io.StringIO()
    line = StatusLine(err, width=8)
    line.clear()
    assert err.getvalue() == ""
    line.show("0123456789")
    assert "0123456\x1b" in err.getvalue()
    assert err.getvalue().startswith("\x1bD\x1b[A\x1b7\x1b[B\r\x1b[K")
    assert err.getvalue().endswith("\x1b8")
    line.clear()
    line.clear()
    assert err.getvalue().count("\x1b8") == 2
