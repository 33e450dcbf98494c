"""Words from servers and programs, made safe for labels and log lines."""

import re

_WORD = re.compile(r"[A-Za-z][\w.]{0,39}", re.ASCII)


def word(text: str | None) -> str | None:
    """Return *text* if it is one short word of letters, digits, `_` and `.`; None for None, else `"_OTHER"`."""
    return text if text is None or _WORD.fullmatch(text) else "_OTHER"
