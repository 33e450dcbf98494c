"""Streams from a scripted gateway, consumed to their end, whatever that is."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamguard import GuardedStream, guarded_stream
from streamguard._core.clock import monotonic
from streamguard.testing import Gateway

PROMPT = 3.0
"""Seconds of which an idle machine needs a hundredth: how late a very busy one may be."""

Streams = Callable[..., Gateway]


@dataclass(frozen=True, slots=True)
class Seen:
    """What a consumer of a stream saw."""

    items: list[Any]
    error: BaseException | None
    elapsed: float
    """Seconds from the first `next()` to the end."""

    @property
    def texts(self) -> list[str]:
        return [item.text for item in self.items]

    @property
    def text(self) -> str:
        return "".join(self.texts)


def stream_from(gateway: Gateway, **options: Any) -> GuardedStream[Any]:
    """Return an unstarted chat stream from *gateway*, plain or TLS."""
    if gateway.url.startswith("https"):
        options.setdefault("verify", gateway.ca)
    if "data" not in options:
        options.setdefault("json", {"stream": True})
    return guarded_stream("POST", f"{gateway.url}/v1/chat/completions", **options)


def consume(stream: GuardedStream[Any], *, pause: float = 0.0) -> Seen:
    """Iterate to the end, sleeping *pause* seconds over each item."""
    items = []
    began = monotonic()
    try:
        for item in stream:
            items.append(item)
            time.sleep(pause)
    except Exception as error:
        return Seen(items, error, monotonic() - began)
    return Seen(items, None, monotonic() - began)


def failure(stream: GuardedStream[Any]) -> Any:
    """Iterate to the end and return the error there, which has to come."""
    error = consume(stream).error
    assert error is not None, stream.report
    return error


def has_reader(stream: GuardedStream[Any]) -> bool:
    """Say whether a reader thread of *stream* is alive."""
    return any(thread.name == f"streamguard-reader-{stream.report.id}" for thread in threading.enumerate())


def wait_until(holds: Callable[[], bool], seconds: float = 5.0) -> None:
    """Wait until *holds* is true; fail after *seconds*."""
    end = monotonic() + seconds
    while not holds():
        assert monotonic() < end, "did not become true"
        time.sleep(0.002)


def in_thread(work: Callable[[], object]) -> threading.Thread:
    """Run *work* in a daemon thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread
