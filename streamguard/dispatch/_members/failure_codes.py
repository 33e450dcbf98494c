"""The error code of an exception that a member raised. Pure."""

import subprocess
from collections.abc import Callable

from ... import errors
from ...classify import causes_of, transport_code
from .._process.spawn import CommandStartError

NOT_STARTED = "not_started"
"""The code of a member whose program cannot be started: it is missing, or not executable."""
DEADLINE_EXCEEDED = "deadline_exceeded"
"""The code of a member that a surrounding `deadline()` ended."""
CALL_TIMEOUT = "call_timeout"
"""The code of a timeout that another library, or the caller's own code, raised in a member."""

_CODES: tuple[tuple[type[errors.StreamguardError], Callable[..., str | None]], ...] = (
    (CommandStartError, lambda exc: NOT_STARTED),
    (errors.DeadlineExceededError, lambda exc: DEADLINE_EXCEEDED if exc.scope == "ambient" else f"{exc.scope}_timeout"),
    (errors.TransportTimeoutError, lambda exc: f"{exc.phase}_timeout" if exc.phase else CALL_TIMEOUT),
    (errors.TransportError, lambda exc: str(exc.code)),
    (errors.HTTPStatusError, lambda exc: f"http_{exc.status_code}"),
    (errors.EmptyStreamError, lambda exc: "empty_stream"),
    (errors.IncompleteStreamError, lambda exc: "incomplete_stream"),
    (errors.MalformedChunkError, lambda exc: "malformed_chunk"),
    (errors.NotEventStreamError, lambda exc: "not_an_event_stream"),
    (errors.InStreamError, lambda exc: "error_in_stream"),
    (errors.UsageError, lambda exc: "usage_error"),
)


def failure_code(exc: BaseException) -> str | None:
    """Return the error code of an exception that a member raised; None if it has none.

    The exception that *exc* wraps counts too. A limit of streamguard that fired is named: `idle_timeout`, `total_timeout`.
    """
    nest = list(causes_of(exc))
    own = next((code for cause in nest if (code := _own_code(cause))), None)
    if own is not None:
        return own
    timed_out = transport_code(exc) == "ETIMEDOUT" or any(isinstance(cause, subprocess.TimeoutExpired) for cause in nest)
    return CALL_TIMEOUT if timed_out else None


def _own_code(exc: BaseException) -> str | None:
    return next((code(exc) for kind, code in _CODES if isinstance(exc, kind)), None)
