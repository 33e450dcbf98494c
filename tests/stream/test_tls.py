"""TLS: certificates that do not hold, bundles that are missing, the wrong protocol on a port."""

import datetime
import ssl
from typing import Any

import pytest
import trustme

from streamguard import (
    StreamguardError,
    TransportError,
    classify,
    guarded_stream,
)
from streamguard.testing import Gateway

from ..helpers import Serve
from ..http.servers import Peer, Server
from .helpers import COMPLETE, ask, consume, failure


def _context(*names: str, authority: trustme.CA | None = None, not_after: Any = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    (authority or trustme.CA()).issue_cert(*names, not_after=not_after).configure_cert(context)
    return context


def test_an_unknown_authority_is_named(streamguard_tls_gateway: Serve) -> None:
    """An untrusted certificate is ECERT, with the library's words; it is not retried, and nothing is sent."""
    gateway = streamguard_tls_gateway("chat a\ndone")
    error = failure(guarded_stream("POST", gateway.url, retry=3))
    assert isinstance(error, TransportError)
    assert (error.code, error.phase, error.attempt, error.errno) == ("ECERT", "connect", 1, None)
    assert "certificate" in str(error)
    assert classify(error).diagnosis == "fail-fast"
    assert gateway.requests == []


@pytest.mark.parametrize("fault", ["wrong name", "expired"])
def test_a_certificate_that_does_not_hold_is_named(tmp_path: Any, fault: str) -> None:
    """A certificate for another host, or out of date, under a trusted authority is ECERT."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    late = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) if fault == "expired" else None
    name = "elsewhere.example" if fault == "wrong name" else "127.0.0.1"
    with Server(lambda peer: None, tls=_context(name, authority=authority, not_after=late)) as server:
        error = failure(guarded_stream("GET", server.url, verify=str(tmp_path / "ca.pem"), retry=3))
    assert (error.code, error.attempt) == ("ECERT", 1)
    assert ("not valid" if fault == "wrong name" else "expired") in str(error)


def test_a_bundle_without_a_certificate_is_a_transport_error(tmp_path: Any) -> None:
    """A bundle without a certificate is a transport error."""
    bundle = tmp_path / "bundle.pem"
    bundle.write_text("no certificate here")
    with Gateway("", tls=True) as gateway:
        error = failure(guarded_stream("GET", gateway.url, verify=str(bundle), retry=3))
    assert isinstance(error, StreamguardError)


def test_a_missing_bundle_of_the_environment_is_named(
    streamguard_tls_gateway: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A missing `REQUESTS_CA_BUNDLE`: the message has requests' own words, with the path."""
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/no/such/bundle.pem")
    error = failure(guarded_stream("GET", streamguard_tls_gateway("chat a\ndone").url, retry=3))
    assert "/no/such/bundle.pem" in str(error)


def test_https_to_a_plain_port_is_a_transport_error() -> None:
    """TLS to a plain server is a TransportError at once, and not retried."""

    def answer(peer: Peer) -> None:
        peer.sock.recv(1000)
        peer.send(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with Server(answer) as server:
        error = failure(guarded_stream("GET", server.url.replace("http://", "https://"), total=10))
    assert isinstance(error, TransportError)
    assert (error.code, error.phase, server.connections) == ("EPROTO", "connect", 1)


def test_http_to_a_tls_port_is_a_transport_error(streamguard_tls_gateway: Serve) -> None:
    """Plain HTTP to a TLS port, where the server closes, is a TransportError."""
    gateway = streamguard_tls_gateway("chat a\ndone")
    error = failure(guarded_stream("GET", gateway.url.replace("https://", "http://"), total=10))
    assert isinstance(error, TransportError)
    assert error.code in ("EPROTO", "ECONNRESET")


def test_tls_is_verified(streamguard_tls_gateway: Serve) -> None:
    """https works with `verify=`; without, an unknown authority is ECERT, and is not retried."""
    gateway = streamguard_tls_gateway(COMPLETE)
    assert ask(gateway, verify=gateway.ca).texts == ["a", "b"]
    run = consume(guarded_stream("POST", gateway.url))
    assert isinstance(run.error, TransportError)
    assert (run.error.code, run.stream.report.attempts) == ("ECERT", 1)
