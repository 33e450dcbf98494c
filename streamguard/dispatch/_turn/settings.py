"""The output timeout of a dispatch: argument, environment, or never."""

import logging
import os
import threading
import warnings
from collections.abc import Mapping
from datetime import timedelta

from ..._core.limits import Limit, NotGiven, seconds_of
from ...errors import UsageError
from ...telemetry.logs import log_line
from .execution import Limits

VARIABLE = "CLI_TIMEOUT_MS"
"""The environment variable that holds the output timeout, in milliseconds."""

_LONGEST = timedelta(days=30).total_seconds()


def limits_of(
    output_timeout: Limit | NotGiven, tool_timeout: Limit, first: Limit, environ: Mapping[str, str] = os.environ
) -> Limits:
    """Return the limits of a dispatch. Raises TypeError or UsageError for a value that can be none, naming it."""
    return Limits(
        output_timeout=_output_timeout(output_timeout, environ),
        tool_timeout=_limit("tool_timeout", tool_timeout),
        first=_limit("first", first),
    )


def _output_timeout(given: Limit | NotGiven, environ: Mapping[str, str]) -> float:
    """Return the output timeout in seconds; 0 never fires.

    given: the caller's argument, in seconds; 0 and None are never. Where it is not given, `CLI_TIMEOUT_MS` holds
           *milliseconds*, else there is none. A value there that can be no timeout (negative, NaN, empty, above 30 days) is
           ignored with a warning that names it.

    That nothing will ever fire is said in one INFO line. Raises TypeError or UsageError for an argument that can be none.
    """
    seconds = _from_environment(environ) if isinstance(given, NotGiven) else _limit("output_timeout", given) or 0.0
    if seconds == 0:
        log_line(
            logging.INFO,
            "no_output_timeout",
            "no output timeout: a member that hangs is not stopped (set output_timeout=, or %s)",
            VARIABLE,
        )
    return seconds


def _limit(name: str, value: Limit) -> float | None:
    """Return the limit *name* in seconds; None and 0 are off. Raises TypeError or UsageError, naming it."""
    seconds = seconds_of(name, value)
    if seconds is None or seconds == 0:
        return None
    if seconds < 0:
        raise UsageError(f"{name}= is seconds of silence; {seconds:g} is none. 0 is never.")
    return min(seconds, threading.TIMEOUT_MAX)


def _from_environment(environ: Mapping[str, str]) -> float:
    text = environ.get(VARIABLE)
    if text is None:
        return 0.0
    try:
        seconds = float(text) / 1000
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST:  # NaN compares with nothing
        warnings.warn(
            f"{VARIABLE}={text!r} is ignored: it takes milliseconds, from 0 (never) to 30 days", UserWarning, stacklevel=5
        )
        return 0.0
    return seconds
