"""`streamguard tail`: curl for guarded streams."""

import contextlib
from collections.abc import Callable
from typing import Any

import click
import urllib3

from ..._core import Timeouts
from ..._core.limits import LIMITS
from ..._stream import HEARTBEAT, GuardedStream, guarded_stream
from ...errors import StreamguardError, UsageError
from ..output import DECODES, MESSAGES
from ..signals import raised
from ..stdio import report_option, write_record
from ..values import read_body, read_duration, read_headers, read_token
from .screen import Screen
from .tail_options import TailOptions
from .tail_result import TailResult

Command = Callable[..., None]


def _duration(name: str, what: str) -> Callable[[Command], Command]:
    return click.option(f"--{name}", metavar="DURATION", callback=read_duration, help=what)


def _limits(command: Command) -> Command:
    """Add an option for each limit of the table."""
    for info in reversed(LIMITS.values()):
        default = "off" if info.default is None else f"{info.default:g}s"
        what = f"{info.meaning}. Default: {'as --idle' if info.name == 'first' else default}."
        command = _duration(info.name, what)(command)
    return command


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
@_limits
@click.option(
    "--retry",
    type=click.IntRange(min=0),
    default=0,
    metavar="N",
    help="Up to N more attempts after a timeout before the first chunk. A repeated POST may be billed twice. Default: 0.",
)
@click.option(
    "--decode",
    type=click.Choice(DECODES),
    default="chat",
    help="What to print: the text of a chat (or of the Responses or the Messages API), a line for each event, JSON lines, "
    "or the body unchanged. Default: chat.",
)
@click.option(
    "--strict/--no-strict",
    default=True,
    help="Whether a stream that ends without its end marker is an error. Default: it is.",
)
@click.option("--reasoning", is_flag=True, help="Show a chat's reasoning, dimmed, on standard error.")
@_duration("heartbeat", "Write a line to standard error after every DURATION of silence.")
@click.option("--insecure", is_flag=True, help="Do not verify the server's certificate.")
@click.option(
    "--cacert",
    type=click.Path(exists=True),
    metavar="FILE",
    help="The file with the authority that signed the certificate.",
)
@report_option
@click.option("-q", "--quiet", is_flag=True, help="Write nothing to standard error unless the stream fails.")
@click.pass_context
def tail(ctx: click.Context, /, **options: Any) -> None:
    """Print a stream as it arrives, with limits on silence.

    \b
    Example: streamguard tail https://api.example.com/v1/chat/completions
        --auth-env KEY --data @request.json --idle 20s --total 5m

    A DURATION is 250ms, 90s, 2m, 1.5h, or seconds; 0 or off disables a limit. A limit that is not given comes from the
    environment (STREAMGUARD_IDLE=90s), else from the default.

    Exit code: 0 complete, 124 a limit fired, 1 any other failure, 2 invalid usage, 128 + N for signal N (130 for Ctrl-C).
    No message repeats a key or the value of a header.
    """
    if ctx.args:  # click's own message would quote them: half of an unquoted header, say
        raise click.UsageError("too many arguments: quote each value, as in -H 'Name: value'.")
    result = _run(TailOptions(**options))
    _show_result(result, options["report"], quiet=options["quiet"])
    ctx.exit(result.exit)


def _run(options: TailOptions) -> TailResult:
    limits, screen, stream = _prepare(options)
    error: StreamguardError | KeyboardInterrupt | BrokenPipeError | None = None
    try:
        with raised(), screen, contextlib.closing(stream):
            _show(stream, screen)
    except (StreamguardError, KeyboardInterrupt, BrokenPipeError) as exc:
        error = exc
    if not isinstance(error, BrokenPipeError):
        screen.finish()
    if error is None and options.decode in MESSAGES and not options.quiet:
        for call in stream.message.tool_calls:
            screen.note(f"tool call: {call.name} {call.arguments}")
    return TailResult(stream.report, error, limits, options.secrets())


def _prepare(options: TailOptions) -> tuple[Timeouts, Screen, GuardedStream[Any]]:
    if options.insecure and options.cacert:
        raise click.UsageError("--insecure and --cacert cannot be combined.")
    if options.token and "Authorization" in options.headers:
        raise click.UsageError("--auth-env and an Authorization header cannot be combined.")
    if options.insecure:
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)
    try:
        limits = options.limits()
        screen = Screen(options, limits)
        keywords = options.keywords(screen.retrying)
        return (
            limits,
            screen,
            guarded_stream(options.method, options.url, timeouts=limits, heartbeat=screen.tick, **keywords),
        )
    except UsageError as exc:
        raise click.UsageError(options.secrets().hidden(str(exc))) from None


def _show(stream: GuardedStream[Any], screen: Screen) -> None:
    for chunk in stream:
        if chunk is HEARTBEAT:
            screen.silence(stream.report)
        else:
            screen.chunk(chunk, stream.report)


def _show_result(result: TailResult, report: Any, *, quiet: bool) -> None:
    if report is not None:
        write_record(result.record(), report)
    if isinstance(result.error, BrokenPipeError):
        raise result.error
    if quiet and not result.exit:
        return
    if result.message:
        click.echo(result.message, err=True)
    click.echo(result.last_line(), err=True)
