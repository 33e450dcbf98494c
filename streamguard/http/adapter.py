"""The adapter whose connections can be cut in every phase: connect, TLS, CONNECT, send, headers, body.

urllib3 offers no hook for this, so two of its inner methods are extended: `_new_conn` of the connection (to know a
socket before it connects), and `_put_conn` of the pool (to let go of it before somebody else gets it); the classes are
put into `pool_classes_by_scheme` of fresh pool managers. Tested on urllib3 2.2 and on the newest.
"""

import contextlib
import http.client
import io
import socket
import sys
from collections.abc import Iterable, Iterator
from typing import Any, cast

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, LocationParseError, NameResolutionError, NewConnectionError
from urllib3.util import Timeout
from urllib3.util.connection import allowed_gai_family

from .chunked import BUFFER_BYTES
from .sockets import CutError, HasFileno, SocketGuard, current_guard

__all__ = ["Adapter"]

@contextlib.contextmanager
def _cut_wins(guard: SocketGuard) -> Iterator[None]:
    """Turn whatever a cut made of the block, an error or a seeming success, into CutError."""
    try:
        yield
    except Exception as exc:
        if guard.was_cut and not isinstance(exc, CutError):
            raise CutError("the call was cut") from exc
        raise
    guard.check()


class _RoomyResponse(http.client.HTTPResponse):
    """Take up to 32 KiB in one receive, where http.client takes 8: that many fewer blocks to hand over."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp.close()
        self.fp = cast(io.BufferedReader, sock.makefile("rb", BUFFER_BYTES))


class GuardedConnection(HTTPConnection):
    """Report to the guard of the context it is used in; without one, be a plain urllib3 connection."""

    response_class = _RoomyResponse
    guard: SocketGuard | None = None
    _is_answering = False

    def connect(self) -> None:
        """Connect, through proxy and TLS, in the phase "connect"; then start the phase "response"."""
        guard = current_guard.get()
        if guard is None:
            super().connect()
            return
        guard.phase("connect")
        with _cut_wins(guard):
            super().connect()
        guard.phase("response")

    def putrequest(self, *args: Any, **kwargs: Any) -> None:
        """Begin a request; a connection out of the pool is attached here, and starts the phase "response"."""
        guard = current_guard.get()
        if guard is not None:
            guard.check()
            if self.sock is not None and self.guard is not guard:
                self._attach(guard, self.sock)
                guard.phase("response")
        super().putrequest(*args, **kwargs)

    def request(self, *args: Any, **kwargs: Any) -> None:
        """Send a request with its body; then start the phase "response" anew."""
        guard = current_guard.get()
        if guard is None:
            super().request(*args, **kwargs)
            return
        with _cut_wins(guard):
            super().request(*args, **kwargs)
        guard.phase("response")

    def getresponse(self) -> urllib3.HTTPResponse:  # type: ignore[override]
        """Wait for the headers; then start the phase "headers"."""
        guard = current_guard.get()
        if guard is None:
            return super().getresponse()
        self._is_answering = True
        try:
            with _cut_wins(guard):
                response = super().getresponse()
                # A header block that was cut passes for a complete one: nobody else will close this response.
                if guard.was_cut:
                    response.close()
        finally:
            self._is_answering = False
        guard.phase("headers")
        return response

    def close(self) -> None:
        """Close the connection, and let the guard go, unless the body of the response is still to come."""
        try:
            super().close()
        finally:
            # In `getresponse` http.client itself closes the connection when the response says `Connection: close`; the
            # body is then read from the same socket, and must still be cut.
            if not self._is_answering:
                self.detach()

    def detach(self) -> bool:
        """Let the guard go, if there is one; return False if it has cut this connection."""
        guard, self.guard = self.guard, None
        return guard is None or guard.detach(id(self))

    def _attach(self, guard: SocketGuard, sock: HasFileno) -> None:
        self.guard = guard
        guard.attach(id(self), sock)

    def _new_conn(self) -> socket.socket:
        guard = current_guard.get()
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
    """Take connections back only after their guard has let go of them, and never one that was cut."""

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

    Takes the arguments of `requests.adapters.HTTPAdapter`, and behaves like it for every call that no guard watches::

        session = requests.Session()
        session.mount("https://", streamguard.Adapter(pool_maxsize=20))
        session.mount("http://", streamguard.Adapter(pool_maxsize=20))

    Limits: a SOCKS proxy connects inside of its own library; behind one, only the body can be cut. A mounted `Retry`
    that obeys `Retry-After` sleeps with no socket to cut: the consumer is free, the thread stays until it wakes.
    """

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Make the pool manager, with pools of connections that can be cut."""
        super().init_poolmanager(*args, **kwargs)
        _guard_pools(self.poolmanager)

    def build_response(self, req: requests.PreparedRequest, resp: urllib3.BaseHTTPResponse) -> requests.Response:
        """Make the response, and show it to the guard of the call."""
        response = super().build_response(req, resp)
        guard = current_guard.get()
        if guard is not None:
            guard.response = response
        return response

    def close(self) -> None:
        """Close the connections that wait in the pools.

        urllib3 leaves that to the collector, for which a response that somebody still holds keeps its pool.
        """
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in manager.pools.keys():  # noqa: SIM118 - not a dict: it refuses to be iterated
                pool = manager.pools.get(key)
                if pool is not None:
                    pool.close()
        super().close()

    def proxy_manager_for(self, proxy: str, **proxy_kwargs: Any) -> Any:
        """Return the manager for *proxy*; those for HTTP and HTTPS proxies get connections that can be cut."""
        manager = super().proxy_manager_for(proxy, **proxy_kwargs)
        if isinstance(manager, urllib3.ProxyManager):
            _guard_pools(manager)
        return manager


def _guard_pools(manager: urllib3.PoolManager) -> None:
    manager.pool_classes_by_scheme = {"http": GuardedPool, "https": GuardedHTTPSPool}
