"""`streamguard report`: a summary of the journal, its failures, or one entry."""

import json
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
from ..journal.summary import KINDS, Summary, summed_up
from .exit_codes import ExitCode
from .values import read_duration

if TYPE_CHECKING:
    from ..journal import JournalEntry
    from ..journal.store import JournalStore

T = TypeVar("T")
_SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


@click.command()
@click.option("--journal", metavar="URL", help="The journal's database. Default: STREAMGUARD_JOURNAL.")
@click.option("--id", "wanted", metavar="ID", help="Show this stream, run or turn, or the turns of this execution.")
@click.option("--failures", is_flag=True, help="List the failures, with their ids.")
@click.option("--name", metavar="NAME", help="Only streams, chains and members of this name.")
@click.option("--since", metavar="DURATION", callback=read_duration, help="Only entries of the last DURATION.")
@click.option(
    "--html", "page", type=click.File("w", encoding="utf-8"), metavar="FILE", help="Write a page with plots to this file."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--quantile",
    type=_SHARE,
    default=0.99,
    metavar="SHARE",
    help="The share of the successes that a limit must not cut. Default: 0.99.",
)
@click.option(
    "--confidence", type=_SHARE, default=0.95, metavar="SHARE", help="The confidence of that advice. Default: 0.95."
)
@click.pass_context
def report(
    ctx: click.Context,
    /,
    journal: str | None,
    wanted: str | None,
    failures: bool,
    name: str | None,
    since: float | None,
    page: IO[str] | None,
    as_json: bool,
    quantile: float,
    confidence: float,
) -> None:
    """Summarize the journal, with advice for limits.

    How streams, runs and turns ended, how long they were silent, and the limits that would not have cut the healthy ones.
    With --id, one entry.

    It reads the journal that a program writes with STREAMGUARD_JOURNAL=sqlite:///journal.db, or configure(journal=...).

    \b
    Example: streamguard report --journal sqlite:///journal.db --since 24h

    A DURATION is 90s, 2m, 1.5h, or seconds. Nothing is changed.
    """
    with closing(_opened(journal)) as store:
        if wanted is not None:
            found = _read(store, lambda: store.find(wanted))
            _show_entries(found, page, as_json, store.unreadable)
            ctx.exit(ExitCode.COMPLETE if found else ExitCode.FAILED)
        entries = store.entries(since=_instant(since), name=name)
        if failures:
            found = _read(store, lambda: [entry for entry in entries if entry.failed and entry.kind in KINDS])
            _show_failures(found, page, as_json, store.unreadable)
            return
        summary = _read(store, lambda: summed_up(entries))
        summary.unreadable = store.unreadable
        summary.narrowed = name is not None or since is not None
    _show_summary(summary, AdviceOptions(quantile, confidence), page, as_json)


def _show_summary(summary: Summary, options: AdviceOptions, page: IO[str] | None, as_json: bool) -> None:
    from ..journal import report_html, report_json, report_text

    advice = advise(summary, options)
    if page is not None:
        page.write(report_html.report_page(summary, advice, options))
    elif as_json:
        click.echo(json.dumps(report_json.summary_data(summary, advice, options), indent=2))
    else:
        click.echo(report_text.report_text(summary, advice, options))


def _show_failures(found: "Sequence[JournalEntry]", page: IO[str] | None, as_json: bool, unreadable: int) -> None:
    from ..journal.report_text import failures_text

    _note_unreadable(unreadable)
    if page is not None or as_json:
        _show_as_data(found, page)
    else:
        click.echo(failures_text(found))


def _show_entries(found: "Sequence[JournalEntry]", page: IO[str] | None, as_json: bool, unreadable: int) -> None:
    _note_unreadable(unreadable)
    if not found:
        click.echo("the journal has no such id", err=True)
    if as_json or (found and page is not None):
        _show_as_data(found, page)
    elif found:
        click.echo("\n\n".join(map(str, found)))


def _note_unreadable(count: int) -> None:
    if count:
        click.echo(unreadable_rows(count), err=True)


def _show_as_data(found: "Sequence[JournalEntry]", page: IO[str] | None) -> None:
    from ..journal import report_html, report_json

    if page is not None:
        page.write(report_html.entries_page(found))
    else:
        click.echo(json.dumps(report_json.entries_data(found), indent=2))


def _opened(url: str | None) -> "JournalStore":
    url, option = (url, "--journal") if url else (os.environ.get(VARIABLE), VARIABLE)
    if not url:
        raise click.UsageError(f"no journal: pass --journal URL, or set {VARIABLE}.")
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
