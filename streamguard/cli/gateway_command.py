"""`streamguard gateway`: the scripted server, and the server of `examples/agent.py`, to try a client by hand."""

import time
from collections.abc import Iterator
from typing import IO, Any

import click

from ..errors import UsageError
from ..testing import AgentAPI, Gateway, Left, Request, parse_script
from ..testing.wire import ENCODINGS, FRAMINGS

_LOOK_SECONDS = 0.05


@click.command()
@click.argument("scripts", metavar="SCRIPT...", nargs=-1, required=True, type=click.File("r", encoding="utf-8"))
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="The address to listen on. Default: 127.0.0.1.")
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="The port to listen on. Default: 0, a free one.",
)
@click.option(
    "--tls", is_flag=True, help="Serve https; the second line of output is the file with its certificate authority."
)
@click.option(
    "--framing", default="chunked", type=click.Choice(FRAMINGS), help="How the end of a body is marked. Default: chunked."
)
@click.option("--encoding", type=click.Choice([*filter(None, ENCODINGS)]), help="Compress bodies. Default: identity.")
def gateway(scripts: tuple[IO[str], ...], **options: Any) -> None:
    """Serve scripted streams, with faults, until Ctrl-C.

    It prints the URL, then a line for each request and for each client that leaves.

    A script has one step on each line: headers, chat TEXT, comment TEXT, wait 0.5, stall, done, and others; - is standard
    input. The first request gets the first script, the next one the second; the last script answers all further requests.

    \b
    Example: printf 'chat Hello\\nstall' | streamguard gateway - --port 8000
    """
    _run(_server(scripts, options), f"{options['host']}:{options['port']}", tls=options["tls"])


@click.command("gateway agent")
@click.option(
    "--profile-ms",
    default=50,
    type=click.IntRange(0),
    metavar="N",
    help="Milliseconds until the profile answers. Default: 50.",
)
@click.option(
    "--policy-ms",
    default=50,
    type=click.IntRange(0),
    metavar="N",
    help="Milliseconds until the policy answers. Default: 50.",
)
@click.option(
    "--policy-status",
    default=200,
    type=click.IntRange(200, 599),
    metavar="N",
    help="The policy's HTTP status. Default: 200.",
)
@click.option("--deny", is_flag=True, help="The policy says no: a decision, not a failure.")
@click.option("--garbage", is_flag=True, help="The policy answers with a page of HTML.")
@click.option(
    "--profile-status", default=200, type=click.IntRange(200, 599), metavar="N", help="The profile's. Default: 200."
)
@click.option("--profile-garbage", is_flag=True, help="The profile answers with a page of HTML.")
@click.option(
    "--port",
    default=0,
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="The port to listen on. Default: 0, a free one.",
)
def gateway_agent(*, deny: bool, port: int, **options: Any) -> None:
    """Serve the two services of examples/agent.py.

    GET /profile answers with a name, GET /policy says whether it is allowed; both also take an ID, as in /profile/7. The
    output is that of gateway; Ctrl-C ends it. To serve a script from a file called agent, write gateway ./agent.

    \b
    Example: streamguard gateway agent --policy-ms 60000 --port 8000
    """
    _run(AgentAPI(allowed=not deny, port=port, **options), f"127.0.0.1:{port}")


def _run(server: Gateway, address: str, *, tls: bool = False) -> None:
    try:
        server.start()
    except OSError as exc:
        raise click.ClickException(f"cannot listen on {address}: {exc.strerror}") from None
    except UsageError as exc:
        raise click.ClickException(str(exc)) from None
    try:
        _serve(server, tls=tls)
    except KeyboardInterrupt:
        pass  # the documented way to end it
    finally:
        server.stop()


def _server(scripts: tuple[IO[str], ...], options: dict[str, Any]) -> Gateway:
    texts = [_checked(script) for script in scripts]
    try:
        return Gateway(*texts, **options)
    except UsageError as exc:
        raise click.UsageError(str(exc)) from None


def _checked(script: IO[str]) -> str:
    try:
        text = script.read()
        parse_script(text)
    except UnicodeDecodeError:
        raise click.UsageError(f"{script.name}: a script must be UTF-8 text.") from None
    except UsageError as exc:
        raise click.UsageError(f"{script.name}: {_numbered(str(exc), text)}") from None
    return text


def _numbered(message: str, text: str) -> str:
    """Return the message with the number of the line that it quotes, if it has none."""
    for number, line in reversed([*enumerate(text.split("\n"), 1)]):
        quoted = f"script: {line.strip(chr(13)).lstrip()!r}"
        if line.strip() and message.startswith(quoted):
            return f"script line {number}: {message.removeprefix('script: ')}"
    return message


def _serve(server: Gateway, *, tls: bool) -> None:
    click.echo(server.url)
    if tls:
        click.echo(f"certificate authority: {server.ca}")
    log = _RequestLog(server)
    while True:
        for line in log.new_lines():
            click.echo(line)
        time.sleep(_LOOK_SECONDS)


class _RequestLog:
    """Reports each request once when it has arrived, and once when its client has left."""

    def __init__(self, server: Gateway) -> None:
        self._server = server
        self._arrived = 0
        self._present: dict[int, Request] = {}

    def new_lines(self) -> Iterator[str]:
        """Yield a line for each event since the last call."""
        for request in self._server.requests[self._arrived :]:
            self._arrived += 1
            self._present[self._arrived] = request
            yield _arrival(self._arrived, request)
        for number, request in [*self._present.items()]:
            if request.left:
                del self._present[number]
                yield _departure(number, request, request.left)


def _arrival(number: int, request: Request) -> str:
    path = request.target.partition("?")[0]  # no query: it may hold a key
    return f"#{number} {request.method} {path}, {len(request.body)} bytes of body"


def _departure(number: int, request: Request, left: Left) -> str:
    sent = f"after {left.at - request.at:.3f} s and {request.bytes_sent} bytes"
    if left.how == "reused":
        return f"#{number} done {sent}; its connection is used again"
    return f"#{number} left {sent}, {'by reset' if left.how == 'reset' else 'by fin'}, during {left.during}"
