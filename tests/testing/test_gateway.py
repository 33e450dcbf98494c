"""The scripted gateway: what a client reads is what the script says, when it says so."""

import http.client
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import freezegun
import pytest
import requests

from streamguard._core.clock import monotonic
from streamguard.errors import UsageError
from streamguard.testing import Gateway, no_leaks
from streamguard.testing.wire import ENCODINGS, FRAMINGS

from .rawclient import answer, answered_body, ask, connect, read_to_end, read_until, send_request

Factory = Callable[..., Gateway]
CLOSE = "Connection: close"
GET = "GET / HTTP/1.1"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_requests_reads_every_framing_and_encoding(
    streamguard_gateway: Factory, tls: bool, framing: str, encoding: str | None
) -> None:
    """An ordinary client gets the scripted body, plain and by TLS, twice, on one connection where it may be kept."""
    gateway = streamguard_gateway("event one\nraw t\\u00e4wo\ntick\ndone", tls=tls, framing=framing, encoding=encoding)
    with requests.Session() as session:
        bodies = [session.get(gateway.url, verify=gateway.ca if tls else True).content for _ in range(2)]
    assert bodies[0] == bodies[1]
    assert bodies[0].startswith("data: one\n\ntäwo".encode())
    assert bodies[0].endswith(b"data: [DONE]\n\n")
    assert gateway.connections == (1 if framing in ("chunked", "length") else 2)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("encoding", [None, "gzip", "gzip-members", "deflate"])
def test_the_first_event_is_readable_before_the_second_is_sent(
    streamguard_gateway: Factory, tls: bool, framing: str, encoding: str | None
) -> None:
    """The server streams: while it stalls, all that it sent before can be read, decoded (field report B097)."""
    options = {"length": 1000} if framing == "length" else {}
    gateway = streamguard_gateway("event one\nstall", tls=tls, framing=framing, encoding=encoding, **options)
    with requests.get(gateway.url, stream=True, verify=gateway.ca if tls else True, timeout=5) as response:
        assert response.raw.read1(100, decode_content=True) == b"data: one\n\n"
        gateway.wait_step("stall")
        assert [step.verb for _, step in gateway.requests[0].sent] == ["event"]


def test_a_chunked_answer_byte_by_byte(streamguard_gateway: Factory) -> None:
    """Headers come first, each body step is one chunk, and the empty chunk ends it."""
    gateway = streamguard_gateway("event a\ncomment b")
    assert answer(gateway, GET, CLOSE) == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        b"9\r\ndata: a\n\n\r\n5\r\n: b\n\n\r\n0\r\n\r\n"
    )


def test_an_answer_of_http_1_0(streamguard_gateway: Factory) -> None:
    """The framing http10 has an HTTP/1.0 status line, no length, and a FIN at the end."""
    gateway = streamguard_gateway("event a", framing="http10")
    assert answer(gateway) == b"HTTP/1.0 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: a\n\n"


def test_status_reason_and_headers(streamguard_gateway: Factory) -> None:
    """A header line decides the status, the reason and each header."""
    gateway = streamguard_gateway("headers 429 Not now retry-after: 3; content-type: text/plain\nraw no")
    response = requests.get(gateway.url)
    assert (response.status_code, response.reason, response.text) == (429, "Not now", "no")
    assert (response.headers["retry-after"], response.headers["content-type"]) == ("3", "text/plain")


def test_headers_alone_can_be_read_before_any_body(streamguard_gateway: Factory) -> None:
    """A header block goes out by itself: the client has it while the server is silent."""
    gateway = streamguard_gateway("headers\nstall")
    with requests.get(gateway.url, stream=True, timeout=5) as response:
        assert response.status_code == 200


def test_a_content_type_can_be_left_out(streamguard_gateway: Factory) -> None:
    """An empty value drops the default header."""
    gateway = streamguard_gateway("headers content-type:\nevent a")
    assert "content-type" not in requests.get(gateway.url).headers


def test_an_interim_response_precedes_the_real_one(streamguard_gateway: Factory) -> None:
    """A 1xx header line sends its own block, and the answer follows."""
    gateway = streamguard_gateway("headers 103 link: x\nevent a", framing="close")
    assert answer(gateway).startswith(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\n")


@pytest.mark.parametrize("text", ['{"error": {"message": "no"}}', "<html>no</html>"])
def test_a_whole_body_announces_its_length(streamguard_gateway: Factory, text: str) -> None:
    """A body line has a Content-Length and the type of its looks, and the connection can be kept."""
    gateway = streamguard_gateway(f"headers 401\nbody {text}")
    with requests.Session() as session:
        responses = [session.get(gateway.url) for _ in range(2)]
    assert {response.text for response in responses} == {text}
    assert responses[0].headers["content-length"] == str(len(text))
    expected = "application/json" if text.startswith("{") else "text/plain; charset=utf-8"
    assert responses[0].headers["content-type"] == expected
    assert gateway.connections == 1


def test_a_length_that_lies(streamguard_gateway: Factory) -> None:
    """length= announces what is never sent; a close then leaves the body short (RFC 9112, section 8)."""
    gateway = streamguard_gateway("event a\nclose", framing="length", length=500)
    with pytest.raises(requests.exceptions.ChunkedEncodingError, match="9 bytes read, 491 more expected"):
        _ = requests.get(gateway.url).content


def test_no_body_where_http_allows_none(streamguard_gateway: Factory) -> None:
    """A HEAD request, a 204 and a 304 get headers only, so that the next answer on the connection is in step."""
    gateway = streamguard_gateway("event a", "headers 204\nevent a", "headers 304\nevent a", "event last")
    with requests.Session() as session:
        for method in ("HEAD", "GET", "GET"):
            assert session.request(method, gateway.url).content == b""
        assert session.get(gateway.url).content == b"data: last\n\n"
    assert gateway.connections == 1


def test_silence_is_not_shorter_than_the_script_says(streamguard_gateway: Factory) -> None:
    """A wait lasts for its time, and the step times on the server say so."""
    gateway = streamguard_gateway("event a\nwait 0.1\nevent b", framing="close")
    assert answered_body(gateway) == b"data: a\n\ndata: b\n\n"
    first, _, second = (at for at, _ in gateway.requests[0].sent)
    assert second - first >= 0.1


@freezegun.freeze_time("2001-01-01")
def test_a_frozen_clock_stops_nothing(streamguard_tls_gateway: Factory) -> None:
    """Under freezegun a wait still ends, and not before its time, on the real clock."""
    gateway = streamguard_tls_gateway("event a\nwait 0.1\nevent b", framing="close")
    before = monotonic()
    assert answered_body(gateway) == b"data: a\n\ndata: b\n\n"
    assert monotonic() - before >= 0.1


def test_a_drip_comes_piece_by_piece(streamguard_gateway: Factory) -> None:
    """A drip is sent so many bytes at a time, each its own chunk, with pauses between."""
    gateway = streamguard_gateway("drip 2 20ms | data\\n")
    started = monotonic()
    assert answered_body(gateway, GET, CLOSE) == b"2\r\nda\r\n2\r\nta\r\n1\r\n\n\r\n0\r\n\r\n"
    assert monotonic() - started >= 0.04


def test_a_header_block_drips(streamguard_gateway: Factory) -> None:
    """A dripped header block is whole in the end, and takes a pause for each byte but the first."""
    gateway = streamguard_gateway("drip-headers 1ms 503 x: y\nraw no", framing="close")
    started = monotonic()
    received = answer(gateway)
    assert received.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert monotonic() - started >= 0.001 * (received.index(b"\r\n\r\n") + 3)


def test_loops_and_ticks(streamguard_gateway: Factory) -> None:
    """A tick counts on through a loop."""
    gateway = streamguard_gateway("loop 3\ntick\nendloop", framing="close")
    frames = answered_body(gateway).split(b"\n\n")[:-1]
    texts = [json.loads(frame.removeprefix(b"data: "))["choices"][0]["delta"]["content"] for frame in frames]
    assert texts == ["1 ", "2 ", "3 "]


def test_an_endless_loop_lasts_until_the_client_leaves(streamguard_gateway: Factory) -> None:
    """An endless loop ends without an error when the client has left."""
    gateway = streamguard_gateway("loop forever\ntick\nendloop")
    with ask(gateway):
        gateway.wait_step("tick", nth=100)
    assert gateway.wait_left().during == "tick"
    gateway.wait_connections(1, still_open=0)


def test_close_breaks_the_framing(streamguard_gateway: Factory) -> None:
    """close is a FIN in the middle: no empty chunk, and over TLS no close_notify."""
    gateway = streamguard_gateway("event a\nclose")
    assert answered_body(gateway) == b"9\r\ndata: a\n\n\r\n"


def test_close_before_the_headers_sends_nothing(streamguard_gateway: Factory) -> None:
    """A server that closes on receipt of the request has sent not a byte (field report B107)."""
    gateway = streamguard_gateway("close")
    assert answer(gateway) == b""
    assert gateway.requests[0].bytes_sent == 0


def test_tls_close_and_tls_end_differ_by_the_close_notify(streamguard_tls_gateway: Factory) -> None:
    """Over TLS the proper end says goodbye, close does not."""
    gateway = streamguard_tls_gateway("event a\nclose", "event a", framing="close")
    ends = []
    for _ in range(2):
        with ask(gateway) as sock:
            sock.suppress_ragged_eofs = False  # type: ignore[attr-defined]
            read_until(sock, b"data: a\n\n")
            try:
                ends.append(sock.recv(1))
            except OSError as error:
                ends.append(type(error).__name__.encode())
    assert ends == [b"SSLEOFError", b""]


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_reset_is_a_reset(streamguard_gateway: Factory, tls: bool) -> None:
    """reset ends the connection with an RST once the client has what came before."""
    gateway = streamguard_gateway("event a\nwait 50ms\nreset", tls=tls)
    with ask(gateway) as sock:
        read_until(sock, b"data: a\n\n\r\n")
        # Below TLS, since Python 3.11 reads a reset TLS connection as one that has ended.
        with socket.socket(fileno=os.dup(sock.fileno())) as raw:
            raw.settimeout(5)
            with pytest.raises(ConnectionResetError):
                raw.recv(1)


def test_wire_breaks_the_chunking(streamguard_gateway: Factory) -> None:
    """wire bytes go out as they are, between chunks."""
    gateway = streamguard_gateway("event a\nwire zz\\r\\n\nclose")
    assert answered_body(gateway) == b"9\r\ndata: a\n\n\r\nzz\r\n"


def test_wire_writes_a_response_by_hand(streamguard_gateway: Factory) -> None:
    """Before any header, wire makes the response its own: no header is added, pieces are unframed, a FIN ends it."""
    gateway = streamguard_gateway("wire HTTP/1.1 200 OK\\r\\nX: y\\r\\n\\r\\n\nevent a")
    assert answer(gateway) == b"HTTP/1.1 200 OK\r\nX: y\r\n\r\ndata: a\n\n"


def test_one_big_chunk_may_fill_slowly(streamguard_gateway: Factory) -> None:
    """wire can announce a chunk and deliver it in parts."""
    gateway = streamguard_gateway(
        "headers\nwire 12\\r\\ndata: a\\n\\n\nwait 50ms\nwire data: b\\n\\n\\r\\n0\\r\\n\\r\\n\nstall"
    )
    with requests.get(gateway.url, stream=True, timeout=5) as response:
        assert response.content == b"data: a\n\ndata: b\n\n"


def test_linger_keeps_the_connection_and_the_body_open(streamguard_gateway: Factory) -> None:
    """Behind an end marker linger sends nothing more: neither the body's end nor a FIN."""
    gateway = streamguard_gateway("done\nlinger")
    with ask(gateway) as sock:
        read_until(sock, b"data: [DONE]\n\n\r\n")
        gateway.wait_step("linger")
        sock.settimeout(0.1)
        with pytest.raises(TimeoutError):
            sock.recv(1)


def test_the_end_can_come_before_the_silence(streamguard_gateway: Factory) -> None:
    """end completes the body at once, whatever the script does then."""
    gateway = streamguard_gateway("event a\nend\nstall")
    with requests.get(gateway.url, timeout=5) as response:
        assert response.content == b"data: a\n\n"
        gateway.wait_step("stall")


def test_requests_are_answered_in_order_and_the_last_script_repeats(streamguard_gateway: Factory) -> None:
    """The nth request, whatever its connection, gets the nth script."""
    gateway = streamguard_gateway("headers 503", ["event b"], "event c")
    answers = [requests.get(gateway.url) for _ in range(4)]
    assert [response.status_code for response in answers] == [503, 200, 200, 200]
    assert [response.text for response in answers] == ["", "data: b\n\n", "data: c\n\n", "data: c\n\n"]


def test_no_script_is_an_empty_200(streamguard_gateway: Factory) -> None:
    """Without a script every answer is an empty event stream."""
    response = requests.get(streamguard_gateway().url)
    assert (response.status_code, response.content) == (200, b"")


def test_what_a_client_sent_is_recorded(streamguard_gateway: Factory) -> None:
    """A request is kept with its method, target, headers by any case, body, time and connection."""
    gateway = streamguard_gateway("event a")
    before = monotonic()
    requests.post(f"{gateway.url}/v1/chat?x=1", json={"stream": True}, headers={"X-Key": "k"})
    request = gateway.wait_request()
    assert (request.method, request.target, request.connection) == ("POST", "/v1/chat?x=1", 0)
    assert json.loads(request.body) == {"stream": True}
    assert request.headers["x-key"] == "k"
    assert before <= request.at <= monotonic()
    assert [step.line for _, step in request.sent] == ["event a"]


def test_bytes_sent_are_counted(streamguard_gateway: Factory) -> None:
    """The bytes recorded for a request are those that its client received."""
    gateway = streamguard_gateway("event a\nwait 1ms\ndone", framing="close")
    received = answer(gateway)
    assert gateway.requests[0].bytes_sent == len(received)


def test_a_chunked_request_body_is_read(streamguard_gateway: Factory) -> None:
    """A body of unknown length is put together, extensions and trailers aside, and the next request is in step."""
    gateway = streamguard_gateway("event a")
    with connect(gateway) as sock:
        body = b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nTrailer: t\r\n\r\n"
        send_request(sock, "POST /1 HTTP/1.1", "Transfer-Encoding: chunked", body=body)
        read_until(sock, b"0\r\n\r\n")
        send_request(sock, "POST /2 HTTP/1.1", "Content-Length: 2", body=b"fg")
        read_until(sock, b"0\r\n\r\n")
    assert [request.body for request in gateway.requests] == [b"abcde", b"fg"]


def test_a_request_that_comes_in_pieces_is_read(streamguard_tls_gateway: Factory) -> None:
    """Neither the head nor the body of a request needs to arrive at once."""
    gateway = streamguard_tls_gateway("event a")
    with connect(gateway) as sock:
        for part in (b"POST / HT", b"TP/1.1\r\nContent-Le", b"ngth: 4\r\n\r\na", b"bcd"):
            sock.sendall(part)
        read_until(sock, b"0\r\n\r\n")
    assert gateway.requests[0].body == b"abcd"


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_big_body_goes_both_ways(streamguard_gateway: Factory, tls: bool) -> None:
    """Megabytes pass through in both directions, framed and whole."""
    payload = "x" * 3_000_000
    gateway = streamguard_gateway(f"raw {payload}", tls=tls)
    response = requests.post(gateway.url, data=payload.encode(), verify=gateway.ca if tls else True)
    assert response.text == payload
    assert gateway.requests[0].body == payload.encode()


@pytest.mark.parametrize("options", [{"keep_alive": False}, {"framing": "close"}, {"framing": "http10"}])
def test_a_connection_that_is_not_kept(streamguard_gateway: Factory, options: dict[str, object]) -> None:
    """Where connections are not kept each request has its own."""
    gateway = streamguard_gateway("event a", **options)
    with requests.Session() as session:
        assert [session.get(gateway.url).content for _ in range(2)] == [b"data: a\n\n"] * 2
    assert gateway.connections == 2


def test_http_client_reads_it_as_well(streamguard_gateway: Factory) -> None:
    """The server is not made for one client: the standard library's reads it, one request after the other."""
    gateway = streamguard_gateway("event a")
    connection = http.client.HTTPConnection(gateway.url.removeprefix("http://"), timeout=5)
    for _ in range(2):
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"data: a\n\n"
    connection.close()
    assert gateway.connections == 1


def test_what_is_no_http_gets_no_answer(streamguard_gateway: Factory) -> None:
    """A client that speaks something else is closed upon, and the next one is served."""
    gateway = streamguard_gateway("event a", framing="close")
    with connect(gateway) as sock:
        sock.sendall(b"hello\r\n\r\n")
        assert read_to_end(sock) == b""
    assert gateway.requests == []
    assert answered_body(gateway) == b"data: a\n\n"


def test_a_client_that_rejects_the_certificate_is_no_request(streamguard_tls_gateway: Factory) -> None:
    """A failed handshake is counted as a connection and has no other effect."""
    gateway = streamguard_tls_gateway("event a")
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(gateway.url)
    gateway.wait_connections(1, still_open=0)
    assert gateway.requests == []
    assert requests.get(gateway.url, verify=gateway.ca).content == b"data: a\n\n"


def test_a_tls_handshake_that_hangs(streamguard_gateway: Factory) -> None:
    """With tls_stall TCP connects and the handshake is never answered; the leaving is seen."""
    gateway = streamguard_gateway(tls_stall=True)
    with pytest.raises(requests.exceptions.Timeout):
        requests.get(gateway.url, verify=gateway.ca, timeout=0.2)
    gateway.wait_connections(1, still_open=0)


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_a_listener_that_never_accepts(streamguard_gateway: Factory, tls: bool) -> None:
    """Without accept the connection is made by the kernel and nothing answers on it."""
    gateway = streamguard_gateway(accept=False, tls=tls)
    with pytest.raises(requests.exceptions.Timeout):
        requests.get(gateway.url, verify=gateway.ca if tls else True, timeout=0.2)
    assert gateway.connections == 0


@pytest.mark.skipif(sys.platform != "linux", reason="what a full backlog does is up to the system")
def test_a_full_backlog_hangs_the_next_connect(streamguard_gateway: Factory) -> None:
    """With accept=False and backlog=0 one connection fills the queue, and the next connect waits."""
    gateway = streamguard_gateway(accept=False, backlog=0)
    with connect(gateway), socket.socket() as second:
        second.settimeout(0.1)
        host, port = gateway.url.removeprefix("http://").split(":")
        with pytest.raises(TimeoutError):
            second.connect((host, int(port)))


def test_a_server_that_does_not_read_the_body(streamguard_gateway: Factory) -> None:
    """With read_body=False a big request body gets stuck on its way, while the script plays."""
    gateway = streamguard_gateway("stall", read_body=False)
    with connect(gateway) as sock:
        sock.settimeout(0.2)
        with pytest.raises(TimeoutError):
            send_request(sock, "POST / HTTP/1.1", "Content-Length: 40000000", body=bytes(40_000_000))
        gateway.wait_step("stall")


def test_a_client_that_does_not_read_is_waited_for(streamguard_gateway: Factory) -> None:
    """Sending blocks while the client does not read: the bytes counted stand still far below the whole."""
    gateway = streamguard_gateway("loop 1000\nraw " + "x" * 100_000 + "\nendloop")
    with ask(gateway):
        gateway.wait_step("raw")
        counts = [0, -1]
        while counts[-1] != counts[-2]:
            time.sleep(0.1)
            counts.append(gateway.requests[0].bytes_sent)
    assert counts[-1] < 50_000_000
    assert gateway.wait_left().during == "raw"


def test_ipv6(streamguard_gateway: Factory) -> None:
    """A gateway on ::1 has a URL with brackets."""
    try:
        gateway = streamguard_gateway("event a", host="::1", framing="close")
    except OSError:
        pytest.skip("no IPv6 loopback here")
    assert gateway.url.startswith("http://[::1]:")
    assert answered_body(gateway) == b"data: a\n\n"


def test_waiting_in_vain_says_what_was_seen(streamguard_gateway: Factory) -> None:
    """A wait that runs out raises AssertionError with the requests and how far they came."""
    gateway = streamguard_gateway("event a\nstall")
    with ask(gateway, "GET /x HTTP/1.1"):
        gateway.wait_step("stall")
        for wait in (
            lambda: gateway.wait_request(2, timeout=0.01),
            lambda: gateway.wait_step("done", timeout=0.01),
            lambda: gateway.wait_left(timeout=0.01),
            lambda: gateway.wait_connections(2, timeout=0.01),
        ):
            with pytest.raises(AssertionError, match=r"1 open; request 0 \(GET /x\): now stall, reached .*'event': 1"):
                wait()


def test_misuse_before_the_start() -> None:
    """A gateway has an address only once it is started, and a ca only with TLS."""
    gateway = Gateway("event a")
    with pytest.raises(UsageError, match="not started"):
        _ = gateway.url
    with gateway:
        with pytest.raises(UsageError, match="tls=True"):
            _ = gateway.ca
        with pytest.raises(UsageError, match="started before"):
            gateway.start()


def test_a_script_that_cannot_be_read_fails_before_anything_listens() -> None:
    """Scripts and options are checked when the gateway is made."""
    with pytest.raises(UsageError, match="evnt"):
        Gateway("evnt a")
    with pytest.raises(UsageError, match="chunky"):
        Gateway(framing="chunky")


def test_tls_without_trustme_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where trustme is missing the error names the extra, and nothing is left open."""
    from streamguard.testing import tls

    tls.server_context.cache_clear()
    tls._authority.cache_clear()
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(UsageError, match=r"streamguard\[testing\]"), Gateway(tls=True):
        pass


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_stop_leaves_nothing(tls: bool) -> None:
    """Stopped amid a stall, a wait, a blocked send and an idle connection, it leaves no thread, descriptor or file."""
    with no_leaks():
        scripts = ("stall", "wait 60", "loop forever\ntick\nendloop", "event a", "event a\nclose")
        with Gateway(*scripts, tls=tls) as gateway:
            ca = gateway.ca if tls else None
            socks = []
            for number, _ in enumerate(scripts, 1):
                socks.append(ask(gateway))
                gateway.wait_request(number)
        for sock in socks:
            sock.close()
        assert ca is None or not Path(ca).exists()


def test_stop_is_idempotent_and_the_url_remains(streamguard_gateway: Factory) -> None:
    """A stopped gateway refuses connections at the address that it had; stopping it again does nothing."""
    gateway = streamguard_gateway("event a")
    gateway.stop()
    gateway.stop()
    with pytest.raises(requests.exceptions.ConnectionError):
        requests.get(gateway.url)


def test_serve_forever_serves_until_it_is_stopped() -> None:
    """A thread in serve_forever comes back when another calls stop."""
    gateway = Gateway("event a", framing="close")
    thread = threading.Thread(target=gateway.start().serve_forever)
    thread.start()
    assert answered_body(gateway) == b"data: a\n\n"
    gateway.stop()
    thread.join(5)
    assert not thread.is_alive()


def test_an_answer_without_poll(streamguard_gateway: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no poll() it serves, waits and sees the leaving all the same."""
    monkeypatch.delattr("select.poll")
    gateway = streamguard_gateway("event a\nwait 50ms\nevent b", "event a\nstall", framing="close")
    assert answered_body(gateway) == b"data: a\n\ndata: b\n\n"
    with ask(gateway) as sock:
        read_until(sock, b"data: a\n\n")
        gateway.wait_step("stall", request=1)
    assert gateway.wait_left(2).how == "fin"


def test_a_hundred_clients_at_once(streamguard_gateway: Factory) -> None:
    """Each connection has its own thread: a hundred stalled clients do not keep the next from being served."""
    gateway = streamguard_gateway(*["event a\nstall"] * 100, "event b", framing="close")
    socks = []
    for number in range(100):
        socks.append(ask(gateway))
        gateway.wait_step("stall", request=number)
    assert answered_body(gateway) == b"data: b\n\n"
    gateway.wait_connections(101, still_open=100)
    for sock in socks:
        sock.close()
    gateway.wait_connections(101, still_open=0)
    assert {gateway.wait_left(number).during for number in range(1, 101)} == {"stall"}


def test_steps_are_stamped_in_order(streamguard_gateway: Factory) -> None:
    """The times of the steps sent increase, and are later than the request's arrival."""
    gateway = streamguard_gateway("loop 20\ntick\nendloop", framing="close")
    answer(gateway)
    request = gateway.requests[0]
    times = [request.at, *(at for at, _ in request.sent)]
    assert all(earlier <= later for earlier, later in pairwise(times))


GEVENT = """
from gevent import monkey
monkey.patch_all()
import requests
from streamguard.testing import Gateway
with Gateway("event a\\nwait 10ms\\nevent b", "event a\\nstall", tls=True) as gateway:
    assert requests.get(gateway.url, verify=gateway.ca).content == b"data: a\\n\\ndata: b\\n\\n"
    response = requests.get(gateway.url, verify=gateway.ca, stream=True)
    gateway.wait_step("stall", request=1)
    response.raw._connection.sock.close()
    response.close()
    del response
    print(gateway.wait_left(2).during)
"""


def test_under_gevent() -> None:
    """In a process patched by gevent the gateway serves and sees the leaving."""
    pytest.importorskip("gevent")
    done = subprocess.run([sys.executable, "-c", GEVENT], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("stall", 0), done.stderr
