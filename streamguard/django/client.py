"""Has the client left? Asked of its socket, where the server lends it: a write fails only the second time after it left."""

import array
import fcntl
import select
import socket
import termios
from collections.abc import Callable, Mapping
from typing import Any

LOOK_SECONDS = 0.25
"""How often to look, while the upstream is silent."""

_TCP_ESTABLISHED = 1


def departure_of(environ: Mapping[str, Any]) -> Callable[[], bool]:
    """Return a function that returns, at once, whether the client of a WSGI *environ* has gone.

    gunicorn lends the socket (`gunicorn.socket`), waitress answers itself (`waitress.client_disconnected`, if its
    `channel_request_lookahead` is on). Under any other server it is never true: only a failed write shows it.

    *Limits*: a client that has shut down its sending half counts as gone, as it does for nginx.
    """
    disconnected = environ.get("waitress.client_disconnected")
    if callable(disconnected):
        return lambda: bool(disconnected())
    sock = environ.get("gunicorn.socket")
    if sock is None:
        return lambda: False
    return lambda: _is_closed(sock)


def _is_closed(sock: Any) -> bool:
    try:
        state = _tcp_state(sock)
        return _at_end(sock) if state is None else state != _TCP_ESTABLISHED
    except (OSError, ValueError):  # ValueError: closed on this side, so that it has no descriptor
        return True


def _tcp_state(sock: Any) -> int | None:
    """Return the kernel's state of a TCP connection: CLOSE_WAIT as soon as the peer's FIN has arrived. None: not TCP."""
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or not hasattr(socket, "TCP_INFO"):
        return None
    state: int = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return state


def _at_end(sock: Any) -> bool:
    """Return whether the peer has closed and nothing is left to read before that. It reads nothing and changes no flag."""
    poll = select.poll()
    poll.register(sock.fileno(), select.POLLIN)
    if not poll.poll(0):
        return False
    unread = array.array("i", [0])
    fcntl.ioctl(sock.fileno(), termios.FIONREAD, unread)
    return unread[0] == 0
