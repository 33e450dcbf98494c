"""The guard: which sockets are cut, which never, and that no descriptor of its own is left."""

import contextlib
import contextvars
import gc
import os
import signal
import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from unittest import mock

import pytest
import requests
import responses

from streamguard._core.cancel import CancelToken
from streamguard._http import CutError, SocketGuard, attach_response, current_guard, find_socket, read_blocks, sockets

from .calls import new_session
from .conftest import Serve
from .servers import Peer, frame, head

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two sockets that are connected with each other."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(5)
        yield ours, theirs


@pytest.fixture
def guard() -> Iterator[SocketGuard]:
    """A guard under a token of its own."""
    guard = SocketGuard(CancelToken())
    yield guard
    guard.release()


def is_alive(pair: Pair) -> bool:
    """Tell whether a byte still goes through, and not merely whether both ends are open."""
    ours, theirs = pair
    try:
        ours.send(b"x")
    except OSError:
        return False
    return theirs.recv(1) == b"x"


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_cut_shuts_down_what_is_attached(guard: SocketGuard, pair: Pair) -> None:
    """The other end reads the end of the stream; our own socket object stays open, for its own thread to close."""
    guard.attach("key", pair[0])
    guard.cut()
    assert pair[1].recv(1) == b""
    assert pair[0].fileno() >= 0
    assert guard.was_cut


def test_cancelling_the_token_cuts(pair: Pair) -> None:
    """The guard registers itself with the token of its call."""
    token = CancelToken()
    guard = SocketGuard(token)
    guard.attach("key", pair[0])
    assert token.cancel()
    assert not is_alive(pair)
    guard.release()


def test_a_token_that_is_cancelled_already_cuts_at_once() -> None:
    """Nothing can be attached to a call that was over before it began."""
    token = CancelToken()
    token.cancel()
    guard = SocketGuard(token)
    with pytest.raises(CutError):
        guard.check()


def test_attach_after_the_cut_raises(guard: SocketGuard, pair: Pair) -> None:
    """And takes no descriptor."""
    guard.cut()
    before = descriptors()
    with pytest.raises(CutError):
        guard.attach("key", pair[0])
    assert descriptors() == before


def test_cut_error_is_no_oserror() -> None:
    """urllib3's Retry swallows every OSError, every HTTPException and every HTTPError of its own."""
    assert CutError.__bases__ == (Exception,)


def test_detach_saves_from_a_later_cut(guard: SocketGuard, pair: Pair) -> None:
    """A detached socket is not cut."""
    guard.attach("key", pair[0])
    assert guard.detach("key")
    guard.cut()
    assert is_alive(pair)


def test_detach_tells_of_an_earlier_cut(guard: SocketGuard, pair: Pair) -> None:
    """So that the pool closes the connection instead of keeping it."""
    guard.attach("key", pair[0])
    guard.cut()
    assert not guard.detach("key")


def test_attaching_again_replaces(guard: SocketGuard, pair: Pair) -> None:
    """One key holds one descriptor, that of the last socket."""
    with socket.socket() as other:
        before = descriptors()
        guard.attach("key", other)
        guard.attach("key", pair[0])
        assert descriptors() == before + 1
    guard.cut()
    assert not is_alive(pair)


def test_every_socket_of_the_call_is_cut(guard: SocketGuard, pair: Pair) -> None:
    """A call may hold several connections: a redirect to another host, threads of its own."""
    other = socket.socketpair()
    with other[0], other[1]:
        guard.attach("one", pair[0])
        guard.attach("two", other[0])
        guard.cut()
        assert not is_alive(pair)
        assert not is_alive(other)


def test_release_closes_and_forgets(pair: Pair) -> None:
    """After the call neither its token nor a late attach or detach does anything."""
    token = CancelToken()
    guard = SocketGuard(token)
    before = descriptors()
    guard.attach("key", pair[0])
    guard.release()
    guard.release()
    assert descriptors() == before
    guard.attach("key", pair[0])
    assert descriptors() == before
    assert guard.detach("key")
    token.cancel()
    assert not guard.was_cut
    assert is_alive(pair)


def test_a_released_guard_that_was_cut_stays_cut(guard: SocketGuard, pair: Pair) -> None:
    """A thread that was abandoned in a DNS lookup must not connect afterwards."""
    guard.cut()
    guard.release()
    with pytest.raises(CutError):
        guard.attach("key", pair[0])
    assert not guard.detach("key")


def test_a_dropped_guard_leaves_no_descriptor(pair: Pair) -> None:
    """Nor does the token keep it alive."""
    token = CancelToken()
    before = descriptors()
    guard = SocketGuard(token)
    guard.attach("key", pair[0])
    assert descriptors() == before + 1
    del guard
    assert descriptors() == before
    token.cancel()
    assert is_alive(pair)


def test_phases_end_with_the_cut(pair: Pair) -> None:
    """The owner hears phases while the call goes on, and none that only its fall brings about."""
    phases: list[str] = []
    guard = SocketGuard(CancelToken(), phases.append)
    guard.phase("connect")
    guard.cut()
    guard.phase("response")
    guard.release()
    guard.phase("headers")
    assert phases == ["connect"]


def test_something_that_is_no_socket_is_only_closed(guard: SocketGuard) -> None:
    """A cut never fails on what it holds."""
    with open(os.devnull) as file:
        before = descriptors()
        guard.attach("key", file)
        guard.cut()
        assert descriptors() == before
        assert not file.closed


def in_a_child(act: Callable[[], object]) -> int:
    """Run *act* in a forked child and return its exit code; 1 if it raised, -SIGALRM if it hung."""
    child = os.fork()
    if child == 0:
        signal.alarm(5)
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_cuts_nothing_of_its_parent(guard: SocketGuard, pair: Pair) -> None:
    """A shutdown in the child would end the parent's stream: both have the same connection."""

    def act() -> None:
        guard.cut()
        assert guard.was_cut
        assert not guard.detach("key")
        guard.release()

    guard.attach("key", pair[0])
    assert in_a_child(act) == 0
    assert is_alive(pair)
    guard.cut()
    assert not is_alive(pair)


def test_a_forked_child_never_waits_for_a_lock_of_the_parent(guard: SocketGuard, pair: Pair) -> None:
    """Another thread may have held the lock during the fork: no thread of the child releases it."""
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with guard._lock:
            held.set()
            done.wait(10)

    def act() -> None:
        guard.attach("new", pair[0])
        guard.detach("key")
        guard.cut()
        guard.release()

    guard.attach("key", pair[0])
    holder = threading.Thread(target=hold)
    holder.start()
    held.wait(5)
    code = in_a_child(act)
    done.set()
    holder.join(5)
    assert code == 0


def cutting_at(step: int, guard: SocketGuard, act: Callable[[], Any]) -> tuple[Any, bool]:
    """Run *act* with a cut before its *step*-th bytecode in the guard's module, as a signal handler would come in.

    Returns what *act* returned (or the CutError it raised) and whether the cut came.
    """
    seen = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal seen
        if frame.f_code.co_filename != sockets.__file__ or guard.was_cut:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == step:
                guard.cut()
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        result = act()
    except CutError as exc:
        result = exc
    finally:
        sys.settrace(before)
    return result, guard.was_cut


def test_a_signal_at_any_bytecode_of_attach() -> None:
    """A handler that cuts within attach: the call hears of it, its socket is shut down, no descriptor is left."""
    for step in range(1, 1000):
        pair = socket.socketpair()
        with pair[0], pair[1]:
            before = descriptors()
            guard = SocketGuard(CancelToken())
            guard.attach("key", pair[1])
            result, was_cut = cutting_at(step, guard, lambda: guard.attach("key", pair[0]))  # noqa: B023
            if not was_cut:
                break
            if not isinstance(result, CutError):
                # Only past the last check: then the socket was held, and is shut.
                assert not is_alive(pair)
            assert not guard._held
            assert descriptors() == before
    assert step > 30
    guard.release()


def test_a_signal_at_any_bytecode_of_detach() -> None:
    """A handler that cuts within detach: if the connection is to be kept, it was not cut."""
    kept = 0
    for step in range(1, 1000):
        pair = socket.socketpair()
        with pair[0], pair[1]:
            before = descriptors()
            guard = SocketGuard(CancelToken())
            guard.attach("key", pair[0])
            result, was_cut = cutting_at(step, guard, lambda: guard.detach("key"))  # noqa: B023
            if result:
                kept += 1
                assert is_alive(pair)
            assert descriptors() == before
            if not was_cut:
                break
    assert step > 20
    assert kept >= 1


def attach_and_detach_without_pause(guard: SocketGuard, sock: socket.socket) -> None:
    while True:
        guard.attach("key", sock)
        guard.detach("key")


def test_a_signal_handler_cuts_its_own_thread(guard: SocketGuard, pair: Pair) -> None:
    """The real thing: SIGALRM in the thread that attaches and detaches without pause."""
    before = signal.signal(signal.SIGALRM, lambda *args: guard.cut())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        with pytest.raises(CutError):
            attach_and_detach_without_pause(guard, pair[0])
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not guard._held


def race(guard: SocketGuard, pair: Pair) -> bool:
    """Attach and detach while another thread cuts; return the result of detach, False if attach raised."""
    barrier = threading.Barrier(2)

    def cut() -> None:
        barrier.wait(5)
        guard.cut()

    cutter = threading.Thread(target=cut)
    cutter.start()
    barrier.wait(5)
    kept = False
    with contextlib.suppress(CutError):
        guard.attach("key", pair[0])
        kept = guard.detach("key")
    cutter.join(5)
    return kept


def test_a_connection_that_may_be_kept_was_never_cut() -> None:
    """Attach and detach raced with a cut in another thread, some hundred times."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    before = descriptors()
    try:
        for _ in range(400):
            pair = socket.socketpair()
            with pair[0], pair[1]:
                assert race(SocketGuard(CancelToken()), pair) is False or is_alive(pair)
    finally:
        sys.setswitchinterval(interval)
    assert descriptors() == before


@responses.activate
def test_a_mock_has_no_socket() -> None:
    """`responses` gives bodies that come from memory: nothing to cut, and nothing breaks."""
    responses.get("http://mocked.invalid/", body=b"data: 1\n\n")
    response = new_session().get("http://mocked.invalid/", stream=True)
    assert find_socket(response) is None
    guard = SocketGuard(CancelToken())
    assert not attach_response(guard, response)
    assert b"".join(read_blocks(response)) == b"data: 1\n\n"
    guard.release()


def test_a_magic_mock_has_no_socket() -> None:
    """A mock that has every attribute, and answers each with another mock."""
    assert find_socket(mock.MagicMock()) is None


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_find_socket(serve: Serve, framing: str) -> None:
    """On the connection, then on the file of the body; None after the end of the body."""

    def answer(peer: Peer) -> None:
        peer.read_request()
        peer.send(head(framing) + frame(framing, b"data") + (b"0\r\n\r\n" if framing == "chunked" else b""))

    server = serve(answer)
    with requests.Session() as session:
        response = session.get(server.url, stream=True)
        sock = find_socket(response)
        assert sock is not None
        assert sock.getpeername()[1] == server.port
        assert b"".join(read_blocks(response)) == b"data"
        assert find_socket(response) is None


def test_a_response_of_our_adapter_is_attached_already(serve: Serve) -> None:
    """No second descriptor is taken for it."""

    def answer(peer: Peer) -> None:
        peer.read_request()
        peer.send(head("length", length=2) + b"ok")

    server = serve(answer)
    guard = SocketGuard(CancelToken())
    context = contextvars.copy_context()
    context.run(current_guard.set, guard)
    with new_session() as session, context.run(session.get, server.url, stream=True) as response:
        assert len(guard._held) == 1
        assert attach_response(guard, response)
        assert len(guard._held) == 1
    guard.release()


def test_a_late_cut_spares_the_pooled_connection_of_a_plain_session(serve: Serve) -> None:
    """A foreign response is detached before its connection goes back to the pool; the session stays as it was."""

    def answer(peer: Peer) -> None:
        while peer.read_request():
            peer.send(head("length", length=2) + b"ok")

    server = serve(answer)
    with requests.Session() as session:
        guard = SocketGuard(CancelToken())
        response = session.get(server.url, stream=True)
        assert attach_response(guard, response)
        assert b"".join(read_blocks(response)) == b"ok"
        guard.cut()
        assert session.get(server.url).content == b"ok"
        guard.release()
    assert server.connections == 1


def test_a_foreign_response_that_was_cut_is_not_pooled(serve: Serve) -> None:
    """Its body ended whole, for it had arrived; but its connection is dead, and is not handed to the next user."""

    def answer(peer: Peer) -> None:
        while peer.read_request():
            peer.send(head("length", length=2) + b"ok")

    server = serve(answer)
    with requests.Session() as session:
        guard = SocketGuard(CancelToken())
        response = session.get(server.url, stream=True)
        attach_response(guard, response)
        assert response.raw.read(1) == b"o"
        connection = response.raw._connection
        guard.cut()
        assert response.raw.read(1) == b"k"
        assert b"".join(read_blocks(response)) == b""
        assert connection.sock is None
        guard.release()


def test_an_attached_response_is_freed_without_the_collector(serve: Serve) -> None:
    """A foreign response that is dropped is gone at once: the wrapped `release_conn` makes no cycle."""

    def answer(peer: Peer) -> None:
        peer.read_request()
        peer.send(head("chunked") + frame("chunked", b"data"))
        server.stall(peer)

    server = serve(answer)
    gc.collect()
    gc.disable()
    try:
        guard = SocketGuard(CancelToken())
        with requests.Session() as session:
            response = session.get(server.url, stream=True)
            attach_response(guard, response)
            raw = weakref.ref(response.raw)
            response.close()
            del response
            assert raw() is None
        guard.release()
    finally:
        gc.enable()
    assert server.left.wait(5)
