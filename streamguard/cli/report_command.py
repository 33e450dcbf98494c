"""`streamguard report`: what the journal holds, summed up, or one story of it."""

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import IO, TYPE_CHECKING, TypeVar

import click

from .._core.clock import wall
from ..errors import UsageError
from ..journal.lifecycle import VARIABLE, open_store
from ..journal.limit_advice import AdviceOptions, advise
from ..journal.report_tables import unreadable_rows
from ..journal.summary import summed_up
from .exit_codes import Exit
from .values import read_duration

if TYPE_CHECKING:
    from ..journal import JournalEntry
    from ..journal.store import JournalStore

T = TypeVar("T")
_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


@click.command()
@click.option("--journal", metavar="URL", help="The journal's database. Default: that of the variable STREAMGUARD_JOURNAL.")
@click.option("--id", "wanted", metavar="ID", help="Tell the story of this stream, run, turn or execution.")
@click.option("--name", metavar="NAME", help="Only streams, chains and members of this name.")
@click.option("--since", metavar="DURATION", callback=read_duration, help="Only what began so long ago at most.")
@click.option(
    "--html", "page", type=click.File("w", encoding="utf-8"), metavar="FILE", help="Write a page with plots to this file."
)
@click.option(
    "--quantile", type=_SHARE, default=0.99, metavar="SHARE", help="Of what went well, how much a limit must spare: 0.99."
)
@click.option("--confidence", type=_SHARE, default=0.95, metavar="SHARE", help="How sure the advice must be of that: 0.95.")
@click.pass_context
def report(
    ctx: click.Context,
    /,
    journal: str | None,
    wanted: str | None,
    name: str | None,
    since: float | None,
    page: IO[str] | None,
    quantile: float,
    confidence: float,
) -> None:
    """Show what became of streams, runs and turns: how many ended how and where, how long they were silent, and the limits
    that would have spared the healthy ones. With --id, the story of one.

    It reads the journal that a program keeps with STREAMGUARD_JOURNAL=sqlite:///journal.db, or configure(journal=...).

    A DURATION is 90s, 2m, 1.5h, or seconds. Nothing is changed: limits are yours to set.
    """
    with closing(_opened(journal)) as store:
        if wanted is not None:
            found = _read(store, lambda: store.find(wanted))
            _tell(found, page, store.unreadable)
            ctx.exit(Exit.COMPLETE if found else Exit.FAILED)
        summary = _read(store, lambda: summed_up(store.entries(since=_instant(since), name=name)))
        summary.unreadable = store.unreadable
        summary.narrowed = name is not None or since is not None
    options = AdviceOptions(quantile, confidence)
    advice = advise(summary, options)
    if page is None:
        from ..journal.report_text import report_text

        click.echo(report_text(summary, advice, options))
    else:
        from ..journal.report_html import report_page

        page.write(report_page(summary, advice, options))


def _opened(url: str | None) -> "JournalStore":
    url, option = (url, "--journal") if url else (os.environ.get(VARIABLE), VARIABLE)
    if not url:
        raise click.UsageError(f"there is no journal: give --journal URL, or set {VARIABLE}.")
    try:
        store = open_store(url, option=option)
    except UsageError as exc:
        raise click.UsageError(str(exc)) from None
    if store.missing:
        raise click.ClickException("the journal's file does not exist (yet)")
    return store


def _read(store: "JournalStore", read: Callable[[], T]) -> T:
    try:
        return read()
    except store.failures as exc:
        raise click.ClickException(f"the journal cannot be read: {type(exc).__name__}") from None


def _instant(ago: float | None) -> float:
    return 0.0 if ago is None else max(0.0, wall() - ago)


def _tell(found: "Sequence[JournalEntry]", page: IO[str] | None, unreadable: int) -> None:
    if unreadable:
        click.echo(unreadable_rows(unreadable), err=True)
    if not found:
        click.echo("the journal has no such id", err=True)
    elif page is None:
        click.echo("\n\n".join(map(str, found)))
    else:
        from ..journal.report_html import entries_page

        page.write(entries_page(found))
