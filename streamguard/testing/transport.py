"""One accepted connection, plain or TLS, that detects at any moment when and how its client leaves.

It receives what the client sends while the server waits or sends, because a FIN is visible only after all data before it.
TLS runs over memory buffers, so that the socket itself is read here: a close_notify is data, the FIN after it is the end.
"""

import contextlib
import errno
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable

from .._core.clock import monotonic

_INBOX_LIMIT = 1 << 20
_RDHUP: int = getattr(select, "POLLRDHUP", 0)


class ClientLeft(Exception):
    """The client has left; *how* is "fin" or "reset", or "handshake" if TLS failed."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class GatewayStopped(Exception):
    """The gateway is being stopped, and has closed the connection."""


class Transport:
    """The server's end of a connection. One thread uses it; `abort` may be called by any.

    The attribute *on_sent* is called with the number of bytes that the kernel has accepted.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        sock.setblocking(False)
        with contextlib.suppress(OSError):  # some systems refuse this if the client has left
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.on_sent: Callable[[int], None] | None = None
        self._sock = sock
        self._tls = _Tls(context) if context else None
        self._inbox = bytearray()
        self._aborted = False
        self._closing = threading.Lock()

    def handshake(self) -> None:
        """Complete the TLS handshake, if there is one. Raises ClientLeft if it fails."""
        done = self._tls is None
        while self._tls and not done:
            try:
                done = self._tls.handshake()
            except ssl.SSLError:
                self._write(self._tls.pending())
                raise self._gone("handshake") from None
            self._write(self._tls.pending())
            if not done:
                self._fill(None)
        if self._tls:
            self._inbox += self._tls.decrypt(b"")  # the last part of the handshake may have a request after it

    def read_until(self, marker: bytes) -> bytes:
        """Read up to and including *marker*."""
        while (found := self._inbox.find(marker)) < 0:
            self._fill(None)
        return self._take(found + len(marker))

    def read_exactly(self, size: int) -> bytes:
        """Read *size* bytes."""
        while len(self._inbox) < size:
            self._fill(None)
        return self._take(size)

    def send(self, data: bytes) -> None:
        """Send *data*. Raises ClientLeft as soon as the client has left, even if it does not read."""
        self._write(self._tls.encrypt(data) if self._tls else data)

    def watch(self, seconds: float | None) -> None:
        """Wait for *seconds*; None: for ever. Raises ClientLeft as soon as the client leaves."""
        end = None if seconds is None else monotonic() + seconds
        while (remaining := None if end is None else end - monotonic()) is None or remaining > 0:
            self._fill(remaining, limit=_INBOX_LIMIT)

    def finish(self, *, notify: bool) -> None:
        """Send a FIN; over TLS with a close_notify before it if *notify*."""
        if self._tls and notify:
            self._write(self._tls.close_notify())
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            raise self._gone("reset") from None

    def await_fin(self) -> None:
        """After the FIN, wait until the client leaves too (ClientLeft), or sends data, which gets no answer."""
        self._inbox.clear()
        while not self._inbox:
            self._fill(None)

    def reset(self) -> None:
        """Close with an RST."""
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()

    def close(self) -> None:
        """Close the socket."""
        with self._closing:
            self._sock.close()

    def abort(self) -> None:
        """Make the current or next operation of the connection's thread raise GatewayStopped."""
        with self._closing:
            self._aborted = True
            try:
                self._sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                return  # already closed, or left

    def _fill(self, timeout: float | None, limit: int | None = None) -> None:
        """Receive what the client sends within *timeout* seconds, unless *limit* bytes are unread."""
        reading = limit is None or len(self._inbox) < limit
        if self._ready(read=reading, write=False, timeout=timeout):
            self._receive(reading)

    def _receive(self, reading: bool) -> None:
        if not reading:
            # Only the hang-up was polled for: there is unread data, and its end.
            raise self._gone("reset" if self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) else "fin")
        try:
            data = self._sock.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            raise self._gone("reset") from None
        if not data:
            raise self._gone("fin")
        self._inbox += self._tls.decrypt(data) if self._tls else data

    def _write(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                size = self._sock.send(view)
            except BlockingIOError:
                self._await_room()
                continue
            except OSError as error:
                # Linux: EPIPE if the RST answers a send after the client's FIN, ECONNRESET if it comes by itself.
                raise self._gone("fin" if error.errno == errno.EPIPE else "reset") from None
            view = view[size:]
            if self.on_sent:
                self.on_sent(size)

    def _await_room(self) -> None:
        reading = len(self._inbox) < _INBOX_LIMIT
        if self._ready(read=reading, write=True, timeout=None):
            self._receive(reading)

    def _ready(self, *, read: bool, write: bool, timeout: float | None) -> bool:
        """Wait until data can be read, or the client hangs up (if the system reports it); return whether it is so.

        With *write*, room to send ends the wait too.
        """
        if not hasattr(select, "poll"):
            watched = [self._sock]
            readable, _, _ = select.select(watched if read else [], watched if write else [], [], timeout)
            return bool(readable)
        poll = select.poll()
        poll.register(self._sock, (select.POLLIN if read else _RDHUP) | (select.POLLOUT if write else 0))
        events = poll.poll(None if timeout is None else timeout * 1000)
        return bool(events and events[0][1] & ~select.POLLOUT)

    def _take(self, size: int) -> bytes:
        data = bytes(self._inbox[:size])
        del self._inbox[:size]
        return data

    def _gone(self, how: str) -> Exception:
        return GatewayStopped() if self._aborted else ClientLeft(how)


class _Tls:
    """The server's side of TLS between two memory buffers."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._established = False
        self._ended = False

    def handshake(self) -> bool:
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self._established = True
        return True

    def pending(self) -> bytes:
        return self._outgoing.read()

    def encrypt(self, data: bytes) -> bytes:
        if data:
            self._object.write(data)
        return self.pending()

    def decrypt(self, data: bytes) -> bytes:
        self._incoming.write(data)
        plain = bytearray()
        while self._established and not self._ended:
            try:
                part = self._object.read(65536)
            except ssl.SSLWantReadError:
                break
            except ssl.SSLError:
                part = b""
            self._ended = not part
            plain += part
        return bytes(plain)

    def close_notify(self) -> bytes:
        with contextlib.suppress(ssl.SSLError):  # it waits for the client's close_notify, which may never arrive
            self._object.unwrap()
        return self.pending()
