"""The adapter whose connections can be cut in every phase: connect, TLS, CONNECT, send, headers, body.

urllib3 has no hook for this, so two of its inner methods are extended: `_new_conn` of the connection, to know a socket
before it connects, and `_put_conn` of the pool, to detach the guard before the next call gets the connection. The classes
are put into `pool_classes_by_scheme` of fresh pool managers. Tested on urllib3 2.2 and on the newest.
"""

import http.client
import io
import socket
import sys
from collections.abc import Iterable
from typing import Any, cast

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, LocationParseError, NameResolutionError, NewConnectionError
from urllib3.util import Timeout
from urllib3.util.connection import allowed_gai_family

from .._core.cancel import current_token
from .._core.clock import longest_wait
from ..errors import StreamCancelledError
from .chunked import BUFFER_BYTES
from .gunzip import unpack_gzip
from .sockets import CutError, HasFileno, SocketGuard, attach_response, current_guard, guard_in_force


class _cut_wins:
    """Raise CutError if the block was cut, whether it ended with an error or seemed to succeed."""

    __slots__ = ("_guard",)

    def __init__(self, guard: SocketGuard) -> None:
        self._guard = guard

    def __enter__(self) -> None:
        pass

    def __exit__(self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: object) -> None:
        if self._guard.was_cut and (exc is None or (isinstance(exc, Exception) and not isinstance(exc, CutError))):
            raise CutError("the call was cut") from exc


class _LineReader:
    """Replaces the file of a response while its header block is read, and records whether the block ends."""

    def __init__(self, file: io.BufferedReader) -> None:
        self.file = file
        self.at_end = False

    def readline(self, limit: int = -1) -> bytes:
        line = self.file.readline(limit)
        self.at_end = not line
        return line

    def close(self) -> None:
        self.file.close()


class RefusedHeaderError(ValueError):
    """Raised for a header that http.client refuses. It is not an OSError, which requests takes for a lost connection."""


class _RoomyResponse(http.client.HTTPResponse):
    """Receive up to 32 KiB at once; http.client receives 8 KiB, which makes four times as many blocks.

    A header block that ends with the connection is an error; http.client returns it as if it were complete. Interim
    responses (RFC 9110, section 15.2) are skipped; http.client skips only 100.
    """

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp = cast(io.BufferedReader, sock.makefile("rb", BUFFER_BYTES))

    def begin(self) -> None:
        """Read the header block of the final response."""
        self._begin_whole()
        while 102 <= self.status < 200:
            self.headers = self.msg = cast(Any, None)
            self._begin_whole()

    def _begin_whole(self) -> None:
        file = self.fp
        lines = _LineReader(file)
        self.fp = cast(io.BufferedReader, lines)
        try:
            super().begin()
        finally:
            if self.fp is not None:
                self.fp = file
        if lines.at_end:
            raise http.client.IncompleteRead(b"")


class GuardedConnection(HTTPConnection):
    """Reports to the guard of the current context; without one it is a plain urllib3 connection."""

    response_class = _RoomyResponse
    guard: SocketGuard | None = None
    _is_answering = False

    def connect(self) -> None:
        """Connect, through proxy and TLS, in the phase "connect"; then start the phase "response"."""
        guard = guard_in_force()
        if guard is None:
            super().connect()
            return
        guard.phase("connect")
        self._add_margin(guard)
        with _cut_wins(guard):
            super().connect()
        guard.phase("response")

    def putrequest(self, *args: Any, **kwargs: Any) -> None:
        """Begin a request; attach a connection from the pool, and start its phase "response"."""
        guard = guard_in_force()
        if guard is not None:
            guard.check()
            if self.sock is not None and self.guard is not guard:
                self._attach(guard, self.sock)
                guard.phase("response")
        super().putrequest(*args, **kwargs)

    def putheader(self, header: Any, *values: Any) -> None:
        """Add a header; raise RefusedHeaderError for one that http.client refuses."""
        try:
            super().putheader(header, *values)
        except ValueError as exc:
            if isinstance(exc, UnicodeError) or current_guard.get() is None:
                raise
            raise RefusedHeaderError("http.client refuses the name or the value of a header") from exc

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send a request with its body; then restart the phase "response"."""
        guard = guard_in_force()
        if guard is None:
            super().request(*args, **kwargs)
            return
        with _cut_wins(guard):
            super().request(*args, **kwargs)
        guard.phase("response")

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
        """Wait for the headers; then start the phase "headers"."""
        guard = guard_in_force()
        if guard is None:
            return super().getresponse()
        self._is_answering = True
        self._add_margin(guard)
        try:
            with _cut_wins(guard):
                response = super().getresponse()
                # A header block that was cut is returned as a complete one, and no caller gets this response to close it.
                if guard.was_cut:
                    response.close()
        finally:
            self._is_answering = False
        guard.phase("headers")
        return response

    def close(self) -> None:
        """Close the connection, and detach the guard unless the body of the response is still to be read."""
        try:
            super().close()
        finally:
            # In `getresponse` http.client closes the connection for `Connection: close`. The body is then read from the
            # same socket, which must still be cut.
            if not self._is_answering:
                self.detach()

    def detach(self) -> bool:
        """Detach the guard, if there is one; return False if it has cut this connection."""
        guard, self.guard = self.guard, None
        return guard is None or guard.detach(id(self))

    def _add_margin(self, guard: SocketGuard) -> None:
        """Make the socket's timeout, which the pool has set for the next step, later than the cut."""
        if guard.margin and isinstance(self.timeout, int | float):
            self.timeout = longest_wait(self.timeout + guard.margin)

    def _attach(self, guard: SocketGuard, sock: HasFileno) -> None:
        self.guard = guard
        guard.attach(id(self), sock)

    def _new_conn(self) -> socket.socket:
        guard = guard_in_force()
        if guard is None:
            return super()._new_conn()
        try:
            sock = self._dial(guard)
        except socket.gaierror as exc:
            raise NameResolutionError(self.host, self, exc) from exc
        except TimeoutError as exc:
            message = f"Connection to {self.host} timed out. (connect timeout={self.timeout})"
            raise ConnectTimeoutError(self, message) from exc
        except OSError as exc:
            raise NewConnectionError(self, f"Failed to establish a new connection: {exc}") from exc
        sys.audit("http.client.connect", self, self.host, self.port)
        return sock

    def _dial(self, guard: SocketGuard) -> socket.socket:
        failure = OSError("getaddrinfo returns an empty list")
        try:
            for family, kind, protocol, _, address in self._addresses():
                try:
                    return self._dial_one(guard, socket.socket(family, kind, protocol), address)
                except OSError as exc:
                    failure = exc
            raise failure
        finally:
            # Its traceback refers to this frame: a cycle.
            del failure

    def _dial_one(self, guard: SocketGuard, sock: socket.socket, address: Any) -> socket.socket:
        try:
            for option in self.socket_options or ():
                sock.setsockopt(*option)
            sock.settimeout(Timeout.resolve_default_timeout(self.timeout))
            if self.source_address:
                sock.bind(self.source_address)
            self._attach(guard, sock)
            sock.connect(address)
        except BaseException:
            sock.close()
            raise
        return sock

    def _addresses(self) -> Iterable[tuple[Any, Any, int, str, Any]]:
        host = self._dns_host.strip("[]") if self._dns_host.startswith("[") else self._dns_host
        try:
            host.encode("idna")
        except UnicodeError:
            raise LocationParseError(f"'{host}', label empty or too long") from None
        return socket.getaddrinfo(host, self.port, allowed_gai_family(), socket.SOCK_STREAM)


class GuardedHTTPSConnection(GuardedConnection, HTTPSConnection):
    """The same over TLS."""


class GuardedPool(HTTPConnectionPool):
    """Takes a connection back only after its guard is detached, and never one that was cut."""

    ConnectionCls = GuardedConnection

    def _put_conn(self, conn: Any) -> None:
        if isinstance(conn, GuardedConnection) and not conn.detach():
            conn.close()
        super()._put_conn(conn)


class GuardedHTTPSPool(GuardedPool, HTTPSConnectionPool):
    """The same over TLS."""

    ConnectionCls = GuardedHTTPSConnection


class Adapter(HTTPAdapter):
    """A requests adapter whose connections can be cut in every phase.

    It takes the arguments of `requests.adapters.HTTPAdapter`, and behaves like it for every call without a guard::

        session = requests.Session()
        session.mount("https://", streamguard.Adapter(pool_maxsize=20))
        session.mount("http://", streamguard.Adapter(pool_maxsize=20))

    Limits: a SOCKS proxy connects inside its own library, so only the body can be cut. A mounted `Retry` that obeys
    `Retry-After` sleeps without a socket to cut: the caller is free in time, the thread stays until it wakes.
    """

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Create the pool manager, with pools of connections that can be cut."""
        super().init_poolmanager(*args, **kwargs)
        _guard_pools(self.poolmanager)

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> requests.Response:
        """Send the request; raise StreamCancelledError if the token was cancelled and the call has no own guard."""
        try:
            return super().send(request, *args, **kwargs)
        except CutError as exc:
            token = current_token()
            if token is None or guard_in_force() is current_guard.get():
                raise
            raise StreamCancelledError("the call was cancelled", reason=token.reason) from exc

    def build_response(self, req: requests.PreparedRequest, resp: urllib3.BaseHTTPResponse) -> requests.Response:
        """Build the response, and attach it to the guard of the call."""
        response = super().build_response(req, resp)
        unpack_gzip(resp)
        guard = guard_in_force()
        if guard is not None:
            _show(guard, response)
        return response

    def close(self) -> None:
        """Close the idle connections of the pools.

        urllib3 leaves that to the collector, and a response that is still referenced keeps its pool.
        """
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118 - not a dict: it refuses to be iterated
                pool = manager.pools.get(key)
                if pool is not None:
                    pool.close()
        super().close()

    def proxy_manager_for(self, proxy: str, **proxy_kwargs: Any) -> Any:
        """Return the manager for *proxy*; the connections through an HTTP or HTTPS proxy can be cut."""
        manager = super().proxy_manager_for(proxy, **proxy_kwargs)
        if isinstance(manager, urllib3.ProxyManager):
            _guard_pools(manager)
        return manager


def _show(guard: SocketGuard, response: requests.Response) -> None:
    if guard is current_guard.get():
        guard.response = response
    try:
        attach_response(guard, response)  # a SOCKS proxy's connection has not attached itself
    except CutError:
        response.close()
        raise


def _guard_pools(manager: urllib3.PoolManager) -> None:
    manager.pool_classes_by_scheme = {"http": GuardedPool, "https": GuardedHTTPSPool}
