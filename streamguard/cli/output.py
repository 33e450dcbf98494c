"""A stream's chunks as bytes of standard output."""

import contextlib
import json
import select
from collections.abc import Callable
from typing import IO, Any

import click

from .._text import printable


class Output:
    """Writes chunks to *out*, each at once. Reasoning, if asked for, goes to standard error, dimmed."""

    def __init__(self, out: IO[bytes], *, decode: str, reasoning: bool, terminal: bool) -> None:
        self._out = out
        self._render = _RENDER[decode]
        self._reasoning = reasoning and decode in MESSAGES
        self._clean = terminal and decode != "bytes"
        self._terminal = terminal
        self._thinking = False
        self._last = b"\n"

    def write(self, chunk: Any) -> None:
        """Write *chunk*. Raises BrokenPipeError if the output is closed."""
        if self._reasoning:
            self._think(chunk.reasoning)
        data = self._render(chunk)
        if not data:
            return
        if self._thinking:
            self._thinking = False
            click.echo(err=True)
        if self._clean:
            data = printable(data.decode(errors="replace")).encode()
        self._last = data
        self._put(data)

    def finish(self) -> None:
        """Leave a terminal's cursor at the beginning of a line."""
        if self._thinking:
            click.echo(err=True)
        if self._terminal and not self._last.endswith(b"\n"):
            self._put(b"\n")

    def _put(self, data: bytes) -> None:
        self._out.write(data)
        self._out.flush()

    def _think(self, text: str) -> None:
        if text:
            self._thinking = True
            click.echo(click.style(printable(text), dim=True), nl=False, err=True)


def reader_has_left(out: IO[bytes]) -> bool:
    """Return whether *out* is a closed pipe, as far as the system can tell without a write."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # no poll (Windows), no descriptor, a closed file
        poll = select.poll()
        poll.register(out.fileno(), 0)
        return any(flags & select.POLLERR for _, flags in poll.poll(0))
    return False


def _chat(chunk: Any) -> bytes:
    return _encoded(chunk.text)


def _event(event: Any) -> bytes:
    data = event.data.replace("\r", r"\r").replace("\n", r"\n")
    return _encoded(f"{event.event}\t{data}\n")


def _json(value: Any) -> bytes:
    # A lone surrogate becomes the escape by which JSON writes it.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace") + b"\n"


def _bytes(block: bytes) -> bytes:
    return block


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "replace")


_RENDER: dict[str, Callable[[Any], bytes]] = {
    **dict.fromkeys(("chat", "responses", "anthropic"), _chat),
    "events": _event,
    "json": _json,
    "bytes": _bytes,
}
DECODES = tuple(_RENDER)
MESSAGES = ("chat", "responses", "anthropic")
"""Those whose chunks make a message, with reasoning and tool calls."""
