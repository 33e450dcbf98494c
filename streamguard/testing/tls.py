"""A certificate authority for the process, and the gateway's certificate by it."""

import functools
import os
import ssl
import tempfile
from typing import TYPE_CHECKING

from ..errors import UsageError

if TYPE_CHECKING:
    import trustme

_NAMES = ("127.0.0.1", "localhost", "::1")


@functools.cache
def server_context() -> ssl.SSLContext:
    """Return the context of a server for loopback's names. Raises UsageError if trustme is not installed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _authority().issue_cert(*_NAMES).configure_cert(context)
    return context


def write_authority() -> str:
    """Write the authority's certificate to a new temporary file; return its path, which a client gives as `verify=`."""
    descriptor, path = tempfile.mkstemp(prefix="streamguard-gateway-", suffix=".pem")
    with os.fdopen(descriptor, "wb") as file:
        file.write(_authority().cert_pem.bytes())
    return path


@functools.cache
def _authority() -> "trustme.CA":
    try:
        import trustme
    except ImportError:
        raise UsageError("tls=True needs trustme: pip install 'streamguard[testing]'") from None
    return trustme.CA()
