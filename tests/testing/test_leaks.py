"""The leak check: it finds what remains, waits for what is ending, and ignores what was there before."""

import os
import socket
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from streamguard.testing import LeakCheck, no_leaks

ON_LINUX = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors cannot be listed here")


@contextmanager
def waiting_thread(name: str) -> Iterator[threading.Event]:
    release = threading.Event()
    thread = threading.Thread(target=release.wait, name=name, daemon=True)
    thread.start()
    yield release
    release.set()
    thread.join(5)


def test_nothing_left_is_no_leak() -> None:
    """A block that tidies up passes."""
    with no_leaks(settle=0), socket.socket(), waiting_thread("tidy"):
        pass


def test_a_leaked_thread_is_named_with_its_stack() -> None:
    """A thread that is still there is reported by its name and by the code that it is in."""
    with waiting_thread("parent") as release:
        thread = threading.Thread(target=release.wait, name="leaked-thread", daemon=True)
        with pytest.raises(AssertionError, match="left behind: 1") as caught, no_leaks(settle=0.05):
            thread.start()
    thread.join(5)
    assert "thread 'leaked-thread' (daemon) is at" in str(caught.value)
    assert "in wait" in str(caught.value)


@ON_LINUX
def test_a_leaked_socket_is_named_with_both_ends() -> None:
    """A descriptor that is still open is reported by its number, its kind, and where it leads."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = server.getsockname()
        with pytest.raises(AssertionError, match="left behind: 1") as caught, no_leaks(settle=0.05):
            leaked = socket.create_connection(name)
        number, own_name = leaked.fileno(), leaked.getsockname()
        leaked.close()
    assert f"descriptor {number}: socket:[" in str(caught.value)
    assert f"{own_name} -> {name}" in str(caught.value)


@ON_LINUX
def test_a_leaked_pipe_and_a_leaked_listener_are_named() -> None:
    """A socket without a connection, and another descriptor, are described as far as possible."""
    check = LeakCheck()
    ends = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        leftovers = "\n".join(check.leftovers())
        assert f"descriptor {listener.fileno()}: socket:[" in leftovers
        assert "-> not connected" in leftovers
        assert leftovers.count("pipe:[") == 2
    for end in ends:
        os.close(end)
    check.check(settle=0)


def test_what_was_there_before_does_not_count() -> None:
    """Threads and descriptors older than the check are not leaks."""
    with waiting_thread("older"), socket.socket(), no_leaks(settle=0):
        pass


def test_what_is_going_is_waited_for() -> None:
    """A thread that ends within the time to settle passes."""
    with no_leaks(settle=5):
        thread = threading.Thread(target=threading.Event().wait, args=(0.1,), daemon=True)
        thread.start()
    assert not thread.is_alive()


@ON_LINUX
def test_what_only_the_collector_frees_is_no_leak() -> None:
    """A descriptor held by a reference cycle is collected before it is called a leftover."""

    class Holder:
        def __init__(self) -> None:
            self.myself = self
            self.descriptor = os.open(os.curdir, os.O_RDONLY)
            weakref.finalize(self, os.close, self.descriptor)

    with no_leaks(settle=0):
        Holder()


def test_the_error_of_the_block_is_not_replaced() -> None:
    """A block that raises keeps its own error, whatever it left."""
    with socket.socket() as sock:
        leaked: list[socket.socket] = []

        def leak_and_fail() -> None:
            leaked.append(sock.dup())
            raise KeyError

        with pytest.raises(KeyError), no_leaks(settle=0):
            leak_and_fail()
        leaked[0].close()


def test_threads_can_be_ignored_by_the_beginning_of_their_name() -> None:
    """Threads of a known tool do not count."""
    check = LeakCheck(ignore=["my-tool-"])
    with waiting_thread("my-tool-7"), waiting_thread("pytest_timeout some::test"):
        assert check.leftovers() == []


def test_without_proc_only_threads_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where descriptors cannot be listed the check still works for threads."""
    monkeypatch.setattr("streamguard.testing.leaks._DESCRIPTORS", "/nowhere")
    check = LeakCheck()
    with socket.socket(), waiting_thread("seen"):
        (leftover,) = check.leftovers()
    assert "'seen'" in leftover
