"""The request: headers, bodies, auth, cookies, redirects and proxies pass through requests."""

import base64
import http.cookiejar
import json
from typing import Any

import pytest
import requests

from streamguard import (
    NotEventStreamError,
    TransportError,
    guarded_stream,
)

from ...helpers import Serve
from ..helpers import COMPLETE, ask, consume


def test_a_system_proxy_catches_loopback(streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment's proxy is used, as by requests; trust_env=False or no_proxy bypass it (B098)."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    gateway = streamguard_gateway("chat a\ndone")
    caught = ask(gateway)
    assert isinstance(caught.error, TransportError)
    assert caught.error.code == "ECONNREFUSED"
    with requests.Session() as session:
        session.trust_env = False
        assert ask(gateway, session=session).texts == ["a"]
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    assert ask(gateway).texts == ["a"]


def test_the_default_headers(streamguard_gateway: Serve) -> None:
    """A stream asks for events, uncompressed."""
    gateway = streamguard_gateway(COMPLETE)
    ask(gateway)
    headers = gateway.requests[0].headers
    assert (headers["Accept"], headers["Accept-Encoding"]) == ("text/event-stream", "identity")


@pytest.mark.parametrize("accept", ["accept", "ACCEPT", "Accept", b"Accept"])
def test_the_callers_headers_come_first(streamguard_gateway: Serve, accept: Any) -> None:
    """The caller's headers are kept, however they are spelled; None leaves a header out."""
    gateway = streamguard_gateway(COMPLETE)
    ask(gateway, headers={accept: "application/json", "accept-encoding": "gzip", "X-Own": "1"})
    headers = gateway.requests[0].headers
    assert (headers["Accept"], headers["Accept-Encoding"], headers["X-Own"]) == ("application/json", "gzip", "1")
    ask(gateway, headers={"Accept": None})
    assert "Accept" not in gateway.requests[1].headers


def test_the_sessions_headers_come_before_the_defaults(streamguard_gateway: Serve) -> None:
    """The session's headers are kept; requests' own defaults are not."""
    gateway = streamguard_gateway(COMPLETE)
    with requests.Session() as session:
        ask(gateway, session=session)
        session.headers.update({"accept": "application/x", "accept-encoding": "br", "Authorization": "Bearer k"})
        ask(gateway, session=session)
    first, second = (request.headers for request in gateway.requests)
    assert (first["Accept"], first["Accept-Encoding"]) == ("text/event-stream", "identity")
    assert (second["Accept"], second["Accept-Encoding"], second["Authorization"]) == ("application/x", "br", "Bearer k")


def test_the_callers_objects_stay_as_they_were(streamguard_gateway: Serve) -> None:
    """The mappings that the caller passes are not changed."""
    headers, payload, params = {"X-Own": "1"}, {"stream": True}, {"q": "1"}
    ask(streamguard_gateway(COMPLETE), headers=headers, json=payload, params=params, retry=2)
    assert (headers, payload, params) == ({"X-Own": "1"}, {"stream": True}, {"q": "1"})


def test_requests_keywords_pass_through(streamguard_gateway: Serve) -> None:
    """params, json, auth, cookies and hooks do what they do with requests."""
    gateway = streamguard_gateway(COMPLETE)
    seen: list[int] = []

    def hook(response: requests.Response, **options: Any) -> None:
        seen.append(response.status_code)

    run = ask(
        gateway,
        params={"q": "\u00e9 x", "n": [1, 2]},
        json={"model": "m", "stream": True},
        auth=("user", "secret"),
        cookies={"c": "1"},
        hooks={"response": hook},
    )
    request = gateway.requests[0]
    assert (run.error, request.method, request.target) == (None, "POST", "/?q=%C3%A9+x&n=1&n=2")
    assert json.loads(request.body) == {"model": "m", "stream": True}
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["Authorization"] == "Basic " + base64.b64encode(b"user:secret").decode()
    assert (request.headers["Cookie"], seen) == ("c=1", [200])


@pytest.mark.parametrize(
    "data",
    ["plain", b"plain", {"plain": "1"}, [("plain", "1")], iter([b"pl", b"ain"])],
    ids=lambda data: type(data).__name__,
)
def test_bodies_of_any_kind(streamguard_gateway: Serve, data: Any) -> None:
    """data= and files= send what they send with requests."""
    gateway = streamguard_gateway(COMPLETE)
    assert ask(gateway, data=data).error is None
    assert gateway.requests[0].body.startswith(b"plain")
    assert ask(gateway, files={"f": ("name.txt", b"content")}).error is None
    assert b"name.txt" in gateway.requests[1].body


@pytest.mark.parametrize("method", ["get", "GET", "POST", "put", "PATCH", "DELETE"])
def test_any_method(streamguard_gateway: Serve, method: str) -> None:
    """The method is sent in capitals."""
    gateway = streamguard_gateway(COMPLETE)
    assert consume(guarded_stream(method, gateway.url)).texts == ["a", "b"]
    assert gateway.requests[0].method == method.upper()


def test_a_callable_auth(streamguard_gateway: Serve) -> None:
    """auth= may be a callable of requests' kind."""

    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["X-Signed"] = "yes"
        return request

    gateway = streamguard_gateway(COMPLETE)
    ask(gateway, auth=sign)
    assert gateway.requests[0].headers["X-Signed"] == "yes"


def test_a_cookie_jar(streamguard_gateway: Serve) -> None:
    """cookies= may be a jar."""
    jar = requests.cookies.RequestsCookieJar()
    jar.set("c", "jar")
    assert isinstance(jar, http.cookiejar.CookieJar)
    gateway = streamguard_gateway(COMPLETE)
    ask(gateway, cookies=jar)
    assert gateway.requests[0].headers["Cookie"] == "c=jar"


@pytest.mark.parametrize(("status", "method"), [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")])
def test_redirects_are_followed(streamguard_gateway: Serve, status: int, method: str) -> None:
    """Redirects are followed by requests' rules: with the body by 307 and 308, as a GET by the others."""
    gateway = streamguard_gateway(f"headers {status} location: /there", COMPLETE)
    run = ask(gateway, json={"stream": True})
    assert (run.error, run.texts, run.stream.report.attempts) == (None, ["a", "b"], 1)
    second = gateway.requests[1]
    assert (second.method, second.target, bool(second.body)) == (method, "/there", method == "POST")
    assert [response.status_code for response in run.stream.response.history] == [status]


def test_a_redirect_to_another_server(streamguard_gateway: Serve) -> None:
    """A redirect to another origin is followed without the Authorization header, and both connections are closed."""
    other = streamguard_gateway(COMPLETE)
    gateway = streamguard_gateway(f"headers 307 location: {other.url}/x")
    run = ask(gateway, headers={"Authorization": "Bearer k"})
    assert run.error is None
    if other.url.split(":")[1] != gateway.url.split(":")[1]:
        assert "Authorization" not in other.requests[0].headers
    gateway.wait_connections(1, still_open=0)
    other.wait_connections(1, still_open=0)


def test_redirects_may_be_refused(streamguard_gateway: Serve) -> None:
    """With allow_redirects=False a redirect is the response, and not an event stream."""
    run = ask(streamguard_gateway("headers 302 location: /there; content-type: text/html"), allow_redirects=False)
    assert type(run.error) is NotEventStreamError
    assert "302" in str(run.error)


def test_redirects_without_end(streamguard_gateway: Serve) -> None:
    """Redirects in a circle end with an error that says so, and close all connections."""
    gateway = streamguard_gateway("headers 302 location: /again")
    run = ask(gateway)
    assert isinstance(run.error, TransportError)
    assert run.error.code == "ELOOP"
    gateway.wait_connections(1, still_open=0)


def test_a_proxy(streamguard_gateway: Serve) -> None:
    """proxies= sends the request to the proxy; the host in the report is the one that was asked for."""
    proxy = streamguard_gateway(COMPLETE)
    run = consume(guarded_stream("GET", "http://upstream.invalid/x", proxies={"http": proxy.url}))
    assert (run.error, run.texts, proxy.requests[0].target) == (None, ["a", "b"], "http://upstream.invalid/x")
    assert run.stream.report.host == "upstream.invalid"


def test_the_environments_proxy(streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies of the environment are used as by requests, and not by a session with trust_env=False."""
    proxy, gateway = streamguard_gateway(COMPLETE), streamguard_gateway(COMPLETE)
    monkeypatch.setenv("http_proxy", proxy.url)
    assert ask(gateway).error is None
    assert (len(proxy.requests), len(gateway.requests)) == (1, 0)
    with requests.Session() as session:
        session.trust_env = False
        assert ask(gateway, session=session).error is None
    assert (len(proxy.requests), len(gateway.requests)) == (1, 1)
