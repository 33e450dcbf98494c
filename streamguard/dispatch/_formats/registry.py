"""Formats by name."""

import re
from collections.abc import Iterable, Sequence

from ...errors import UsageError
from .base import Format, JsonLines, Patterns
from .claude import Claude
from .codex import Codex
from .gemini import Gemini
from .opencode import OpenCode
from .plain import PlainLines

_JSON_FORMATS: dict[str, type[JsonLines]] = {
    "claude": Claude,
    "codex": Codex,
    "gemini": Gemini,
    "opencode": OpenCode,
}
FORMATS = (*_JSON_FORMATS, "lines")

Pattern = str | re.Pattern[str]

_BUFFERED = {"json", "text"}
_FORMAT_OPTIONS = {"--output-format": _BUFFERED, "-o": {"json"}}


def make_format(
    name: str,
    *,
    ignore: Pattern | Iterable[Pattern] | None = None,
    final: Pattern | Iterable[Pattern] | None = None,
    split: bool = True,
) -> Format:
    """Return a fresh reader of the format *name*: one of `FORMATS`.

    ignore: regular expressions; lines in which one is found are no output.
    final:  the same, for the line that ends the run; only for "lines", as the others say it themselves.
    split:  False lets "lines" give text as it comes, where no pattern asks for lines: for when nobody reads the events.

    Raises UsageError for an unknown name, a wrong expression, and *final* with another format.
    """
    ignored, ending = Patterns(_compiled("ignore", ignore)), Patterns(_compiled("final", final))
    if name == "lines":
        return PlainLines(ignored, ending, split=split)
    if name not in _JSON_FORMATS:
        raise UsageError(f"there is no format {name!r}; known are {', '.join(FORMATS)}")
    if ending:
        raise UsageError(f"the format {name} says itself when it is done; final= is for lines")
    return _JSON_FORMATS[name](ignored)


def buffered_output(argv: Sequence[str]) -> str | None:
    """Return the option in *argv* that has the program print nothing before its end, such as `--output-format json`."""
    for position, word in enumerate(argv):
        option, equals, value = word.partition("=")
        if not equals:
            value = argv[position + 1] if position + 1 < len(argv) else ""
        if value in _FORMAT_OPTIONS.get(option, ()):
            return f"{option}{equals or ' '}{value}"
    return None


def _compiled(name: str, patterns: Pattern | Iterable[Pattern] | None) -> list[re.Pattern[str]]:
    if patterns is None:
        return []
    if isinstance(patterns, str | re.Pattern):
        patterns = [patterns]
    try:
        return [re.compile(pattern) for pattern in patterns]
    except re.error as exc:
        raise UsageError(f"{name}= is no regular expression: {exc}") from None
