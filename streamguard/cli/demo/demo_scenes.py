"""The three scenes of the demo. Each plays on a real server, and returns what really happened, claim by claim."""

import threading
from dataclasses import dataclass, field
from typing import Any

import requests
import tenacity

from ..._core import monotonic
from ..._stream import GuardedStream, StreamReport, before_first_chunk, guarded_stream
from ...errors import StreamguardError, StreamInactivityTimeoutError
from ...testing import Gateway, Request
from .demo_console import DemoConsole

READ_TIMEOUT = 1.5
"""Seconds: the read timeout of the bare call."""
STUCK_SECONDS = 5.0
LIMIT = 1.5
"""Seconds of silence that the guarded calls allow."""

HEARTBEATS = "loop forever\ncomment heartbeat\nwait 0.2\nendloop"
SILENT = f"headers\n{HEARTBEATS}"
ANSWER = "The tide comes in twice a day, because the earth turns below the two bulges that the moon raises in the sea."
BEGINNING = "The first half of the answer is here, and the second"

_PATH = "/v1/chat/completions"
_PAYLOAD = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": "Why are there tides?"}]}
_DIRECT = {"http": ""}
"""No proxy: the server is on loopback, whatever the environment says."""


@dataclass(frozen=True, slots=True)
class DemoScene:
    """What happened in one scene: a row of the table, and each claim with whether it holds."""

    name: str
    row: tuple[str, ...]
    claims: tuple[tuple[str, bool], ...]


@dataclass(slots=True)
class _BareCall:
    """A plain streaming call with requests; in a thread, since nothing can end it from within."""

    url: str
    lines: list[bytes] = field(default_factory=list)
    error: requests.RequestException | None = None

    def run(self) -> None:
        try:
            with requests.post(self.url, json=_PAYLOAD, stream=True, timeout=READ_TIMEOUT, proxies=_DIRECT) as response:
                for line in response.iter_lines(chunk_size=1):
                    self.lines.append(line)
        except requests.RequestException as exc:
            self.error = exc


def bare_call(console: DemoConsole) -> DemoScene:
    """requests alone: each heartbeat restarts its read timeout, so it never fires."""
    console.heading("1. requests alone")
    console.code(f"requests.post(url, json=payload, stream=True, timeout={READ_TIMEOUT})")
    console.say(f"timeout={READ_TIMEOUT} is a limit for each read, and each heartbeat is one.")
    with Gateway(SILENT) as gateway:
        call = _BareCall(gateway.url + _PATH)
        thread = threading.Thread(target=call.run, name="streamguard-demo", daemon=True)
        thread.start()
        request = gateway.wait_request()
        _watch(console, thread, request)
        stuck, seconds, present = thread.is_alive(), monotonic() - request.at, request.left is None
        heartbeats = request.reached["comment"]
    thread.join(5)
    console.say("Nothing in the client ends this. We stop the server, and only then does the call return.")
    row = ("requests", "1", "-", "0", "stuck", f"{seconds:.1f} s", "never left")
    claims = (
        (f"the call hung for {STUCK_SECONDS:g} s, beyond its timeout", stuck and seconds >= STUCK_SECONDS),
        ("heartbeats arrived all the time", heartbeats > STUCK_SECONDS and any(call.lines)),
        ("no chunk arrived", not any(line.startswith(b"data") for line in call.lines)),
        ("the client did not leave by itself", present),
        ("it returned when the server was stopped", not thread.is_alive()),
    )
    return DemoScene("requests", row, claims)


def _watch(console: DemoConsole, thread: threading.Thread, request: Request) -> None:
    tick = 0.1 if console.live else 1.0
    while (seconds := monotonic() - request.at) < STUCK_SECONDS and thread.is_alive():
        beats = request.reached["comment"]
        console.counter(f"stuck for {seconds:.1f} s; timeout={READ_TIMEOUT} has not fired; {beats} heartbeats, 0 words")
        thread.join(min(tick, max(0.0, STUCK_SECONDS - seconds)))
    console.counter(f"stuck for {STUCK_SECONDS:.1f} s; timeout={READ_TIMEOUT} never fired")
    console.end_counter()


@dataclass(slots=True)
class _GuardedCall:
    """Plays a guarded stream on the console, and keeps what the claims are about."""

    console: DemoConsole
    times: list[float] = field(default_factory=list)
    text: str = ""
    failures: list[BaseException | None] = field(default_factory=list)
    error: StreamguardError | None = None

    def stream(self, gateway: Gateway, name: str) -> GuardedStream[Any]:
        policy = before_first_chunk(max_retries=2).copy(before_sleep=self.retrying)
        return guarded_stream(
            "POST",
            gateway.url + _PATH,
            json=_PAYLOAD,
            proxies=_DIRECT,
            name=name,
            retry=policy,
            connect=10,
            response=10,
            first=LIMIT,
            idle=LIMIT,
            dead=None,
            total=25,
        )

    def retrying(self, state: tenacity.RetryCallState) -> None:
        self.failures.append(state.outcome.exception() if state.outcome else None)
        pause = state.next_action.sleep if state.next_action else 0.0
        self.console.say(
            f"first={LIMIT} fired: the connection is cut. No chunk had arrived, so the stream is retried in {pause:.1f} s."
        )

    def play(self, stream: GuardedStream[Any]) -> StreamReport:
        try:
            with stream:
                for chunk in stream:
                    if chunk.text:
                        self.times.append(monotonic())
                        self.text += chunk.text
                        self.console.word(chunk.text)
        except StreamguardError as exc:
            self.error = exc
        self.console.end_words()
        return stream.report


def retried_stream(console: DemoConsole) -> DemoScene:
    """The same gateway, guarded: the limit fires, the call is tried again, and the answer arrives word by word."""
    console.heading("2. guarded, silent before the first word")
    console.code(f"guarded_stream('POST', url, json=payload, first={LIMIT}, idle={LIMIT})")
    console.say(f"The same heartbeats. They are not content: first={LIMIT} keeps running.")
    words = _chat(ANSWER)
    call = _GuardedCall(console)
    with Gateway(SILENT, "\n".join([*words, "finish", "done"]).replace("\nchat", "\nwait 0.12\nchat")) as gateway:
        report = call.play(call.stream(gateway, "retried"))
        left, before = gateway.wait_left(1), gateway.requests
    console.say(f"Outcome: {report.outcome}, at attempt {report.attempts}. The server saw the first one leave.")
    failure = call.failures[0] if call.failures else None
    claims = (
        ("the first attempt ended at its limit", _fired(failure, "first")),
        ("the server saw the first attempt leave, not before the limit", left.at - before[0].at >= LIMIT),
        ("there were two attempts, and two requests", report.attempts == 2 == len(before)),
        ("the answer is complete", report.outcome == "completed" and call.text == ANSWER),
        ("its words arrived one by one", len(call.times) == len(words) and call.times[-1] - call.times[0] >= 1),
        ("no thread is left", report.abandoned_threads == 0),
    )
    return DemoScene("retried", _row("guarded, retried", report, before[0]), claims)


def stalled_stream(console: DemoConsole) -> DemoScene:
    """A stall in the middle: the text so far is kept, the error explains the stall, and nothing is tried again."""
    console.heading("3. guarded, silent in the middle of the answer")
    console.say("A second attempt would repeat words that were already read, so there is none.")
    words = _chat(BEGINNING)
    call = _GuardedCall(console)
    with Gateway("\n".join([*words, HEARTBEATS]).replace("\nchat", "\nwait 0.12\nchat")) as gateway:
        report = call.play(call.stream(gateway, "stalled"))
        left, seen = gateway.wait_left(1), gateway.requests
    error = call.error
    console.say(f"{type(error).__name__}: {error}", style="red")
    console.say(f"Kept: error.partial_text == {getattr(error, 'partial_text', None)!r}")
    claims = (
        ("all words that arrived were returned", call.text == BEGINNING and report.chunks == len(words)),
        ("then the limit on silence fired", _fired(error, "idle") and report.outcome == "timeout"),
        ("the error holds the partial text", getattr(error, "partial_text", None) == BEGINNING),
        ("there was no second attempt", report.attempts == 1 == len(seen)),
        ("the server saw the client leave, not before the limit", left.at - seen[0].at >= LIMIT),
        ("no thread is left", report.abandoned_threads == 0),
    )
    return DemoScene("stalled", _row("guarded, stalled", report, seen[0]), claims)


def _chat(text: str) -> list[str]:
    first, *rest = text.split(" ")
    return [f"chat {first}", *(f"chat  {word}" for word in rest)]


def _fired(error: object, phase: str) -> bool:
    return isinstance(error, StreamInactivityTimeoutError) and error.phase == phase and (error.elapsed or 0) >= LIMIT


def _row(name: str, report: StreamReport, request: Request) -> tuple[str, ...]:
    left = request.left
    seen = f"left after {left.at - request.at:.2f} s" if left else "never left"
    took = f"{report.lifetime:.1f} s"
    return (name, str(report.attempts), report.phase, str(report.chunks), report.outcome, took, seen)
