"""Servers on loopback, each a function that is given one connection, and that see how their clients leave."""

import contextlib
import gzip
import pathlib
import select
import socket
import ssl
import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator

import trustme

PATIENCE = 10.0
"""Seconds after which a server gives up on its client; a test that waits for it has failed."""


class Peer:
    """One connection, as its server sees it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.received = b""

    def read_request(self) -> bytes:
        """Return the head of the next request, its body read away; b"" when the client left instead."""
        head = self._read_until(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                self._read_exactly(int(line.split(b":")[1]))
        return head

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def reset(self) -> None:
        """Leave with RST."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def wait_left(self) -> bool:
        """Wait until the client leaves."""
        try:
            while self.sock.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            pass
        return True

    def _read_until(self, end: bytes) -> bytes:
        while end not in self.received:
            data = self.sock.recv(65536)
            if not data:
                return b""
            self.received += data
        head, _, self.received = self.received.partition(end)
        return head

    def _read_exactly(self, count: int) -> bytes:
        while len(self.received) < count:
            self.received += self.sock.recv(65536)
        body, self.received = self.received[:count], self.received[count:]
        return body


Handler = Callable[[Peer], object]


class Server:
    """Run *handler* for every connection; `left` is set when a client left while its handler was waiting for that."""

    def __init__(self, handler: Handler, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1") -> None:
        self.handler = handler
        self.tls = tls
        self.host = host
        self.connections = 0
        self.stalled = threading.Event()
        self.left = threading.Event()
        self._peers: list[Peer] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
        self.port: int = self._listener.getsockname()[1]

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}/"

    def __enter__(self) -> "Server":
        self._start(self._accept)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for peer in self._peers:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(peer.sock, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)

    def stall(self, peer: Peer) -> None:
        """Say and do nothing until the client leaves."""
        self.stalled.set()
        if peer.wait_left():
            self.left.set()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self.connections += 1
                self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        sock.settimeout(PATIENCE)
        peer = Peer(sock)
        self._peers.append(peer)
        with contextlib.suppress(OSError):
            if self.tls is not None:
                peer.sock = self.tls.wrap_socket(sock, server_side=True)
            self.handler(peer)
        peer.sock.close()


def tunnel(server: Server) -> Handler:
    """Return the handler of a proxy that answers CONNECT, and passes everything on to *server*."""

    def handler(peer: Peer) -> None:
        peer.read_request()
        with socket.create_connection((server.host, server.port), timeout=PATIENCE) as upstream:
            peer.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
            relay(peer.sock, upstream)

    return handler


def relay(one: socket.socket, other: socket.socket) -> None:
    """Pass everything on in both directions until one of the two ends; in one thread, for that is all TLS allows."""
    peer_of = {one: other, other: one}
    with contextlib.suppress(OSError):
        while True:
            for sock in _readable(one, other):
                data = sock.recv(65536)
                if not data:
                    raise ConnectionError("the relay has ended")
                peer_of[sock].sendall(data)
    for sock in peer_of:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)


def _readable(*socks: socket.socket) -> list[socket.socket]:
    buffered = [sock for sock in socks if isinstance(sock, ssl.SSLSocket) and sock.pending()]
    ready = buffered or select.select(socks, [], [], PATIENCE)[0]
    if not ready:
        raise TimeoutError("nothing to relay")
    return ready


@contextlib.contextmanager
def blackhole() -> Iterator[int]:
    """Yield a port whose backlog is full: a connect to it hangs."""
    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        address = listener.getsockname()
        for _ in range(3):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(address)
            select.select([], [filler], [], 0.05)
        yield address[1]


class Authority:
    """A certificate authority of the test run, and what it signed for loopback."""

    def __init__(self, directory: pathlib.Path) -> None:
        authority = trustme.CA()
        self.bundle = str(directory / "ca.pem")
        authority.cert_pem.write_to_path(self.bundle)
        self.server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost", "127.0.0.1", "::1").configure_cert(self.server_side)


FRAMINGS = ("chunked", "length", "close", "http10")
ENCODINGS = ("identity", "gzip", "gzip-members", "deflate", "raw-deflate")


def head(framing: str, encoding: str = "identity", length: int = 100_000) -> bytes:
    """Return the head of a 200 response whose body is framed and encoded like this."""
    lines = [b"HTTP/1.0 200 OK" if framing == "http10" else b"HTTP/1.1 200 OK", b"Content-Type: text/event-stream"]
    if framing == "chunked":
        lines.append(b"Transfer-Encoding: chunked")
    if framing == "length":
        lines.append(b"Content-Length: %d" % length)
    if framing == "close":
        lines.append(b"Connection: close")
    if encoding != "identity":
        lines.append(b"Content-Encoding: " + (b"gzip" if encoding.startswith("gzip") else b"deflate"))
    return b"\r\n".join(lines) + b"\r\n\r\n"


def frame(framing: str, data: bytes) -> bytes:
    """Return *data* as one HTTP chunk, or as it is."""
    return b"%x\r\n%s\r\n" % (len(data), data) if framing == "chunked" else data


def encoded(encoding: str, events: Iterable[bytes]) -> Iterator[bytes]:
    """Yield each event encoded and flushed; for "gzip-members" each as a member of its own."""
    bits = {"gzip": 31, "deflate": 15, "raw-deflate": -15}.get(encoding)
    stream = zlib.compressobj(wbits=bits) if bits else None
    for event in events:
        if stream is not None:
            yield stream.compress(event) + stream.flush(zlib.Z_SYNC_FLUSH)
        else:
            yield gzip.compress(event) if encoding == "gzip-members" else event
