"""The sockets that one call holds, and the cut that wakes a thread blocked on them.

Closing a socket, a response or a session does not wake another thread that is blocked on it. `shutdown(SHUT_RDWR)` on a
duplicate of the descriptor always does, on every framing, through TLS and proxies: it does not block, it sends a FIN, and
it does not touch the objects of the blocked thread. So a guard keeps one duplicate for each connection in use.

Limits
    Measured on Linux. On Windows a shutdown is reported not to wake a blocked `recv`: give requests a read timeout
    there. Name resolution and the wait for a slot of a blocking pool hold no socket and cannot be cut.
"""

import contextlib
import contextvars
import os
import socket
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import requests

from .._core.cancel import CancelToken, current_token


class CutError(Exception):
    """Raised in the thread that makes the call, after its sockets were cut.

    It is neither an OSError nor an error of urllib3: a mounted `Retry` catches those and sleeps.
    """


class HasFileno(Protocol):
    """A plain, TLS, or TLS-in-TLS socket: anything with a descriptor."""

    def fileno(self) -> int:
        """Return the descriptor."""
        ...


class SocketGuard:
    """Holds the sockets of one call, and cuts them all when *token* is cancelled.

    *on_phase* is called with "connect", "response" and "headers" when the connections of the call enter that phase, in the
    thread that makes the call, and again for each redirect hop and each retry. *margin* seconds are added to the timeouts
    of the sockets: for a call that is cut when its time is up, they are only the second safeguard.

    `cut()` may be called from any thread, from a signal handler, and from a finalizer. Attach, detach and cut, with the
    shutdown, share one re-entrant lock, so that a connection that is back in its pool is never cut.

    Limits: a forked child shuts nothing down, because that would end the call of the parent; it only drops its references.
    """

    __slots__ = (
        "__weakref__",
        "_cut",
        "_held",
        "_lock",
        "_on_phase",
        "_pid",
        "_released",
        "_token",
        "_unregister",
        "margin",
        "response",
    )

    def __init__(self, token: CancelToken, on_phase: Callable[[str], None] | None = None, *, margin: float = 0.0) -> None:
        self.margin = margin
        self._cut = False
        self._released = False
        self._held: dict[object, int] = {}
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._on_phase = on_phase
        self._unregister: Callable[[], object] | None = None
        self._token = weakref.ref(token)
        self.response: requests.Response | None = None
        """The latest response of `streamguard.Adapter`: it must be closed if a hook fails, since no caller gets it then."""
        # Weak: a long-lived token must not keep guards that were never released.
        cut = weakref.WeakMethod(self.cut)
        self._unregister = token.on_cancel(lambda: _call(cut()))

    def __del__(self) -> None:
        self.release()

    @property
    def was_cut(self) -> bool:
        """Whether `cut()` was called. How the call ended does not say so: a cut body may end cleanly."""
        return self._cut

    def serves(self, token: CancelToken) -> bool:
        """Return whether this guard was made for *token*."""
        return self._token() is token

    def check(self) -> None:
        """Raise CutError if the call was cut."""
        if self._cut:
            raise CutError("the call was cut")

    def phase(self, name: str) -> None:
        """Report to the owner that the call entered the phase *name*, unless it was cut or released."""
        if self._on_phase is not None and not self._cut and not self._released:
            self._on_phase(name)

    def attach(self, key: object, sock: HasFileno) -> None:
        """Hold a duplicate of the descriptor of *sock* under *key*; it replaces an earlier one.

        Raises CutError if the call was cut, also during this method.
        """
        self.check()
        if self._is_forked():
            return
        with self._lock:
            if not self._released:
                self._hold(key, sock.fileno())
        self.check()

    def detach(self, key: object) -> bool:
        """Drop the duplicate under *key*. Returns False if the call was cut: close the connection, do not pool it."""
        if self._is_forked():
            self._held.pop(key, None)
            return not self._cut
        with self._lock:
            duplicate = self._held.pop(key, None)
            if duplicate is not None:
                socket.close(duplicate)
            return not self._cut

    def cut(self) -> None:
        """Shut down every socket; after this, `attach()` and `check()` raise."""
        if self._is_forked():
            self._cut = True
            self._held.clear()
            return
        with self._lock:
            self._cut = True
            self._shut_down_all()

    def release(self) -> None:
        """End with the call: unregister from the token and close the duplicates. Idempotent; does not cut."""
        unregister, self._unregister = self._unregister, None
        if unregister is not None:
            unregister()
        self._released = True
        self.response = None
        if self._is_forked():
            self._held.clear()
            return
        with self._lock:
            while self._held:
                socket.close(self._held.popitem()[1])

    def _is_forked(self) -> bool:
        # Checked before the lock, which may stay locked for ever in a child. The child does not close the descriptors
        # either: it may have closed them all, and their numbers may be in use again.
        return os.getpid() != self._pid

    def _hold(self, key: object, descriptor: int) -> None:
        # Only the number: under `socket.setdefaulttimeout()`, a socket object made here would make the shared descriptor
        # non-blocking.
        duplicate = socket.dup(descriptor)
        replaced = self._held.pop(key, None)
        self._held[key] = duplicate
        if replaced is not None:
            socket.close(replaced)
        # A signal handler in this thread can enter the lock, and cut before the duplicate is in the dict.
        if self._cut:
            self._shut_down_all()

    def _shut_down_all(self) -> None:
        while self._held:
            _shut_down(self._held.popitem()[1])


def _call(method: Callable[[], None] | None) -> None:
    if method is not None:
        method()


def _shut_down(descriptor: int) -> None:
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError:
        socket.close(descriptor)
        return
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


current_guard: contextvars.ContextVar[SocketGuard | None] = contextvars.ContextVar("streamguard_guard", default=None)
"""The guard of the call that runs in this context: the connections of `streamguard.Adapter` report to it."""

_guards: "weakref.WeakKeyDictionary[CancelToken, SocketGuard]" = weakref.WeakKeyDictionary()


def guard_in_force() -> SocketGuard | None:
    """Return the guard that connections used in this context report to, or None.

    That is `current_guard`, if it was made for the current token; else the guard of that token, which all calls without a
    guard of their own share: those of a plain Session inside a `bounded_call()` or a step.
    """
    guard, token = current_guard.get(), current_token()
    if token is None or (guard is not None and guard.serves(token)):
        return guard
    shared = _guards.get(token)
    if shared is None or shared._is_forked():
        shared = _guards[token] = SocketGuard(token)
    return shared


def find_socket(response: requests.Response) -> Any | None:
    """Return the socket that the body of *response* is read from, or None (a mock, a finished body).

    It belongs to the connection or, after `Connection: close`, to the file of the body.
    """
    for path in (("raw", "_connection", "sock"), ("raw", "_fp", "fp", "raw", "_sock")):
        sock: Any = response
        for name in path:
            sock = getattr(sock, name, None)
        if _is_open_socket(sock):
            return sock
    return None


def require_close_notify(headers: Mapping[str, str], sock: Any) -> None:
    """Let a TLS body that only the end of its connection ends raise `SSLEOFError` if that end is not announced.

    Python's ssl takes an end without close_notify for a good one otherwise; it may be an attacker's, or a cut.
    """
    delimited = "chunked" in headers.get("transfer-encoding", "").lower() or headers.get("content-length", "").isdigit()
    if not delimited and hasattr(sock, "suppress_ragged_eofs"):
        sock.suppress_ragged_eofs = False


def attach_response(guard: SocketGuard, response: requests.Response) -> bool:
    """Let *guard* cut the body of a *response* of any adapter; return False if it has no socket.

    The `release_conn` of the raw response is wrapped, so that a late cut never affects the next call on the connection.
    Nothing else of the response or its session is changed. Raises CutError if the call was cut.
    """
    raw: Any = response.raw
    sock = find_socket(response)
    if sock is None:
        return False
    if getattr(getattr(raw, "_connection", None), "guard", None) is guard:
        return True
    key = ("body", id(raw))
    guard.attach(key, sock)
    raw.release_conn = _detach_first(guard, key, raw)
    return True


def _detach_first(guard: SocketGuard, key: object, raw: Any) -> Callable[[], None]:
    # Weak: a reference from the response to itself is a cycle.
    weak_raw = weakref.ref(raw)

    def release_conn() -> None:
        raw = weak_raw()
        connection = getattr(raw, "_connection", None)
        if not guard.detach(key) and connection is not None:
            connection.close()
        if raw is not None:
            type(raw).release_conn(raw)

    return release_conn


def _is_open_socket(sock: Any) -> bool:
    try:
        descriptor = sock.fileno()
    except (AttributeError, OSError, ValueError):
        return False
    # A mock returns a mock.
    return isinstance(descriptor, int) and descriptor >= 0
