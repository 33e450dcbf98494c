"""Tables, for a terminal and for a page. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from .numbers import Spread

__all__ = ["Table", "milliseconds", "short", "times"]


@dataclass(frozen=True, slots=True)
class Table:
    """A table: its title, the heads of its columns, and the cells as text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def text(self) -> str:
        """Return it for a terminal."""
        lines = [self.columns, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.columns))]
        return "\n".join([self.title, *("  " + _padded(line, widths) for line in lines)])

    def markdown(self) -> str:
        """Return it for a page; the title is a line of its own above it."""
        rule = ["---:" if self._holds_numbers(column) else "---" for column in range(len(self.columns))]
        lines = [self.columns, rule, *self.rows]
        return "\n".join([f"**{_capital(self.title)}**", "", *(f"| {' | '.join(line)} |" for line in lines)])

    def _holds_numbers(self, column: int) -> bool:
        return column > 0 and bool(self.rows) and self.rows[0][column][:1] in set("-0123456789")


def short(value: float) -> str:
    """Return a number with as many digits as mean something."""
    return f"{value:.2f}" if abs(value) < 10 else f"{value:,.1f}" if abs(value) < 100 else f"{value:,.0f}"


def times(value: Spread) -> str:
    """Return a ratio as text, with the lowest and the highest round."""
    return f"{short(value['median'])} ({short(value['low'])}–{short(value['high'])})"


def milliseconds(seconds: float) -> str:
    """Return seconds as milliseconds."""
    return short(seconds * 1e3)


def _padded(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
    return "  ".join([first, *rest]).rstrip()


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
