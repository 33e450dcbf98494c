"""Narration on a console: a terminal of any width, or none."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

_TABLE_WIDTH = 76


class DemoConsole:
    """Prints paragraphs, code, counters and tables. ASCII only, so that any terminal and any log file can show it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._column = 0

    @property
    def live(self) -> bool:
        """Whether a line can be written over."""
        return self._console.is_terminal and not self._console.is_dumb_terminal

    def heading(self, text: str) -> None:
        """Begin a new part."""
        self._console.print(f"\n{text}", style="bold cyan", markup=False, highlight=False)

    def say(self, text: str, style: str = "") -> None:
        """Print a paragraph."""
        self._console.print(text, style=style, markup=False, highlight=False)

    def code(self, text: str) -> None:
        """Print lines of Python."""
        indented = "\n".join(f"    {line}" for line in text.strip().splitlines())
        self._console.print(indented, style="green", markup=False, highlight=False)

    def counter(self, text: str) -> None:
        """Print a line that the next one replaces, if the terminal can do so."""
        end = "\r" if self.live else "\n"
        padded = text.ljust(self._console.width - 1) if self.live else text
        self._console.print(padded, end=end, style="yellow", markup=False, highlight=False, no_wrap=True, overflow="crop")

    def end_counter(self) -> None:
        """Keep the last counter."""
        if self.live:
            self._console.print()

    def word(self, text: str) -> None:
        """Print a word of a text that is coming in, at once, on this line or the next."""
        if self._column and self._column + len(text) >= self._console.width:
            self._console.print()
            self._column, text = 0, text.lstrip()
        self._column += len(text)
        self._console.out(text, end="", style="bold", highlight=False)
        self._console.file.flush()

    def end_words(self) -> None:
        """End the line of a text that was coming in."""
        if self._column:
            self._console.print()
        self._column = 0

    def table(self, titles: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        """Print a table; if it does not fit, each row as a list."""
        if self._console.width >= _TABLE_WIDTH:
            self._wide(titles, rows)
        else:
            self._narrow([*titles], rows)

    def _wide(self, titles: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
        table = Table(*titles, box=None, header_style="bold", padding=(0, 2, 0, 0))
        for row in rows:
            table.add_row(*row)
        self._console.print(table, markup=False, highlight=False)

    def _narrow(self, titles: list[str], rows: Iterable[Iterable[str]]) -> None:
        for row in rows:
            first, *rest = row
            self.say(first, style="bold")
            for title, value in zip(titles[1:], rest, strict=True):
                self.say(f"  {title}: {value}")
