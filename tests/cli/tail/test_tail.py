"""`streamguard tail` against a real gateway, in this process."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamguard.testing import Gateway

from ..runs import invoke, last_line

MakeGateway = Callable[..., Gateway]

CHAT = "reasoning hm\nchat Hello\nchat , tide\nfinish\nusage 5 2\ndone"
HEARTBEATS = "headers\nloop forever\ncomment heartbeat\nwait 0.02\nendloop"


def test_a_chat_is_its_text(streamguard_gateway: MakeGateway) -> None:
    """The text, and only the text, is on stdout; the last line on stderr has the outcome and the numbers."""
    result = invoke("tail", streamguard_gateway(CHAT).url)
    assert (result.exit_code, result.stdout) == (0, "Hello, tide")
    assert last_line(result).startswith("streamguard: completed; 1 attempt, 5 chunks, ")


@pytest.mark.parametrize(
    ("decode", "expected"),
    [
        ("events", 'message\t{"a":1}\nother\tx\n'),
        ("json", '{"a":1}\n"x"\n'),
        ("bytes", 'data: {"a":1}\n\nevent: other\ndata: "x"\n\n'),
    ],
)
def test_the_other_decodings(decode: str, expected: str, streamguard_gateway: MakeGateway) -> None:
    """--decode chooses lines of events, JSON lines, or the body as it comes."""
    text = '"x"' if decode != "events" else "x"
    gateway = streamguard_gateway(f'event {{"a":1}}\nevent other | {text}')
    result = invoke("tail", gateway.url, "--decode", decode)
    assert (result.exit_code, result.stdout) == (0, expected)


def test_reasoning_and_tool_calls_are_shown_beside_the_text(streamguard_gateway: MakeGateway) -> None:
    """--reasoning shows the reasoning, and complete tool calls are shown, both on stderr."""
    call = {"index": 0, "id": "c", "function": {"name": "tide", "arguments": '{"at": 1}'}}
    chunk = json.dumps({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]})
    result = invoke("tail", streamguard_gateway(f"reasoning hm\nevent {chunk}\nfinish tool_calls\ndone").url, "--reasoning")
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr.splitlines()[:2] == ["hm", 'tool call: tide {"at": 1}']


@pytest.mark.parametrize(
    ("flags", "script", "limit"),
    [
        (["--response", "100ms"], "stall", "response 0.1 s (--response)"),
        (["--first", "0.1"], HEARTBEATS, "first 0.1 s (--first)"),
        (["--idle", "0.1s"], HEARTBEATS, "first 0.1 s (as idle, --idle)"),
        (["--idle", "100ms"], f"chat a\n{HEARTBEATS[8:]}", "idle 0.1 s (--idle)"),
        (["--dead", "0.1"], "headers\nstall", "dead 0.1 s (--dead)"),
        (["--total", "0.1", "--idle", "off"], HEARTBEATS, "total 0.1 s (--total)"),
    ],
)
def test_each_limit_ends_with_124(flags: list[str], script: str, limit: str, streamguard_gateway: MakeGateway) -> None:
    """A limit that fires is exit code 124, the last line names it, and the server sees the client leave."""
    gateway = streamguard_gateway(script)
    result = invoke("tail", gateway.url, *flags)
    assert result.exit_code == 124
    assert last_line(result).startswith(f"streamguard: timeout, {limit}; ")
    assert gateway.wait_left(1)


def test_limits_can_be_switched_off(streamguard_gateway: MakeGateway) -> None:
    """Silence is no fault with 0 or off, in the environment's place too."""
    gateway = streamguard_gateway("headers\nwait 0.3\nchat late\ndone")
    result = invoke("tail", gateway.url, "--idle", "0", "--first", "off", "--total", "0", env={"STREAMGUARD_TOTAL": "0.1"})
    assert (result.exit_code, result.stdout) == (0, "late")


def test_a_limit_comes_from_the_environment(streamguard_gateway: MakeGateway) -> None:
    """A limit that is not given comes from the environment, and the last line says so."""
    result = invoke("tail", streamguard_gateway("headers\nstall").url, env={"STREAMGUARD_FIRST": "100ms"})
    assert result.exit_code == 124
    assert "timeout, first 0.1 s (STREAMGUARD_FIRST)" in last_line(result)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("headers 503\nbody no room", "HTTPStatusError"),
        ("body <html>", "NotEventStreamError"),
        ("chat a\nend", "IncompleteStreamError"),
        ("chat a\nerror over\nstall", "InStreamError"),
        ("chat a\nevent not json\nstall", "MalformedChunkError"),
        ("chat a\nwait 0.05\nreset", "TransportError"),
    ],
)
def test_other_failures_end_with_1(script: str, error: str, streamguard_gateway: MakeGateway) -> None:
    """Any other failure is exit code 1, and the last line names its kind; what had come is on stdout."""
    result = invoke("tail", streamguard_gateway(script).url)
    assert result.exit_code == 1
    assert result.stdout == ("a" if "chat a" in script else "")
    assert f"{error} in phase " in last_line(result)


def test_nobody_listens() -> None:
    """A refused connection is exit code 1."""
    with Gateway() as gateway:
        url = gateway.url
    result = invoke("tail", url)
    assert result.exit_code == 1
    assert "ECONNREFUSED" in result.stderr


def test_a_gateway_without_end_marker_can_be_accepted(streamguard_gateway: MakeGateway) -> None:
    """--no-strict makes a complete call of a stream that just ends; the last line still says what it was."""
    result = invoke("tail", streamguard_gateway("chat a\nend").url, "--no-strict")
    assert (result.exit_code, result.stdout) == (0, "a")
    assert last_line(result).startswith("streamguard: incomplete; ")


def test_retries_are_few_and_said(streamguard_gateway: MakeGateway) -> None:
    """There is no retry unless asked for; --retry N tries again before the first chunk, and says so."""
    gateway = streamguard_gateway("headers\nstall", CHAT)
    result = invoke("tail", gateway.url, "--first", "0.1", "--retry", "2")
    assert (result.exit_code, result.stdout, len(gateway.requests)) == (0, "Hello, tide", 2)
    assert result.stderr.startswith(
        "streamguard: attempt 1 failed, StreamInactivityTimeoutError in phase first; attempt 2 follows in "
    )
    once = streamguard_gateway("headers\nstall")
    assert invoke("tail", once.url, "--first", "0.1").exit_code == 124
    assert len(once.requests) == 1


def test_silence_is_said_without_a_terminal(streamguard_gateway: MakeGateway) -> None:
    """--heartbeat writes a line after each so much silence, with phase and time left."""
    gateway = streamguard_gateway("headers\nwait 0.35\nchat a\ndone")
    result = invoke("tail", gateway.url, "--heartbeat", "100ms")
    notes = [line for line in result.stderr.splitlines() if line.startswith("streamguard: [first] silent for ")]
    assert 1 <= len(notes) <= 3
    assert notes[0].endswith(" s left, 0 chunks")


def test_quiet_is_silent_unless_it_fails(streamguard_gateway: MakeGateway) -> None:
    """--quiet leaves stderr empty; a failure is still said."""
    gateway = streamguard_gateway("headers\nstall", CHAT, "chat a\nend")
    retried = invoke("tail", gateway.url, "-q", "--first", "0.1", "--retry", "1", "--heartbeat", "0.02")
    assert (retried.exit_code, retried.stderr) == (0, "")
    failed = invoke("tail", gateway.url, "--quiet")
    assert failed.exit_code == 1
    assert "IncompleteStreamError" in last_line(failed)


def test_the_report_is_json(streamguard_gateway: MakeGateway, tmp_path: Path) -> None:
    """--report writes the report with exit code, message, limit and all limits."""
    file = tmp_path / "report.json"
    gateway = streamguard_gateway("chat a\nstall", CHAT)
    invoke("tail", gateway.url, "--idle", "0.1", "--dead", "off", "--report", str(file))
    record = json.loads(file.read_text())
    wanted = {"outcome": "timeout", "phase": "idle", "chunks": 1, "attempts": 1, "exit_code": 124, "limit": "idle"}
    assert {key: record[key] for key in wanted} == wanted
    assert record["limits"]["idle"] == 0.1
    assert record["limits"]["dead"] is None
    assert record["message"].startswith("no further chunk for 0.1 s")
    invoke("tail", gateway.url, "--report", str(file))
    record = json.loads(file.read_text())
    assert (record["exit_code"], record["message"], record["limit"]) == (0, None, None)
    assert record["usage"]["completion_tokens"] == 2


def test_a_report_that_cannot_be_written_is_told(streamguard_gateway: MakeGateway) -> None:
    """A full disk costs the report, and says so; the stream itself has been shown."""
    result = invoke("tail", streamguard_gateway("chat a\ndone").url, "--report", "/dev/full")
    assert (result.exit_code, result.stdout) == (1, "a")
    assert "cannot write the report: No space left" in result.stderr


@pytest.mark.parametrize("closing", [">&-", "2>&-"])
def test_an_output_that_was_closed_is_nowhere(streamguard_gateway: MakeGateway, closing: str) -> None:
    """At the start of the command: what is said on the other one is said all the same."""
    gateway = streamguard_gateway("chat hello\nfinish\ndone")
    script = f'exec "$0" -m streamguard.cli tail "$1" {closing}'
    found = subprocess.run(
        ["sh", "-c", script, sys.executable, gateway.url], capture_output=True, text=True, timeout=30, check=False
    )
    assert (found.returncode, found.stdout) == (0, "" if closing == ">&-" else "hello")
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize(
    ("flags", "method", "kind", "body"),
    [
        ([], "GET", None, b""),
        (["-X", "put"], "PUT", None, b""),
        (["--data", '{"n": 1.0}'], "POST", "application/json", b'{"n": 1.0}'),
        (["-d", "a=b"], "POST", None, b"a=b"),
        (["-d", "@FILE"], "POST", "application/json", b"[1]\n"),
        (["-d", "-"], "POST", "application/json", b'"from stdin"'),
        (["-d", "{}", "-X", "PATCH", "-H", "content-type: text/plain"], "PATCH", "text/plain", b"{}"),
    ],
)
def test_the_request_is_what_was_asked(
    flags: list[str], method: str, kind: str | None, body: bytes, tmp_path: Path, streamguard_gateway: MakeGateway
) -> None:
    """--data makes it a POST and JSON is sent as such, byte for byte; -X and -H overrule both."""
    file = tmp_path / "file"
    file.write_bytes(b"[1]\n")
    gateway = streamguard_gateway(CHAT)
    flags = [flag.replace("FILE", str(file)) for flag in flags]
    assert invoke("tail", gateway.url, *flags, input=b'"from stdin"').exit_code == 0
    request = gateway.requests[0]
    assert (request.method, request.headers.get("content-type"), request.body) == (method, kind, body)


def test_headers_are_sent_as_given(streamguard_gateway: MakeGateway) -> None:
    """Headers, other alphabets too, are sent as given; the key of --auth-env goes as a bearer token."""
    gateway = streamguard_gateway(CHAT)
    invoke(
        "tail", gateway.url, "-H", "X-A: 1", "-H", "x-a: 2", "-H", "X-B: grüße €", "--auth-env", "KEY", env={"KEY": "sk-1"}
    )
    headers = gateway.requests[0].headers
    assert headers["x-a"] == "1, 2"
    assert headers["x-b"].encode("latin-1").decode() == "grüße €"
    assert headers["authorization"] == "Bearer sk-1"


def test_netrc_does_not_replace_the_key(streamguard_gateway: MakeGateway, tmp_path: Path) -> None:
    """A login for the host in .netrc never replaces the Authorization that was given."""
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    gateway = streamguard_gateway(CHAT)
    invoke("tail", gateway.url, "-H", "authorization: Basic mine", env={"NETRC": str(netrc)})
    assert gateway.requests[0].headers["authorization"] == "Basic mine"


def test_certificates_are_verified(streamguard_tls_gateway: MakeGateway) -> None:
    """An unknown authority is refused; --cacert makes it known, --insecure does not look."""
    gateway = streamguard_tls_gateway(CHAT)
    refused = invoke("tail", gateway.url)
    assert refused.exit_code == 1
    assert "ECERT" in refused.stderr
    for flags in (["--cacert", gateway.ca], ["--insecure"]):
        result = invoke("tail", gateway.url, *flags)
        assert (result.exit_code, result.stdout) == (0, "Hello, tide")
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("args", "complaint"),
    [
        (["example.test/v1"], "url= has no scheme"),
        (["http://"], "url= has no host"),
        (["http://[::1"], "url= cannot be parsed"),
        (["ftp://127.0.0.1/"], "scheme"),
        ([], "Missing argument 'URL'"),
        (["http://127.0.0.1:9", "--idle", "5", "--total", "1"], "idle=5 can never fire"),
        (["http://127.0.0.1:9", "--idle", "soon"], "--idle"),
        (["http://127.0.0.1:9", "--retry", "-1"], "--retry"),
        (["http://127.0.0.1:9", "--decode", "xml"], "--decode"),
        (["http://127.0.0.1:9", "--insecure", "--cacert", __file__], "--cacert"),
        (["http://127.0.0.1:9", "--data", "@/no/such/file"], "No such file"),
        (["http://127.0.0.1:9", "--report", "/no/such/directory/file"], "--report"),
        (["http://127.0.0.1:9", "another"], "quote each value"),
        (["http://127.0.0.1:9", "-H", "Authorization: a", "--auth-env", "HOME"], "cannot be combined"),
    ],
)
def test_wrong_usage_ends_with_2(args: list[str], complaint: str) -> None:
    """What cannot be right is exit code 2, with a complaint that names it, before anything is sent."""
    result = invoke("tail", *args)
    assert result.exit_code == 2
    assert complaint in result.stderr


SECRET = "sk-planted-4711"
SAYS_IT = f'{{"error": {{"message": "Incorrect API key provided: {SECRET}", "code": "{SECRET}"}}}}'


@pytest.mark.parametrize(
    "args",
    [
        ["-H", f"X-Api-Key: {SECRET}"],
        ["-H", f"Authorization: Bearer {SECRET}"],
        ["--auth-env", "KEY"],
        ["-H", f"Authorization: {SECRET}", "--auth-env", "KEY"],
        ["--auth-env", SECRET],
        ["-H", SECRET],
        ["-H", "Authorization:", "Bearer", SECRET],
        ["--report", "FILE", "-H", f"X-Api-Key: {SECRET}"],
    ],
)
@pytest.mark.parametrize("place", ["/", f"/?key={SECRET}", "user"])
@pytest.mark.parametrize(
    "script",
    [
        f"headers 401 x-request-id: {SECRET}\nbody {SAYS_IT}",
        f"event {SAYS_IT}\nstall",
        f"body <p>{SECRET}",
        f"event {SECRET}\nstall",
        "headers\nstall",
        "reset",
    ],
)
def test_no_key_is_repeated(
    args: list[str], place: str, script: str, tmp_path: Path, streamguard_gateway: MakeGateway
) -> None:
    """Keys in headers, variables and URLs appear in no output, even if used wrongly, and if the server repeats them."""
    base = streamguard_gateway(script).url
    url = base.replace("://", f"://me:{SECRET}@") if place == "user" else base + place
    file = tmp_path / "report.json"
    flags = [str(file) if arg == "FILE" else arg for arg in args]
    result = invoke("tail", url, *flags, "--first", "0.1", "--heartbeat", "0.02", env={"KEY": SECRET})
    assert result.exit_code in (1, 2, 124)
    written = file.read_text() if file.exists() else ""
    assert SECRET not in result.stdout + result.stderr + written
    assert not isinstance(result.exception, Exception)


def test_the_command_shows_the_servers_words(streamguard_gateway: MakeGateway) -> None:
    """What a server says about a failure is shown, on one line, without control characters."""
    gateway = streamguard_gateway('headers 429 retry-after: 7\nbody {"error": {"message": "slow\\\\ndown \\\\u001b[2J"}}')
    result = invoke("tail", gateway.url)
    assert "status 429 Too Many Requests: slow down [2J" in result.stderr.splitlines()[0]


def test_a_report_on_standard_output_is_alone_there(streamguard_gateway: MakeGateway) -> None:
    """With `--report -` standard output is JSON, and the stream's text goes to standard error (C249)."""
    gateway = streamguard_gateway("chat Hello\nfinish\ndone")
    result = invoke("tail", gateway.url, "--report", "-")
    assert result.exit_code == 0
    assert json.loads(result.stdout)["outcome"] == "completed"
    assert "Hello" in result.stderr


@pytest.mark.parametrize(
    ("decode", "events"),
    [
        (
            "responses",
            [
                {"type": "response.output_text.delta", "delta": "Hello", "output_index": 0, "content_index": 0},
                {"type": "response.completed", "response": {"status": "completed", "output": []}},
            ],
        ),
        (
            "anthropic",
            [
                {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
                {"type": "message_stop"},
            ],
        ),
    ],
)
def test_the_text_of_other_apis(decode: str, events: list[dict[str, Any]], streamguard_gateway: MakeGateway) -> None:
    """`--decode responses` and `--decode anthropic` print the text of those APIs."""
    steps = "\n".join(f"event {event['type']} | {json.dumps(event)}" for event in events)
    result = invoke("tail", streamguard_gateway(steps).url, "--decode", decode)
    assert (result.exit_code, result.stdout) == (0, "Hello"), result.stderr
