"""What headers and error bodies say: why a request was refused, when to retry it, its id."""

import datetime
import email.utils
import json
import math
from typing import Any

import requests

from .._core.clock import wall
from ..errors import HTTPStatusError, NotEventStreamError

QUOTED_BYTES = 512
"""How much of a body is kept for an error that says that it is not what was expected."""


def status_error(response: requests.Response, body: bytes) -> HTTPStatusError:
    """Return the error for *response*, whose status is 400 or above; *body* is the part that was read."""
    text = body.decode("utf-8", "replace")
    reason = _server_message(text)
    return HTTPStatusError(
        f"status {response.status_code} {response.reason or ''}".rstrip() + (f": {reason}" if reason else ""),
        response=response,
        status_code=response.status_code,
        headers=dict(response.headers),
        body=text,
        retry_after=retry_after(response.headers.get("Retry-After")),
        request_id=request_id(response),
    )


def not_event_stream(
    response: requests.Response | None, beginning: bytes, *, asked_for_stream: bool = True
) -> NotEventStreamError:
    """Return the error for a body that is not an event stream; *response*, if known, has a status of success."""
    kind = None if response is None else response.headers.get("Content-Type")
    what = "not an event stream" if response is None else f"status {response.status_code}, but not an event stream"
    body = beginning[:QUOTED_BYTES].decode("utf-8", "replace")
    hint = ""
    if "json" in (kind or "") or body.lstrip()[:1] in ("{", "["):
        missing = "" if asked_for_stream else " (it does not)"
        hint = f'; it looks like JSON: does the payload set "stream": true{missing}?'
    message = f"{what}: Content-Type {kind!r}{hint}; it begins {body!r}"
    return NotEventStreamError(message, content_type=kind, body=body)


def _server_message(text: str) -> str:
    """Return the message in an error body: OpenAI's, FastAPI's and similar shapes, else the beginning of the text."""
    try:
        found: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text.strip()[:200]
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and found.get(key):
            found = found[key]
    return found[:500] if isinstance(found, str) else json.dumps(found)[:200]


def retry_after(value: str | None) -> float | None:
    """Return the seconds that a `Retry-After` header asks for: a number, or a date (RFC 9110, 10.2.3)."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        return _seconds_until(value)
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _seconds_until(date: str) -> float | None:
    try:
        when = email.utils.parsedate_to_datetime(date)
    except (ValueError, OverflowError):
        return None
    if when.tzinfo is None:  # asctime's format, and "-0000", have no zone; in HTTP that is UTC
        when = when.replace(tzinfo=datetime.UTC)
    return max(0.0, when.timestamp() - wall())


def request_id(response: requests.Response) -> str | None:
    """Return the server's id of the request, from the first header that has one."""
    for name in ("x-request-id", "request-id", "x-amzn-requestid", "apim-request-id", "cf-ray"):
        if name in response.headers:
            return str(response.headers[name])
    return None
