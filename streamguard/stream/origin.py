"""Whose fault is it? The network's, or that of a function of the caller's that runs in the reader thread.

Such a function is an `auth=`, a hook, a generator of a body, one that opens a stream for `guard()`. What it raises is as
often an OSError as what the network does, so it is told by the code that has raised it.
"""

import errno
import socket
import ssl

import requests
import urllib3

from ..classify import transport_code

__all__ = ["callers_own", "innermost", "is_raised_outside", "is_refusal"]

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


def callers_own(exc: BaseException) -> BaseException | None:
    """Return what a function of the caller's has raised, where *exc* is that or wraps it; None: it is the network's."""
    fault = innermost(exc)
    if isinstance(fault, requests.JSONDecodeError):
        return fault  # who asked for JSON was none of us
    if not isinstance(fault, OSError | ValueError) or isinstance(fault, _OF_THE_NETWORK):
        return None
    if (isinstance(fault, OSError) and fault.errno in _NETWORK_ERRNOS) or not is_raised_outside(fault):
        return None
    return fault if isinstance(exc, _WRAPPERS) else exc


def is_refusal(exc: BaseException) -> bool:
    """Return whether requests, or what it is made of, takes what it was told to request for impossible."""
    return isinstance(exc, ValueError) and transport_code(exc) is None and callers_own(exc) is None


def is_raised_outside(fault: BaseException) -> bool:
    """Return whether the code that raised *fault* is in none of the packages that a call is made of."""
    traceback, module = fault.__traceback__, ""
    while traceback is not None:
        module = traceback.tb_frame.f_globals.get("__name__") or ""
        traceback = traceback.tb_next
    return bool(module) and module.partition(".")[0] not in _CARRIERS


def innermost(exc: BaseException) -> BaseException:
    """Return the exception in the middle of requests' and urllib3's wrappings: the one that says what happened."""
    seen = {id(exc)}
    while True:
        candidates = (exc.__cause__, getattr(exc, "reason", None), *exc.args)
        inner = next((one for one in candidates if isinstance(one, BaseException) and id(one) not in seen), None)
        if inner is None:
            return exc
        seen.add(id(inner))
        exc = inner
