"""Whether an exception of the reader thread comes from the network, or from a function of the caller's.

Such a function is an `auth=`, a hook, a generator or a file of a body, one that opens a stream for `guard()`, or an
iterator passed to it. It raises OSError as often as the network does, so the stack tells them apart: how the function was
called. A connection or an adapter of another library is not such a function; its faults are the network's.
"""

import errno
import socket
import ssl
import traceback

import requests
import urllib3

from ...classify import transport_code, walk, wrapped_in
from ...errors import TransportError

_WRAPPERS = (requests.RequestException, urllib3.exceptions.HTTPError)
_OF_THE_NETWORK = (*_WRAPPERS, ConnectionError, TimeoutError, socket.gaierror, socket.herror, ssl.SSLError)
_NETWORK_ERRNOS = frozenset(
    {errno.ENETUNREACH, errno.ENETDOWN, errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.EADDRNOTAVAIL, errno.ENOTCONN}
)
_CARRIERS = frozenset(
    {
        *("streamguard", "requests", "urllib3", "http", "urllib", "socket", "ssl", "encodings", "idna", "email", "json"),
        *("httpx", "httpx2", "httpcore", "httpcore2", "h11", "botocore", "grpc", "gevent", "simplejson"),
    }
)
"""The packages that make a call."""
_CALLS_BACK = frozenset(
    {
        *(("requests.models", "prepare_auth"), ("requests.models", "_encode_files"), ("requests.hooks", "dispatch_hook")),
        *(("urllib3.connection", "request"), ("urllib3.connection", "request_chunked")),
        *(("urllib3.util.request", "chunk_readable"), ("http.client", "send"), ("http.client", "_read_readable")),
        ("requests.adapters", "send"),
    }
)
"""The functions in which they call an `auth=`, a file, a hook, a body."""
_CONNECTS = ("connect", "_new_conn")


def callers_own(exc: BaseException) -> BaseException | None:
    """Return the exception of a caller's function that *exc* is or wraps; None: it comes from the network."""
    fault = innermost(exc)
    if isinstance(fault, requests.JSONDecodeError):
        return fault  # of a hook or an auth that parsed JSON
    if not isinstance(fault, OSError | ValueError) or isinstance(fault, _OF_THE_NETWORK):
        return None
    if isinstance(fault, OSError) and fault.errno in _NETWORK_ERRNOS:
        return None
    raised = fault if isinstance(exc, _WRAPPERS) else exc
    package = _package_of_function(raised)
    return raised if package and type(raised).__module__.partition(".")[0] in ("builtins", package) else None


def is_callers_function(fault: BaseException) -> bool:
    """Return whether a function of the caller's raised *fault*, or called what did."""
    return _package_of_function(fault) is not None


def is_refusal(exc: BaseException) -> bool:
    """Return whether requests, or a package below it, refused to send what it was given."""
    return isinstance(exc, ValueError) and transport_code(exc) is None and callers_own(exc) is None


def unusable_redirect(exc: BaseException) -> TransportError:
    """Return the error for a redirect to a URL that cannot be requested."""
    message = f"the server redirects to a URL that cannot be requested: {type(exc).__name__}"
    return TransportError(message, code="EPROTO", phase="response")


def _package_of_function(fault: BaseException) -> str | None:
    """Return the package of the caller's function that raised *fault* or called what did; None: there is none."""
    before = ("", "")
    for frame, _ in traceback.walk_tb(fault.__traceback__):
        module, name = frame.f_globals.get("__name__") or "", frame.f_code.co_name
        package = module.partition(".")[0]
        if package not in _CARRIERS:
            called_back = before in _CALLS_BACK or before[0].partition(".")[0] == "streamguard"
            return package if called_back and name not in _CONNECTS else None
        before = (module, name)
    return None


def innermost(exc: BaseException) -> BaseException:
    """Return the innermost of the exceptions that requests and urllib3 wrap in each other."""
    *_, last = walk(exc, _first_wrapped)
    return last


def _first_wrapped(exc: BaseException) -> list[BaseException]:
    return [inner for inner in wrapped_in(exc) if isinstance(inner, BaseException)][:1]
