"""Which exceptions of a step are failures of services, and their reasons; all others are bugs."""

import json
from dataclasses import dataclass
from typing import Final

import requests

from .. import errors
from ..classify import causes_of, classify, http_status, transport_code
from .step_status import StepStatus

Handles = tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """How a step failed: its status, and the reason in one word."""

    status: StepStatus
    reason: str


_BY_TYPE: Final[tuple[tuple[type[BaseException], Failure], ...]] = (
    (errors.StreamInactivityTimeoutError, Failure("timeout", "stream_inactive")),
    (errors.DeadlineExceededError, Failure("timeout", "call_limit")),
    (errors.StreamCancelledError, Failure("error", "stream_cancelled")),
    (errors.EmptyStreamError, Failure("error", "empty_stream")),
    (errors.IncompleteStreamError, Failure("error", "incomplete_stream")),
    (errors.InStreamError, Failure("error", "in_stream_error")),
    (errors.MalformedChunkError, Failure("error", "malformed_chunk")),
    (errors.NotEventStreamError, Failure("error", "not_event_stream")),
    (errors.StepFailedError, Failure("error", "step_failed")),
    (errors.ResponseValidationError, Failure("error", "validation_failed")),
    (errors.InvalidJSONError, Failure("error", "invalid_json")),
    (json.JSONDecodeError, Failure("error", "invalid_json")),
    (requests.exceptions.JSONDecodeError, Failure("error", "invalid_json")),
)
_BY_CODE: Final = {
    "ETIMEDOUT": Failure("timeout", "transport_timeout"),
    "ECONNREFUSED": Failure("error", "connection_refused"),
    "ECONNRESET": Failure("error", "connection_reset"),
    "ECONNABORTED": Failure("error", "connection_reset"),
    "EPIPE": Failure("error", "connection_reset"),
    "EAI_NONAME": Failure("error", "name_resolution"),
    "ECERT": Failure("error", "certificate_invalid"),
    "ELOOP": Failure("error", "too_many_redirects"),
    "EPROTO": Failure("error", "protocol_error"),
}


def failure_of(exc: BaseException, handles: Handles = ()) -> Failure | None:
    """Return how the step that raised *exc* failed; None for a bug, which must propagate unchanged.

    Failures are streamguard's and requests' errors, OSError, invalid JSON, and *handles*. A `UsageError` is a bug: the call
    is wrong, and no service caused it.
    """
    if isinstance(exc, errors.UsageError):
        return None
    for kind, failure in _BY_TYPE:
        if isinstance(exc, kind):
            return failure
    if isinstance(exc, RecursionError) and "decoding a JSON" in str(exc):  # only the text differs from a program's own
        return Failure("error", "invalid_json")
    if isinstance(exc, requests.HTTPError):
        return Failure("error", _http_reason(exc))
    if isinstance(exc, requests.RequestException | OSError):
        status = None if isinstance(exc, TimeoutError | requests.Timeout) else _status_inside(exc)
        if status is not None:
            return Failure("error", f"http_{status}")
        return _BY_CODE.get(transport_code(exc) or "", Failure("error", _other_reason(exc)))
    if handles and isinstance(exc, handles):
        return Failure("error", "handled_error")
    return Failure("error", "streamguard_error") if isinstance(exc, errors.StreamguardError) else None


def is_retryable(exc: BaseException, handles: Handles = ()) -> bool:
    """Whether another attempt may succeed.

    `classify()` decides. A limit that the step gave to one call, and an exception in *handles*, may also pass.
    """
    failure = failure_of(exc, handles)
    if failure is None:
        return False
    return failure.reason in ("call_limit", "handled_error") or classify(exc).diagnosis == "retryable"


def _http_reason(exc: requests.HTTPError) -> str:
    status = getattr(exc, "status_code", None) or getattr(exc.response, "status_code", None)
    return f"http_{status}" if isinstance(status, int) else "http_error"


def _status_inside(exc: BaseException) -> int | None:
    """Return the HTTP status of *exc* or of one of its causes: urllib's HTTPError, for example, is an OSError."""
    return next((status for status in map(http_status, causes_of(exc)) if status is not None), None)


def _other_reason(exc: BaseException) -> str:
    if not isinstance(exc, requests.RequestException):
        return "os_error"
    if isinstance(exc, errors.TransportError) or transport_code(exc) is not None:
        return "transport_error"
    return "invalid_request" if isinstance(exc, ValueError) else "request_failed"
