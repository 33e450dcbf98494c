"""The sockets that one call holds, and the cut that wakes a thread blocked on them.

Closing a socket, a response or a session from another thread wakes nobody. What always does, on every framing,
through TLS and proxies, is `shutdown(SHUT_RDWR)` on a duplicate of the descriptor: it never blocks, it sends FIN, and
it leaves the objects of the blocked thread alone. So a guard keeps one duplicate per connection that is in use.

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
from collections.abc import Callable
from typing import Any, Protocol

import requests

from .._core.cancel import CancelToken, current_token

__all__ = ["CutError", "SocketGuard", "attach_response", "current_guard", "find_socket", "guard_in_force"]


class CutError(Exception):
    """Raised in the thread that makes the call, after its sockets were cut.

    Deliberately no OSError and no urllib3 error: a mounted `Retry` would swallow those and sleep.
    """


class HasFileno(Protocol):
    """Anything with the descriptor of a socket: a plain, a TLS, or a TLS-in-TLS socket."""

    def fileno(self) -> int:
        """Return the descriptor."""
        ...


class SocketGuard:
    """Hold the sockets of one call, and cut them all when *token* is cancelled.

    *on_phase* is called with "connect", "response" and "headers" as the connections of the call get there, in the
    thread that makes the call; it hears them again for each redirect hop and each retry. By *margin* seconds the timeouts
    of the sockets come later than requests was told: for a call that is cut when its time is up, they are the second net.

    `cut()` may be called from any thread, from a signal handler, and from a finalizer. Attach, detach and cut, the
    shutdown included, share one re-entrant lock, so that a connection which is back in its pool is never cut.

    Limits: in a forked child nothing is shut down, for that would end the call of the parent; the child only forgets.
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
        """The latest response of `streamguard.Adapter`: to be closed if a hook fails, and nobody else ever gets it."""
        # Weak, or else a long-lived token would keep every guard that nobody released.
        cut = weakref.WeakMethod(self.cut)
        self._unregister = token.on_cancel(lambda: _call(cut()))

    def __del__(self) -> None:
        self.release()

    @property
    def was_cut(self) -> bool:
        """Whether `cut()` was called. Judge by this, never by how the call ended: a cut body may end cleanly."""
        return self._cut

    def serves(self, token: CancelToken) -> bool:
        """Return whether this guard was made for *token*."""
        return self._token() is token

    def check(self) -> None:
        """Raise CutError if the call was cut."""
        if self._cut:
            raise CutError("the call was cut")

    def phase(self, name: str) -> None:
        """Tell the owner that the call entered the phase *name*; silent after a cut and after `release()`."""
        if self._on_phase is not None and not self._cut and not self._released:
            self._on_phase(name)

    def attach(self, key: object, sock: HasFileno) -> None:
        """Hold a duplicate of the descriptor of *sock* under *key*, in place of what *key* held before.

        Raises CutError if the call was cut, also when that happens meanwhile.
        """
        self.check()
        if self._is_forked():
            return
        with self._lock:
            if not self._released:
                self._hold(key, sock.fileno())
        self.check()

    def detach(self, key: object) -> bool:
        """Let go of what *key* holds. Returns False if the call was cut: close the connection then, never pool it."""
        if self._is_forked():
            self._held.pop(key, None)
            return not self._cut
        with self._lock:
            duplicate = self._held.pop(key, None)
            if duplicate is not None:
                socket.close(duplicate)
            return not self._cut

    def cut(self) -> None:
        """Shut down every socket held; from here on `attach()` and `check()` raise."""
        if self._is_forked():
            self._cut = True
            self._held.clear()
            return
        with self._lock:
            self._cut = True
            self._shut_down_all()

    def release(self) -> None:
        """End with the call: leave the token, close the duplicates, hold none from now on. Idempotent; cuts nothing."""
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
        # Asked before the lock, which in a child may stay locked for ever. The child closes nothing either: one that
        # closed all its descriptors may have given these numbers to something else.
        return os.getpid() != self._pid

    def _hold(self, key: object, descriptor: int) -> None:
        # The bare number, wrapped at the cut: under `socket.setdefaulttimeout()` a socket object made now would turn
        # the descriptor that both share non-blocking.
        duplicate = socket.dup(descriptor)
        replaced = self._held.pop(key, None)
        self._held[key] = duplicate
        if replaced is not None:
            socket.close(replaced)
        # A signal handler of this very thread enters the lock: it may have cut before the duplicate was in the dict.
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

    That is `current_guard`, if it was made for `current_token`; else the guard of that token, which all calls that nobody
    guards one by one share: those of a plain Session inside of a `bounded_call()` or a step.
    """
    guard, token = current_guard.get(), current_token()
    if token is None or (guard is not None and guard.serves(token)):
        return guard
    shared = _guards.get(token)
    if shared is None or shared._is_forked():
        shared = _guards[token] = SocketGuard(token)
    return shared


def find_socket(response: requests.Response) -> Any | None:
    """Return the socket that the body of *response* comes from, or None where there is none (a mock, a finished body).

    It is on the connection, or, once the connection has let go of it (`Connection: close`), below the file of the body.
    """
    for path in (("raw", "_connection", "sock"), ("raw", "_fp", "fp", "raw", "_sock")):
        sock: Any = response
        for name in path:
            sock = getattr(sock, name, None)
        if _is_open_socket(sock):
            return sock
    return None


def attach_response(guard: SocketGuard, response: requests.Response) -> bool:
    """Let *guard* cut the body of a *response* whatever adapter it came through; return False if it has no socket.

    The `release_conn` of the raw response is wrapped, so that a late cut never hits the next user of the connection.
    Nothing else of the response is changed, and nothing of its session. Raises CutError if the call was cut.
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
    # Weak: a response that is its own attribute would wait for the collector.
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
    # A mock answers with a mock.
    return isinstance(descriptor, int) and descriptor >= 0
