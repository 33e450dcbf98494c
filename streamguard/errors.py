"""What streamguard raises.

    StreamguardError
    ├── TransportError                       the wire failed: reset, refused, cut short, bad TLS (requests.RequestException)
    │   └── TransportTimeoutError            no connection or no headers in time (requests.Timeout, TimeoutError)
    │       └── StreamInactivityTimeoutError     the open stream went silent
    ├── DeadlineExceededError                a total, ambient or step deadline passed (TimeoutError)
    │   └── TotalTimeoutError                ... that was a Session's own timeout= (requests.Timeout)
    ├── StreamCancelledError                 the caller cancelled; no OSError
    ├── IncompleteStreamError                the stream ended without saying that it was complete
    │   └── EmptyStreamError                     ... and without a single chunk
    ├── InStreamError                        the server reported an error inside a 200 stream
    ├── MalformedChunkError                  what came is not what was asked to be decoded
    ├── NotEventStreamError                  a 200 that is not an event stream
    ├── InvalidJSONError                     a good status, and a body that is not JSON (requests' own InvalidJSONError)
    │   └── ResponseValidationError          ... or JSON that validate= does not accept
    ├── HTTPStatusError                      status 400 and above (requests.HTTPError)
    ├── StepFailedError                      a chain's step has no value
    └── UsageError                           a call that cannot be right (ValueError)

All but `DeadlineExceededError` itself, `StreamCancelledError`, `StepFailedError` and `UsageError` are requests exceptions.
Messages name the host at most: never a full URL, a header, or the request's body. All of them pickle; what does not travel
is `__cause__`, and the `response` of an `HTTPStatusError`.
"""

import errno
from typing import Any

import requests

__all__ = [
    "DeadlineExceededError",
    "EmptyStreamError",
    "HTTPStatusError",
    "InStreamError",
    "IncompleteStreamError",
    "InvalidJSONError",
    "MalformedChunkError",
    "NotEventStreamError",
    "ResponseValidationError",
    "StepFailedError",
    "StreamCancelledError",
    "StreamInactivityTimeoutError",
    "StreamguardError",
    "TotalTimeoutError",
    "TransportError",
    "TransportTimeoutError",
    "UsageError",
]


class StreamguardError(Exception):
    """Base of everything that streamguard raises on its own account.

    The attributes say how far the call got; an attribute that is unknown or does not apply is None.
    """

    phase: str | None = None
    """Where it stopped: new, connect, response, first, idle, dead, retry (a pause between attempts), or body."""
    limit: float | None = None
    """The limit that fired, in seconds."""
    elapsed: float | None = None
    """Seconds that the fired limit had measured."""
    lifetime: float | None = None
    """Seconds since the call started, all attempts and pauses included."""
    chunks: int | None = None
    """Chunks handed over before the error."""
    bytes: int | None = None
    """Bytes of body received, decoded."""
    comments: int | None = None
    """SSE comments (heartbeats) received."""
    attempt: int | None = None
    """The attempt that failed, from 1."""
    max_attempts: int | None = None
    """How many attempts the policy allowed, if it says so."""
    host: str | None = None
    """Host (and port) of the upstream."""
    name: str | None = None
    """The caller's name for the stream."""
    id: str | None = None
    """streamguard's id of the call, as in its report and logs."""
    partial_text: str | None = None
    """The text that had arrived."""

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message)
        self._set(message, details)

    _stream = ""  # host, name and id of the stream, if the message is the server's or a decoder's

    def __str__(self) -> str:
        return f"{self.message} ({self._stream})" if self._stream else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        state = {key: value for key, value in self.__dict__.items() if key not in ("message", "request", "response")}
        return _rebuild, (type(self), self.message, state)

    def _set(self, message: str, details: dict[str, Any]) -> None:
        self.message = message
        for key, value in details.items():
            if not hasattr(type(self), key):
                raise TypeError(f"{type(self).__name__} has no detail {key!r}")
            setattr(self, key, value)


class TransportError(StreamguardError, requests.RequestException):
    """Raised when the connection failed: refused, reset, cut short, badly framed, or no valid certificate.

    `code` names the fault (`"ECONNRESET"`, `"ECONNREFUSED"`, `"EAI_NONAME"`, `"ECERT"`, `"EPROTO"`, …); `errno` is its
    number where the system has one.
    """

    code: str = "EIO"

    def __init__(self, message: str = "", **details: Any) -> None:
        requests.RequestException.__init__(self, message)
        self._set(message, details)
        self.errno = getattr(errno, self.code, None)


class TransportTimeoutError(TransportError, requests.Timeout, TimeoutError):
    """Raised when no connection (`phase="connect"`) or no response headers (`phase="response"`) came in time."""

    code = "ETIMEDOUT"


class StreamInactivityTimeoutError(TransportTimeoutError):
    """Raised when an open stream went silent.

    `phase` is `"first"` (no chunk after the headers), `"idle"` (no further chunk) or `"dead"` (not a single byte).
    """

    idle: float | None = None
    """The limit that fired, in seconds (the same as `limit`)."""
    chunks_received: int | None = None
    """Chunks handed over before the silence (the same as `chunks`)."""
    stream_lifetime: float | None = None
    """Seconds since the call started (the same as `lifetime`)."""
    last_byte_ago: float | None = None
    """Seconds since the last byte of any kind; None if none came."""
    last_chunk_ago: float | None = None
    """Seconds since the last chunk; None if none came."""


class DeadlineExceededError(StreamguardError, TimeoutError):
    """Raised when an overall deadline passed; retrying would only multiply it.

    `scope` says whose deadline it was: `"total"` (this call's), `"ambient"` (a surrounding `deadline()` block's) or
    `"step"` (a chain step's or a bounded call's).
    """

    scope: str = "total"
    overran: bool = False
    """Whether the function could not be stopped and is still running."""

    def __init__(self, message: str = "", **details: Any) -> None:
        TimeoutError.__init__(self, message)
        self._set(message, details)
        self.errno = errno.ETIMEDOUT


class TotalTimeoutError(DeadlineExceededError, requests.Timeout):
    """Raised when a call of `streamguard.Session` took longer than its own `timeout=`, the whole of it."""

    def __init__(self, message: str = "", **details: Any) -> None:
        requests.RequestException.__init__(self, message)
        self._set(message, details)
        self.errno = errno.ETIMEDOUT


class StreamCancelledError(StreamguardError):
    """Raised in the consumer's loop when the caller cancelled. Not an OSError: nothing should retry it."""

    reason: object = None
    """What was given to `cancel()`."""


class _ProtocolError(StreamguardError, requests.RequestException):
    def __init__(self, message: str = "", **details: Any) -> None:
        requests.RequestException.__init__(self, message)
        self._set(message, details)


class IncompleteStreamError(_ProtocolError):
    """Raised, after all chunks were handed over, when the stream ended with neither end marker nor finish reason."""


class EmptyStreamError(IncompleteStreamError):
    """Raised when the stream ended without a single chunk."""


class InStreamError(_ProtocolError):
    """Raised for an error that the server reported inside a stream that had begun with status 200."""

    type: str | None = None
    """The error's type as the server named it."""
    code: str | int | None = None
    """The error's code as the server gave it."""
    body: str = ""
    """The error frame as it came (at most 64 KiB)."""
    status_code: int | None = None
    """The HTTP status of the response: almost always 200, and no statement about the error."""


class MalformedChunkError(_ProtocolError):
    """Raised when a payload is not JSON, is a frame of another API, or is larger than the cap."""


class NotEventStreamError(_ProtocolError):
    """Raised when a successful response is not an event stream."""

    content_type: str | None = None
    body: str = ""
    """How the body began (at most 512 bytes)."""


class InvalidJSONError(_ProtocolError, requests.exceptions.InvalidJSONError):
    """Raised by `Session.get_json()` when a successful response has a body that is not JSON."""

    status_code: int | None = None
    content_type: str | None = None
    body: str = ""
    """How the body began (at most 512 bytes)."""


class ResponseValidationError(InvalidJSONError):
    """Raised by `Session.get_json(validate=...)` when *validate* raises, or returns False, for the parsed JSON."""


class HTTPStatusError(StreamguardError, requests.HTTPError):
    """Raised for a response with status 400 or above."""

    status_code: int | None = None
    headers: dict[str, str] = {}  # noqa: RUF012 - a default that is only read
    """The response's headers."""
    body: str = ""
    """The beginning of the response's body (at most 64 KiB, read for at most a second)."""
    retry_after: float | None = None
    """Seconds that the server asked to wait, from `Retry-After`."""
    request_id: str | None = None
    """The upstream's own id of the request."""

    def __init__(self, message: str = "", *, response: requests.Response | None = None, **details: Any) -> None:
        requests.HTTPError.__init__(self, message, response=response)
        self._set(message, details)


class StepFailedError(StreamguardError):
    """Raised by `result[step]` for a step that has no value. `name` and `id` are the run's."""

    step: str | None = None
    """The step's name."""
    status: str | None = None
    """timeout, error, skipped, or cancelled."""
    reason: str | None = None
    """Why, in one of the words of `docs/status.md`. What the step raised is on its report, `result.steps[step].error`."""


class UsageError(StreamguardError, ValueError):
    """Raised for arguments, or an order of calls, that cannot be right. Nothing was sent."""


def _rebuild(cls: type[StreamguardError], message: str, state: dict[str, Any]) -> StreamguardError:
    details = {key: value for key, value in state.items() if hasattr(cls, key) and not key.startswith("__")}
    error = cls(message, **details)
    error.__dict__.update(state)
    return error
