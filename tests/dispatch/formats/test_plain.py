"""Plain lines of any program."""

from streamguard.dispatch._data.turn_events import Kind
from streamguard.dispatch._formats import make_format

from .frames import answer, brief, read


def test_lines() -> None:
    """A line is text, and keeps its end; what is unfinished comes at once, as a piece."""
    reader = make_format("lines")
    assert [(e.text, e.delta) for e in reader.feed(b"a\nb\rc")] == [("a\n", False), ("b\r", False), ("c", True)]
    assert [(e.text, e.delta) for e in reader.feed(b"d\ne\n")] == [("d\n", True), ("e\n", False)]
    assert brief([*reader.close(0)]) == [("done",)]


def test_lines_that_are_not_read_are_not_split() -> None:
    """`split=False` gives what comes as it comes, unless a pattern needs lines."""
    assert [e.text for e in make_format("lines", split=False).feed(b"a\nb\nc")] == ["a\nb\nc"]
    assert [e.text for e in make_format("lines", split=False, ignore="x").feed(b"a\nb\nc")] == ["a\n", "b\n"]


def test_lines_put_together_are_the_output() -> None:
    """Whatever the pieces, even within a character, the texts are the output."""
    data = "é\r\n€\r👋\nlast".encode()
    reader = make_format("lines")
    events = [event for byte in data for event in reader.feed(bytes([byte]))]
    assert answer([*events, *reader.close(0)]) == data.decode()


def test_ignored_lines_are_status() -> None:
    """Heartbeat lines do not count, and are still given (B153)."""
    events = read("lines", "[12s] agent still running", "news", ignore=r"still running$")
    assert brief(events) == [("status", "[12s] agent still running\n"), ("text", "news\n"), ("done",)]
    (event, *_) = read("claude", '{"type": "assistant", "heartbeat": 1}', ignore="heartbeat")
    assert event.kind is Kind.STATUS


def test_an_ignored_line_whose_end_comes_in_two_pieces() -> None:
    """The line is given at once, and the `\\n` of a `\\r\\n` never counts by itself."""
    reader = make_format("lines", ignore="^beat")
    assert brief([*reader.feed(b"beat\r")]) == [("status", "beat\r")]
    assert brief([*reader.feed(b"\nbeat\r\n")]) == [("status", "\n"), ("status", "beat\r\n")]


def test_a_final_line_that_a_return_ends_is_not_waited_for() -> None:
    """A program that says DONE with a `\\r` and lingers is complete: nothing need follow."""
    reader = make_format("lines", final="^DONE$")
    assert brief([*reader.feed(b"50%\rDONE\r")]) == [("text", "50%\r"), ("text", "DONE\r"), ("done",)]
    assert brief([*reader.feed(b"\n")]) == [("text", "\n")]  # its end is whole
    assert [*reader.feed(b"\nmore\n")] == []


def test_the_final_line_ends_the_run() -> None:
    """`final=` is what completes it; without that line it is incomplete, in spite of exit code 0 (B139)."""
    assert brief(read("lines", "work", "ALL DONE", "more", final="^ALL DONE$")) == [
        ("text", "work\n"),
        ("text", "ALL DONE\n"),
        ("done",),
    ]
    assert brief(read("lines", "work", final="^ALL DONE$"))[-1] == ("done", "incomplete")
