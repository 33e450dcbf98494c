"""What the tests of streams share: lines for a gateway's script, streams consumed to their end, and retry policies."""

import json
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import tenacity

from streamguard import GuardedStream, HTTPStatusError, guarded_stream
from streamguard._core.clock import monotonic
from streamguard.testing import Gateway

from ..helpers import Serve, in_thread, wait_until

GOOD = "chat a\nchat b\nfinish\ndone"
COMPLETE = "chat a\nchat b\ndone"
STALL = "headers\nstall"
OPEN = "chat a\nstall"
ENDLESS = "loop forever\ntick\nwait 0.02\nendloop"
NOW = tenacity.wait_none()


def choice(content: str | None = None, *, index: int = 0, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """Return one choice of a chat chunk."""
    text = {} if content is None else {"content": content}
    return {"index": index, "delta": {**text, **delta}, "finish_reason": finish}


def line(*choices: dict[str, Any], **more: Any) -> str:
    """Return the script line of a chat chunk with these choices, and with *more* in the frame."""
    return "event " + json.dumps({"choices": list(choices), **more})


def script(*lines: str | Iterable[str]) -> str:
    """Join lines, and lists of lines, to one script."""
    return "\n".join(item if isinstance(item, str) else "\n".join(item) for item in lines)


def policy(attempts: int = 3, **options: Any) -> tenacity.Retrying:
    """Return a plain policy of tenacity's that retries after any failure, at once."""
    return tenacity.Retrying(**{"stop": tenacity.stop_after_attempt(attempts), "wait": NOW, **options})


@dataclass(frozen=True, slots=True)
class Run:
    """What the consumer of a stream got."""

    stream: GuardedStream[Any]
    chunks: list[Any]
    error: Any
    """The exception that the stream ended with; None at a quiet end."""
    elapsed: float
    """Seconds from the first `next()` to the end."""

    @property
    def texts(self) -> list[str]:
        """The texts of the chunks, without empty ones."""
        return [chunk.text for chunk in self.chunks if chunk.text]

    @property
    def events(self) -> list[tuple[str, str]]:
        """Name and data of each event."""
        return [(event.event, event.data) for event in self.chunks]

    @property
    def text(self) -> str:
        """All of the text."""
        return "".join(self.texts)


def stream_from(gateway: Gateway, **options: Any) -> GuardedStream[Any]:
    """Return an unstarted chat stream from *gateway*, plain or TLS."""
    if gateway.url.startswith("https"):
        options.setdefault("verify", gateway.ca)
    if "data" not in options:
        options.setdefault("json", {"stream": True})
    return guarded_stream("POST", f"{gateway.url}/v1/chat/completions", **options)


def consume(stream: GuardedStream[Any], *, pause: float = 0.0) -> Run:
    """Iterate to the end, sleeping *pause* seconds after each chunk."""
    chunks: list[Any] = []
    began = monotonic()
    try:
        for chunk in stream:
            chunks.append(chunk)
            time.sleep(pause)
    except Exception as error:
        return Run(stream, chunks, error, monotonic() - began)
    return Run(stream, chunks, None, monotonic() - began)


def ask(gateway: Gateway, **options: Any) -> Run:
    """Run a chat stream from *gateway*, by default without retries."""
    return consume(guarded_stream("POST", gateway.url, **{"retry": None, **options}))


def failure(stream: GuardedStream[Any]) -> Any:
    """Iterate to the end and return the error there, which must come."""
    error = consume(stream).error
    assert error is not None, stream.report
    return error


def rejected(gateway: Gateway, **options: Any) -> HTTPStatusError:
    """Return the status error that a stream from *gateway* ends with."""
    run = ask(gateway, **options)
    assert isinstance(run.error, HTTPStatusError)
    assert run.chunks == []
    assert run.stream.report.outcome == "error"
    assert run.stream.report.status_code == run.error.status_code
    return run.error


def two_chunks_then_silence(serve: Serve, **options: Any) -> tuple[Run, int]:
    """Run a stream that stalls after two chunks, while a second attempt would succeed; return the requests made."""
    gateway = serve("chat a\nchat b\nstall", GOOD)
    run = consume(guarded_stream("POST", gateway.url, idle=0.2, **options))
    return run, len(gateway.requests)


class SoftLimit(Exception):
    """What a task queue raises in the middle of any code."""


def signal_when(holds: Callable[[], bool], number: signal.Signals, *, after: float = 0.0) -> list[float]:
    """Send the main thread a signal once *holds* is true, *after* seconds later; its time is added to the list."""
    sent: list[float] = []

    def send() -> None:
        wait_until(holds)
        time.sleep(after)
        sent.append(monotonic())
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    in_thread(send)
    return sent


def reader_of(stream: GuardedStream[Any]) -> threading.Thread | None:
    """Return the reader thread of *stream*, if it is alive."""
    name = f"streamguard-reader-{stream.report.id}"
    return next((thread for thread in threading.enumerate() if thread.name == name), None)


def has_reader(stream: GuardedStream[Any]) -> bool:
    """Return whether a reader thread of *stream* is alive."""
    return reader_of(stream) is not None
