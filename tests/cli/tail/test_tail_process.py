"""`streamguard tail` as a process: signals, pipes, terminals."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from streamguard.testing import Gateway

from ..runs import process

MakeGateway = Callable[..., Gateway]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals and terminals")

SECONDS = 30


def read_until(descriptor: int, wanted: bytes) -> bytes:
    """Read what a terminal shows until *wanted* is in it; pytest's own time limit ends a wait in vain."""
    seen = b""
    while wanted not in seen:
        seen += os.read(descriptor, 65536)
    return seen


def test_text_comes_as_it_is_sent(streamguard_gateway: MakeGateway) -> None:
    """The first word can be read while the server is still silent before the second."""
    gateway = streamguard_gateway("chat Hello\nstall")
    with process("tail", gateway.url) as tail:
        assert tail.stdout is not None
        assert os.read(tail.stdout.fileno(), 100) == b"Hello"
        assert gateway.requests[0].left is None


@pytest.mark.parametrize("script", ["stall", "headers\nstall", "chat a\nstall"])
def test_ctrl_c_ends_with_130(script: str, streamguard_gateway: MakeGateway) -> None:
    """Ctrl-C in any phase: exit code 130, one line instead of a traceback, and the server sees the client leave."""
    gateway = streamguard_gateway(script)
    with process("tail", gateway.url) as tail:
        gateway.wait_step("stall", timeout=SECONDS)
        tail.send_signal(signal.SIGINT)
        _, err = tail.communicate(timeout=SECONDS)
    assert tail.returncode == 130
    assert err.decode().splitlines()[-1].startswith("streamguard: interrupted in phase ")
    assert b"Traceback" not in err
    assert gateway.wait_left(1)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT])
def test_a_signal_ends_it_as_ctrl_c_does(number: signal.Signals, streamguard_gateway: MakeGateway, tmp_path: Path) -> None:
    """With its own code, the last line and the report."""
    gateway, file = streamguard_gateway("tick\nstall"), tmp_path / "report.json"
    with process("tail", gateway.url, "--report", str(file)) as tail:
        gateway.wait_step("stall", timeout=SECONDS)
        tail.send_signal(number)
        _, err = tail.communicate(timeout=SECONDS)
    assert tail.returncode == 128 + number
    assert err.decode().splitlines()[-1].startswith("streamguard: interrupted in phase ")
    assert json.loads(file.read_text())["exit_code"] == 128 + number
    assert gateway.wait_left(1)


@pytest.mark.parametrize("script", ["loop forever\ntick\nwait 0.01\nendloop", "tick\nstall"])
def test_a_closed_pipe_ends_quietly(script: str, streamguard_gateway: MakeGateway) -> None:
    """When nobody reads any more (`| head`) it ends without a word, even if the stream is silent by then."""
    gateway = streamguard_gateway(script)
    with process("tail", gateway.url) as tail:
        assert tail.stdout is not None
        assert tail.stderr is not None
        os.read(tail.stdout.fileno(), 1)
        tail.stdout.close()
        assert tail.wait(SECONDS) == 141
        assert tail.stderr.read() == b""
    assert gateway.wait_left(1)


def test_a_closed_pipe_of_both_outputs_ends_quietly(streamguard_gateway: MakeGateway) -> None:
    """`2>&1 | head` is the same, even when only messages are left to write."""
    gateway = streamguard_gateway("chat a\nwait 0.1\nreset")
    with process("tail", gateway.url, stderr=subprocess.STDOUT) as tail:
        assert tail.stdout is not None
        os.read(tail.stdout.fileno(), 1)
        tail.stdout.close()
        assert tail.wait(SECONDS) == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full")
def test_a_full_disk_is_said(streamguard_gateway: MakeGateway) -> None:
    """Output that cannot be written is exit code 1 and one sentence, and the stream is left."""
    gateway = streamguard_gateway("loop forever\ntick\nwait 0.01\nendloop")
    with open("/dev/full", "wb") as full, process("tail", gateway.url, stdout=full) as tail:
        _, err = tail.communicate(timeout=SECONDS)
    assert tail.returncode == 1
    assert err == b"Error: cannot write the output: No space left on device\n"
    assert gateway.wait_left(1)


def test_a_terminal_shows_where_the_stream_is(streamguard_gateway: MakeGateway) -> None:
    """On a terminal, stderr has a live line with phase, chunks, silence and time left; it is gone at the end."""
    gateway = streamguard_gateway("chat a\nstall")
    master, slave = os.openpty()
    try:
        with process("tail", gateway.url, "--idle", "1", stderr=slave) as tail:
            read_until(master, b"[idle] silent for 0.5 s, 0.5 s left, 1 chunk")
            rest = read_until(master, b" in all, id ")
            assert tail.wait(SECONDS) == 124
        assert b"\x1b[K\x1b8no further chunk for" in rest
    finally:
        os.close(master)
        os.close(slave)


def test_standard_error_may_be_closed(streamguard_gateway: MakeGateway) -> None:
    """The text arrives if nobody cares for standard error."""
    gateway = streamguard_gateway("chat a\ndone")
    with process("tail", gateway.url, stderr=subprocess.DEVNULL) as tail:
        out, _ = tail.communicate(timeout=SECONDS)
    assert (tail.returncode, out) == (0, b"a")
