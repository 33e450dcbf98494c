"""A command's outputs: files that may be full, pipes that may be closed, terminals that may be paused."""

import contextlib
import io
import json
import os
import select
import sys
from collections.abc import Callable
from typing import IO, Any, TextIO

import click


def open_outputs() -> None:
    """Open the null device for an output that is closed at the start; print `?` for what cannot be encoded."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - to the end of the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def report_option(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--report FILE`. If FILE is `-`, the report is all that goes to standard output: see `main_output`."""
    return click.option(
        "--report",
        type=_ReportFile("w", encoding="utf-8", lazy=False),
        metavar="FILE",
        help="Write the report to this file as JSON. With -, it is all that goes to standard output; the rest goes to "
        "standard error.",
    )(command)


def main_output(report: IO[str] | None) -> TextIO:
    """Return where a command's own output goes: standard output, unless *report* is written there."""
    return sys.stderr if report is sys.stdout else sys.stdout


class _ReportFile(click.File):
    """A file, or for `-` standard output itself: click would open a second buffer on it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> IO[Any]:
        return sys.stdout if value == "-" else super().convert(value, param, ctx)


def write_record(record: dict[str, Any], file: IO[str]) -> None:
    """Write *record* to *file* as JSON, and flush it.

    Raises ClickException if it cannot be written, BrokenPipeError if it is closed.
    """
    try:
        json.dump(record, file, indent=2)
        file.write("\n")
        file.flush()
    except OSError as exc:
        if file is not sys.stdout:
            with contextlib.suppress(OSError):
                file.close()  # now, since it would fail in the same way later
        if isinstance(exc, BrokenPipeError):
            raise
        raise click.ClickException(f"cannot write the report: {exc.strerror}") from None


def descriptor_of(out: IO[Any]) -> int | None:
    """Return the descriptor of *out*; None if it is not a file of the system."""
    try:
        return out.fileno()
    except (AttributeError, OSError, ValueError):
        return None


def has_room(descriptor: int, seconds: float) -> bool:
    """Wait at most *seconds* until something can be written there, to a pipe a page at least; return whether it can."""
    return bool(select.select([], [descriptor], [], seconds)[1])
