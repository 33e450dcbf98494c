"""The answers of a dispatch: as one text, and as a file for each member."""

from pathlib import Path
from urllib.parse import quote

import click

from ..._text import printable, storable
from ...dispatch import DispatchOutcome
from ...errors import UsageError


def answers_text(outcome: DispatchOutcome, *, terminal: bool) -> str:
    """Return the last answer of each member, after a heading with its name; for a terminal without control characters."""
    text = "\n".join(f"## {printable(member)}\n\n{_ended(answer)}" for member, answer in _answers(outcome).items())
    return printable(text) if terminal else text


def make_folder(folder: Path) -> None:
    """Make *folder*. Raises UsageError if that is not possible."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise UsageError(f"--output-dir: cannot make the folder: {exc.strerror}") from None


def write_answers(outcome: DispatchOutcome, folder: Path) -> None:
    """Write the last answer of each member to `NAME.txt`; characters that a file's name cannot have are percent-encoded."""
    for member, answer in _answers(outcome).items():
        try:
            (folder / f"{quote(storable(member), safe=' @+')}.txt").write_text(answer, encoding="utf-8")
        except OSError as exc:
            raise click.ClickException(f"cannot write the answer of {member!r}: {exc.strerror}") from None


def _answers(outcome: DispatchOutcome) -> dict[str, str]:
    return {turn.member: storable(turn.text) for turn in outcome.turns}


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"
