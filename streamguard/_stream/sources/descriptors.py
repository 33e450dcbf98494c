"""Pipes, terminals and files: read so that a cut ends the wait, and without closing the caller's descriptor.

Closing a descriptor does not wake a thread that reads from it, and a pipe has no shutdown. So the reader waits for the
descriptor and for a wake-up at once, and reads from a duplicate only when there is something to read.
"""

import contextlib
import errno
import io
import os
import select
import socket
import stat
from collections.abc import Iterator
from typing import Any

from ..._http import SocketGuard
from ...errors import UsageError

_BLOCK_BYTES = 65536


def read_descriptor(descriptor: int, guard: SocketGuard) -> Iterator[bytes]:
    """Yield the blocks read from *descriptor* until its end, or until *guard* cuts. The descriptor itself stays open.

    Raises OSError as reading does, and UsageError if the system cannot wait for a descriptor.
    """
    duplicate = os.dup(descriptor)
    ours, theirs = socket.socketpair()
    try:
        guard.attach("wake-up", theirs)  # a cut shuts it down, which ends the wait for `ours`
        while _wait(duplicate, ours) and (block := _read(duplicate)) != b"":
            if block is not None:
                yield block
    finally:
        guard.detach("wake-up")
        for close in (ours.close, theirs.close, lambda: os.close(duplicate)):
            close()


def take_buffered(file: io.BufferedReader) -> bytes:
    """Take what a buffered file has read ahead, without reading on: the descriptor no longer has it."""
    raw: Any = file.raw
    raw.readinto = _nothing_yet  # `peek()` and `read1()` would otherwise wait for more if the buffer is empty
    try:
        ahead = len(file.peek())
        return file.read1(ahead) if ahead else b""
    finally:
        del raw.readinto


def _nothing_yet(buffer: Any) -> None:
    """Report, as a non-blocking file does, that there is nothing to read yet."""


def _wait(descriptor: int, wake_up: socket.socket) -> bool:
    """Wait until there is something to read; return False for a wake-up. A regular file never blocks."""
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return True
    if not hasattr(select, "poll"):
        raise UsageError("cannot interrupt a blocked read on a pipe on this system: pass abandon=True")
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    poll.register(wake_up, select.POLLIN)
    return wake_up.fileno() not in (ready for ready, _ in poll.poll())


def _read(descriptor: int) -> bytes | None:
    """Read a block; None if another reader took it."""
    with contextlib.suppress(BlockingIOError):
        try:
            return os.read(descriptor, _BLOCK_BYTES)
        except OSError as exc:
            if exc.errno == errno.EIO and os.isatty(descriptor):
                return b""  # a pseudo-terminal whose other side is closed
            raise
    return None
