"""One wait for everything about a child process: its two outputs, its input, its exit, and a wake-up by another thread."""

import contextlib
import functools
import os
import selectors
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from .spawn import Child

_READ = 65536
_LONGEST_WAIT = 3600.0


class Waker:
    """Wakes a selector from any thread, and from a signal handler."""

    def __init__(self) -> None:
        self.receiver, self._sender = socket.socketpair()
        self.receiver.setblocking(False)
        self._sender.setblocking(False)
        self._lock = threading.RLock()  # a signal handler may interrupt its own thread in here

    def wake(self) -> None:
        """Wake the selector; do nothing once the waker is closed."""
        with self._lock, contextlib.suppress(OSError):  # a full buffer wakes it as well
            self._sender.send(b"\0")

    def drain(self) -> None:
        """Take the wake-ups that have arrived."""
        with contextlib.suppress(OSError):
            self.receiver.recv(4096)

    def close(self) -> None:
        """Close both ends."""
        with self._lock:
            self._sender.close()
            self.receiver.close()


@dataclass(frozen=True, slots=True)
class _Output:
    stream: str
    descriptor: int


class Pipes:
    """The pipes of *child*. `wait()` calls *received* with the name of the stream (stdout, stderr) and its bytes."""

    def __init__(self, child: Child, data: bytes | None, waker: Waker, received: Callable[[str, bytes], None]) -> None:
        self._child = child
        self._input = memoryview(data or b"")
        self._received = received
        self._selector = selectors.DefaultSelector()
        self._open = {_Output("stdout", child.stdout), _Output("stderr", child.stderr)}
        self._exit = _exit_descriptor(child.pid)
        self._selector.register(waker.receiver, selectors.EVENT_READ, waker.drain)
        if self._exit is not None:
            self._selector.register(self._exit, selectors.EVENT_READ, self._forget_exit)
        if child.stdin is not None:
            self._selector.register(child.stdin, selectors.EVENT_WRITE, self._write)
        self.resume()

    @property
    def drained(self) -> bool:
        """Whether both outputs have reached their end."""
        return not self._open

    @property
    def sees_exit(self) -> bool:
        """Whether the program's exit ends a `wait()`; otherwise the caller has to poll."""
        return self._exit is not None

    def wait(self, seconds: float) -> None:
        """Wait at most *seconds*, and never more than an hour, for an event, and handle it."""
        for key, _ in self._selector.select(min(max(seconds, 0.0), _LONGEST_WAIT)):
            key.data()

    def pause(self) -> None:
        """Stop reading the outputs: full pipes then hold the program back."""
        for output in self._open:
            self._selector.unregister(output.descriptor)

    def resume(self) -> None:
        """Read the outputs again."""
        for output in self._open:
            self._selector.register(output.descriptor, selectors.EVENT_READ, functools.partial(self._read, output))

    def close(self) -> None:
        """Stop listening. The pipes stay open."""
        if self._exit is not None:
            os.close(self._exit)
        self._selector.close()

    def _read(self, output: _Output) -> None:
        try:
            data = os.read(output.descriptor, _READ)
        except BlockingIOError:
            return
        except OSError:  # EIO: no process has the terminal open any more
            data = b""
        if data:
            self._received(output.stream, data)
        else:
            self._selector.unregister(output.descriptor)
            self._open.remove(output)

    def _write(self) -> None:
        descriptor = self._child.stdin
        if descriptor is None:
            return
        try:
            self._input = self._input[os.write(descriptor, self._input[:_READ]) :]
        except BlockingIOError:
            return
        except OSError:  # the program has closed its input
            self._input = self._input[:0]
        if not self._input:
            self._selector.unregister(descriptor)
            self._child.close_stdin()

    def _forget_exit(self) -> None:
        """Stop watching the exit: its descriptor stays readable."""
        if self._exit is not None:
            self._selector.unregister(self._exit)
            os.close(self._exit)
            self._exit = None


def _exit_descriptor(pid: int) -> int | None:
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):
            return os.pidfd_open(pid)
    return None  # pragma: no cover - not Linux
