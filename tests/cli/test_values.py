"""Values of options."""

import io
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from streamguard.cli.values import read_body, read_duration, read_headers, read_token

OPTION = click.Option(["--it"])
CONTEXT = click.Context(click.Command("it"))


def read(reader: Callable[..., Any], value: Any) -> Any:
    return reader(CONTEXT, OPTION, value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("2m", 120),
        ("1.5h", 5400),
        ("250ms", 0.25),
        ("1m30s", 90),
        ("off", math.inf),
        ("0", math.inf),
    ],
)
def test_a_duration_is_seconds(text: str, seconds: float) -> None:
    """Durations are seconds, with units or without; 0 and off are a limit that is never reached."""
    assert read(read_duration, text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "-5", "5 parsecs", "nan", "inf"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Anything else is refused, and the complaint says how durations are written."""
    with pytest.raises(click.BadParameter, match=r"90s or 1\.5h, or off"):
        read(read_duration, text)


def test_headers_by_name() -> None:
    """Names are compared without case, repeated headers are joined, and one without a value is not sent."""
    given = ["X-One: 1", "x-one:2", "Accept:", "X-Url: http://a:80/"]
    assert read(read_headers, given) == {"X-One": "1, 2", "Accept": None, "X-Url": "http://a:80/"}


@pytest.mark.parametrize(
    "text", ["secretvalue", ": secretvalue", "A B: secretvalue", "A: secretvalue\r\nB: 2", "A: secretvalue\n"]
)
def test_a_bad_header_is_refused_and_not_quoted(text: str) -> None:
    """A header that cannot be sent is refused without a word of it."""
    with pytest.raises(click.BadParameter, match="'Name: value'") as refused:
        read(read_headers, [text])
    assert "secretvalue" not in refused.value.message


def test_a_body_is_text_a_file_or_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body is the text, the bytes of @FILE, or those of standard input."""
    file = tmp_path / "body"
    file.write_bytes(b"\x00\xff")
    assert read(read_body, "gruß") == "gruß".encode()
    assert read(read_body, f"@{file}") == b"\x00\xff"
    for name in ("-", "@-"):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\n")))
        assert read(read_body, name) == b"\xff\n"
    with pytest.raises(click.BadParameter, match="No such file"):
        read(read_body, f"@{file}.missing")


def test_a_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The token is the variable's value without the blanks around it."""
    monkeypatch.setenv("THE_KEY", "  sk-1 \n")
    assert read(read_token, "THE_KEY") == "sk-1"


@pytest.mark.parametrize("value", [None, "", "  \n", "sk-1\nX-Header: 2"])
def test_an_unusable_token_is_refused_and_not_quoted(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unset or unusable variable is refused; neither its value nor its name, which may be the key, is repeated."""
    if value is not None:
        monkeypatch.setenv("sk-name", value)
    with pytest.raises(click.BadParameter) as refused:
        read(read_token, "sk-name")
    assert "sk-" not in refused.value.message


def test_what_is_not_given_is_none() -> None:
    """An option that is left out is None: the defaults are the library's."""
    assert [read(reader, None) for reader in (read_duration, read_body, read_token)] == [None] * 3
