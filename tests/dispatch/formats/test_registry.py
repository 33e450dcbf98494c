"""Formats by name, and options that hold the output back."""

from typing import Any

import pytest

from streamguard import UsageError
from streamguard.dispatch._formats import buffered_output, make_format


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("cobol", {}, "format= must be one of claude.*got 'cobol'"),
        ("lines", {"ignore": "("}, "ignore= must be a regular expression"),
        ("lines", {"final": ["ok", "*"]}, "final= must be a regular expression"),
        ("codex", {"final": "x"}, "final= is for"),
    ],
)
def test_wrong_formats_are_refused(name: str, options: dict[str, Any], complaint: str) -> None:
    """An unknown name, a wrong expression, and final= where it means nothing, are errors."""
    with pytest.raises(UsageError, match=complaint.replace("(", r"\(")):
        make_format(name, **options)


@pytest.mark.parametrize(
    ("argv", "found"),
    [
        (["claude", "-p", "--output-format", "json"], "--output-format json"),
        (["claude", "--output-format=text"], "--output-format=text"),
        (["gemini", "-o", "json", "x"], "-o json"),
        (["claude", "--output-format", "stream-json"], None),
        (["sort", "-o", "file"], None),
        (["x", "--output-format"], None),
    ],
)
def test_buffered_output_is_noticed(argv: list[str], found: str | None) -> None:
    """Options that have a program print only at its end are known (B141)."""
    assert buffered_output(argv) == found
