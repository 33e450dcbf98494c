"""What headers and error bodies say: why a request was refused, when to retry it, its id."""

import datetime
import email.utils
import json
import math
import re
from collections.abc import Mapping
from typing import Any

import requests
import urllib3

from .._core.clock import wall
from .._transient import errors_in
from ..errors import HTTPStatusError, MalformedChunkError, NotEventStreamError

_LIBRARIES = {"br": "brotli", "zstd": "zstandard"}
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
        retry_after=asked_pause(response.headers, text),
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


def require_decoder(response: requests.Response) -> None:
    """Raise MalformedChunkError if urllib3 hands over the body encoded, because a library is not installed."""
    raw = response.raw
    if not isinstance(raw, urllib3.HTTPResponse):
        return
    codings = [coding.strip() for coding in response.headers.get("content-encoding", "").lower().split(",")]
    for coding, library in _LIBRARIES.items():
        if coding in codings and coding not in raw.CONTENT_DECODERS:
            raise MalformedChunkError(
                f"the body has Content-Encoding {coding!r}, which cannot be decoded: install {library}, "
                "or leave it out of Accept-Encoding in headers="
            )


def asked_pause(headers: Mapping[str, str], body: object) -> float | None:
    """Return the seconds that an error response asks to wait.

    In its headers, `retry-after-ms` before `Retry-After`; else in its body, as Google's `RetryInfo` or as `retry_after`.
    """
    milliseconds = _number(headers.get("retry-after-ms"))
    if milliseconds is not None:
        return milliseconds / 1000
    seconds = retry_after(headers.get("retry-after"))
    return _pause_in(body) if seconds is None else seconds


def retry_after(value: str | None) -> float | None:
    """Return the seconds that a `Retry-After` header asks for: a number, or a date (RFC 9110, 10.2.3).

    Of a header that came more than once, the longest.
    """
    if not isinstance(value, str):
        return None
    parts = re.split(r",(?!\s*\d{1,2}[ -])", value)  # not at the comma in a date
    asked = (_number(part) if _is_number(part) else _seconds_until(part.strip()) for part in parts)
    return max((seconds for seconds in asked if seconds is not None), default=None)


def _pause_in(body: object) -> float | None:
    for error in errors_in(body):
        details = error.get("details")
        for detail in details if isinstance(details, list) else ():
            if isinstance(detail, dict) and str(detail.get("@type")).endswith("google.rpc.RetryInfo"):
                return _duration(detail.get("retryDelay"))
        if (seconds := _number(error.get("retry_after"))) is not None:
            return seconds
    return None


def _duration(value: object) -> float | None:
    """Return the seconds of a duration as protobuf writes it in JSON: "3.5s", or an object of seconds and nanos."""
    if isinstance(value, dict):
        return (_number(value.get("seconds", 0)) or 0.0) + (_number(value.get("nanos", 0)) or 0.0) / 1e9
    return _number(value)


def _is_number(text: str) -> bool:
    try:
        float(text.strip().removesuffix("s"))
    except ValueError:
        return False
    return True


def _number(value: object) -> float | None:
    """Return the number, not below 0; None if it is not a finite one."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value.strip().removesuffix("s") if isinstance(value, str) else value)
    except (ValueError, OverflowError):
        return None
    return max(0.0, number) if math.isfinite(number) else None


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
