"""Scripts: every line means one thing, and nonsense is refused by its line."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard.errors import UsageError
from streamguard.testing import payloads, script
from streamguard.testing.script import Drip, Headers, Loop, Pause, Piece, Tick, WholeBody, Wire, parse_script, unroll


def only(line: str) -> script.Step:
    (step,) = parse_script(line)
    return step


def data(line: str) -> bytes:
    step = only(line)
    assert isinstance(step, Piece)
    return step.data


def chunk(line: str) -> dict[str, object]:
    frame = data(line)
    assert frame.startswith(b"data: ")
    assert frame.endswith(b"\n\n")
    parsed = json.loads(frame[6:])
    assert isinstance(parsed, dict)
    return parsed


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("event hi", b"data: hi\n\n"),
        ("event", b"data: \n\n"),
        ("event ping | {}", b"event: ping\ndata: {}\n\n"),
        ("event response.failed | x | y", b"event: response.failed\ndata: x | y\n\n"),
        (r'event {"a": "x | y\n"}', b'data: {"a": "x | y\\n"}\n\n'),
        ("comment keep-alive", b": keep-alive\n\n"),
        (r"raw a\r\nb\x00\xff\u2028\\n", b"a\r\nb\x00\xff\xe2\x80\xa8\\n"),
        (r"raw \U0001f600é\d", "\U0001f600é\\d".encode()),
        ("done", b"data: [DONE]\n\n"),
    ],
)
def test_lines_that_are_bytes(line: str, body: bytes) -> None:
    """Each of these lines is exactly these bytes of body."""
    assert data(line) == body


@pytest.mark.parametrize(
    ("line", "delta", "finish_reason"),
    [
        ("chat hello", {"content": "hello"}, None),
        ("chat  hello ", {"content": " hello "}, None),
        (r"chat a\nb", {"content": "a\nb"}, None),
        ("chat é\u2028", {"content": "é\u2028"}, None),
        ("reasoning hm", {"reasoning_content": "hm"}, None),
        ("finish", {}, "stop"),
        ("finish length", {}, "length"),
    ],
)
def test_lines_that_are_chat_chunks(line: str, delta: dict[str, str], finish_reason: str | None) -> None:
    """Chat lines become OpenAI-compatible chunks with one choice."""
    assert chunk(line)["object"] == "chat.completion.chunk"
    assert chunk(line)["choices"] == [{"index": 0, "delta": delta, "finish_reason": finish_reason}]


def test_usage_has_no_choices() -> None:
    """A usage line becomes the chunk that sums up tokens and holds no choice."""
    usage = chunk("usage 3 4")
    assert usage["choices"] == []
    assert usage["usage"] == {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}


def test_error_is_an_error_frame() -> None:
    """An error line becomes a frame whose error carries the message."""
    assert chunk("error overloaded")["error"] == {"message": "overloaded", "type": "server_error", "code": None}


@pytest.mark.parametrize(
    ("line", "status", "reason", "headers"),
    [
        ("headers", 200, "OK", ()),
        ("headers 404", 404, "Not Found", ()),
        ("headers 599", 599, "Unknown", ()),
        ("headers 429 Slow down please", 429, "Slow down please", ()),
        ("headers x-a: 1", 200, "OK", (("x-a", "1"),)),
        (
            "headers 429 retry-after: 3; content-type: application/json",
            429,
            "Too Many Requests",
            (("retry-after", "3"), ("content-type", "application/json")),
        ),
        (
            "headers 200 Fine content-type: text/html; charset=utf-8; x: y",
            200,
            "Fine",
            (("content-type", "text/html; charset=utf-8"), ("x", "y")),
        ),
        ("headers 302 location: http://127.0.0.1:9/x", 302, "Found", (("location", "http://127.0.0.1:9/x"),)),
        ("headers content-type:", 200, "OK", (("content-type", ""),)),
    ],
)
def test_headers(line: str, status: int, reason: str, headers: tuple[tuple[str, str], ...]) -> None:
    """A header line has a status, a reason and headers, all optional."""
    assert only(line) == Headers("headers", line, status, reason, headers)


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("wait 0.3", Pause("wait", "", 0.3)),
        ("wait 300ms", Pause("wait", "", 0.3)),
        ("wait 2s", Pause("wait", "", 2)),
        ("stall", Pause("stall", "", None)),
        ("linger", Pause("linger", "", None)),
        ("tick", Tick("tick", "")),
        (r"drip 2 10ms | ab\ncd", Drip("drip", "", b"ab\ncd", 2, 0.01)),
        ("drip-headers 1ms 503 x: y", Headers("drip-headers", "", 503, "Service Unavailable", (("x", "y"),), 0.001)),
        ("drip-headers 1ms", Headers("drip-headers", "", 200, "OK", (), 0.001)),
        ('body {"a": 1}', WholeBody("body", "", b'{"a": 1}')),
        (r"wire 5\r\nhel", Wire("wire", "", b"5\r\nhel")),
        ("end", script.Step("end", "")),
        ("close", script.Step("close", "")),
        ("reset", script.Step("reset", "")),
    ],
)
def test_other_steps(line: str, step: script.Step) -> None:
    """Waits, drips, whole bodies and ends are read with their arguments."""
    assert only(line) == step
    assert only(line).line == line


def test_blank_lines_comments_and_indentation_do_not_count() -> None:
    """A script may be laid out freely, be one string or its lines, and end its lines with CR LF."""
    steps = parse_script("\n  # why\n\n    event a\r\n\tevent b")
    assert [step.line for step in steps] == ["event a", "event b"]
    assert parse_script(["event a", "event b"]) == steps


def test_loops_nest_and_unroll() -> None:
    """A loop plays its lines as often as it says, loops inside it included."""
    steps = parse_script("loop 2\n  event a\n  loop 2\n    event b\n  endloop\nendloop\nevent c")
    assert "".join(step.line[-1] for step in unroll(steps)) == "abbabbc"


def test_an_endless_loop_unrolls_lazily() -> None:
    """A loop for ever yields its first steps although it has no last."""
    steps = parse_script("loop forever\n tick\nendloop")
    assert isinstance(steps[0], Loop)
    assert len(list(itertools.islice(unroll(steps), 1000))) == 1000


@pytest.mark.parametrize(
    "text",
    [
        "event a\nevnt b",
        "endloop",
        "loop 2\nevent a",
        "loop 2\nendloop",
        "loop 0\nevent a\nendloop",
        "loop twice\nevent a\nendloop",
        "wait",
        "wait soon",
        "stall 3",
        "usage 3",
        "drip 3 | text",
        "drip 0 1 | text",
        "drip 3 1 text",
        "headers OK",
        "headers 20",
        "stall\nevent a",
        "reset\nevent a",
        "loop forever\ntick\nendloop\ndone",
        "end\nevent a",
        "body x\nevent a",
        "event a\nheaders 200",
        "headers\nheaders",
        "loop 2\nend\nendloop",
        "loop 2\nheaders\nendloop",
    ],
)
def test_nonsense_is_refused(text: str) -> None:
    """A UsageError quotes a line that is not a step, or that is never played."""
    with pytest.raises(UsageError) as caught:
        parse_script(text)
    assert any(line in str(caught.value) for line in text.split("\n"))


def test_an_unknown_verb_is_named_with_its_line_number() -> None:
    """The message says which line it is, and what could have stood there."""
    with pytest.raises(UsageError, match=r"line 2: unknown step 'evnt b'.*event"):
        parse_script("event a\nevnt b")


@pytest.mark.parametrize("text", ["end\nlinger", "end\nwait 1\nclose", "headers 103\nheaders\nevent a"])
def test_what_may_follow_the_end_or_an_interim_block(text: str) -> None:
    """Silence and closing may follow the end of a body, and a header block an interim one."""
    assert len(parse_script(text)) == len(text.split("\n"))


@given(st.text(st.characters(exclude_characters="\\", exclude_categories=["Cs"])))
def test_text_without_a_backslash_is_kept(text: str) -> None:
    """Only escapes are replaced: everything else is what it was."""
    assert payloads.unescape(text) == text
    assert payloads.unescape_bytes(text) == text.encode()


@given(st.binary())
def test_any_bytes_can_be_written(content: bytes) -> None:
    """Every body can be scripted byte by byte."""
    assert payloads.unescape_bytes("".join(f"\\x{byte:02x}" for byte in content)) == content
