"""Text for databases, messages and terminals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard._text import counted, one_line, printable, storable

PAIR = "\ud83d\ude00"
"""An emoji, as two halves of a surrogate pair."""


@pytest.mark.parametrize(
    ("text", "stored"), [(PAIR, "😀"), ("\ud83d", "�"), ("\ude00a", "�a"), ("a\0b", "a�b"), ("é", "é")]
)
def test_storable(text: str, stored: str) -> None:
    """Halves of a surrogate pair are joined, lone ones and NUL are replaced, all other text stays."""
    assert storable(text) == stored


@given(st.text(st.characters(), max_size=50))
def test_any_stored_text_is_utf_8(text: str) -> None:
    """UTF-8 accepts it for any input, and a second call changes nothing."""
    assert storable(storable(text)) == storable(text).encode().decode()


def test_one_line() -> None:
    """Escape sequences, newlines and text direction marks become spaces; a long line is cut and ends with an ellipsis."""
    assert one_line("\x1b[31mred\r\n\u202eback " + PAIR) == "[31mred back 😀"
    assert one_line("abcdef", 4) == "abc…"
    assert one_line("abcd", 4) == "abcd"


def test_printable() -> None:
    """Tabs and newlines stay; characters that steer a terminal are removed."""
    assert printable("a\tb\n\x1b[2Jc\x9b1m\r") == "a\tb\n[2Jc1m"


def test_counted() -> None:
    """The noun of one thing is singular."""
    assert [counted(number, "chunk") for number in (0, 1, 2)] == ["0 chunks", "1 chunk", "2 chunks"]
