"""Which exceptions of a step are the world's fault, and what to call them; all others are bugs."""

import json
from dataclasses import dataclass
from typing import Final

import requests

from .. import errors
from ..classify import causes_of, classify, http_status, transport_code
from .step_status import StepStatus

__all__ = ["Fault", "Handles", "fault_of", "is_retryable"]

Handles = tuple[type[Exception], ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """The status and reason that an exception gives to its step."""

    status: StepStatus
    reason: str


_BY_TYPE: Final[tuple[tuple[type[BaseException], Fault], ...]] = (
    (errors.StreamInactivityTimeoutError, Fault("timeout", "stream_inactive")),
    (errors.DeadlineExceededError, Fault("timeout", "call_limit")),
    (errors.StreamCancelledError, Fault("error", "stream_cancelled")),
    (errors.EmptyStreamError, Fault("error", "empty_stream")),
    (errors.IncompleteStreamError, Fault("error", "incomplete_stream")),
    (errors.InStreamError, Fault("error", "in_stream_error")),
    (errors.MalformedChunkError, Fault("error", "malformed_chunk")),
    (errors.NotEventStreamError, Fault("error", "not_event_stream")),
    (errors.StepFailedError, Fault("error", "step_failed")),
    (errors.InvalidJSONError, Fault("error", "invalid_json")),
    (json.JSONDecodeError, Fault("error", "invalid_json")),
    (requests.exceptions.JSONDecodeError, Fault("error", "invalid_json")),
)
_BY_CODE: Final = {
    "ETIMEDOUT": Fault("timeout", "transport_timeout"),
    "ECONNREFUSED": Fault("error", "connection_refused"),
    "ECONNRESET": Fault("error", "connection_reset"),
    "ECONNABORTED": Fault("error", "connection_reset"),
    "EPIPE": Fault("error", "connection_reset"),
    "EAI_NONAME": Fault("error", "name_resolution"),
    "ECERT": Fault("error", "certificate_invalid"),
    "ELOOP": Fault("error", "too_many_redirects"),
    "EPROTO": Fault("error", "protocol_error"),
}


def fault_of(exc: BaseException, handles: Handles = ()) -> Fault | None:
    """Return what *exc* means for the step that raised it; None for a bug, which must propagate as itself.

    Faults are streamguard's and requests' errors, OSError, invalid JSON, and *handles*. A `UsageError` is a bug: it says
    that a call cannot be right, and no service is to blame.
    """
    if isinstance(exc, errors.UsageError):
        return None
    for kind, fault in _BY_TYPE:
        if isinstance(exc, kind):
            return fault
    if isinstance(exc, RecursionError) and "decoding a JSON" in str(exc):  # no other sign tells it from a program's own
        return Fault("error", "invalid_json")
    if isinstance(exc, requests.HTTPError):
        return Fault("error", _http_reason(exc))
    if isinstance(exc, requests.RequestException | OSError):
        status = None if isinstance(exc, TimeoutError | requests.Timeout) else _status_inside(exc)
        if status is not None:
            return Fault("error", f"http_{status}")
        return _BY_CODE.get(transport_code(exc) or "", Fault("error", _other_reason(exc)))
    if handles and isinstance(exc, handles):
        return Fault("error", "handled_error")
    return Fault("error", "streamguard_error") if isinstance(exc, errors.StreamguardError) else None


def is_retryable(exc: BaseException, handles: Handles = ()) -> bool:
    """Whether a later attempt may succeed, inside the same budget.

    By `classify()`; besides, a limit that the step gave to one call is one attempt's, and what the step declared as
    somebody else's failure may pass.
    """
    fault = fault_of(exc, handles)
    if fault is None:
        return False
    return fault.reason in ("call_limit", "handled_error") or classify(exc).diagnosis == "retryable"


def _http_reason(exc: requests.HTTPError) -> str:
    status = getattr(exc, "status_code", None) or getattr(exc.response, "status_code", None)
    return f"http_{status}" if isinstance(status, int) else "http_error"


def _status_inside(exc: BaseException) -> int | None:
    """Return the HTTP status that *exc*, or what it was made of, is about: urllib's HTTPError, say, is an OSError."""
    return next((status for status in map(http_status, causes_of(exc)) if status is not None), None)


def _other_reason(exc: BaseException) -> str:
    if not isinstance(exc, requests.RequestException):
        return "os_error"
    if isinstance(exc, errors.TransportError) or transport_code(exc) is not None:
        return "transport_error"
    return "invalid_request" if isinstance(exc, ValueError) else "request_failed"
