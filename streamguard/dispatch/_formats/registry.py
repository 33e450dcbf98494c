"""Formats by name."""

import re
from collections.abc import Iterable, Sequence

from ...errors import UsageError
from .base import Format, JsonLines, Patterns
from .claude import Claude
from .cline import Cline
from .codex import Codex
from .gemini import Gemini
from .opencode import OpenCode
from .plain import PlainLines
from .qwen import Qwen

_JSON_FORMATS: dict[str, type[JsonLines]] = {
    "claude": Claude,
    "cline": Cline,
    "codex": Codex,
    "gemini": Gemini,
    "opencode": OpenCode,
    "qwen": Qwen,
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
    """Return a new reader of the format *name*: one of `FORMATS`.

    ignore: regular expressions; a line in which one is found is not output.
    final:  the same, for the line that ends the run; only for "lines", as the other formats have such a line.
    split:  False: "lines" yields text as it arrives, unless a pattern needs lines: for when the events are not read.

    Raises UsageError for an unknown name, an invalid expression, and *final* with another format.
    """
    ignored, ending = Patterns(_compiled("ignore", ignore)), Patterns(_compiled("final", final))
    if name == "lines":
        return PlainLines(ignored, ending, split=split)
    if name not in _JSON_FORMATS:
        raise UsageError(f"format= must be one of {', '.join(FORMATS)}, got {name!r}")
    if ending:
        raise UsageError(f"final= is for format='lines'; the format {name} has its own last line")
    return _JSON_FORMATS[name](ignored)


def buffered_output(argv: Sequence[str]) -> str | None:
    """Return the option in *argv* with which the program prints only at its end, such as `--output-format json`."""
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
        raise UsageError(f"{name}= must be a regular expression: {exc}") from None
