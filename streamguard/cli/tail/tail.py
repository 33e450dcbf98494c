"""`streamguard tail`: curl for guarded streams."""

import contextlib
from collections.abc import Callable
from typing import Any

import click
import urllib3

from ..._core import Timeouts
from ..._stream import HEARTBEAT, GuardedStream, guarded_stream
from ...errors import StreamguardError, UsageError
from ..signals import raised
from ..stdio import write_record
from ..values import read_body, read_duration, read_headers, read_token
from .screen import Screen
from .tail_options import Ask
from .tail_result import Verdict

Command = Callable[..., None]


def _limit(name: str, what: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}", metavar="DURATION", callback=read_duration, help=what)


@click.command(context_settings={"allow_extra_args": True})
@click.argument("url")
@click.option("-X", "--request", metavar="METHOD", help="HTTP method. Default: GET; POST with --data.")
@click.option(
    "-H", "--header", "headers", multiple=True, metavar="'NAME: VALUE'", callback=read_headers, help="A header; repeatable."
)
@click.option(
    "--auth-env",
    "token",
    metavar="VARIABLE",
    callback=read_token,
    help="Send `Authorization: Bearer` with the value of this environment variable.",
)
@click.option(
    "-d",
    "--data",
    metavar="TEXT|@FILE|-",
    callback=read_body,
    help="The body: text, a file's content, or standard input. JSON is sent as application/json.",
)
@_limit("connect", "Until connected: DNS, TCP, proxy, TLS. Default: 10s.")
@_limit("response", "Until the response headers. Default: 120s.")
@_limit("first", "From the headers to the first chunk. Default: as --idle.")
@_limit("idle", "Between two chunks. Default: 120s.")
@_limit("dead", "Between two bytes of any kind, heartbeats too. Default: off.")
@_limit("total", "The whole call, retries too. Default: off.")
@click.option(
    "--retry",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Try again up to N times after a timeout, only before the first chunk. Default: 0.",
)
@click.option(
    "--decode",
    type=click.Choice(["chat", "events", "json", "bytes"]),
    default="chat",
    help="What to print: the text of a chat, a line for each event, JSON lines, or the body as it comes. Default: chat.",
)
@click.option(
    "--strict/--no-strict", default=True, help="Whether an end without an end marker is an error. Default: it is."
)
@click.option("--reasoning", is_flag=True, help="Show a chat's reasoning, dimmed, on standard error.")
@_limit("heartbeat", "Say on standard error that nothing comes, each time after so much silence.")
@click.option("--insecure", is_flag=True, help="Do not verify the server's certificate.")
@click.option("--cacert", type=click.Path(exists=True), metavar="FILE", help="The authority's certificate.")
@click.option(
    "--report",
    type=click.File("w", encoding="utf-8", lazy=False),
    metavar="FILE",
    help="Write what happened to this file, as JSON.",
)
@click.option("-q", "--quiet", is_flag=True, help="Write nothing to standard error unless the stream fails.")
@click.pass_context
def tail(ctx: click.Context, /, **options: Any) -> None:
    """Request URL and print its stream as it comes, under limits on silence.

    A DURATION is 250ms, 90s, 2m, 1.5h, or seconds; 0 or off switches a limit off. Limits that are not given come from the
    environment (STREAMGUARD_IDLE=90s), else from the defaults.

    Exit code: 0 complete, 124 a limit fired, 1 any other failure, 2 wrong usage, 128 + N for signal N (130 for Ctrl-C).
    Neither keys nor the values of headers are repeated in any message.
    """
    if ctx.args:  # click's own complaint would quote them: half of an unquoted header, say
        raise click.UsageError("there are arguments too many: quote each value, as in -H 'Name: value'.")
    verdict = _run(Ask(**options))
    _tell(verdict, options["report"], quiet=options["quiet"])
    ctx.exit(verdict.exit)


def _run(ask: Ask) -> Verdict:
    limits, screen, stream = _prepare(ask)
    error: StreamguardError | KeyboardInterrupt | BrokenPipeError | None = None
    try:
        with raised(), screen, contextlib.closing(stream):
            _show(stream, screen)
    except (StreamguardError, KeyboardInterrupt, BrokenPipeError) as exc:
        error = exc
    if not isinstance(error, BrokenPipeError):
        screen.finish()
    if error is None and ask.decode == "chat" and not ask.quiet:
        for call in stream.message.tool_calls:
            screen.note(f"tool call: {call.name} {call.arguments}")
    return Verdict(stream.report, error, limits, ask.secrets())


def _prepare(ask: Ask) -> tuple[Timeouts, Screen, GuardedStream[Any]]:
    if ask.insecure and ask.cacert:
        raise click.UsageError("--insecure and --cacert contradict each other.")
    if ask.token and "Authorization" in ask.headers:
        raise click.UsageError("--auth-env and an Authorization header contradict each other.")
    if ask.insecure:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    try:
        limits = ask.limits()
        screen = Screen(ask, limits)
        keywords = ask.keywords(screen.retrying)
        return limits, screen, guarded_stream(ask.method, ask.url, timeouts=limits, heartbeat=screen.tick, **keywords)
    except UsageError as exc:
        raise click.UsageError(ask.secrets().hidden(str(exc))) from None


def _show(stream: GuardedStream[Any], screen: Screen) -> None:
    for chunk in stream:
        if chunk is HEARTBEAT:
            screen.silence(stream.report)
        else:
            screen.chunk(chunk, stream.report)


def _tell(verdict: Verdict, report: Any, *, quiet: bool) -> None:
    if report is not None:
        write_record(verdict.record(), report)
    if isinstance(verdict.error, BrokenPipeError):
        raise verdict.error
    if quiet and not verdict.exit:
        return
    if verdict.message:
        click.echo(verdict.message, err=True)
    click.echo(verdict.last_line(), err=True)
