"""A client made of a bare socket: it returns exactly what the server sent, and leaves exactly as asked."""

import socket
import ssl
import struct

from streamguard.testing import Gateway


def connect(gateway: Gateway) -> socket.socket:
    """Open a connection to *gateway*, with TLS if it speaks it."""
    scheme, _, address = gateway.url.partition("://")
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host.strip("[]"), int(port)), timeout=5)
    if scheme == "https":
        return ssl.create_default_context(cafile=gateway.ca).wrap_socket(sock, server_hostname="localhost")
    return sock


def ask(gateway: Gateway, head: str = "GET / HTTP/1.1", *headers: str, body: bytes = b"") -> socket.socket:
    """Send one request on a new connection, which is returned."""
    sock = connect(gateway)
    send_request(sock, head, *headers, body=body)
    return sock


def send_request(sock: socket.socket, head: str = "GET / HTTP/1.1", *headers: str, body: bytes = b"") -> None:
    """Send one request on *sock*."""
    sock.sendall("".join(f"{line}\r\n" for line in (head, "Host: test", *headers, "")).encode() + body)


def read_to_end(sock: socket.socket) -> bytes:
    """Read until the server closes, and close."""
    with sock:
        return b"".join(iter(lambda: sock.recv(65536), b""))


def read_until(sock: socket.socket, marker: bytes) -> bytes:
    """Read byte by byte up to and including *marker*."""
    data = b""
    while not data.endswith(marker):
        byte = sock.recv(1)
        assert byte, f"the server closed after {data!r}"
        data += byte
    return data


def answer(gateway: Gateway, head: str = "GET / HTTP/1.1", *headers: str, body: bytes = b"") -> bytes:
    """Return the whole answer to one request; the server must close after it."""
    return read_to_end(ask(gateway, head, *headers, body=body))


def answered_body(gateway: Gateway, head: str = "GET / HTTP/1.1", *headers: str) -> bytes:
    """Return what follows the header block of the answer to one request."""
    return answer(gateway, head, *headers).partition(b"\r\n\r\n")[2]


def leave_by_reset(sock: socket.socket) -> None:
    """Close *sock* with an RST."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
