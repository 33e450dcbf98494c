"""What a gateway records: its requests, the progress of each script, when and how each client left."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from requests.structures import CaseInsensitiveDict

from .._core.clock import monotonic
from .script import Step

_STEPS_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Left:
    """When and how the client of a request left."""

    at: float
    """When the server noticed, on `streamguard._core.clock.monotonic`."""
    how: str
    """`"fin"` (closed or shut down), `"reset"` (RST, as after a close with unread bytes), or `"reused"` (the next request
    was sent on the same connection)."""
    during: str
    """The verb that was being played; `"idle"` after the end of the response."""


@dataclass(slots=True)
class Request:
    """One request, and its result. Only the gateway writes to it."""

    method: str
    target: str
    headers: CaseInsensitiveDict[str]
    body: bytes
    at: float
    """When it arrived, on `streamguard._core.clock.monotonic`."""
    connection: int
    """The number of its TCP connection, from 0."""
    left: Left | None = None
    sent: list[tuple[float, Step]] = field(default_factory=list)
    """When each step was completed: the first 10 000."""
    bytes_sent: int = 0
    """Bytes that the kernel has taken for the response, headers, framing and TLS included."""
    reached: Counter[str] = field(default_factory=Counter)
    """How often each verb was reached: steps that take time (waits, drips) when they begin, others when sent."""
    doing: str = "idle"
    """The verb that is being played."""

    def count_sent(self, size: int) -> None:
        """Add *size* to the bytes sent."""
        self.bytes_sent += size


class RequestLog:
    """The records of a gateway, written by its threads. Any thread can wait for them."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.open_connections = 0
        self._changed = threading.Condition()

    def connected(self) -> int:
        """Record a new connection; return its number."""
        with self._changed:
            self.connections += 1
            self.open_connections += 1
            self._changed.notify_all()
            return self.connections - 1

    def disconnected(self) -> None:
        """Record that a connection is closed on both sides, or left by its client."""
        with self._changed:
            self.open_connections -= 1
            self._changed.notify_all()

    def arrived(self, request: Request) -> int:
        """Record a new request; return its number."""
        with self._changed:
            self.requests.append(request)
            self._changed.notify_all()
            return len(self.requests) - 1

    def reached(self, request: Request, step: Step) -> None:
        """Record that *step* is reached."""
        with self._changed:
            request.reached[step.verb] += 1
            self._changed.notify_all()

    def left(self, request: Request, how: str) -> None:
        """Record that the client of the request has left."""
        with self._changed:
            request.left = Left(monotonic(), how, request.doing)
            self._changed.notify_all()

    def completed(self, request: Request, step: Step) -> None:
        """Record that *step* is done."""
        if len(request.sent) < _STEPS_KEPT:
            request.sent.append((monotonic(), step))

    def wait(self, holds: Callable[[], bool], timeout: float, what: str) -> None:
        """Wait until *holds* is true. Raises AssertionError with the records after *timeout* seconds."""
        end = monotonic() + timeout
        with self._changed:
            while not holds():
                if (remaining := end - monotonic()) <= 0:
                    raise AssertionError(f"{what} within {timeout:g} s; {self._summary()}")
                self._changed.wait(remaining)

    def _summary(self) -> str:
        seen = (
            f"request {number} ({request.method} {request.target}): now {request.doing}, "
            f"reached {dict(request.reached)}, left {request.left}"
            for number, request in enumerate(self.requests)
        )
        return "; ".join((f"{self.connections} connections, {self.open_connections} open", *seen))
