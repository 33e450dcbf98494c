"""A guarded call in a thread of its own, as `stream/attempt.py` makes it, and proof that this thread is blocked."""

import contextlib
import contextvars
import sys
import threading
import time
from typing import Any

import requests

from streamguard._core.cancel import CancelToken
from streamguard._http import Adapter, SocketGuard, attach_response, current_guard, read_blocks

BLOCKING = {"readinto", "recv_into", "read", "recv", "do_handshake", "sendall", "send", "_dial_one", "_tls_handshake"}
"""The innermost Python functions of a thread that waits for a socket."""


def new_session(**adapter_arguments: Any) -> requests.Session:
    """Return a session with our adapter, deaf to the environment."""
    session = requests.Session()
    session.trust_env = False
    for prefix in ("http://", "https://"):
        session.mount(prefix, Adapter(**adapter_arguments))
    return session


class Call:
    """Make one request in a daemon thread, and read its body; what comes is in `blocks`, `phases`, `error`.

    *foreign*: the response does not come through our adapter, and its socket has to be found.
    """

    def __init__(
        self,
        url: str,
        *,
        method: str = "GET",
        session: requests.Session | None = None,
        foreign: bool = False,
        **kwargs: Any,
    ) -> None:
        self.token = CancelToken()
        self.phases: list[str] = []
        self.guard = SocketGuard(self.token, self.phases.append)
        self.blocks: list[bytes] = []
        self.status: int | None = None
        self.error: BaseException | None = None
        self._session = session or new_session()
        self._owns_session = session is None
        self._foreign = foreign
        self._request = (method, url, kwargs)
        self._arrived = threading.Event()
        self.thread = threading.Thread(target=contextvars.copy_context().run, args=(self._run,), daemon=True)
        self.thread.start()

    def wait_block(self) -> None:
        """Wait for the first block of the body."""
        assert self._arrived.wait(5), self.error

    def wait_blocked(self) -> str:
        """Wait until the thread is blocked on a socket, and return the name of the function in which."""
        until = time.monotonic() + 5
        before = None
        while time.monotonic() < until:
            frame = sys._current_frames().get(self.thread.ident or 0)
            assert frame is not None, self.error
            now = (frame.f_code.co_name, frame.f_lasti, id(frame), len(self.blocks))
            if now == before and now[0] in BLOCKING:
                return now[0]
            before = now
            time.sleep(0.03)
        raise AssertionError(f"never blocked: {before}")

    def cancel(self) -> float:
        """Cancel, wait for the thread to end, and return the seconds that took."""
        began = time.monotonic()
        assert self.token.cancel()
        self.join(5)
        return time.monotonic() - began

    def join(self, seconds: float = 5) -> None:
        self.thread.join(seconds)
        assert not self.thread.is_alive()

    def _run(self) -> None:
        current_guard.set(self.guard)
        method, url, kwargs = self._request
        try:
            response = self._session.request(method, url, stream=True, **kwargs)
            self._read(response)
        except Exception as exc:
            self.error = exc
        finally:
            self.guard.release()
            if self._owns_session:
                self._session.close()

    def _read(self, response: requests.Response) -> None:
        self.status = response.status_code
        with contextlib.closing(response):
            if self._foreign:
                attach_response(self.guard, response)
            for block in read_blocks(response):
                self.guard.check()
                self.blocks.append(block)
                self._arrived.set()
