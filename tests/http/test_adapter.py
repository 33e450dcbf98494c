"""The adapter: connections are reused, never after a cut, and for calls without a guard nothing is different."""

import contextvars
import copy
import logging
import pickle
import socket
import ssl
import subprocess
import sys
import threading
import weakref

import pytest
import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from streamguard._core.cancel import CancelToken
from streamguard._http import Adapter, CutError, SocketGuard, current_guard, drain, read_blocks

from .calls import Call, new_session
from .conftest import Serve
from .servers import Authority, Handler, Peer, Server, blackhole, frame, head, relay, tunnel

OK = head("length", length=2) + b"ok"


def answering(peer: Peer) -> None:
    """Answer every request of a connection."""
    while peer.read_request():
        peer.send(OK)


def slowly(server: Server, gate: threading.Event) -> None:
    """Have *server* send the head of its second response, and the body only when *gate* opens."""
    requests_seen = []

    def handler(peer: Peer) -> None:
        while peer.read_request():
            requests_seen.append(1)
            if len(requests_seen) == 2:
                peer.send(OK[:-2])
                server.stalled.set()
                gate.wait(10)
                peer.send(OK[-2:])
            else:
                peer.send(OK)

    server.handler = handler


@pytest.mark.parametrize("proxied", [False, True])
def test_a_connection_serves_one_call_after_the_other(
    serve: Serve, tls: ssl.SSLContext | None, authority: Authority, proxied: bool
) -> None:
    """Two calls with guards of their own, one connection, also through a proxy; the second is never in "connect"."""
    server = serve(answering, tls=tls)
    proxy = serve(tunnel(server)) if proxied and tls else None
    with new_session() as session:
        if proxy:
            session.proxies["https"] = proxy.url
        calls = []
        for _ in range(2):
            call = Call(server.url, session=session, verify=authority.bundle)
            call.join()
            assert call.error is None
            assert b"".join(call.blocks) == b"ok"
            calls.append(call)
    assert server.connections == 1
    assert calls[0].phases == ["connect", "response", "response", "headers"]
    assert calls[1].phases == ["response", "response", "headers"]


def test_a_late_cut_spares_the_next_user(serve: Serve, tls: ssl.SSLContext | None, authority: Authority) -> None:
    """A guard that is still alive when its connection serves somebody else does not hit that one."""
    gate = threading.Event()
    server = serve(answering, tls=tls)
    slowly(server, gate)
    with new_session() as session:
        guard = SocketGuard(CancelToken())
        context = contextvars.copy_context()
        context.run(current_guard.set, guard)
        first = context.run(session.get, server.url, verify=authority.bundle)
        assert first.content == b"ok"
        second = Call(server.url, session=session, verify=authority.bundle)
        assert server.stalled.wait(5)
        guard.cut()
        gate.set()
        second.join()
        guard.release()
    assert b"".join(second.blocks) == b"ok"
    assert server.connections == 1


def test_a_connection_that_was_cut_is_not_pooled(serve: Serve, tls: ssl.SSLContext | None, authority: Authority) -> None:
    """Even if its response came in whole before the cut was felt."""
    server = serve(answering, tls=tls)
    with new_session() as session:
        guard = SocketGuard(CancelToken())
        context = contextvars.copy_context()
        context.run(current_guard.set, guard)
        response = context.run(session.get, server.url, verify=authority.bundle, stream=True)
        assert response.raw.read(1) == b"o"
        connection = response.raw._connection
        guard.cut()
        assert response.raw.read(1) == b"k"
        assert b"".join(read_blocks(response)) == b""
        assert connection.sock is None
        guard.release()
        assert session.get(server.url, verify=authority.bundle).content == b"ok"
    assert server.connections == 2


def test_a_connection_forgets_the_guard_of_its_last_call(serve: Serve) -> None:
    """What waits in a pool keeps nothing of the call alive."""
    server = serve(answering)
    with new_session() as session:
        guard = SocketGuard(CancelToken())
        gone = weakref.ref(guard)
        context = contextvars.copy_context()
        context.run(current_guard.set, guard)
        assert context.run(session.get, server.url).content == b"ok"
        guard.release()
        del guard, context
        assert gone() is None


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_a_failed_connection_lets_the_server_go(serve: Serve, sent: bytes) -> None:
    """When requests gives a connection up, the guard's duplicate does not keep it open until the call ends."""

    def handler(peer: Peer) -> None:
        peer.read_request()
        peer.send(sent)
        server.stall(peer)

    server = serve(handler)
    with new_session() as session:
        guard = SocketGuard(CancelToken())
        context = contextvars.copy_context()
        context.run(current_guard.set, guard)
        with pytest.raises((requests.ConnectionError, requests.ReadTimeout)):
            context.run(session.get, server.url, timeout=0.1)
        assert server.left.wait(5)
        guard.release()


def test_leaving_a_response_lets_the_server_go(serve: Serve) -> None:
    """The same when the caller closes a `Connection: close` response early, whose connection http.client had closed."""

    def handler(peer: Peer) -> None:
        peer.read_request()
        peer.send(head("close") + b"data")
        server.stall(peer)

    server = serve(handler)
    with new_session() as session:
        guard = SocketGuard(CancelToken())
        context = contextvars.copy_context()
        context.run(current_guard.set, guard)
        response = context.run(session.get, server.url, stream=True)
        assert next(read_blocks(response)) == b"data"
        response.close()
        assert server.left.wait(5)
        guard.release()


def test_a_slot_of_a_blocking_pool_is_given_back_by_a_cut(serve: Serve) -> None:
    """After the cut of the only connection of a blocking pool, the pool still has its slot."""

    def handler(peer: Peer) -> None:
        while peer.read_request():
            if server.stalled.is_set():
                peer.send(OK)
            else:
                peer.send(head("chunked") + frame("chunked", b"data"))
                server.stall(peer)

    server = serve(handler)
    with new_session(pool_block=True, pool_maxsize=1) as session:
        call = Call(server.url, session=session)
        call.wait_block()
        call.cancel()
        after = Call(server.url, session=session)
        after.join()
        assert b"".join(after.blocks) == b"ok"


def test_retries_without_a_cut_work(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """A mounted Retry still does its work under a guard; each new connection is announced."""
    # A captured record of urllib3 keeps the error, with it the frames, and with them the pool and its connection.
    caplog.set_level(logging.CRITICAL, logger="urllib3")

    def flaky(peer: Peer) -> None:
        peer.read_request()
        if server.connections > 1:
            peer.send(OK)

    server = serve(flaky)
    with new_session(max_retries=Retry(total=2, allowed_methods=None)) as session:
        call = Call(server.url, session=session)
        call.join()
    assert b"".join(call.blocks) == b"ok"
    assert call.phases.count("connect") == 2


def test_a_guard_that_was_cut_uses_no_pooled_connection(serve: Serve) -> None:
    """The check comes before the request is sent."""
    server = serve(answering)
    with new_session() as session:
        assert session.get(server.url).content == b"ok"
        guard = SocketGuard(CancelToken())
        context = contextvars.copy_context()
        context.run(current_guard.set, guard)
        guard.cut()
        with pytest.raises(CutError):
            context.run(session.get, server.url)
        guard.release()


def test_the_next_user_never_feels_a_cut(serve: Serve, tls: ssl.SSLContext | None, authority: Authority) -> None:
    """A cut raced with the whole life of a call: whatever became of that call, the next one on its session succeeds."""
    server = serve(answering, tls=tls)
    outcomes = set()
    with new_session() as session:
        session.verify = authority.bundle
        for lap in range(200):
            guard = SocketGuard(CancelToken())
            cutter = threading.Timer(lap * 0.00002, guard.cut)
            context = contextvars.copy_context()
            context.run(current_guard.set, guard)
            cutter.start()
            try:
                context.run(session.get, server.url)
                outcomes.add("whole")
            except (CutError, requests.RequestException):
                outcomes.add("cut")
            assert session.get(server.url).content == b"ok"
            cutter.join(5)
            guard.release()
    assert outcomes == {"whole", "cut"}


def test_a_certificate_that_fails_is_an_error_of_tls(serve: Serve, authority: Authority) -> None:
    """Not a cut, and not a success."""
    server = serve(answering, tls=authority.server_side)
    call = Call(server.url)
    call.join()
    assert isinstance(call.error, requests.exceptions.SSLError)


def socks5(server: Server) -> Handler:
    """Return the handler of a SOCKS 5 proxy to *server* (RFC 1928, without authentication)."""

    def handler(peer: Peer) -> None:
        peer.sock.recv(262)
        peer.send(b"\x05\x00")
        peer.sock.recv(262)
        with socket.create_connection((server.host, server.port), timeout=10) as upstream:
            peer.send(b"\x05\x00\x00\x01" + b"\0" * 6)
            relay(peer.sock, upstream)

    return handler


def test_through_a_socks_proxy_the_body_is_cut(serve: Serve) -> None:
    """The one kind of connection that is not ours: its pools stay as they are."""
    pytest.importorskip("socks")

    def handler(peer: Peer) -> None:
        peer.read_request()
        peer.send(head("chunked") + frame("chunked", b"data"))
        server.stall(peer)

    server = serve(handler)
    proxy = serve(socks5(server))
    call = Call(server.url, foreign=True, proxies={"http": f"socks5://127.0.0.1:{proxy.port}"})
    call.wait_block()
    call.wait_blocked()
    assert call.cancel() < 1
    assert server.left.wait(5)
    assert call.blocks == [b"data"]
    assert call.phases == []


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize(
    ("url", "error", "cause"),
    [
        ("http://no-such-name.invalid/", requests.ConnectionError, urllib3.exceptions.NameResolutionError),
        ("http://127.0.0.1:1/", requests.ConnectionError, urllib3.exceptions.NewConnectionError),
        ("https://127.0.0.1:1/", requests.ConnectionError, urllib3.exceptions.NewConnectionError),
    ],
)
def test_failures_to_connect_are_those_of_urllib3(
    monkeypatch: pytest.MonkeyPatch,
    guarded: bool,
    url: str,
    error: type[Exception],
    cause: type[Exception],
) -> None:
    """With and without a guard the same error, with the same reason inside."""

    def resolve(host: str, *args: object) -> list[object]:
        if host.endswith(".invalid"):
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 1))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    guard = SocketGuard(CancelToken()) if guarded else None
    context = contextvars.copy_context()
    context.run(current_guard.set, guard)
    with new_session() as session, pytest.raises(error) as caught:
        context.run(session.get, url)
    assert isinstance(caught.value.args[0].reason, cause)
    if guard is not None:
        guard.release()


@pytest.mark.parametrize("label", ["a" * 64, "a..b"])
def test_a_host_that_is_no_name_is_refused_as_by_requests(label: str) -> None:
    """A label that is too long, or empty, is an invalid URL, not a failure to connect."""
    guard = SocketGuard(CancelToken())
    context = contextvars.copy_context()
    context.run(current_guard.set, guard)
    with new_session() as session, pytest.raises((requests.exceptions.InvalidURL, urllib3.exceptions.LocationParseError)):
        context.run(session.get, f"http://{label}.invalid/")
    guard.release()


def test_a_connect_timeout_is_that_of_requests() -> None:
    """The timeout given to requests still holds for the socket that we make."""
    with blackhole() as port:
        call = Call(f"http://127.0.0.1:{port}/", timeout=(0.1, 30))
        call.join()
    assert isinstance(call.error, requests.ConnectTimeout)


def test_source_address_and_socket_options_hold(serve: Serve) -> None:
    """What an adapter tells its pools about sockets is done to ours as well."""
    seen: list[str] = []

    def handler(peer: Peer) -> None:
        seen.append(peer.sock.getpeername()[0])
        answering(peer)

    class Bound(Adapter):
        def init_poolmanager(self, *args: object, **kwargs: object) -> None:
            options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
            super().init_poolmanager(*args, source_address=("127.0.0.2", 0), socket_options=options, **kwargs)

    server = serve(handler)
    guard = SocketGuard(CancelToken())
    context = contextvars.copy_context()
    context.run(current_guard.set, guard)
    with new_session() as session:
        session.mount("http://", Bound())
        response = context.run(session.get, server.url, stream=True)
        sock = response.raw._connection.sock
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert response.content == b"ok"
    guard.release()
    assert seen == ["127.0.0.2"]


def test_without_a_guard_it_is_an_httpadapter(serve: Serve, tls: ssl.SSLContext | None, authority: Authority) -> None:
    """No descriptor, no wrapper, no difference; also over TLS, pooled, and with its errors."""
    server = serve(answering, tls=tls)
    with new_session() as session:
        for _ in range(3):
            assert session.get(server.url, verify=authority.bundle).content == b"ok"
        if tls:
            with pytest.raises(requests.exceptions.SSLError):
                session.get(server.url)
    assert server.connections == (2 if tls else 1)


@pytest.mark.parametrize("again", [lambda adapter: pickle.loads(pickle.dumps(adapter)), copy.copy, copy.deepcopy])
def test_a_copy_can_be_cut_as_well(serve: Serve, again: type) -> None:
    """Adapters are pickled with their session; what comes back has our pools again, and its retries."""
    server = serve(lambda peer: server.stall(peer))
    with new_session() as session:
        adapter = again(Adapter(max_retries=3, pool_maxsize=7))
        assert adapter.max_retries.total == 3
        session.mount("http://", adapter)
        call = Call(server.url, session=session)
        assert server.stalled.wait(5)
        call.wait_blocked()
        assert call.cancel() < 1
        assert isinstance(call.error, CutError)


def test_the_defaults_are_those_of_requests() -> None:
    """No retry unless one is asked for."""
    assert Adapter().max_retries.total == HTTPAdapter().max_retries.total == 0


def test_a_full_pool_still_drops_what_is_too_much(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    """A connection that its pool has no room for is closed, and its guard is detached before."""
    server = serve(answering)
    with new_session(pool_maxsize=1) as session, caplog.at_level(logging.ERROR):
        guard = SocketGuard(CancelToken())
        context = contextvars.copy_context()
        context.run(current_guard.set, guard)
        both = [context.run(session.get, server.url, stream=True) for _ in range(2)]
        assert all(drain(response) for response in both)
        assert not guard._held
        guard.release()
    assert server.connections == 2


def test_a_receive_takes_more_than_http_client_would(serve: Serve) -> None:
    """Small chunks that wait in the kernel are handed over in blocks of up to 32 KiB, four times its buffer."""
    sent = threading.Event()
    event = b"data: " + b"x" * 257 + b"\n\n"

    def handler(peer: Peer) -> None:
        peer.read_request()
        peer.send(head("chunked"))
        peer.send(frame("chunked", event) * 300 + b"0\r\n\r\n")
        sent.set()

    server = serve(handler)
    with new_session() as session, session.get(server.url, stream=True) as response:
        assert sent.wait(5)
        blocks = list(read_blocks(response))
    assert b"".join(blocks) == event * 300
    assert 8192 < max(map(len, blocks)) <= 32768


GEVENT = """
import gevent.monkey
gevent.monkey.patch_all()
import socket, threading, time, requests
from streamguard._core.cancel import CancelToken
from streamguard._http import Adapter, SocketGuard, current_guard, read_blocks

listener = socket.create_server(("127.0.0.1", 0))
left = threading.Event()

def serve():
    peer, _ = listener.accept()
    peer.recv(65536)
    peer.sendall(b"HTTP/1.1 200 OK\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n4\\r\\ndata\\r\\n")
    while peer.recv(65536):
        pass
    left.set()

threading.Thread(target=serve, daemon=True).start()
token = CancelToken()
guard = SocketGuard(token)
session = requests.Session()
session.trust_env = False
session.mount("http://", Adapter())
blocks = []
arrived = threading.Event()

def call():
    current_guard.set(guard)
    response = session.get(f"http://127.0.0.1:{listener.getsockname()[1]}/", stream=True)
    try:
        for block in read_blocks(response):
            blocks.append(block)
            arrived.set()
    except Exception as exc:
        blocks.append(type(exc).__name__)
    response.close()

reader = threading.Thread(target=call, daemon=True)
reader.start()
assert arrived.wait(5)
time.sleep(0.1)
token.cancel()
reader.join(2)
assert not reader.is_alive()
assert left.wait(2)
assert blocks[0] == b"data", blocks
print("cut", guard.was_cut)
"""


def test_gevent() -> None:
    """In a process that gevent has patched, a greenlet that waits for its body is cut by another one."""
    pytest.importorskip("gevent")
    done = subprocess.run([sys.executable, "-c", GEVENT], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout) == (0, "cut True\n"), done.stderr
