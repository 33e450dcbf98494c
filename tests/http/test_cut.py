"""A cut wakes the thread that makes the call, in whatever phase it is, and the server sees the client leave."""

import itertools
import os
import socket
import ssl
import threading

import pytest
import requests
from urllib3.util.retry import Retry

from streamguard._http import CutError, find_socket

from .calls import Call, new_session
from .conftest import Serve
from .servers import ENCODINGS, FRAMINGS, Authority, Peer, Server, blackhole, encoded, frame, head, tunnel

PROMPT = 1.0
"""Seconds within which a cut has to act: hundreds of times what it takes on an idle machine."""

EVENT = b'data: {"n": 1}\n\n'


def stalling(server: Server, *sent: bytes) -> None:
    """Have *server* answer each request with *sent*, and then with silence."""

    def handler(peer: Peer) -> None:
        peer.read_request()
        for data in sent:
            peer.send(data)
        server.stall(peer)

    server.handler = handler


def assert_cut(call: Call, server: Server | None = None) -> None:
    """Cut the blocked *call*: it ends at once, with CutError, and its server sees it leave."""
    call.wait_blocked()
    assert call.cancel() < PROMPT
    assert isinstance(call.error, CutError)
    if server is not None:
        assert server.left.wait(PROMPT)


def test_connect_is_cut() -> None:
    """A connect without an answer ends when the call is cancelled."""
    with blackhole() as port:
        call = Call(f"http://127.0.0.1:{port}/")
        assert call.wait_blocked() == "_dial_one"
        assert_cut(call)
        assert call.phases == ["connect"]


def test_connect_with_a_timeout_is_cut() -> None:
    """The same when requests has a connect timeout, so that the socket waits in another way."""
    with blackhole() as port:
        assert_cut(Call(f"http://127.0.0.1:{port}/", timeout=(30, 30)))


def test_tls_handshake_is_cut(serve: Serve) -> None:
    """A server that accepts and never answers the client hello."""
    server = serve(lambda peer: server.stall(peer))
    call = Call(f"https://127.0.0.1:{server.port}/")
    assert call.wait_blocked() == "do_handshake"
    assert_cut(call, server)
    assert call.phases == ["connect"]


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nX-Half"])
def test_connect_proxy_is_cut(serve: Serve, answer: bytes) -> None:
    """A proxy that does not answer CONNECT, or not to the end."""
    proxy = serve(lambda peer: None)
    stalling(proxy, answer)
    call = Call("https://localhost:9/", proxies={"https": f"http://127.0.0.1:{proxy.port}"})
    assert proxy.stalled.wait(5)
    assert_cut(call, proxy)
    assert call.phases == ["connect"]


def test_send_is_cut(serve: Serve, tls: ssl.SSLContext | None, authority: Authority) -> None:
    """A server that does not read the big body it is sent."""
    gone = threading.Event()
    server = serve(lambda peer: gone.wait(10), tls=tls)
    call = Call(server.url, method="POST", data=b"x" * 50_000_000, verify=authority.bundle)
    assert call.wait_blocked() in {"sendall", "send"}
    assert_cut(call)
    gone.set()
    assert call.phases == ["connect", "response"]


@pytest.mark.parametrize("sent", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nServer: x\r\nX-Half"])
def test_headers_are_cut(serve: Serve, tls: ssl.SSLContext | None, authority: Authority, sent: bytes) -> None:
    """Silence before or within the headers; a cut header block never passes for a complete response."""
    server = serve(lambda peer: None, tls=tls)
    stalling(server, sent)
    call = Call(server.url, verify=authority.bundle)
    assert server.stalled.wait(5)
    assert_cut(call, server)
    assert call.status is None
    assert call.phases == ["connect", "response", "response"]


def test_dripping_headers_are_cut(serve: Serve, tls: ssl.SSLContext | None, authority: Authority) -> None:
    """A header that grows for ever, one byte at a time, which no read timeout ever sees."""
    dripping, left = threading.Event(), threading.Event()

    def drip(peer: Peer) -> None:
        peer.read_request()
        peer.send(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        for count in itertools.count():
            try:
                peer.send(b"a")
            except OSError:
                left.set()
                return
            if count == 5:
                dripping.set()
            left.wait(0.02)

    server = serve(drip, tls=tls)
    call = Call(server.url, verify=authority.bundle, timeout=5)
    assert dripping.wait(5)
    assert call.cancel() < PROMPT
    assert isinstance(call.error, CutError)
    assert left.wait(PROMPT)


def test_the_body_of_a_redirect_is_cut(serve: Serve, tls: ssl.SSLContext | None, authority: Authority) -> None:
    """requests reads the body of a redirect before it follows: a stall there is cut, and nothing is followed."""
    server = serve(lambda peer: None, tls=tls)
    stalling(server, b"HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 10\r\n\r\nhalf")
    call = Call(server.url, verify=authority.bundle)
    assert server.stalled.wait(5)
    assert_cut(call, server)
    assert server.connections == 1


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("framing", FRAMINGS)
def test_the_body_is_cut(
    serve: Serve, tls: ssl.SSLContext | None, authority: Authority, framing: str, encoding: str
) -> None:
    """Silence after the first event, on every framing and encoding: the event was delivered, the call ends at once."""
    server = serve(lambda peer: None, tls=tls)
    (event,) = encoded(encoding, [EVENT])
    stalling(server, head(framing, encoding), frame(framing, event))
    call = Call(server.url, verify=authority.bundle)
    call.wait_block()
    call.wait_blocked()
    assert call.cancel() < PROMPT
    assert server.left.wait(PROMPT)
    assert b"".join(call.blocks) == EVENT
    assert call.guard.was_cut
    assert call.phases == ["connect", "response", "response", "headers"]


@pytest.mark.parametrize("proxy_tls", [False, True], ids=["http proxy", "https proxy"])
def test_the_body_is_cut_through_a_proxy(serve: Serve, authority: Authority, proxy_tls: bool) -> None:
    """Through CONNECT, also TLS in TLS, the origin sees the client leave."""
    server = serve(lambda peer: None, tls=authority.server_side)
    stalling(server, head("chunked"), frame("chunked", EVENT))
    proxy = serve(tunnel(server), tls=authority.server_side if proxy_tls else None)
    call = Call(server.url, verify=authority.bundle, proxies={"https": proxy.url})
    call.wait_block()
    call.wait_blocked()
    assert call.cancel() < PROMPT
    assert server.left.wait(PROMPT)
    assert call.blocks == [EVENT]


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_plain_session_is_cut_in_its_body(
    serve: Serve, tls: ssl.SSLContext | None, authority: Authority, framing: str
) -> None:
    """A session without our adapter: the socket is found in the response, also after `Connection: close`."""
    server = serve(lambda peer: None, tls=tls)
    stalling(server, head(framing), frame(framing, EVENT))
    with requests.Session() as session:
        call = Call(server.url, session=session, foreign=True, verify=authority.bundle)
        call.wait_block()
        call.wait_blocked()
        assert call.cancel() < PROMPT
        assert server.left.wait(PROMPT)
    assert call.blocks == [EVENT]
    assert call.phases == []


def test_retry_does_not_swallow_the_cut(serve: Serve) -> None:
    """A mounted Retry that would try again, after a long sleep, hears an error that it does not know."""
    server = serve(lambda peer: None)
    stalling(server)
    retry = Retry(total=5, backoff_factor=10, allowed_methods=None)
    with new_session(max_retries=retry) as session:
        call = Call(server.url, session=session, timeout=(30, 30))
        assert server.stalled.wait(5)
        assert_cut(call, server)
    assert server.connections == 1


def test_a_default_timeout_of_the_process_changes_nothing(serve: Serve) -> None:
    """Under `socket.setdefaulttimeout` a call without timeout still waits as long as it takes, and is cut as ever."""
    socket.setdefaulttimeout(0.2)
    try:
        server = serve(lambda peer: None)
        stalling(server, head("chunked"), frame("chunked", EVENT))
        call = Call(server.url)
        call.wait_block()
        call.thread.join(0.5)
        assert call.thread.is_alive(), call.error
        assert call.cancel() < PROMPT
        assert server.left.wait(PROMPT)
        with blackhole() as port:
            assert_cut(Call(f"http://127.0.0.1:{port}/"))
    finally:
        socket.setdefaulttimeout(None)


def test_ipv6(serve: Serve) -> None:
    """The same over the other family, with its brackets in the URL."""
    try:
        server = serve(lambda peer: None, host="::1")
    except OSError:
        pytest.skip("no IPv6 loopback here")
    stalling(server, head("chunked"), frame("chunked", EVENT))
    call = Call(server.url)
    call.wait_block()
    call.wait_blocked()
    assert call.cancel() < PROMPT
    assert server.left.wait(PROMPT)


def test_a_call_that_was_cut_before_it_connects_connects_to_nothing(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that resolves only after the cut: no connection is opened any more."""
    resolving, cut = threading.Event(), threading.Event()
    resolve = socket.getaddrinfo

    def slow(*args: object, **kwargs: object) -> object:
        resolving.set()
        cut.wait(5)
        return resolve(*args, **kwargs)  # type: ignore[arg-type]

    server = serve(lambda peer: server.stall(peer))
    monkeypatch.setattr(socket, "getaddrinfo", slow)
    call = Call(server.url)
    assert resolving.wait(5)
    call.token.cancel()
    cut.set()
    call.join()
    assert isinstance(call.error, CutError)
    assert server.connections == 0


def test_each_address_is_tried_and_can_be_cut(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name with a dead address first: the next one is tried, and the connection is cut like any other."""
    server = serve(lambda peer: None)
    stalling(server, head("chunked"), frame("chunked", EVENT))
    with socket.create_server(("127.0.0.1", 0)) as unused:
        dead = unused.getsockname()
    addresses = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in (dead, ("127.0.0.1", server.port))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: addresses)
    call = Call("http://two-addresses.invalid/")
    call.wait_block()
    call.wait_blocked()
    assert call.cancel() < PROMPT
    assert server.left.wait(PROMPT)


def test_no_descriptor_is_left(serve: Serve, tls: ssl.SSLContext | None, authority: Authority) -> None:
    """Twenty cuts later this process has as many descriptors as before."""
    server = serve(lambda peer: None, tls=tls)
    stalling(server, head("close"), EVENT)
    before = None
    for _ in range(20):
        call = Call(server.url, verify=authority.bundle)
        call.wait_block()
        call.cancel()
        if before is None:
            before = _count_client_descriptors(server)
    assert before is not None
    assert _count_client_descriptors(server) <= before


def _count_client_descriptors(server: Server) -> int:
    assert server.left.wait(5)
    server.left.clear()
    for thread in server._threads[1:]:
        thread.join(5)
    return len(os.listdir("/proc/self/fd"))


def test_the_socket_of_a_response_without_one_is_none() -> None:
    """A response without a socket."""
    assert find_socket(requests.Response()) is None
