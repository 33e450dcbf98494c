"""The exceptions of streamguard.

    StreamguardError
    ├── TransportError                       the wire failed: reset, refused, cut short, bad TLS (requests.RequestException)
    │   └── TransportTimeoutError            no connection or no headers in time (requests.Timeout, TimeoutError)
    │       └── StreamInactivityTimeoutError     the open stream went silent
    ├── DeadlineExceededError                a total, ambient or step deadline passed (TimeoutError)
    │   └── TotalTimeoutError                ... that was a Session's own timeout= (requests.Timeout)
    ├── StreamCancelledError                 the caller cancelled; not an OSError
    ├── IncompleteStreamError                the stream ended without its end marker
    │   └── EmptyStreamError                     ... and without a single chunk
    ├── InStreamError                        the server reported an error inside a 200 stream
    ├── MalformedChunkError                  the body is not what decode= expects
    ├── NotEventStreamError                  a 200 that is not an event stream
    ├── InvalidJSONError                     a good status, and a body that is not JSON (requests' own InvalidJSONError)
    │   └── ResponseValidationError          ... or JSON that validate= does not accept
    ├── HTTPStatusError                      status 400 and above (requests.HTTPError)
    ├── StepFailedError                      a chain's step has no value
    └── UsageError                           an invalid argument, or an invalid order of calls (ValueError)

All but `DeadlineExceededError` itself, `StreamCancelledError`, `StepFailedError` and `UsageError` are requests exceptions.
Messages name the host at most: never a full URL, a header, or the request's body. All of them pickle, but without
`__cause__` and without the `response` of an `HTTPStatusError`.
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
    """Base class of all exceptions of streamguard.

    The attributes say how far the call got. An attribute that is unknown or does not apply is None.
    """

    phase: str | None = None
    """Where it stopped: new, connect, response, first, idle, dead, retry (a pause between attempts), or body."""
    limit: float | None = None
    """The limit that fired, in seconds."""
    elapsed: float | None = None
    """Seconds that the limit had measured when it fired."""
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
    number, or None if the system has none.
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
    """Raised when an overall deadline passed. It is not retried: each attempt would take as long again.

    `scope` is the kind of deadline: `"total"` (of this call), `"ambient"` (of a surrounding `deadline()` block) or
    `"step"` (of a chain's step or a bounded call).
    """

    scope: str = "total"
    overran: bool = False
    """Whether the function could not be stopped and still ran when this was raised."""

    def __init__(self, message: str = "", **details: Any) -> None:
        TimeoutError.__init__(self, message)
        self._set(message, details)
        self.errno = errno.ETIMEDOUT


class TotalTimeoutError(DeadlineExceededError, requests.Timeout):
    """Raised when a call of `streamguard.Session` took longer, as a whole, than its own `timeout=`."""

    def __init__(self, message: str = "", **details: Any) -> None:
        requests.RequestException.__init__(self, message)
        self._set(message, details)
        self.errno = errno.ETIMEDOUT


class StreamCancelledError(StreamguardError):
    """Raised in the consumer's loop when the caller cancelled. Not an OSError, so that code that retries those does not
    retry it.
    """

    reason: object = None
    """The argument of `cancel()`."""


class _ProtocolError(StreamguardError, requests.RequestException):
    def __init__(self, message: str = "", **details: Any) -> None:
        requests.RequestException.__init__(self, message)
        self._set(message, details)


class IncompleteStreamError(_ProtocolError):
    """Raised, after all chunks, when the stream ended with neither an end marker nor a finish reason."""


class EmptyStreamError(IncompleteStreamError):
    """Raised when the stream ended without a single chunk."""


class InStreamError(_ProtocolError):
    """Raised for an error that the server reported inside a stream that began with status 200."""

    type: str | None = None
    """The type of the error, in the server's words."""
    code: str | int | None = None
    """The code of the error, in the server's words."""
    body: str = ""
    """The error frame as it arrived (at most 64 KiB)."""
    status_code: int | None = None
    """The HTTP status of the response: almost always 200. It says nothing about the error."""


class MalformedChunkError(_ProtocolError):
    """Raised when a payload is not JSON, is a frame of another API, or is larger than the cap."""


class NotEventStreamError(_ProtocolError):
    """Raised when a successful response is not an event stream."""

    content_type: str | None = None
    body: str = ""
    """The beginning of the body (at most 512 bytes)."""


class InvalidJSONError(_ProtocolError, requests.exceptions.InvalidJSONError):
    """Raised by `Session.get_json()` when a successful response has a body that is not JSON."""

    status_code: int | None = None
    content_type: str | None = None
    body: str = ""
    """The beginning of the body (at most 512 bytes)."""


class ResponseValidationError(InvalidJSONError):
    """Raised by `Session.get_json(validate=...)` when *validate* raises, or returns False, for the parsed JSON."""


class HTTPStatusError(StreamguardError, requests.HTTPError):
    """Raised for a response with status 400 or above."""

    status_code: int | None = None
    headers: dict[str, str] = {}  # noqa: RUF012 - a default that is only read
    """The headers of the response."""
    body: str = ""
    """The beginning of the body (at most 64 KiB, read for at most one second)."""
    retry_after: float | None = None
    """Seconds to wait, from the server's `Retry-After`."""
    request_id: str | None = None
    """The server's id of the request."""

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
    """Why: one of the words of `docs/status.md`. The step's exception is in its report, `result.steps[step].error`."""


class UsageError(StreamguardError, ValueError):
    """Raised for an invalid argument, or an invalid order of calls. No request was sent."""


def _rebuild(cls: type[StreamguardError], message: str, state: dict[str, Any]) -> StreamguardError:
    details = {key: value for key, value in state.items() if hasattr(cls, key) and not key.startswith("__")}
    error = cls(message, **details)
    error.__dict__.update(state)
    return error
