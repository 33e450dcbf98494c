"""What to request, checked before anything is sent, and able to be sent again."""

import sys
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict
from urllib.parse import urlsplit

import requests

from ..core.limits import Timeouts
from ..errors import UsageError
from ..http import Adapter

__all__ = ["RequestKeywords", "RequestPlan", "plan_request"]

_BACKSTOP = 600.0 if sys.platform == "win32" else None
"""Seconds. On Windows a shutdown is reported not to wake a blocked `recv`: there, and only there, reads time out."""


class RequestKeywords(TypedDict, total=False):
    """requests' own keywords that pass through unchanged."""

    params: Any
    data: Any
    json: Any
    headers: Mapping[str, str | bytes | None] | None
    cookies: Any
    files: Any
    auth: Any
    allow_redirects: bool
    proxies: Any
    hooks: Any
    verify: Any
    cert: Any


@dataclass(frozen=True, slots=True, eq=False)
class RequestPlan:
    """One request, as often as it may be needed."""

    method: str
    url: str = field(repr=False)
    options: dict[str, Any] = field(repr=False)
    session: requests.Session | None = field(repr=False)
    timeout: tuple[float | None, float | None]
    """requests' own (connect, read) timeout: what ends a thread that no cut can reach."""
    reports_phases: bool
    """Whether the connection tells us about connect, sent and headers: with our own adapter."""

    @property
    def host(self) -> str:
        """Host and port of the upstream, all that messages may say of the URL."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def asked_for_stream(self) -> bool:
        """Whether the JSON payload sets `"stream": true` (or there is no payload to tell)."""
        payload = self.options.get("json")
        return bool(payload.get("stream")) if isinstance(payload, dict) else True

    def why_not_replayable(self) -> str | None:
        """Name the argument that can be sent only once, or return None."""
        data, files = self.options.get("data"), self.options.get("files")
        if not (data is None or isinstance(data, str | bytes | bytearray | Mapping | list | tuple)):
            return f"data= is a {type(data).__name__}"
        entries = files.values() if isinstance(files, Mapping) else [entry[-1] for entry in files or ()]
        for entry in entries:
            content = entry[1] if isinstance(entry, tuple | list) and len(entry) > 1 else entry
            if not isinstance(content, str | bytes | bytearray):
                return f"files= holds a {type(content).__name__}"
        return None

    def open(self) -> tuple[requests.Session, bool]:
        """Return the session to send with, and whether it is ours to close."""
        if self.session is not None:
            return self.session, False
        session = requests.Session()
        for prefix in ("https://", "http://"):
            session.mount(prefix, Adapter())
        return session, True

    def send(self, session: requests.Session) -> requests.Response:
        """Send the request; return when the headers of the final response are here."""
        return session.request(self.method, self.url, stream=True, timeout=self.timeout, **self.options)


def plan_request(
    method: str,
    url: str,
    options: dict[str, Any],
    *,
    session: requests.Session | None,
    limits: Timeouts,
    repeatable: bool,
) -> RequestPlan:
    """Check the arguments of a call and return its plan; raise UsageError or TypeError naming the one that is wrong.

    Adds `Accept: text/event-stream` and `Accept-Encoding: identity` unless the caller, or the caller's session, chose
    others, and one `Idempotency-Key` for all attempts of a POST or PATCH that may be repeated.
    """
    _check_keywords(options)
    _check_target(method, url)
    if session is not None and not isinstance(session, requests.Session):
        raise TypeError(f"session= takes a requests.Session, not {type(session).__name__}")
    ours = session is None or isinstance(_adapter(session, url), Adapter)
    read = _BACKSTOP if ours else limits.response
    return RequestPlan(
        method=method.upper(),
        url=url,
        options={**options, "headers": _headers(method, options.get("headers"), session, repeatable)},
        session=session,
        timeout=(None if ours else limits.connect, read),
        reports_phases=ours,
    )


def _check_keywords(options: Mapping[str, Any]) -> None:
    if "timeout" in options:
        raise UsageError("timeout= is ambiguous here: idle= is silence, total= the whole call")
    if "stream" in options:
        raise UsageError("stream= is not needed here: guarded_stream always streams (the payload says json={'stream': True})")
    unknown = options.keys() - RequestKeywords.__annotations__.keys()
    if unknown:
        raise TypeError(f"guarded_stream() got an unexpected keyword argument {min(unknown)!r}")


def _check_target(method: object, url: object) -> None:
    if not isinstance(method, str) or not method:
        raise TypeError(f"method= takes a str such as 'POST', not {type(method).__name__}")
    if not isinstance(url, str):
        raise TypeError(f"url= takes a str, not {type(url).__name__}")
    try:
        parts = urlsplit(url)
    except ValueError as exc:
        raise UsageError(f"url= cannot be read: {exc}") from None
    if "://" not in url or not parts.scheme:
        raise UsageError("url= has no scheme: it must begin with http:// or https://")
    if not parts.netloc:
        raise UsageError("url= has no host")


def _adapter(session: requests.Session, url: str) -> object:
    try:
        return session.get_adapter(url)
    except requests.exceptions.InvalidSchema:
        raise UsageError(f"url= has a scheme that the session knows no adapter for: {urlsplit(url).scheme!r}") from None


def _headers(
    method: str, given: Mapping[str, Any] | None, session: requests.Session | None, repeatable: bool
) -> dict[str, Any]:
    headers: dict[str, Any] = dict(given or {})
    have = {str(name).lower() for name in headers}
    usual = requests.utils.default_headers()
    for name, value in (("Accept", "text/event-stream"), ("Accept-Encoding", "identity")):
        chosen = session is not None and session.headers.get(name) not in (None, usual.get(name))
        if name.lower() not in have and not chosen:
            headers[name] = value
    if repeatable and method.upper() in ("POST", "PATCH") and "idempotency-key" not in have:
        headers["Idempotency-Key"] = str(uuid.uuid4())
    return headers
