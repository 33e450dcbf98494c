"""The caller's side of a stream: the request, the session, names and tokens, and every way to leave."""

import base64
import gc
import http.cookiejar
import json
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import requests

import streamguard
from streamguard import (
    CancelToken,
    GuardedStream,
    NotEventStreamError,
    StreamCancelledError,
    TransportError,
    UsageError,
    guarded_stream,
)
from streamguard.testing import Gateway

from .shapes import Factory, ask, consume

GOOD = "chat a\nchat b\ndone"
OPEN = "chat a\nstall"


def test_the_default_headers(streamguard_gateway: Factory) -> None:
    """A stream asks for events, uncompressed."""
    gateway = streamguard_gateway(GOOD)
    ask(gateway)
    headers = gateway.requests[0].headers
    assert (headers["Accept"], headers["Accept-Encoding"]) == ("text/event-stream", "identity")


@pytest.mark.parametrize("accept", ["accept", "ACCEPT", "Accept", b"Accept"])
def test_the_callers_headers_come_first(streamguard_gateway: Factory, accept: Any) -> None:
    """What the caller sets stays, however it is spelled; None leaves a header out."""
    gateway = streamguard_gateway(GOOD)
    ask(gateway, headers={accept: "application/json", "accept-encoding": "gzip", "X-Own": "1"})
    headers = gateway.requests[0].headers
    assert (headers["Accept"], headers["Accept-Encoding"], headers["X-Own"]) == ("application/json", "gzip", "1")
    ask(gateway, headers={"Accept": None})
    assert "Accept" not in gateway.requests[1].headers


def test_the_sessions_headers_come_before_the_defaults(streamguard_gateway: Factory) -> None:
    """What the caller's session sets stays; requests' own defaults of a session do not."""
    gateway = streamguard_gateway(GOOD)
    with requests.Session() as session:
        ask(gateway, session=session)
        session.headers.update({"accept": "application/x", "accept-encoding": "br", "Authorization": "Bearer k"})
        ask(gateway, session=session)
    first, second = (request.headers for request in gateway.requests)
    assert (first["Accept"], first["Accept-Encoding"]) == ("text/event-stream", "identity")
    assert (second["Accept"], second["Accept-Encoding"], second["Authorization"]) == ("application/x", "br", "Bearer k")


def test_the_callers_objects_stay_as_they_were(streamguard_gateway: Factory) -> None:
    """The mappings that the caller passes are not changed."""
    headers, payload, params = {"X-Own": "1"}, {"stream": True}, {"q": "1"}
    ask(streamguard_gateway(GOOD), headers=headers, json=payload, params=params, retry=2)
    assert (headers, payload, params) == ({"X-Own": "1"}, {"stream": True}, {"q": "1"})


def test_requests_keywords_pass_through(streamguard_gateway: Factory) -> None:
    """params, json, auth, cookies and hooks do what they do with requests."""
    gateway = streamguard_gateway(GOOD)
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


@pytest.mark.parametrize("data", ["plain", b"plain", {"plain": "1"}, [("plain", "1")], iter([b"pl", b"ain"])], ids=repr)
def test_bodies_of_any_kind(streamguard_gateway: Factory, data: Any) -> None:
    """data= and files= send what they send with requests."""
    gateway = streamguard_gateway(GOOD)
    assert ask(gateway, data=data).error is None
    assert gateway.requests[0].body.startswith(b"plain")
    assert ask(gateway, files={"f": ("name.txt", b"content")}).error is None
    assert b"name.txt" in gateway.requests[1].body


@pytest.mark.parametrize("method", ["get", "GET", "POST", "put", "PATCH", "DELETE"])
def test_any_method(streamguard_gateway: Factory, method: str) -> None:
    """The method is sent in capitals."""
    gateway = streamguard_gateway(GOOD)
    assert consume(guarded_stream(method, gateway.url)).texts == ["a", "b"]
    assert gateway.requests[0].method == method.upper()


def test_a_callable_auth(streamguard_gateway: Factory) -> None:
    """auth= may be a callable of requests' kind."""

    def sign(request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["X-Signed"] = "yes"
        return request

    gateway = streamguard_gateway(GOOD)
    ask(gateway, auth=sign)
    assert gateway.requests[0].headers["X-Signed"] == "yes"


def test_a_cookie_jar(streamguard_gateway: Factory) -> None:
    """cookies= may be a jar."""
    jar = requests.cookies.RequestsCookieJar()
    jar.set("c", "jar")
    assert isinstance(jar, http.cookiejar.CookieJar)
    gateway = streamguard_gateway(GOOD)
    ask(gateway, cookies=jar)
    assert gateway.requests[0].headers["Cookie"] == "c=jar"


@pytest.mark.parametrize(("status", "method"), [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")])
def test_redirects_are_followed(streamguard_gateway: Factory, status: int, method: str) -> None:
    """Redirects are followed by requests' rules: with the body by 307 and 308, as a GET by the others."""
    gateway = streamguard_gateway(f"headers {status} location: /there", GOOD)
    run = ask(gateway, json={"stream": True})
    assert (run.error, run.texts, run.stream.report.attempts) == (None, ["a", "b"], 1)
    second = gateway.requests[1]
    assert (second.method, second.target, bool(second.body)) == (method, "/there", method == "POST")
    assert [response.status_code for response in run.stream.response.history] == [status]


def test_a_redirect_to_another_server(streamguard_gateway: Factory) -> None:
    """A redirect to another origin is followed without the Authorization header, and both connections are closed."""
    other = streamguard_gateway(GOOD)
    gateway = streamguard_gateway(f"headers 307 location: {other.url}/x")
    run = ask(gateway, headers={"Authorization": "Bearer k"})
    assert run.error is None
    if other.url.split(":")[1] != gateway.url.split(":")[1]:
        assert "Authorization" not in other.requests[0].headers
    gateway.wait_connections(1, still_open=0)
    other.wait_connections(1, still_open=0)


def test_redirects_may_be_refused(streamguard_gateway: Factory) -> None:
    """With allow_redirects=False a redirect is an answer, and no event stream."""
    run = ask(streamguard_gateway("headers 302 location: /there; content-type: text/html"), allow_redirects=False)
    assert type(run.error) is NotEventStreamError
    assert "302" in str(run.error)


def test_redirects_without_end(streamguard_gateway: Factory) -> None:
    """Redirects in a circle end with an error that says so, and leave nothing open."""
    gateway = streamguard_gateway("headers 302 location: /again")
    run = ask(gateway)
    assert isinstance(run.error, TransportError)
    assert run.error.code == "ELOOP"
    gateway.wait_connections(1, still_open=0)


def test_a_redirect_to_nonsense(streamguard_gateway: Factory) -> None:
    """A redirect to what cannot be requested is the upstream's fault, not the caller's."""
    run = ask(streamguard_gateway("headers 302 location: gopher://x/"))
    assert isinstance(run.error, TransportError)


def test_a_hook_that_fails(streamguard_gateway: Factory) -> None:
    """A hook that raises, such as one that calls raise_for_status(), ends the stream, and its connection."""

    def hook(response: requests.Response, **options: Any) -> None:
        response.raise_for_status()

    gateway = streamguard_gateway("headers 500\nstall")
    run = ask(gateway, hooks={"response": hook})
    assert isinstance(run.error, requests.HTTPError)
    assert run.stream.report.outcome == "error"
    gateway.wait_left()


def test_tls_is_verified(streamguard_tls_gateway: Factory) -> None:
    """https works with `verify=`; without, an unknown authority is ECERT, and is not tried again."""
    gateway = streamguard_tls_gateway(GOOD)
    assert ask(gateway, verify=gateway.ca).texts == ["a", "b"]
    run = consume(guarded_stream("POST", gateway.url))
    assert isinstance(run.error, TransportError)
    assert (run.error.code, run.stream.report.attempts) == ("ECERT", 1)


def test_a_proxy(streamguard_gateway: Factory) -> None:
    """proxies= sends the request to the proxy; the host in the report is the one that was asked for."""
    proxy = streamguard_gateway(GOOD)
    run = consume(guarded_stream("GET", "http://upstream.invalid/x", proxies={"http": proxy.url}))
    assert (run.error, run.texts, proxy.requests[0].target) == (None, ["a", "b"], "http://upstream.invalid/x")
    assert run.stream.report.host == "upstream.invalid"


def test_the_environments_proxy(streamguard_gateway: Factory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Proxies of the environment are honoured as by requests, and not by a session with trust_env=False."""
    proxy, gateway = streamguard_gateway(GOOD), streamguard_gateway(GOOD)
    monkeypatch.setenv("http_proxy", proxy.url)
    assert ask(gateway).error is None
    assert (len(proxy.requests), len(gateway.requests)) == (1, 0)
    with requests.Session() as session:
        session.trust_env = False
        assert ask(gateway, session=session).error is None
    assert (len(proxy.requests), len(gateway.requests)) == (1, 1)


def own_session(adapter: bool) -> requests.Session:
    """Return a session of the caller's, with `streamguard.Adapter` or as it is."""
    session = requests.Session()
    if adapter:
        session.mount("http://", streamguard.Adapter())
    return session


def looks(session: requests.Session) -> tuple[object, ...]:
    """Return what the caller can see of a session."""
    adapters = {prefix: id(adapter) for prefix, adapter in session.adapters.items()}
    plain = (session.verify, session.cert, session.trust_env, session.max_redirects, session.stream)
    return dict(session.headers), adapters, session.cookies.get_dict(), dict(session.proxies), session.auth, plain


@pytest.mark.parametrize("adapter", [True, False], ids=["adapter", "plain"])
@pytest.mark.parametrize("script", [GOOD, OPEN, "chat a", "headers 500", "chat a\nwait 0.05\nreset", "headers\nstall"])
def test_the_callers_session_stays_as_it_was(streamguard_gateway: Factory, script: str, adapter: bool) -> None:
    """However the stream ends, the session's headers, adapters, cookies and settings are unchanged, and it works on."""
    gateway = streamguard_gateway(script, GOOD)
    with own_session(adapter) as session:
        session.cookies.set("mine", "1")
        before = looks(session)
        ask(gateway, session=session, first=0.2, idle=0.2)
        assert looks(session) == before
        with session.get(gateway.url, timeout=5) as response:
            assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("adapter", [True, False], ids=["adapter", "plain"])
@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_B039_a_session_reuses_its_connection(streamguard_gateway: Factory, framing: str, adapter: bool) -> None:
    """Streams that were read to their end leave the session's connection for the next; so do plain calls between."""
    gateway = streamguard_gateway(GOOD, framing=framing)
    with own_session(adapter) as session:
        for _ in range(3):
            assert ask(gateway, session=session).texts == ["a", "b"]
            assert session.get(gateway.url, timeout=5).status_code == 200
    assert (gateway.connections, len(gateway.requests)) == (1, 6)


@pytest.mark.parametrize("adapter", [True, False], ids=["adapter", "plain"])
@pytest.mark.parametrize("leave", ["break", "close", "cancel", "timeout"])
def test_B039_a_connection_left_in_the_middle_is_not_reused(
    streamguard_gateway: Factory, leave: str, adapter: bool
) -> None:
    """The next call gets a connection of its own, and nothing of the old stream."""
    gateway = streamguard_gateway(OPEN, GOOD)
    with own_session(adapter) as session:
        with guarded_stream("POST", gateway.url, session=session, idle=0.2 if leave == "timeout" else 30) as stream:
            next(stream)
            if leave == "close":
                stream.close()
            elif leave == "cancel":
                stream.cancel()
            elif leave == "timeout":
                assert consume(stream).error is not None
        gateway.wait_left(1)
        assert ask(gateway, session=session).texts == ["a", "b"]
    assert gateway.connections == 2


def test_without_a_session_each_call_has_its_connection(streamguard_gateway: Factory) -> None:
    """Calls without `session=` share nothing."""
    gateway = streamguard_gateway(GOOD)
    ask(gateway)
    ask(gateway)
    assert gateway.connections == 2
    gateway.wait_connections(2, still_open=0)


@pytest.mark.parametrize("adapter", [True, False], ids=["adapter", "plain"])
def test_a_session_in_many_threads(streamguard_gateway: Factory, adapter: bool) -> None:
    """Streams side by side on one session do not disturb each other, though one of them is cut."""
    gateway = streamguard_gateway("loop 20\ntick\nwait 0.01\nendloop\ndone")
    texts: list[str] = []
    with own_session(adapter) as session:
        threads = [
            threading.Thread(target=lambda: texts.append(guarded_stream("POST", gateway.url, session=session).read()))
            for _ in range(5)
        ]
        cut = guarded_stream("POST", gateway.url, session=session)
        next(cut)
        for thread in threads:
            thread.start()
        cut.close()
        for thread in threads:
            thread.join()
    assert texts == ["".join(f"{number} " for number in range(1, 21))] * 5


@pytest.mark.parametrize("wrong", ["session", 5, requests, requests.Session])
def test_what_is_no_session(wrong: Any) -> None:
    """Anything else is refused by its name."""
    with pytest.raises(TypeError, match="session="):
        guarded_stream("GET", "http://127.0.0.1:9/", session=wrong)


@pytest.mark.parametrize(("name", "wrong"), [("cancel", "token"), ("cancel", threading.Event()), ("name", 5), ("name", b"x")])
def test_what_is_no_token_or_name(name: str, wrong: Any) -> None:
    """`cancel=` takes a CancelToken, `name=` a str."""
    options: dict[str, Any] = {name: wrong}
    with pytest.raises(TypeError, match=f"{name}="):
        guarded_stream("GET", "http://127.0.0.1:9/", **options)


def test_one_token_stops_many_streams(streamguard_gateway: Factory) -> None:
    """A token of the caller's ends all streams that it was given to, and their own ends do not touch it."""
    gateway = streamguard_gateway(GOOD, OPEN)
    token = CancelToken()
    assert ask(gateway, cancel=token).error is None
    assert ask(gateway, cancel=token, idle=0.1).error is not None
    streams = [guarded_stream("POST", gateway.url, cancel=token, name=f"s{number}") for number in range(3)]
    for stream in streams:
        next(stream)
    assert not token.cancelled
    assert token.cancel("all") is True
    errors = [consume(stream).error for stream in streams]
    assert all(isinstance(error, StreamCancelledError) and error.reason == "all" for error in errors)
    assert [stream.report.outcome for stream in streams] == ["cancelled"] * 3


def test_a_token_that_is_cancelled_already(streamguard_gateway: Factory) -> None:
    """Nothing is sent."""
    gateway = streamguard_gateway(GOOD)
    token = CancelToken()
    token.cancel("early")
    run = ask(gateway, cancel=token)
    assert isinstance(run.error, StreamCancelledError)
    assert (run.error.reason, gateway.connections) == ("early", 0)


def test_a_token_does_not_keep_streams(streamguard_gateway: Factory) -> None:
    """A long-lived token holds no stream that has ended, or was dropped."""
    gateway = streamguard_gateway(GOOD, OPEN)
    token = CancelToken()
    ended = guarded_stream("POST", gateway.url, cancel=token)
    assert ended.read() == "ab"
    left = guarded_stream("POST", gateway.url, cancel=token)
    next(left)
    references = [weakref.ref(ended), weakref.ref(left)]
    del ended, left
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    assert gateway.wait_left(2).during == "stall"


def test_a_name_is_in_everything(streamguard_gateway: Factory) -> None:
    """The caller's name is in the report, the repr and the error's message."""
    run = ask(streamguard_gateway("chat a"), name="summary")
    assert run.stream.report.name == "summary"
    assert "summary" in repr(run.stream)
    assert "summary" in str(run.error)
    assert "summary" in str(run.stream.report)


def test_no_secret_is_told(streamguard_gateway: Factory) -> None:
    """Neither error, report nor repr has the URL's path, query, user or password, a header, or the body."""
    gateway = streamguard_gateway("chat a")
    url = gateway.url.replace("http://", "http://user:hush1@") + "/hush2?key=hush3"
    run = consume(guarded_stream("POST", url, headers={"X-Key": "hush4"}, json={"p": "hush5"}, cookies={"c": "hush6"}))
    assert gateway.requests[0].target == "/hush2?key=hush3"
    report = run.stream.report
    told = (str(run.error), repr(run.error), repr(run.stream), repr(report), str(report), json.dumps(report.to_dict()))
    assert "hush" not in " ".join(told)


def test_the_response_is_there_when_its_headers_are() -> None:
    """`.response` before the start is a UsageError that says how to start."""
    stream = guarded_stream("GET", "http://127.0.0.1:9/")
    with pytest.raises(UsageError, match="next"):
        _ = stream.response
    stream.close()


def test_the_response_is_that_of_the_last_attempt(streamguard_gateway: Factory) -> None:
    """After a retry `.response` and the report's request_id are those of the attempt that was read."""
    gateway = streamguard_gateway("headers 503 x-request-id: one", f"headers x-request-id: two\n{GOOD}")
    retry = streamguard.before_first_chunk(1, status={503}, wait=lambda state: 0)
    run = ask(gateway, retry=retry)
    assert (run.stream.response.status_code, run.stream.report.request_id, run.stream.report.status_code) == (200, "two", 200)


def leave_by_break(stream: GuardedStream[Any]) -> None:
    """Leave a `with` block in the middle."""
    with stream:
        for _ in stream:
            break


def leave_by_close(stream: GuardedStream[Any]) -> None:
    """Close after a chunk."""
    next(stream)
    stream.close()


def leave_by_exception(stream: GuardedStream[Any]) -> None:
    """Raise inside the block."""
    with pytest.raises(KeyboardInterrupt), stream:
        next(stream)
        raise KeyboardInterrupt


def leave_by_exit(stream: GuardedStream[Any]) -> None:
    """Exit inside the block."""
    with pytest.raises(SystemExit), stream:
        next(stream)
        raise SystemExit(3)


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_close, leave_by_exception, leave_by_exit])
def test_leaving_frees_the_connection(streamguard_gateway: Factory, leave: Callable[[GuardedStream[Any]], None]) -> None:
    """Whatever leads out of the block, the server sees the client leave, the stream has ended, and says `closed`."""
    gateway = streamguard_gateway(OPEN)
    stream = guarded_stream("POST", gateway.url)
    leave(stream)
    assert gateway.wait_left().during == "stall"
    assert (stream.report.outcome, stream.report.chunks, list(stream)) == ("closed", 1, [])


def consume_some(gateway: Gateway) -> None:
    """Iterate without `with`, and leave by break: the last reference goes with the loop."""
    for _ in guarded_stream("POST", gateway.url):
        break


def test_dropping_the_last_reference_is_enough(streamguard_gateway: Factory) -> None:
    """Without `with` and without close() a loop that is left frees everything at once."""
    gateway = streamguard_gateway(OPEN)
    consume_some(gateway)
    assert gateway.wait_left().during == "stall"


def test_a_cycle_waits_for_the_collector(streamguard_gateway: Factory) -> None:
    """A stream in a reference cycle is freed when the collector finds it."""
    gateway = streamguard_gateway(OPEN)
    cycle: list[Any] = [guarded_stream("POST", gateway.url)]
    cycle.append(cycle)
    next(cycle[0])
    del cycle
    gc.collect()
    assert gateway.wait_left().during == "stall"


def test_a_stream_that_was_never_started_warns() -> None:
    """Collected unstarted, a stream warns, by its name: somebody forgot to iterate."""
    with pytest.warns(ResourceWarning, match="summary"):
        guarded_stream("GET", "http://127.0.0.1:9/", name="summary")
        gc.collect()


@pytest.mark.parametrize("use", ["close", "cancel", "next", "with"])
def test_a_stream_that_was_used_does_not_warn(streamguard_gateway: Factory, use: str) -> None:
    """Closed, cancelled, iterated or opened, it does not."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stream = guarded_stream("POST", streamguard_gateway(OPEN).url)
        if use == "with":
            with stream:
                pass
        elif use == "next":
            next(stream)
        else:
            getattr(stream, use)()
        del stream
        gc.collect()
    assert [warning for warning in caught if warning.category is ResourceWarning] == []


def test_closing_twice_and_before_the_start(streamguard_gateway: Factory) -> None:
    """close() may come at any time and any number of times; before the start it means that nothing is sent."""
    gateway = streamguard_gateway(GOOD)
    stream = guarded_stream("POST", gateway.url)
    stream.close()
    stream.close()
    assert (list(stream), stream.report.outcome, gateway.connections) == ([], "closed", 0)


def test_cancelling_before_the_start(streamguard_gateway: Factory) -> None:
    """cancel() before the start is raised by the first next(), once, and nothing is sent."""
    gateway = streamguard_gateway(GOOD)
    stream = guarded_stream("POST", gateway.url)
    assert (stream.cancel("no"), stream.cancel("again")) == (True, False)
    with pytest.raises(StreamCancelledError) as caught:
        next(stream)
    assert (caught.value.reason, list(stream), gateway.connections) == ("no", [], 0)


def test_after_the_end_nothing_changes(streamguard_gateway: Factory) -> None:
    """cancel() and close() after the end leave report and text as they are."""
    stream = guarded_stream("POST", streamguard_gateway(GOOD).url)
    assert stream.read() == "ab"
    report = stream.report
    stream.cancel()
    stream.close()
    assert (stream.report is report, report.outcome, list(stream), stream.text) == (True, "completed", [], "ab")


@pytest.mark.parametrize(("how", "outcome"), [("close", "closed"), ("cancel", "cancelled")])
def test_the_end_may_come_from_another_thread(streamguard_gateway: Factory, how: str, outcome: str) -> None:
    """close() ends a blocked loop quietly, cancel() raises in it."""
    gateway = streamguard_gateway(OPEN)
    stream = guarded_stream("POST", gateway.url)
    next(stream)

    def stop() -> None:
        gateway.wait_step("stall")
        getattr(stream, how)()

    thread = threading.Thread(target=stop)
    thread.start()
    run = consume(stream)
    thread.join()
    assert type(run.error) is (type(None) if how == "close" else StreamCancelledError)
    assert (run.chunks, stream.report.outcome) == ([], outcome)
    gateway.wait_left()
