"""Text from servers, programs and users, on its way into a database, a message or a terminal. Pure."""

import re

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def storable(text: str) -> str:
    """Return *text* as databases and UTF-8 accept it: surrogate pairs are joined; lone surrogates and NUL become U+FFFD."""
    if text.isascii() and "\0" not in text:
        return text
    return text.replace("\0", "\ufffd").encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def printable(text: str) -> str:
    """Return *text* without control characters other than tab and newline: it cannot steer a terminal."""
    return _CONTROLS.sub("", text)


def one_line(text: str, limit: int | None = None) -> str:
    """Return *text* as one printable line: other characters become spaces; above *limit* characters it ends with `…`."""
    line = " ".join("".join(sign if sign.isprintable() else " " for sign in storable(text)).split())
    return line if limit is None or len(line) <= limit else f"{line[: limit - 1]}…"


def counted(number: int, noun: str) -> str:
    """Return the number with its noun: "1 chunk", "2 chunks"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
