"""Pipes, terminals, files and sockets: cut without closing what is the caller's."""

import contextlib
import gzip
import io
import os
import pty
import socket
import subprocess
import sys
import tempfile
import tty
from collections.abc import Iterator
from typing import Any

import pytest

from streamguard import (
    Chunk,
    MalformedChunkError,
    StreamCancelledError,
    StreamInactivityTimeoutError,
    TransportError,
    UsageError,
    guard,
)

from .clients import Consumer, assert_blocked, assert_released

Pipe = tuple[int, int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """Return a pipe's descriptors, to read and to write; close after the test what is still open."""
    read, write = os.pipe()
    yield read, write
    for descriptor in (read, write):
        with contextlib.suppress(OSError):
            os.close(descriptor)


@pytest.fixture
def file(pipe: Pipe) -> Iterator[io.BufferedReader]:
    """Return the pipe as a buffered file."""
    with os.fdopen(os.dup(pipe[0]), "rb") as opened:
        yield opened


def read_all(stream: Any) -> bytes:
    return b"".join(stream)


def test_a_pipe_gives_its_bytes(pipe: Pipe) -> None:
    """A pipe's bytes are returned as they arrive, to its end; the descriptor stays open."""
    os.write(pipe[1], b"a\nb\n")
    os.close(pipe[1])
    stream = guard(pipe[0])
    assert stream.read() == b"a\nb\n"
    assert (stream.report.outcome, stream.report.bytes) == ("completed", 4)
    os.fstat(pipe[0])


def test_an_empty_pipe_is_a_complete_one(pipe: Pipe) -> None:
    """A program that prints nothing is not an error."""
    os.close(pipe[1])
    assert list(guard(pipe[0])) == []
    assert guard(pipe[0], decode="bytes").read() == b""


def test_silence_in_a_pipe(pipe: Pipe, file: io.BufferedReader) -> None:
    """`idle` fires, the reader is gone, and the caller can read on from the same file."""
    os.write(pipe[1], b"first\n")
    stream = guard(file, idle=0.15)
    consumer = Consumer(stream)
    error = consumer.wait()
    assert isinstance(error, StreamInactivityTimeoutError)
    assert error.elapsed >= 0.15
    assert consumer.items == [b"first\n"]
    assert_released(stream)
    os.write(pipe[1], b"second\n")
    assert file.readline() == b"second\n"


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_cut_from_another_thread(pipe: Pipe, file: io.BufferedReader, how: str) -> None:
    """A cut wakes the blocked reader, and closes nothing of the caller's."""
    stream = guard(file, idle=60)
    consumer = Consumer(stream.open())
    assert_blocked(stream)
    getattr(stream, how)()
    error = consumer.wait()
    assert isinstance(error, StreamCancelledError) if how == "cancel" else error is None
    assert_released(stream)
    assert not file.closed
    os.write(pipe[1], b"still here\n")
    assert file.readline() == b"still here\n"


def test_what_the_file_has_read_ahead_comes_first(pipe: Pipe, file: io.BufferedReader) -> None:
    """A caller that has read one line gets the others at once, though the descriptor has nothing more."""
    os.write(pipe[1], b"head\nbody\n")
    assert file.readline() == b"head\n"
    consumer = Consumer(guard(file, idle=0.1))
    assert isinstance(consumer.wait(), StreamInactivityTimeoutError)
    assert consumer.items == [b"body\n"]


def test_nothing_of_ours_stays_in_the_file(pipe: Pipe, file: io.BufferedReader) -> None:
    """The file keeps no attribute of ours and its own blocking mode."""
    os.write(pipe[1], b"x")
    os.close(pipe[1])
    before = os.get_blocking(file.fileno())
    assert guard(file).read() == b"x"
    assert "readinto" not in vars(file.raw)
    assert (os.get_blocking(file.fileno()), file.read()) == (before, b"")


def test_an_unbuffered_file(pipe: Pipe) -> None:
    """An unbuffered file, such as a subprocess's with bufsize=0, is read."""
    os.write(pipe[1], b"x")
    os.close(pipe[1])
    with open(os.dup(pipe[0]), "rb", buffering=0) as raw:
        assert guard(raw).read() == b"x"


def test_a_programs_output() -> None:
    """The output of a subprocess is read as it arrives, and its silence fires `idle`."""
    code = "import sys, time; print('hello', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as program:
        consumer = Consumer(guard(program.stdout, first=30, idle=0.2))
        consumer.join(40)
        program.kill()
    assert isinstance(consumer.error, StreamInactivityTimeoutError)
    assert b"".join(consumer.items) == b"hello\n"


def test_a_terminal_ends_where_its_other_side_closes() -> None:
    """A pseudo-terminal reports EIO there: it is the end, not an error."""
    master, slave = pty.openpty()
    tty.setraw(slave)
    os.write(slave, b"hello")
    stream = guard(master, idle=30)
    try:
        assert next(stream) == b"hello"
        os.close(slave)
        assert list(stream) == []
    finally:
        os.close(master)
    assert stream.report.outcome == "completed"


def test_a_regular_file_never_waits() -> None:
    """It is read from the caller's position to its end."""
    with tempfile.TemporaryFile() as file:
        file.write(b"head\n" + b"x" * 200_000)
        file.flush()
        with open(os.dup(file.fileno()), "rb") as reader:
            reader.seek(0)
            reader.readline()
            assert guard(reader).read() == b"x" * 200_000


def test_decode_reads_a_pipe_as_an_event_stream(pipe: Pipe) -> None:
    """The output of `curl -N` in a pipe: the decoder's ends and errors apply."""
    os.write(pipe[1], b'data: {"choices":[{"index":0,"delta":{"content":"hi"}}]}\n\ndata: [DONE]\n\n')
    stream = guard(pipe[0], decode="chat", idle=30)
    (chunk,) = stream
    assert isinstance(chunk, Chunk)
    assert (chunk.text, stream.message.text) == ("hi", "hi")
    os.write(pipe[1], b"data: nonsense\n\n")
    with pytest.raises(MalformedChunkError):
        next(guard(pipe[0], decode="json"))


def test_a_closed_descriptor_is_an_error_at_once(pipe: Pipe) -> None:
    """A closed descriptor is an error at once, without a wait."""
    os.close(pipe[0])
    stream = guard(pipe[0], idle=60)
    assert isinstance(Consumer(stream).wait(), TransportError)


def test_text_files_are_refused(pipe: Pipe) -> None:
    """A text file may hold back half a character; its binary file is accepted."""
    with os.fdopen(os.dup(pipe[0])) as file:
        with pytest.raises(UsageError, match=r"\.buffer"):
            guard(file)
        os.write(pipe[1], b"x")
        assert next(guard(file.buffer, idle=30)) == b"x"


def test_what_only_looks_like_a_descriptor_is_refused() -> None:
    """True is not a descriptor; a compressed file is not the bytes of its descriptor."""
    with tempfile.TemporaryFile() as file, gzip.open(file, "rb") as unpacked:
        for source in (True, unpacked, io.BytesIO(b"x")):
            with pytest.raises(UsageError, match="interrupt="):
                guard(source)


def test_a_socket_gets_its_timeout_back() -> None:
    """After the stream the socket has the caller's timeout again."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(0.05)
        stream = guard(ours, idle=60)
        consumer = Consumer(stream.open())
        assert_blocked(stream, 0.1)
        theirs.sendall(b"hello")
        theirs.shutdown(socket.SHUT_WR)
        assert consumer.wait() is None
        assert_released(stream)
        assert (consumer.items, ours.gettimeout()) == ([b"hello"], 0.05)


def test_a_cut_socket_is_shut_down_and_stays_the_callers() -> None:
    """The peer sees the end; the owner closes the object."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(5)
        stream = guard(ours, idle=0.1)
        assert isinstance(Consumer(stream).wait(), StreamInactivityTimeoutError)
        assert theirs.recv(1) == b""
        assert ours.fileno() >= 0
