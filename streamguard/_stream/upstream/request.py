"""One request: its arguments, checked before anything is sent, and sent as often as needed."""

import http.cookiejar
import os
import re
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict
from urllib.parse import urlsplit

import requests

from ..._core.cancel import set_current_token
from ..._core.limits import Timeouts
from ..._core.pump import Feed
from ..._http import Adapter, SocketGuard, attach_response, current_guard, find_socket
from ...errors import UsageError
from ...telemetry.events import Upstream
from ..timing.clocks import Phase
from .attribution import is_refusal, unusable_redirect
from .response import read_response

_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_MODEL = re.compile(r"[A-Za-z0-9][\w.:/@+-]{0,99}", re.ASCII)
_PORTS = {"http": 80, "https": 443}
_PHASES = {"connect": Phase.CONNECT, "response": Phase.RESPONSE, "headers": Phase.RESPONSE}
_KINDS: dict[str, tuple[type, ...]] = {
    "headers": (Mapping,),
    "proxies": (Mapping,),
    "hooks": (Mapping,),
    "cookies": (Mapping, http.cookiejar.CookieJar),
    "params": (Iterable,),
    "files": (Iterable,),
    "verify": (bool, str, os.PathLike),
    "cert": (str, os.PathLike, tuple),
}
_BACKSTOP = 600.0 if sys.platform == "win32" else None
"""Seconds. Only on Windows, where a shutdown is reported not to wake a blocked `recv`, do reads time out."""


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
class RequestSource:
    """One request, which can be sent more than once: the source of the stream of its responses."""

    method: str
    url: str = field(repr=False)
    options: dict[str, Any] = field(repr=False)
    session: requests.Session | None = field(repr=False)
    timeout: tuple[float | None, float | None]
    """requests' own (connect, read) timeout: it ends a thread that no cut reaches."""
    event_stream: bool
    """Whether the response must be an event stream."""
    reports_phases: bool
    """Whether the connection reports connect, sent and headers: with our own adapter, unless a SOCKS proxy is used."""

    @property
    def host(self) -> str:
        """Host and port of the upstream: messages contain no more of the URL."""
        return urlsplit(self.url).netloc.rpartition("@")[2]

    @property
    def upstream(self) -> Upstream:
        """What hooks may know of the URL and the payload."""
        parts = urlsplit(self.url)
        payload = self.options.get("json")
        model = payload.get("model") if isinstance(payload, Mapping) else None
        named = isinstance(model, str) and _MODEL.fullmatch(model)
        return Upstream(
            address=parts.hostname or "",
            port=parts.port or _PORTS.get(parts.scheme.lower()),
            model=model if named else None,
        )

    @property
    def _asked_for_stream(self) -> bool:
        """Whether the JSON payload sets `"stream": true` (or there is no JSON payload)."""
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

    @property
    def keeps_connection(self) -> bool:
        """Whether the connection is in the pool of a session of the caller's."""
        return self.session is not None

    def read(self, feed: Feed) -> None:
        """Send the request and read its response to the end of the body, in the reader thread."""
        guard = SocketGuard(feed.token, lambda name: feed.put(_PHASES[name]))
        current_guard.set(guard)
        set_current_token(feed.token)
        session, close = self._open_session()
        try:
            response = self._send(session, guard)
            try:
                self._guard_body(response, guard)
                read_response(
                    response, feed, guard, event_stream=self.event_stream, asked_for_stream=self._asked_for_stream
                )
            finally:
                response.close()
        finally:
            close()
            guard.release()

    def _open_session(self) -> tuple[requests.Session, Callable[[], object]]:
        """Return the session to send with, and a function that closes it if it is ours."""
        if self.session is not None:
            return self.session, lambda: None
        session, adapter = requests.Session(), Adapter(pool_maxsize=1)
        for prefix in ("https://", "http://"):
            session.mount(prefix, adapter)
        return session, adapter.close

    def _send(self, session: requests.Session, guard: SocketGuard) -> requests.Response:
        """Send the request; return when the headers of the final response are here."""
        try:
            return session.request(self.method, self.url, stream=True, timeout=self.timeout, **self.options)
        except BaseException as exc:
            # A hook of the caller's, such as one that calls raise_for_status(), raises before the response is returned.
            if guard.response is not None:
                guard.response.close()
                if guard.response.is_redirect and is_refusal(exc):
                    raise unusable_redirect(exc) from exc
            raise

    def _guard_body(self, response: requests.Response, guard: SocketGuard) -> None:
        """Let *guard* cut the body, whatever adapter and proxy the response came through."""
        attach_response(guard, response)
        sock = None if self.reports_phases else find_socket(response)
        if sock is not None:
            sock.settimeout(None)  # requests' read timeout was for the headers: the body is under the consumer's clocks


def asked_choices(payload: object) -> int:
    """Return how many choices the JSON *payload* of a chat asks for; 1 if it does not say."""
    number = payload.get("n") if isinstance(payload, Mapping) else None
    return number if type(number) is int and number > 1 else 1


def request_source(
    method: str,
    url: str,
    options: dict[str, Any],
    *,
    session: requests.Session | None,
    limits: Timeouts,
    repeatable: bool,
    event_stream: bool,
) -> RequestSource:
    """Check the arguments of a call and return the source; raise UsageError or TypeError naming the one that is wrong.

    Adds `Accept: text/event-stream` and `Accept-Encoding: identity` unless the caller, or the caller's session, chose
    others, and one `Idempotency-Key` for all attempts of a POST or PATCH that may be repeated.
    """
    _check_values(options)
    _check_target(method, url, plain=session is None)
    if session is not None and not isinstance(session, requests.Session):
        raise TypeError(f"session= takes a requests.Session, not {type(session).__name__}")
    ours = session is None or isinstance(_adapter(session, url), Adapter)
    ours = ours and not _through_socks(url, options.get("proxies"), session)
    read = _BACKSTOP if ours else limits.response
    return RequestSource(
        method=method.upper(),
        url=url,
        options={**options, "headers": _headers(method, options.get("headers"), session, repeatable)},
        session=session,
        timeout=(None if ours else limits.connect, read),
        event_stream=event_stream,
        reports_phases=ours,
    )


def _check_values(options: Mapping[str, Any]) -> None:
    """Refuse, by name, what would fail with an unclear error inside requests."""
    for name, kinds in _KINDS.items():
        value = options.get(name)
        if value is not None and not isinstance(value, kinds):
            expected = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"{name}= takes {expected}, not {type(value).__name__}")
    auth = options.get("auth")
    if auth is not None and not callable(auth) and not (isinstance(auth, tuple) and len(auth) == 2):
        raise TypeError(f"auth= takes (user, password) or a callable, not {type(auth).__name__}")
    for name in ("verify", "cert"):
        _check_files(name, options.get(name))


def _check_files(name: str, value: object) -> None:
    for path in value if isinstance(value, tuple) else (value,):
        if isinstance(path, str | os.PathLike) and not os.path.exists(path):
            raise UsageError(f"{name}= is a file that does not exist: {path}")


def _check_target(method: object, url: object, *, plain: bool) -> None:
    if not isinstance(method, str):
        raise TypeError(f"method= takes a str such as 'POST', not {type(method).__name__}")
    if not _TOKEN.fullmatch(method):
        raise UsageError(f"method= is not an HTTP method: {method[:40]!r}")
    if not isinstance(url, str):
        raise TypeError(f"url= takes a str, not {type(url).__name__}")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise UsageError(
            "url= cannot be parsed: its host or port is malformed"
        ) from None  # the text may be part of a password
    if "://" not in url or not parts.scheme:
        raise UsageError("url= has no scheme: expected http:// or https:// at its beginning")
    if plain and parts.scheme not in ("http", "https"):
        raise UsageError(f"url= has the scheme {parts.scheme!r}: expected http:// or https://")
    if not parts.hostname:
        raise UsageError("url= has no host: expected http://host/path")


def _adapter(session: requests.Session, url: str) -> object:
    try:
        return session.get_adapter(url)
    except requests.exceptions.InvalidSchema:
        raise UsageError(f"url= has the scheme {urlsplit(url).scheme!r}, for which session= has no adapter") from None


def _through_socks(url: str, proxies: Mapping[str, str] | None, session: requests.Session | None) -> bool:
    """Whether requests goes through a SOCKS proxy, which connects inside another library."""
    known = (proxies or {}, {} if session is None else session.proxies, urllib.request.getproxies())
    if not any("socks" in str(proxy).lower() for some in known for proxy in some.values()):
        return False  # requests would look through the environment four times
    settings = (session or requests.Session()).merge_environment_settings(url, dict(proxies or {}), None, None, None)
    return (requests.utils.select_proxy(url, settings["proxies"]) or "").lower().startswith("socks")


def _headers(
    method: str, given: Mapping[str, Any] | None, session: requests.Session | None, repeatable: bool
) -> dict[str, Any]:
    headers: dict[str, Any] = dict(given or {})
    have = {(name.decode("latin-1") if isinstance(name, bytes) else str(name)).lower() for name in headers}
    if session is not None and "Idempotency-Key" in session.headers:
        have.add("idempotency-key")
    usual = requests.utils.default_headers()
    for name, value in (("Accept", "text/event-stream"), ("Accept-Encoding", "identity")):
        chosen = session is not None and session.headers.get(name) not in (None, usual.get(name))
        if name.lower() not in have and not chosen:
            headers[name] = value
    if repeatable and method.upper() in ("POST", "PATCH") and "idempotency-key" not in have:
        headers["Idempotency-Key"] = str(uuid.uuid4())
    return headers
