"""Classify an exception, ours or another library's: what failed, and whether it may be retried.

The type decides, of the exception and of those in its `__cause__`, urllib3's `reason` and `args`; for what a server
reported, its names and codes do (`_transient`). Numbers and texts of the system do not: every requests exception is an
`OSError`, even a 401, and its `errno` is usually None (python/cpython#109601).
"""

import collections
import errno
import http.client
import socket
import ssl
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Literal

import requests
import urllib3.exceptions as u3

from . import errors
from ._transient import is_hopeless, names_in, names_of, statuses_of

Kind = Literal["cancel", "deadline", "transport", "http", "server", "protocol", "unknown"]
Diagnosis = Literal["fail-fast", "retryable"]

RETRYABLE_STATUS = frozenset({408, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses that may be gone at a later attempt (RFC 9110, RFC 8470, RFC 6585; 529 is "overloaded")."""

_LOCAL_FAULTS = frozenset({"ENOENT", "EACCES", "EPERM", "EEXIST", "EISDIR", "ENOTDIR"})
_HOPELESS_CODES = frozenset({"ECERT", "ELOOP"}) | _LOCAL_FAULTS

_CODES: tuple[tuple[type[BaseException], str], ...] = (
    (ssl.SSLCertVerificationError, "ECERT"),
    (socket.gaierror, "EAI_NONAME"),
    (socket.herror, "EAI_NONAME"),
    (ConnectionRefusedError, "ECONNREFUSED"),
    (ConnectionResetError, "ECONNRESET"),
    (ConnectionAbortedError, "ECONNABORTED"),
    (BrokenPipeError, "EPIPE"),
    (TimeoutError, "ETIMEDOUT"),
    (u3.NameResolutionError, "EAI_NONAME"),
    (u3.NewConnectionError, "EIO"),  # not a timeout, although urllib3 derives it from one
    (u3.ConnectTimeoutError, "ETIMEDOUT"),
    (u3.TimeoutError, "ETIMEDOUT"),
    (requests.Timeout, "ETIMEDOUT"),
    (u3.InvalidChunkLength, "EPROTO"),
    (u3.InvalidHeader, "EPROTO"),
    (http.client.IncompleteRead, "ECONNRESET"),
    (ssl.SSLEOFError, "ECONNRESET"),
    (ssl.SSLZeroReturnError, "ECONNRESET"),
    (ssl.SSLError, "EPROTO"),
    (http.client.HTTPException, "EPROTO"),
    (u3.DecodeError, "EPROTO"),
    (requests.TooManyRedirects, "ELOOP"),
)
_HTTPX = frozenset({"httpx", "httpx2", "httpcore", "httpcore2"})
_HTTPX_CODES = {"TimeoutException": "ETIMEDOUT", "RemoteProtocolError": "EPROTO", "NetworkError": "EIO"}
_GRPC_CODES = {"DEADLINE_EXCEEDED": "ETIMEDOUT", "UNAVAILABLE": "EIO"}
_OTHER_TRANSPORT = (
    u3.HTTPError,
    requests.ConnectionError,
    requests.exceptions.ChunkedEncodingError,
    requests.exceptions.ContentDecodingError,
)


@dataclass(frozen=True, slots=True)
class Classification:
    """What an exception means for another attempt."""

    kind: Kind
    """Who or what failed."""
    diagnosis: Diagnosis
    """`"retryable"`: a later attempt may succeed. `"fail-fast"`: it cannot succeed, or must not be made."""
    transport_code: str | None = None
    """For transport faults, a name such as `"ETIMEDOUT"` or `"ECONNRESET"`."""


def classify(exc: BaseException) -> Classification:
    """Return what *exc* means for a retry. A cancel decides first, then a deadline: neither is retried."""
    nest = list(causes_of(exc))
    # A BaseException that is not an Exception is Ctrl-C, an exit, or an event loop's cancel: a decision to stop.
    if _any(nest, (errors.StreamCancelledError, CancelledError)) or not all(isinstance(e, Exception) for e in nest):
        return Classification("cancel", "fail-fast")
    if _any(nest, errors.DeadlineExceededError):
        return Classification("deadline", "fail-fast")
    for cause in nest:
        verdict = _own(cause) or _http(cause)
        if verdict is not None:
            return verdict
    code = transport_code(exc)
    if code is not None:
        return _transport(code)
    return Classification("protocol" if _any(nest, requests.JSONDecodeError) else "unknown", "fail-fast")


def transport_code(exc: BaseException) -> str | None:
    """Return the code of the transport fault in *exc*; None if there is none."""
    nest = list(causes_of(exc))
    for cause in nest:
        if isinstance(cause, errors.TransportError):
            return cause.code
    system = _system_code(nest)
    for kind, code in _CODES:
        if _any(nest, kind):
            return system or code if kind is u3.NewConnectionError else code
    if _any(nest, u3.LocationValueError):
        return None  # a URL that cannot be requested
    if system is not None:
        return system
    return "EIO" if _any(nest, _OTHER_TRANSPORT) else next(filter(None, map(_foreign_code, nest)), None)


def _system_code(nest: list[BaseException]) -> str | None:
    """Return the code of the operating system's own error in *nest*, such as `"EMFILE"`; None if there is none."""
    for cause in nest:
        if isinstance(cause, OSError) and not isinstance(cause, requests.RequestException | u3.HTTPError):
            return errno.errorcode.get(cause.errno or 0, "EIO")
    return None


def _foreign_code(exc: BaseException) -> str | None:
    """Return the code of an exception of httpx or grpc, found by the names of its classes: neither is imported."""
    for base in type(exc).__mro__:
        if base.__module__.partition(".")[0] in _HTTPX and base.__name__ in _HTTPX_CODES:
            return _HTTPX_CODES[base.__name__]
        if base.__module__ == "grpc" and base.__name__ == "RpcError" and callable(code := getattr(exc, "code", None)):
            return _GRPC_CODES.get(getattr(code(), "name", ""))
    return None


def _own(exc: BaseException) -> Classification | None:
    match exc:
        case errors.TransportError():
            return _transport(exc.code)
        case errors.HTTPStatusError():
            hopeless = is_hopeless(names_in(exc.body))
            return Classification("http", "fail-fast" if hopeless else _by_status(exc.status_code))
        case errors.InStreamError():
            return Classification("server", "retryable" if statuses_of((exc.type, exc.code)) else "fail-fast")
        case (
            errors.IncompleteStreamError()
            | errors.MalformedChunkError()
            | errors.NotEventStreamError()
            | errors.InvalidJSONError()
        ):
            return Classification("protocol", "fail-fast")
        case errors.StreamguardError():
            return Classification("unknown", "fail-fast")
    return None


def _http(exc: BaseException) -> Classification | None:
    """Read the exception of another library: a status, or what the server reported after a status that said success."""
    status, names = http_status(exc), names_of(exc)
    if status is None:
        return Classification("server", "retryable") if statuses_of(names) else None
    if is_hopeless(names):
        return Classification("http", "fail-fast")
    # Amazon's services throttle with status 400, and say so by name.
    named = status == 400 and bool(statuses_of(names))
    return Classification("http", "retryable" if named else _by_status(status))


def http_status(exc: BaseException) -> int | None:
    """Return the status of the response that *exc* is about, if it is 400 or above."""
    # The exceptions of SDKs have `status_code`, those of urllib and aiohttp `status`, those of botocore a dict.
    own = (getattr(exc, name, None) for name in ("status_code", "status"))
    response = getattr(exc, "response", None)
    metadata = response.get("ResponseMetadata") if isinstance(response, dict) else None
    botocore = metadata.get("HTTPStatusCode") if isinstance(metadata, dict) else None
    candidates = (*own, getattr(response, "status_code", None), botocore)
    return next((status for status in candidates if isinstance(status, int) and status >= 400), None)


def _transport(code: str) -> Classification:
    return Classification("transport", "fail-fast" if code in _HOPELESS_CODES else "retryable", code)


def _by_status(status: int | None) -> Diagnosis:
    return "retryable" if status in RETRYABLE_STATUS else "fail-fast"


def _any(nest: list[BaseException], kind: type[BaseException] | tuple[type[BaseException], ...]) -> bool:
    return any(isinstance(exc, kind) for exc in nest)


def walk(exc: BaseException, links: Callable[[BaseException], Iterable[object]]) -> Iterator[BaseException]:
    """Yield *exc* and the exceptions that *links* leads to, nearest first, each once: links may form a circle."""
    seen: set[int] = set()
    waiting: collections.deque[object] = collections.deque([exc])
    while waiting:
        candidate = waiting.popleft()
        if isinstance(candidate, BaseException) and id(candidate) not in seen:
            seen.add(id(candidate))
            yield candidate
            waiting.extend(links(candidate))


def wrapped_in(exc: BaseException) -> list[object]:
    """Return what *exc* may wrap: its cause, urllib3's `reason`, its arguments."""
    return [exc.__cause__, getattr(exc, "reason", None), *exc.args]


def causes_of(exc: BaseException) -> Iterator[BaseException]:
    """Yield *exc* and every exception inside it, outermost first, each once."""
    return walk(exc, lambda inner: [*wrapped_in(inner), *_wrapped_by_botocore(inner)])


def _wrapped_by_botocore(exc: BaseException) -> list[object]:
    keywords = getattr(exc, "kwargs", None)
    return [keywords.get("error")] if isinstance(keywords, dict) else []
