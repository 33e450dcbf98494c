"""A real server on loopback that plays a script and records what its clients do."""

import os
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from typing import Any, Self

from .._core.clock import monotonic
from ..errors import UsageError
from . import tls as certificates
from .player import Player
from .request_log import Left, Request, RequestLog
from .response_plan import ResponsePlan, make_plan
from .script import parse_script
from .transport import ClientLeft, GatewayStopped, Transport
from .wire import RequestHead, parse_head

_JOIN_SECONDS = 5.0
_PRUNE_EVERY = 100


class Gateway:
    r"""A scripted HTTP server: `with Gateway("event hello", framing="close") as gateway: ... gateway.url ...`.

    The nth request, in order of arrival over all connections, is answered by the nth of *scripts* (see
    `streamguard.testing.script` for the steps); the last one answers all further requests. No script: an empty 200.

    tls:        serve https; `ca` is the file to pass as `verify=`. Needs the extra `testing`. Default False.
    framing:    how the body ends: "chunked" (default), "length", "close" (HTTP/1.1), "http10".
    encoding:   None (default), "gzip" (flushed after each piece), "gzip-members" (a member for each piece),
                "gzip-buffered" (flushed only at the end), "deflate" (zlib, flushed after each piece).
    keep_alive: serve further requests on a connection, if the framing allows it. Default True.
    length:     a false Content-Length, with framing="length". Default: the true one.
    accept:     False leaves every connection in the listener's queue: TCP connects, and nothing is sent. With `backlog=0`
                the queue is full after one, and the next connect hangs.
    tls_stall:  accept, and never answer the TLS handshake. Default False.
    read_body:  False answers after a request's headers and reads little of its body. Default True.
    host, port: the address to listen on. Default: loopback, and a free port.

    Raises UsageError for an invalid script or option.

    Limits
        A client's half-close counts as leaving: only its FIN is visible. With `read_body=False` a FIN after unread data is
        not visible. The threads are daemons, named "streamguard-gateway-PORT-...".
    """

    def __init__(
        self,
        *scripts: str | Iterable[str],
        tls: bool = False,
        framing: str = "chunked",
        encoding: str | None = None,
        keep_alive: bool = True,
        length: int | None = None,
        accept: bool = True,
        tls_stall: bool = False,
        read_body: bool = True,
        host: str = "127.0.0.1",
        port: int = 0,
        backlog: int = 4096,
    ) -> None:
        parsed = [parse_script(script) for script in scripts or ("",)]
        self._plans = [make_plan(script, framing=framing, encoding=encoding, length=length) for script in parsed]
        self._secure = tls or tls_stall
        self._keep_alive, self._accept = keep_alive, accept
        self._tls_stall, self._read_body = tls_stall, read_body
        self._address, self._backlog = (host, port), backlog
        self._log = RequestLog()
        self._listener: socket.socket | None = None
        self._context: ssl.SSLContext | None = None
        self._ca: str | None = None
        self._accepting: threading.Thread | None = None
        self._threads: list[threading.Thread] = []
        self._transports: set[Transport] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._pid = os.getpid()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exc: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Return `http://HOST:PORT`, or https; also after `stop()`. Raises UsageError before the start."""
        if self._listener is None:
            raise UsageError("the gateway is not started: use it in a `with` block, or call start()")
        host, port = self._address
        return f"{'https' if self._secure else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def ca(self) -> str:
        """Return the path of the authority's certificate, for `verify=`. It exists until `stop`."""
        if self._ca is None:
            raise UsageError("a gateway has a ca only with tls=True, after start()")
        return self._ca

    @property
    def requests(self) -> list[Request]:
        """Return the requests that have arrived, oldest first."""
        return list(self._log.requests)

    @property
    def connections(self) -> int:
        """Return how many TCP connections were accepted."""
        return self._log.connections

    @property
    def open_connections(self) -> int:
        """Return how many of them are open: neither left by the client nor closed on both sides."""
        return self._log.open_connections

    def start(self) -> Self:
        """Listen, and serve in background threads. Raises OSError if the address is not available."""
        if self._listener:
            raise UsageError("the gateway was started before: make a new one")
        if self._secure:
            self._context = certificates.server_context()
            self._ca = certificates.write_authority()
            weakref.finalize(self, _remove, self._ca, self._pid)
        family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
        self._listener = socket.create_server(self._address, family=family, backlog=self._backlog)
        self._address = self._listener.getsockname()[:2]
        if not self._read_body:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        if self._accept:
            self._accepting = self._spawn("accept", self._accept_all, self._listener)
        return self

    def stop(self) -> None:
        """Close every connection and the listener, and join the threads. Never raises; a second call does nothing."""
        if self._listener is None or self._stopped.is_set() or os.getpid() != self._pid:
            return
        self._stopped.set()
        end = monotonic() + _JOIN_SECONDS
        _wake(self._listener)
        if self._accepting:
            self._accepting.join(_JOIN_SECONDS)
        with self._lock:
            threads, transports = list(self._threads), list(self._transports)
        for transport in transports:
            transport.abort()
        for thread in threads:
            thread.join(max(0.0, end - monotonic()))
        self._listener.close()
        if self._ca:
            _remove(self._ca, self._pid)

    def serve_forever(self) -> None:
        """Start if it is not started, and serve until another thread calls `stop`, or KeyboardInterrupt."""
        if self._listener is None:
            self.start()
        try:
            self._stopped.wait()
        finally:
            self.stop()

    def wait_request(self, n: int = 1, timeout: float = 5) -> Request:
        """Return the *n*th request, from 1, once it has arrived. Raises AssertionError after *timeout* seconds."""
        requests = self._log.requests
        self._log.wait(lambda: len(requests) >= n, timeout, f"request {n} did not arrive")
        return requests[n - 1]

    def wait_step(self, verb: str, nth: int = 1, request: int = 0, timeout: float = 5) -> None:
        """Wait until `requests[request]`, from 0, has reached *verb* the *nth* time.

        A step that takes time (wait, stall, linger, a drip) is reached when it begins, another when it has been sent:
        after `wait_step("stall")` everything before it has been sent. Raises AssertionError after *timeout* seconds.
        """
        seen = self._log.requests
        what = f"request {request} did not reach {verb!r} {nth} time(s)"
        self._log.wait(lambda: len(seen) > request and seen[request].reached[verb] >= nth, timeout, what)

    def wait_left(self, n: int = 1, timeout: float = 5) -> Left:
        """Return when and how the client of request *n*, from 1, left. AssertionError after *timeout* seconds."""
        seen = self._log.requests
        what = f"the client of request {n} did not leave"
        self._log.wait(lambda: len(seen) >= n and seen[n - 1].left is not None, timeout, what)
        left = seen[n - 1].left
        assert left is not None
        return left

    def wait_connections(self, accepted: int, still_open: int | None = None, timeout: float = 5) -> None:
        """Wait until *accepted* connections or more were seen, and exactly *still_open* of them are open, if given."""
        log = self._log

        def holds() -> bool:
            return log.connections >= accepted and still_open in (None, log.open_connections)

        log.wait(holds, timeout, f"there were not {accepted} connections, {still_open} of them open,")

    def _spawn(self, name: object, target: Callable[..., None], *args: Any) -> threading.Thread:
        name = f"streamguard-gateway-{self._address[1]}-{name}"
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        thread.start()
        return thread

    def _accept_all(self, listener: socket.socket) -> None:
        while not self._stopped.is_set():
            try:
                sock, _ = listener.accept()
            except OSError:
                time.sleep(0.01)  # no descriptor is left, or the listener is being closed
                continue
            self._admit(sock)

    def _admit(self, sock: socket.socket) -> None:
        transport = Transport(sock, None if self._tls_stall else self._context)
        number = self._log.connected()
        with self._lock:
            self._transports.add(transport)
        try:
            thread = self._spawn(number, self._serve, transport, number)
        except RuntimeError:
            self._dismiss(transport)  # no further thread can be started
            return
        with self._lock:
            if number % _PRUNE_EVERY == 0:
                self._threads = [other for other in self._threads if other.is_alive()]
            self._threads.append(thread)

    def _dismiss(self, transport: Transport) -> None:
        transport.close()
        with self._lock:
            self._transports.discard(transport)
        self._log.disconnected()

    def _serve(self, transport: Transport, connection: int) -> None:
        try:
            self._converse(transport, connection)
        except (ClientLeft, GatewayStopped, ValueError):
            pass  # ValueError: the request is not HTTP; it gets no answer
        finally:
            self._dismiss(transport)

    def _converse(self, transport: Transport, connection: int) -> None:
        """Answer the requests in order. Returns when the server closes, raises ClientLeft when the client does."""
        request: Request | None = None
        if self._tls_stall:
            transport.watch(None)
        try:
            transport.handshake()
            while True:
                head, body = self._read_request(transport)
                if request:
                    self._log.left(request, "reused")
                request = Request(head.method, head.target, head.headers, body, monotonic(), connection)
                if not self._answer(head, request, transport):
                    break
            if request.reached["reset"] == 0:
                transport.await_fin()
        except ClientLeft as error:
            if request:
                self._log.left(request, error.how)
            raise

    def _read_request(self, transport: Transport) -> tuple[RequestHead, bytes]:
        head = parse_head(transport.read_until(b"\r\n\r\n"))
        if not self._read_body:
            return head, b""
        if "chunked" in head.headers.get("transfer-encoding", "").lower():
            return head, _read_chunked(transport)
        return head, transport.read_exactly(int(head.headers.get("content-length", 0)))

    def _answer(self, head: RequestHead, request: Request, transport: Transport) -> bool:
        transport.on_sent = request.count_sent
        plan = self._plan_for(request, self._log.arrived(request))
        closing = not (self._keep_alive and self._read_body and head.keep_alive)
        return Player(plan, request, transport, self._log, closing=closing).play()

    def _plan_for(self, request: Request, number: int) -> ResponsePlan:
        return self._plans[min(number, len(self._plans) - 1)]


def _read_chunked(transport: Transport) -> bytes:
    body = bytearray()
    while size := int(transport.read_until(b"\r\n").partition(b";")[0], 16):
        body += transport.read_exactly(size)
        transport.read_exactly(2)
    while transport.read_until(b"\r\n") != b"\r\n":
        pass  # trailers are ignored
    return bytes(body)


def _wake(listener: socket.socket) -> None:
    """End the `accept` that another thread is blocked in."""
    try:
        listener.shutdown(socket.SHUT_RDWR)
    except OSError:
        # A shutdown wakes it only on Linux; a last connection wakes it everywhere.
        with socket.socket(listener.family) as sock:
            sock.settimeout(1)
            sock.connect_ex(listener.getsockname())


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid and os.path.exists(path):
        os.unlink(path)
