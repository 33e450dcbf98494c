"""Whose fault is it? The network's, or that of a function of the caller's that runs in the reader thread.

Such a function is an `auth=`, a hook, a generator or a file of a body, one that opens a stream for `guard()`, or an
iterator given to it. What it raises is as often an OSError as what the network does, so it is told by how it was called.
A connection or an adapter of another library's is none of these, and its faults are the network's.
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
"""The packages that a call is made of."""
_CALLS_BACK = frozenset(
    {
        *(("requests.models", "prepare_auth"), ("requests.models", "_encode_files"), ("requests.hooks", "dispatch_hook")),
        *(("urllib3.connection", "request"), ("urllib3.connection", "request_chunked")),
        *(("urllib3.util.request", "chunk_readable"), ("http.client", "send"), ("http.client", "_read_readable")),
        ("requests.adapters", "send"),
    }
)
"""Where they call an `auth=`, a file, a hook, a body."""
_CONNECTS = ("connect", "_new_conn")


def callers_own(exc: BaseException) -> BaseException | None:
    """Return what a function of the caller's has raised, where *exc* is that or wraps it; None: it is the network's."""
    fault = innermost(exc)
    if isinstance(fault, requests.JSONDecodeError):
        return fault  # a hook's, an auth's: whoever has asked for JSON
    if not isinstance(fault, OSError | ValueError) or isinstance(fault, _OF_THE_NETWORK):
        return None
    if isinstance(fault, OSError) and fault.errno in _NETWORK_ERRNOS:
        return None
    raised = fault if isinstance(exc, _WRAPPERS) else exc
    package = _package_of_function(raised)
    return raised if package and type(raised).__module__.partition(".")[0] in ("builtins", package) else None


def is_callers_function(fault: BaseException) -> bool:
    """Return whether a function of the caller's has raised *fault*, or called what did."""
    return _package_of_function(fault) is not None


def is_refusal(exc: BaseException) -> bool:
    """Return whether requests, or what it is made of, takes what it was told to request for impossible."""
    return isinstance(exc, ValueError) and transport_code(exc) is None and callers_own(exc) is None


def unusable_redirect(exc: BaseException) -> TransportError:
    """Return the error for a server that sends us to what cannot be requested."""
    message = f"the upstream redirects to what cannot be requested: {type(exc).__name__}"
    return TransportError(message, code="EPROTO", phase="response")


def _package_of_function(fault: BaseException) -> str | None:
    """Return the package of the caller's function through which *fault* came; None: it came through none."""
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
    """Return the exception in the middle of requests' and urllib3's wrappings: the one that says what happened."""
    *_, last = walk(exc, _first_wrapped)
    return last


def _first_wrapped(exc: BaseException) -> list[BaseException]:
    return [inner for inner in wrapped_in(exc) if isinstance(inner, BaseException)][:1]
