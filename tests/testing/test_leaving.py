"""The server is the witness: when and how a client left is recorded, whatever the script was doing."""

import os
import socket
import ssl
from collections.abc import Callable

import pytest
import requests

from streamguard._core.clock import monotonic
from streamguard.testing import Gateway
from streamguard.testing.wire import FRAMINGS

from .rawclient import answer, ask, connect, leave_by_reset, read_until, send_request

Factory = Callable[..., Gateway]

SCRIPTS = {
    "stall": "event a\nstall",
    "wait": "event a\nwait 60",
    "linger": "done\nlinger",
    "drip": "drip 1 60 | abc",
    "drip-headers": "drip-headers 60",
    "raw": "loop forever\nraw " + "x" * 10_000 + "\nendloop",
}
LAST_BYTES = {
    "stall": b"data: a\n\n\r\n",
    "wait": b"data: a\n\n\r\n",
    "linger": b"data: [DONE]\n\n\r\n",
    "drip": b"1\r\na\r\n",
    "drip-headers": b"H",
}
TLS = pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
MIDST = pytest.mark.parametrize("verb", SCRIPTS)


def leave_by_close(sock: socket.socket) -> None:
    sock.close()


def leave_by_shutdown_of_a_dup(sock: socket.socket) -> None:
    """Do what streamguard does to a blocked reader's socket."""
    with socket.socket(fileno=os.dup(sock.fileno())) as twin:
        twin.shutdown(socket.SHUT_RDWR)


def leave_by_close_notify(sock: socket.socket) -> None:
    """Say goodbye in TLS, and close."""
    if isinstance(sock, ssl.SSLSocket):
        sock.settimeout(0)
        with pytest.raises(ssl.SSLWantReadError):
            sock.unwrap()
    sock.close()


@TLS
@MIDST
def test_a_reset_is_seen_in_the_midst_of_every_step(streamguard_gateway: Factory, tls: bool, verb: str) -> None:
    """An RST is recorded as one, with the verb that it interrupted, not at the end of the wait."""
    gateway = streamguard_gateway(SCRIPTS[verb], tls=tls)
    sock = ask(gateway)
    gateway.wait_step(verb)
    before = monotonic()
    leave_by_reset(sock)
    left = gateway.wait_left()
    assert (left.how, left.during) == ("reset", verb)
    assert before <= left.at <= monotonic()
    gateway.wait_connections(1, still_open=0)


@TLS
@pytest.mark.parametrize("verb", LAST_BYTES)
@pytest.mark.parametrize("leave", [leave_by_close, leave_by_shutdown_of_a_dup, leave_by_close_notify])
def test_a_fin_is_seen_in_the_midst_of_every_step(
    streamguard_gateway: Factory, tls: bool, verb: str, leave: Callable[[socket.socket], None]
) -> None:
    """A close or a shutdown is recorded as a FIN, with the verb that it interrupted, not at the end of the wait."""
    gateway = streamguard_gateway(SCRIPTS[verb], tls=tls)
    with ask(gateway) as sock:
        # Closed with bytes unread, a socket sends an RST.
        read_until(sock, LAST_BYTES[verb])
        gateway.wait_step(verb)
        before = monotonic()
        leave(sock)
        left = gateway.wait_left()
    assert (left.how, left.during) == ("fin", verb)
    assert before <= left.at <= monotonic()
    gateway.wait_connections(1, still_open=0)


@TLS
def test_a_shutdown_is_seen_while_the_server_is_blocked_in_a_send(streamguard_gateway: Factory, tls: bool) -> None:
    """A client that stopped reading and then shuts down is noticed although nothing more can be sent to it."""
    gateway = streamguard_gateway(SCRIPTS["raw"], tls=tls)
    with ask(gateway) as sock:
        gateway.wait_step("raw")
        leave_by_shutdown_of_a_dup(sock)
        assert gateway.wait_left().during == "raw"


def test_a_close_with_bytes_unread_is_a_reset(streamguard_gateway: Factory) -> None:
    """The kernel answers unread bytes with an RST: that is how such a client is recorded."""
    gateway = streamguard_gateway("event a\nstall")
    sock = ask(gateway)
    gateway.wait_step("stall")
    sock.recv(1)
    sock.close()
    assert gateway.wait_left().how == "reset"


@pytest.mark.parametrize("framing", FRAMINGS)
def test_leaving_after_a_complete_answer_is_idle(streamguard_gateway: Factory, framing: str) -> None:
    """Behind the end of an answer the server still waits for the client's FIN, in every framing."""
    gateway = streamguard_gateway("event a", framing=framing)
    answer(gateway, "GET / HTTP/1.1", "Connection: close")
    left = gateway.wait_left()
    assert (left.how, left.during) == ("fin", "idle")


def test_after_a_close_the_server_waits_for_the_clients_fin(streamguard_gateway: Factory) -> None:
    """A connection that only the server has closed counts as open until the client closes too."""
    gateway = streamguard_gateway("event a\nclose")
    with ask(gateway) as sock:
        while sock.recv(65536):
            pass
        assert gateway.open_connections == 1
        assert gateway.requests[0].left is None
    assert gateway.wait_left().how == "fin"
    gateway.wait_connections(1, still_open=0)


def test_a_kept_connection_is_reused_and_then_left(streamguard_gateway: Factory) -> None:
    """The next request on a connection marks the one before as reused; the FIN belongs to the last."""
    gateway = streamguard_gateway("event a")
    with connect(gateway) as sock:
        for _ in range(2):
            send_request(sock)
            read_until(sock, b"0\r\n\r\n")
    assert gateway.wait_left(2).how == "fin"
    first = gateway.wait_left(1)
    assert (first.how, first.during) == ("reused", "idle")
    assert first.at <= gateway.requests[1].at


def test_a_client_that_leaves_before_its_request_is_whole_is_no_request(streamguard_gateway: Factory) -> None:
    """Half a head, or half a body, is a connection that came and went."""
    gateway = streamguard_gateway("event a")
    for part in (b"GET / HTTP/1.1\r\nHo", b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf"):
        with connect(gateway) as sock:
            sock.sendall(part)
    gateway.wait_connections(2, still_open=0)
    assert gateway.requests == []


@TLS
def test_a_pipelined_request_waits_for_the_stall(streamguard_gateway: Factory, tls: bool) -> None:
    """Bytes sent ahead are kept for the next request, and do not hide the FIN after them."""
    gateway = streamguard_gateway("wait 50ms\nevent a", "event b\nstall", tls=tls)
    with connect(gateway) as sock:
        send_request(sock)
        send_request(sock, "GET /2 HTTP/1.1")
        gateway.wait_step("stall", request=1)
        send_request(sock, "GET /3 HTTP/1.1")
        read_until(sock, b"data: b\n\n\r\n")
    assert gateway.wait_left(2).how == "fin"
    assert [request.target for request in gateway.requests] == ["/", "/2"]


def test_a_flood_does_not_hide_the_leaving(streamguard_gateway: Factory) -> None:
    """A client that sends megabytes ahead is held back, and its leaving is seen where the system reports hang-ups."""
    select = pytest.importorskip("select")
    if not hasattr(select, "POLLRDHUP"):
        pytest.skip("this system reports no hang-up after unread bytes")
    gateway = streamguard_gateway("stall")
    sock = ask(gateway)
    sock.sendall(bytes(2_000_000))
    gateway.wait_step("stall")
    leave_by_reset(sock)
    assert gateway.wait_left().how == "reset"


def test_requests_leaving_its_response_is_seen(streamguard_gateway: Factory) -> None:
    """The usual client is seen as well: a response closed in the middle."""
    gateway = streamguard_gateway("event a\nstall")
    with requests.get(gateway.url, stream=True) as response:
        assert response.raw.read1(100) == b"data: a\n\n"
        gateway.wait_step("stall")
    assert gateway.wait_left().during == "stall"
