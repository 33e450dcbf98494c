"""`Session`: a hard total over all that a call does, with the server as witness; for all the rest requests' own ways."""

import contextlib
import pickle
import socket
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import requests
import responses
import urllib3
from requests.adapters import HTTPAdapter
from requests.auth import HTTPDigestAuth

from streamguard import (
    Adapter,
    CancelToken,
    Chain,
    Classification,
    DeadlineExceededError,
    HTTPStatusError,
    InvalidJSONError,
    ResponseValidationError,
    Session,
    StepContext,
    StreamCancelledError,
    TotalTimeoutError,
    UsageError,
    abandoned_threads,
    classify,
    deadline,
)
from streamguard._core.clock import monotonic
from streamguard._http import SocketGuard
from streamguard.testing import Gateway, no_leaks

from .helpers import run_script, wait_until
from .http.servers import blackhole

Serve = Callable[..., Gateway]
Act = Callable[[], object]

LIMIT = 0.2
LATE = 0.5
"""Seconds that a busy machine may be late; an idle one is by a few milliseconds."""

TRICKLE = "headers content-type: text/plain\nloop forever\nraw x\nwait 0.02\nendloop"


@pytest.fixture
def session() -> Iterator[Session]:
    """Make a session without limits."""
    with Session() as made:
        yield made


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Open at the end of the test, so that what waits for it can leave."""
    opened = threading.Event()
    yield opened
    opened.set()


def expiry(act: Act, limit: float = LIMIT) -> TotalTimeoutError:
    """Return the error of *act*, which has to come when *limit* is over, and not much later."""
    begun = monotonic()
    with pytest.raises(TotalTimeoutError) as expired:
        act()
    assert limit <= monotonic() - begun < limit + LATE
    error = expired.value
    assert (error.scope, error.limit) == ("total", limit)
    return error


def in_context(act: Act, token: CancelToken) -> Any:
    """Run *act* with *token* as the current one."""

    with token.active():
        return act()


SLOW = {
    "header stall": ("response", ["stall"]),
    "header drip": ("response", [f"drip-headers 0.02 X-A: {'a' * 500}"]),
    "body stall": ("body", ["headers content-type: text/plain\nraw x\nstall"]),
    "trickle": ("body", [TRICKLE]),
    "heartbeats": ("body", ["headers\nloop forever\ncomment ping\nwait 0.02\nendloop"]),
    "redirects to a stall": ("response", [f"headers 302 location: /{n}\nend" for n in range(3)] + ["stall"]),
    "redirects to a trickle": ("body", ["headers 307 location: /b\nend", TRICKLE]),
    "a redirect's own body": ("body", ["headers 302 location: /b\nloop forever\nraw x\nwait 0.02\nendloop"]),
}


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("case", SLOW)
def test_a_slow_server_gets_no_more_than_the_total(
    streamguard_gateway: Serve, session: Session, case: str, tls: bool
) -> None:
    """Whatever a server does slowly, the call ends with the limit, its thread is gone, and the server sees the close."""
    phase, scripts = SLOW[case]
    gateway = streamguard_gateway(*scripts, tls=tls)
    verify = gateway.ca if tls else True
    error = expiry(lambda: session.get(gateway.url, timeout=LIMIT, verify=verify))
    assert (error.phase, error.overran) == (phase, False)
    assert gateway.wait_left(len(scripts)).how in ("fin", "reset")


def test_a_slow_tls_handshake(streamguard_gateway: Serve, session: Session) -> None:
    """A server that never answers the TLS handshake is left when the limit is over."""
    gateway = streamguard_gateway("stall", tls_stall=True)
    error = expiry(lambda: session.get(gateway.url, timeout=LIMIT, verify=False))
    assert (error.phase, error.overran) == ("connect", False)
    gateway.wait_connections(1, still_open=0)


def test_a_blackholed_connect(session: Session) -> None:
    """A connect without an answer ends with the limit, and its thread with it."""
    with blackhole() as port:
        error = expiry(lambda: session.get(f"http://127.0.0.1:{port}/", timeout=LIMIT))
    assert (error.phase, error.overran) == ("connect", False)


def test_a_big_upload_that_is_not_read(streamguard_gateway: Serve, session: Session) -> None:
    """Sending is bounded, too, and the thread that sends is gone."""
    gateway = streamguard_gateway("stall", read_body=False)
    error = expiry(lambda: session.post(gateway.url, data=bytes(50_000_000), timeout=LIMIT))
    assert (error.phase, error.overran) == ("response", False)


def test_a_slow_resolver(
    streamguard_gateway: Serve, session: Session, gate: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Name resolution cannot be cut: the caller is free in time, the thread is counted, and connects to nothing later."""
    gateway, resolve, before = streamguard_gateway("stall"), socket.getaddrinfo, abandoned_threads()

    def slowly(*args: Any, **kwargs: Any) -> Any:
        gate.wait(10)
        return resolve(*args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", slowly)
    error = expiry(lambda: session.get(gateway.url, timeout=LIMIT))
    assert (error.phase, error.overran) == ("connect", True)
    assert abandoned_threads() == before + 1
    gate.set()
    wait_until(lambda: abandoned_threads() == before)
    assert gateway.requests == []


def test_a_pool_without_a_free_connection(streamguard_gateway: Serve, session: Session) -> None:
    """Waiting for a slot of a blocking pool counts; what waits there is left, and sends nothing when the slot is free."""
    gateway, before = streamguard_gateway("raw x\nwait 0.6\nend"), abandoned_threads()
    session.mount("http://", Adapter(pool_block=True, pool_maxsize=1))
    with session.get(gateway.url, stream=True, timeout=(5, 5)):
        error = expiry(lambda: session.get(gateway.url, timeout=LIMIT))
        assert (error.phase, error.overran) == ("new", True)
    wait_until(lambda: abandoned_threads() == before)
    assert len(gateway.requests) == 1


def test_a_foreign_adapters_body_is_cut(streamguard_gateway: Serve, session: Session) -> None:
    """Through requests' own adapter, too, a trickled body ends with the limit, and its thread with it."""
    gateway = streamguard_gateway(TRICKLE, "headers 302 location: /b\nend", TRICKLE, "body hello")
    session.mount("http://", HTTPAdapter())
    for left in (1, 3):
        assert not expiry(lambda: session.get(gateway.url, timeout=LIMIT)).overran
        gateway.wait_left(left)
    assert session.get(gateway.url, timeout=5).text == "hello"


def test_a_foreign_adapters_thread_ends_with_requests_own_timeout(streamguard_gateway: Serve, session: Session) -> None:
    """If nothing can be cut, requests gets the total as its own timeout, which ends the thread."""
    gateway, before = streamguard_gateway("stall"), abandoned_threads()
    session.mount("http://", HTTPAdapter())
    expiry(lambda: session.get(gateway.url, timeout=LIMIT))
    gateway.wait_left()
    wait_until(lambda: abandoned_threads() == before)


@pytest.mark.parametrize("timeout", [0, -1, timedelta(0), 0.0])
def test_a_spent_total_sends_nothing(streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
    """With a total of 0 or less nothing is sent, and no connection made."""
    gateway = streamguard_gateway()
    with pytest.raises(TotalTimeoutError, match="already spent") as spent:
        session.get(gateway.url, timeout=timeout)
    assert (spent.value.phase, gateway.connections) == ("new", 0)


@pytest.mark.parametrize("timeout", [None, 5, (5, 5)], ids=str)
def test_a_spent_deadline_sends_nothing(streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
    """Under a surrounding deadline that has passed nothing is sent, whatever the timeout."""
    gateway = streamguard_gateway()
    with deadline(0), pytest.raises(DeadlineExceededError, match="already spent") as spent:
        session.get(gateway.url, timeout=timeout)
    assert (spent.value.scope, gateway.connections) == ("ambient", 0)


@pytest.mark.parametrize("timeout", [None, 5, (5, 5)], ids=str)
def test_a_surrounding_deadline_tightens_every_timeout(streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
    """The surrounding deadline ends the call with an error that is not a requests.Timeout: a retry would not help."""
    gateway = streamguard_gateway(TRICKLE)
    begun = monotonic()
    with deadline(LIMIT), pytest.raises(DeadlineExceededError, match=r"the surrounding deadline\(\)") as expired:
        session.get(gateway.url, timeout=timeout)
    assert LIMIT <= monotonic() - begun < LIMIT + LATE
    assert (expired.value.scope, expired.value.limit) == ("ambient", None)
    assert not isinstance(expired.value, requests.RequestException)
    gateway.wait_left()


def test_a_nearer_total_goes_before_the_deadline(streamguard_gateway: Serve, session: Session) -> None:
    """Under a wider deadline the call's own total is what fires, and what the error names."""
    gateway = streamguard_gateway("stall")
    with deadline(10):
        expiry(lambda: session.get(gateway.url, timeout=LIMIT))


def test_late_is_no_success(streamguard_gateway: Serve, session: Session) -> None:
    """A complete answer whose hook ends after the instant is an error, though it came within the grace."""
    gateway = streamguard_gateway("body hello")
    hooks = {"response": lambda response, **_: time.sleep(LIMIT + 0.02)}
    error = expiry(lambda: session.get(gateway.url, timeout=LIMIT, hooks=hooks))
    assert not error.overran
    assert len(gateway.requests) == 1


def test_a_hook_that_hangs_is_abandoned(streamguard_gateway: Serve, session: Session, gate: threading.Event) -> None:
    """Code of the caller's that runs in the call cannot be stopped: the error says so."""
    gateway = streamguard_gateway("body hello")
    hooks = {"response": lambda response, **_: gate.wait(10)}
    error = expiry(lambda: session.get(gateway.url, timeout=LIMIT, hooks=hooks))
    assert error.overran
    assert "abandoned" in str(error)


def test_the_error_is_requests_and_names_the_host_alone(streamguard_gateway: Serve, session: Session) -> None:
    """The error is a requests.Timeout and a TimeoutError, travels, and tells nothing of the URL but the host."""
    gateway = streamguard_gateway("stall")
    url = gateway.url.replace("://", "://user:hush@") + "/hush?token=hush"
    error = expiry(lambda: session.post(url, json={"a": "hush"}, headers={"X-Key": "hush"}, timeout=LIMIT))
    assert isinstance(error, requests.Timeout)
    assert isinstance(error, TimeoutError)
    assert error.host == gateway.url.removeprefix("http://")
    assert str(error).startswith(f"POST {error.host} took longer than timeout=0.2 (argument)")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.scope, copy.limit, copy.phase) == (
        TotalTimeoutError,
        str(error),
        "total",
        LIMIT,
        "response",
    )
    assert "hush" not in str(error) + repr(error.__dict__) + repr(error.__cause__) + repr(error.__context__)


@pytest.mark.parametrize("timeout", [None, 10, (10, 10)], ids=str)
def test_a_cancel_of_the_current_token(streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
    """Cancelling the current token frees the caller at once, and the server sees the close."""
    gateway, token = streamguard_gateway(TRICKLE), CancelToken()
    threading.Thread(target=lambda: (gateway.wait_step("wait"), token.cancel("enough")), daemon=True).start()
    with pytest.raises(StreamCancelledError) as cancelled:
        in_context(lambda: session.get(gateway.url, timeout=timeout), token)
    assert cancelled.value.reason == "enough"
    gateway.wait_left()


def test_a_cancelled_token_sends_nothing(streamguard_gateway: Serve, session: Session) -> None:
    """Under a token that is cancelled already nothing is sent."""
    gateway, token = streamguard_gateway("stall"), CancelToken()
    token.cancel()
    with pytest.raises(StreamCancelledError):
        in_context(lambda: session.get(gateway.url, timeout=5), token)
    assert gateway.connections == 0


# What a timeout may be


def test_the_sessions_own_timeout_holds_where_none_is_given(streamguard_gateway: Serve) -> None:
    """A Session's timeout is the default; None given to a call means none; another number goes before it."""
    gateway = streamguard_gateway("stall", "wait 0.3\nbody hello", "wait 0.3\nbody hello")
    with Session(timeout=LIMIT) as session:
        assert "the Session's default" in str(expiry(lambda: session.get(gateway.url)))
        assert session.get(gateway.url, timeout=None).text == "hello"
        assert session.get(gateway.url, timeout=10).text == "hello"


def test_the_default_can_be_changed(streamguard_gateway: Serve, session: Session) -> None:
    """`session.timeout` is read at each call, and holds for `send()` as well."""
    gateway = streamguard_gateway("stall")
    session.timeout = LIMIT
    prepared = session.prepare_request(requests.Request("GET", gateway.url))
    expiry(lambda: session.send(prepared))
    expiry(lambda: session.request("GET", gateway.url))


def test_send_takes_a_total(streamguard_gateway: Serve, session: Session) -> None:
    """A prepared request is bounded as any other."""
    gateway = streamguard_gateway("headers 302 location: /b\nend", TRICKLE, "body hello")
    prepared = session.prepare_request(requests.Request("GET", gateway.url))
    expiry(lambda: session.send(prepared, timeout=LIMIT))
    assert session.send(prepared, timeout=5).text == "hello"


def nested(send: Act) -> Any:
    """Return a hook that sends something of its own, once."""
    answered: list[bytes] = []

    def hook(response: requests.Response, **_: Any) -> None:
        if not answered:
            answered.append(response.content)  # requests leaves open what is not read when a hook raises
            send()

    return {"response": hook}


@pytest.mark.parametrize("timeout", [None, 5])
def test_a_hooks_own_send_is_bounded(streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
    """Inside of a call, send() has its own total, or the deadline around it: only hops belong to the call."""
    gateway = streamguard_gateway("body hello", "stall", "body hello", "stall")
    prepared = session.prepare_request(requests.Request("GET", gateway.url))
    hooks = nested(lambda: session.send(prepared, timeout=LIMIT))
    expiry(lambda: session.get(gateway.url, timeout=timeout, hooks=hooks))

    def in_a_block() -> None:
        with deadline(LIMIT):
            session.send(prepared)

    with pytest.raises(DeadlineExceededError) as expired:
        session.get(gateway.url, timeout=timeout, hooks=nested(in_a_block))
    assert expired.value.scope == "ambient"


def test_a_hop_belongs_to_its_call(streamguard_gateway: Serve, session: Session) -> None:
    """A redirect, and what a hook repeats with the call's own arguments, stay in the worker of the call."""
    gateway = streamguard_gateway("headers 302 location: /b\nend", "body hello")
    threads: list[int] = []

    def hook(response: requests.Response, **options: Any) -> requests.Response:
        threads.append(threading.get_ident())
        return session.send(response.request, **options) if len(threads) == 2 else response

    assert session.get(gateway.url, timeout=5, hooks={"response": hook}).text == "hello"
    assert (len(threads), len(set(threads))) == (3, 1)


@pytest.mark.filterwarnings("ignore:.* hours:UserWarning")
@pytest.mark.parametrize("timeout", [9.3e9, 1e300, timedelta.max])
def test_a_limit_that_never_comes(streamguard_gateway: Serve, timeout: Any) -> None:
    """A number beyond what the system can wait for is as good as none."""
    gateway = streamguard_gateway("body hello")
    with Session(timeout=timeout) as session:
        assert session.get(gateway.url).text == "hello"
    with Session() as session, deadline(timeout):
        assert session.get(gateway.url).text == "hello"


def test_all_positional_arguments_are_requests_own(streamguard_gateway: Serve, session: Session) -> None:
    """The sixteenth, json, is sent; one more, one twice, and an unknown one are TypeErrors."""
    gateway = streamguard_gateway("body hello")
    rest = (None, None, None, None, None, None, 5, True, None, None, False, True, None)
    session.request("POST", gateway.url, *rest, {"a": 1})
    assert gateway.requests[0].body == b'{"a": 1}'
    for args, options in (((*rest, None, 17), {}), ((None,), {"params": None}), ((), {"bogus": 1})):
        with pytest.raises(TypeError):
            session.request("GET", gateway.url, *args, **options)


@pytest.mark.parametrize("timeout", [b"5", [1], (1, 2, 3)])
def test_a_session_refuses_what_no_call_would_take(timeout: Any) -> None:
    """What requests would refuse in the first call is refused where it is written."""
    with pytest.raises(TypeError, match="timeout="):
        Session(timeout=timeout)


def test_a_timeout_among_the_positional_arguments(streamguard_gateway: Serve, session: Session) -> None:
    """requests' ninth positional argument is the timeout, and is a total here as well."""
    gateway = streamguard_gateway("stall")
    expiry(lambda: session.request("GET", gateway.url, None, None, None, None, None, None, LIMIT))


@pytest.mark.parametrize(("timeout", "kind"), [(True, TypeError), (float("nan"), UsageError)])
def test_what_is_no_number_of_seconds_is_refused(session: Session, timeout: Any, kind: type[Exception]) -> None:
    """A timeout that can mean nothing is refused by its name, by the call and by the Session."""
    with pytest.raises(kind, match="timeout="):
        session.get("http://127.0.0.1:9/", timeout=timeout)
    with pytest.raises(kind, match="timeout="):
        Session(timeout=timeout)


@pytest.mark.parametrize("timeout", [(5, LIMIT), urllib3.Timeout(connect=5, read=LIMIT)], ids=["tuple", "Timeout"])
def test_requests_own_timeouts_keep_their_meaning(streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
    """A tuple is requests' (connect, read): a trickle is fine, a stall is its ReadTimeout."""
    gateway = streamguard_gateway("headers\nloop 20\nraw x\nwait 0.02\nendloop", "stall")
    assert session.get(gateway.url, timeout=timeout).text == "x" * 20
    with pytest.raises(requests.ReadTimeout) as expired:
        session.get(gateway.url, timeout=timeout)
    assert type(expired.value) is requests.ReadTimeout


def test_requests_own_timeouts_stay_exact_under_a_deadline(streamguard_gateway: Serve, session: Session) -> None:
    """They fire when they say, also where the call has to be in a thread of its own."""
    gateway, begun = streamguard_gateway("stall"), monotonic()
    with deadline(30), pytest.raises(requests.ReadTimeout):
        session.get(gateway.url, timeout=(5, LIMIT))
    assert LIMIT <= monotonic() - begun < LIMIT + LATE


@pytest.mark.parametrize("script", ["stall", "headers content-type: text/plain\nraw x\nstall"], ids=["headers", "body"])
def test_the_second_net(streamguard_gateway: Serve, session: Session, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """If a cut has no effect, the socket's own timeout ends the thread, later than the limit: both at once are slow."""
    monkeypatch.setattr(SocketGuard, "cut", lambda self: None)
    gateway, begun = streamguard_gateway(script), monotonic()
    assert expiry(lambda: session.get(gateway.url, timeout=LIMIT)).overran
    assert abandoned_threads() == 1
    wait_until(lambda: not abandoned_threads())
    assert monotonic() - begun >= LIMIT + 1


def test_a_call_that_nothing_bounds_stays_in_its_thread(streamguard_gateway: Serve, session: Session) -> None:
    """Without a total, a deadline and a token the call is made in the caller's thread; with one of them it is not."""
    gateway = streamguard_gateway("body hello")
    threads: list[int] = []
    hooks = {"response": lambda response, **_: threads.append(threading.get_ident())}
    for timeout in (None, (5, 5), 5):
        session.get(gateway.url, timeout=timeout, hooks=hooks)
    assert [thread == threading.get_ident() for thread in threads] == [True, True, False]


# stream=


def test_a_body_that_is_read_later_cannot_be_bounded(streamguard_gateway: Serve, session: Session) -> None:
    """stream=True with a total, or under a deadline, is refused, and the message names what to use."""
    gateway = streamguard_gateway("body hello")
    with pytest.raises(UsageError, match=r"session\.stream\("):
        session.get(gateway.url, stream=True, timeout=5)
    with deadline(5), pytest.raises(UsageError, match=r"session\.stream\("):
        session.get(gateway.url, stream=True)
    prepared = session.prepare_request(requests.Request("GET", gateway.url))
    with pytest.raises(UsageError, match=r"session\.stream\("):
        session.send(prepared, stream=True, timeout=5)
    assert gateway.connections == 0
    with session.get(gateway.url, stream=True, timeout=(5, 5)) as response:
        assert response.raw.read() == b"hello"


def test_requests_flag_of_that_name_still_is_one(streamguard_gateway: Serve, session: Session) -> None:
    """`session.stream` is false, can be set as in requests, and then holds for calls that say nothing."""
    gateway = streamguard_gateway("body hello")
    assert not session.stream
    assert session.stream == False  # noqa: E712 - what old code asks
    session.stream = True  # type: ignore[assignment, method-assign]
    assert session.stream
    with session.get(gateway.url) as response:
        assert not response._content_consumed  # type: ignore[attr-defined]
    with pytest.raises(UsageError):
        session.get(gateway.url, timeout=5)
    assert session.get(gateway.url, timeout=5, stream=False).text == "hello"


@pytest.mark.parametrize("around", [10, None])
def test_stream_is_guarded_stream_with_this_session(streamguard_gateway: Serve, around: float | None) -> None:
    """`.stream()` streams with the session's headers and cookies, whatever its timeout, also under a deadline."""
    gateway = streamguard_gateway("headers set-cookie: a=b\nchat hello\nfinish\ndone")
    with Session(timeout=5) as session, deadline(around):
        session.headers["X-Key"] = "k"
        for _ in range(2):
            assert session.stream("POST", gateway.url, json={"stream": True}, idle=5).read() == "hello"
        assert session.cookies["a"] == "b"
    first, second = gateway.requests
    assert (first.headers["x-key"], second.headers["cookie"]) == ("k", "a=b")


def test_a_stream_under_a_token_alone_is_cut(streamguard_gateway: Serve, session: Session) -> None:
    """stream=True under a current token, with no deadline, works, and a cancel cuts its body."""
    gateway, token = streamguard_gateway(TRICKLE), CancelToken()
    response = in_context(lambda: session.get(gateway.url, stream=True), token)
    with response, contextlib.suppress(requests.RequestException):
        for _ in response.iter_content(1):
            token.cancel()
    gateway.wait_left()


# The header


def test_the_header_tells_the_milliseconds_left(streamguard_gateway: Serve) -> None:
    """Each request, and each hop of a redirect, has the rest of the nearest deadline; without one, no header."""
    gateway = streamguard_gateway("wait 0.1\nheaders 302 location: /b\nend", "body hello")
    with Session(deadline_header="X-Request-Timeout-Ms") as session:
        session.get(gateway.url, timeout=5)
        with deadline(3):
            session.get(gateway.url, timeout=5)
            session.get(gateway.url, timeout=(5, 5))
        session.get(gateway.url)
    left = [request.headers.get("x-request-timeout-ms") for request in gateway.requests]
    first, hop, ambient, tuple_, none = [None if value is None else int(value) for value in left]
    assert none is None
    assert first is not None
    assert 3000 < first <= 5000
    assert hop is not None
    assert hop <= first - 100
    assert ambient is not None
    assert 1000 < ambient <= 3000
    assert tuple_ is not None
    assert tuple_ <= ambient


def test_the_header_is_not_sent_unless_asked_for(streamguard_gateway: Serve) -> None:
    """By default no header is sent, and a prepared request is never changed."""
    gateway = streamguard_gateway("body hello")
    with Session(timeout=5) as session:
        session.get(gateway.url)
        session.deadline_header = "X-Left"
        prepared = session.prepare_request(requests.Request("GET", gateway.url))
        session.send(prepared)
    assert [("x-left" in request.headers) for request in gateway.requests] == [False, True]
    assert "X-Left" not in prepared.headers


def test_a_stream_tells_its_total(streamguard_gateway: Serve) -> None:
    """`.stream()` carries the nearest of its own total and the surrounding deadline."""
    gateway = streamguard_gateway("chat hello\nfinish\ndone")
    with Session(deadline_header="X-Left") as session:
        session.stream("GET", gateway.url, total=5).read()
        with deadline(2):
            session.stream("GET", gateway.url, total=5).read()
        session.stream("GET", gateway.url).read()
    total, ambient, none = [request.headers.get("x-left") for request in gateway.requests]
    assert total is not None
    assert 2000 < int(total) <= 5000
    assert ambient is not None
    assert int(ambient) <= 2000
    assert none is None


# get_json


def test_get_json(streamguard_gateway: Serve, session: Session) -> None:
    """A good answer is its parsed body; arguments are requests' own."""
    gateway = streamguard_gateway('body {"allowed": true}')
    assert session.get_json(gateway.url, params={"a": "b"}, timeout=5) == {"allowed": True}
    assert session.get_json(gateway.url, method="POST", json={}) == {"allowed": True}
    first, second = gateway.requests
    assert (first.method, first.target, second.method) == ("GET", "/?a=b", "POST")


def test_get_json_of_an_error_status(streamguard_gateway: Serve, session: Session) -> None:
    """A status of 400 or above is an HTTPStatusError with the server's message and its Retry-After."""
    gateway = streamguard_gateway('headers 503 retry-after: 7; content-type: application/json\nraw {"error": "busy"}')
    with pytest.raises(HTTPStatusError, match="status 503 Service Unavailable: busy") as refused:
        session.get_json(gateway.url, timeout=5)
    error = refused.value
    assert (error.status_code, error.retry_after, error.body) == (503, 7, '{"error": "busy"}')
    assert isinstance(error, requests.HTTPError)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("body", ["<html>" + "x" * 2000, "", '{"a": ', "[" * 100_000], ids=["html", "empty", "cut", "deep"])
def test_get_json_of_what_is_no_json(streamguard_gateway: Serve, session: Session, body: str) -> None:
    """A status of success with a body that is not JSON is an InvalidJSONError that shows how it begins."""
    gateway = streamguard_gateway(f"headers content-type: text/html\nraw {body}" if body else "headers\nend")
    with pytest.raises(InvalidJSONError, match="status 200, but its body is not JSON") as refused:
        session.get_json(gateway.url, timeout=5)
    error = refused.value
    assert (error.status_code, error.body) == (200, body[:512])
    assert isinstance(error, requests.exceptions.InvalidJSONError)
    assert classify(error) == Classification("protocol", "fail-fast")
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.body, copy.content_type) == (str(error), error.body, error.content_type)


def only_dicts(value: Any) -> None:
    if not isinstance(value, dict):
        raise TypeError("not a dict")


@pytest.mark.parametrize(
    ("validate", "value"),
    [
        (only_dicts, {"a": 1}),  # as jsonschema.validate: it raises, or returns None
        (lambda answer: answer["a"] == 1, {"a": 1}),  # a predicate
        (lambda answer: (answer["a"], "parsed"), (1, "parsed")),  # as a model of pydantic: the value to use
    ],
)
def test_c243_get_json_validates(
    streamguard_gateway: Serve, session: Session, validate: Callable[[Any], Any], value: Any
) -> None:
    """C243: `validate=` gets the parsed JSON; it may check it, or return the value to use."""
    assert session.get_json(streamguard_gateway('body {"a": 1}').url, validate=validate) == value


@pytest.mark.parametrize("body", ["{}", "null", "[1]", '{"a": 2}', '"text"'])
@pytest.mark.parametrize("validate", [lambda answer: answer["a"] == 1, lambda answer: 1 // (answer["a"] == 1)])
def test_c243_json_of_the_wrong_shape_is_refused(
    streamguard_gateway: Serve, session: Session, validate: Callable[[Any], Any], body: str
) -> None:
    """C243: JSON for which `validate=` raises, or returns False, is a ResponseValidationError that shows how it begins."""
    gateway = streamguard_gateway(f"body {body}")
    with pytest.raises(ResponseValidationError, match="validate=") as refused:
        session.get_json(gateway.url, validate=validate)
    assert (refused.value.status_code, refused.value.body) == (200, body)
    assert classify(refused.value) == Classification("protocol", "fail-fast")


def test_c243_a_validator_that_is_not_callable_is_refused(streamguard_gateway: Serve, session: Session) -> None:
    """C243: nothing is sent with a `validate=` that cannot be called."""
    gateway = streamguard_gateway("body {}")
    with pytest.raises(TypeError, match="validate= must be a function"):
        session.get_json(gateway.url, validate={"type": "object"})  # type: ignore[arg-type]
    assert gateway.connections == 0


def test_get_json_is_bounded(streamguard_gateway: Serve, session: Session) -> None:
    """A trickled answer, an error's too, has the total and no more."""
    gateway = streamguard_gateway(TRICKLE, "headers 500\nloop forever\nraw x\nwait 0.02\nendloop")
    for _ in range(2):
        expiry(lambda: session.get_json(gateway.url, timeout=LIMIT))


# A drop-in


@pytest.mark.parametrize("timeout", [5, None], ids=["bounded", "plain"])
class TestDropIn:
    """What requests does is done, in a worker as in the caller's thread."""

    def test_a_connection_is_used_again(self, streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
        """Calls one after the other share one connection."""
        gateway = streamguard_gateway("body hello")
        for _ in range(5):
            assert session.get(gateway.url, timeout=timeout).text == "hello"
        assert gateway.connections == 1

    def test_cookies(self, streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
        """Cookies that come, on a redirect too, are on the session afterwards, and sent with the next call."""
        gateway = streamguard_gateway(
            "headers 302 location: /b; set-cookie: a=1\nend", "headers set-cookie: b=2\nraw x", "body x"
        )
        session.get(gateway.url, timeout=timeout)
        assert session.cookies.get_dict() == {"a": "1", "b": "2"}
        session.get(gateway.url, timeout=timeout)
        assert gateway.requests[2].headers["cookie"] == "a=1; b=2"

    def test_redirects(self, streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
        """Redirects are followed with their history, or not, and counted."""
        gateway = streamguard_gateway("headers 302 location: /b\nend", "body hello", "headers 302 location: /c\nend")
        response = session.get(gateway.url, timeout=timeout)
        assert (response.text, [hop.status_code for hop in response.history]) == ("hello", [302])
        assert session.get(gateway.url, timeout=timeout, allow_redirects=False).next is not None
        session.max_redirects = 3
        with pytest.raises(requests.TooManyRedirects):
            session.get(gateway.url, timeout=timeout)

    def test_basic_auth(self, streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
        """auth= is sent, the call's before the session's."""
        gateway = streamguard_gateway("body hello")
        session.auth = ("user", "key")
        session.get(gateway.url, timeout=timeout)
        session.get(gateway.url, timeout=timeout, auth=lambda request: request)
        assert [request.headers.get("authorization") for request in gateway.requests] == ["Basic dXNlcjprZXk=", None]

    def test_digest_auth(self, streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
        """An auth that answers a challenge by sending again works, on the same connection."""
        gateway = streamguard_gateway(
            'headers 401 www-authenticate: Digest realm="r", nonce="n", qop="auth"\nend', "body in"
        )
        response = session.get(gateway.url, timeout=timeout, auth=HTTPDigestAuth("user", "key"))
        assert (response.text, len(response.history), gateway.connections) == ("in", 1, 1)

    def test_hooks(self, streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
        """A hook may replace the response; one that raises has its own error raised, and the body can still be read."""
        gateway = streamguard_gateway("body one", 'headers 404\nraw {"why": "gone"}')
        replaced = session.get(gateway.url, timeout=timeout, hooks={"response": lambda response, **_: response})
        assert replaced.text == "one"
        session.hooks["response"].append(lambda response, **_: response.raise_for_status())
        with pytest.raises(requests.HTTPError) as refused:
            session.get(gateway.url, timeout=timeout)
        assert type(refused.value) is requests.HTTPError
        assert refused.value.response.json() == {"why": "gone"}

    def test_errors_are_requests_own(self, streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
        """Refused, reset, cut short, no URL: the errors are those of requests, with their request on them."""
        gateway = streamguard_gateway("reset", "headers content-length: 10\nraw x\nclose")
        with pytest.raises(requests.ConnectionError) as reset:
            session.get(gateway.url, timeout=timeout)
        assert reset.value.request is not None
        with pytest.raises(requests.exceptions.ChunkedEncodingError):
            session.get(gateway.url, timeout=timeout)
        with pytest.raises(requests.ConnectionError):
            session.get("http://127.0.0.1:9/", timeout=timeout)
        for url, kind in (("nothing", requests.exceptions.MissingSchema), ("ftp://x/", requests.exceptions.InvalidSchema)):
            with pytest.raises(kind):
                session.get(url, timeout=timeout)

    def test_arguments(self, streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
        """params, data, json, files and headers reach the server; bytes are a URL, too."""
        gateway = streamguard_gateway("body ok")
        session.request("get", gateway.url.encode(), {"a": "b"}, None, {"X-A": "1"}, timeout=timeout)
        session.post(gateway.url, {"c": "d"}, timeout=timeout)
        session.put(gateway.url, json={"e": 1}, timeout=timeout)
        session.patch(gateway.url, files={"f": b"file"}, timeout=timeout)
        got, posted, put, patched = gateway.requests
        assert (got.target, got.headers["x-a"], posted.body, put.body) == ("/?a=b", "1", b"c=d", b'{"e": 1}')
        assert b"file" in patched.body
        assert [
            session.head(gateway.url, timeout=timeout).status_code,
            session.delete(gateway.url, timeout=timeout).ok,
        ] == [
            200,
            True,
        ]

    def test_mocks(self, session: Session, timeout: Any) -> None:
        """`responses` answers, matches what it is given, and raises what it is given."""
        with responses.RequestsMock() as mocked:
            asked = {"timeout": timeout, "stream": False}
            mocked.get("http://mocked/", json={"a": 1}, match=[responses.matchers.request_kwargs_matcher(asked)])
            mocked.get("http://broken/", body=requests.ConnectionError("as asked"))
            assert session.get_json("http://mocked/", timeout=timeout) == {"a": 1}
            with pytest.raises(requests.ConnectionError, match="as asked"):
                session.get("http://broken/", timeout=timeout)

    def test_many_threads(self, streamguard_gateway: Serve, session: Session, timeout: Any) -> None:
        """Threads that share a session each get their own answer."""
        gateway, bodies = streamguard_gateway("body hello"), []
        work = lambda: bodies.extend(session.get(gateway.url, timeout=timeout).text for _ in range(10))  # noqa: E731
        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert bodies == ["hello"] * 80


def test_a_session_travels(streamguard_gateway: Serve) -> None:
    """A pickled session comes back with its settings, and with adapters that cut."""
    gateway = streamguard_gateway("stall")
    with Session(timeout=LIMIT, deadline_header="X-Left") as session:
        session.headers["X-A"] = "1"
        copy = pickle.loads(pickle.dumps(session))
    with copy:
        assert (copy.timeout, copy.deadline_header, copy.headers["X-A"], bool(copy.stream)) == (LIMIT, "X-Left", "1", False)
        expiry(lambda: copy.get(gateway.url))
    gateway.wait_left()


def test_a_subclass_may_override_request(streamguard_gateway: Serve) -> None:
    """A subclass that completes the URL, as many do, is bounded all the same."""

    class Based(Session):
        def request(self, method: str, url: Any, *args: Any, **options: Any) -> requests.Response:
            return super().request(method, gateway.url + url, *args, **options)

    gateway = streamguard_gateway("stall")
    with Based(timeout=LIMIT) as session:
        expiry(lambda: session.get("/a"))
    assert gateway.requests[0].target == "/a"


class SelfClosing(Session):
    """A session that closes itself when it is collected."""

    closed = 0

    def __del__(self) -> None:
        type(self).closed += 1
        self.close()


def test_a_steps_session_shares_the_state_and_closes_nothing(streamguard_gateway: Serve) -> None:
    """What a step sets holds for the session itself; closing or collecting the step's view closes no connection."""
    gateway = streamguard_gateway("body hello")

    def login(ctx: StepContext) -> None:
        with ctx.session as view:
            view.auth = ("user", "word")
            view.get(gateway.url)

    session = SelfClosing()
    chain = Chain("c", session=session)
    chain.step(login, name="login")
    chain.run()
    session.get(gateway.url)
    assert (gateway.connections, SelfClosing.closed) == (1, 0)
    assert [request.headers["authorization"] for request in gateway.requests] == ["Basic dXNlcjp3b3Jk"] * 2
    del chain, session


def test_a_session_in_a_thread_of_the_callers(streamguard_gateway: Serve) -> None:
    """No signal is used: a worker thread has the same limits as the main one."""
    gateway, errors = streamguard_gateway("stall"), []

    def work() -> None:
        with Session(timeout=LIMIT) as session:
            errors.append(expiry(lambda: session.get(gateway.url)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert len(errors) == 1


# Leftovers


def time_out(gateway: Gateway, count: int, timeout: float) -> None:
    with no_leaks(settle=5):
        with Session(timeout=timeout) as session:
            for _ in range(count):
                with pytest.raises(TotalTimeoutError):
                    session.get(gateway.url)
        gateway.wait_connections(count, still_open=0)


def test_fifty_timed_out_calls_leave_nothing(streamguard_gateway: Serve) -> None:
    """No thread, no descriptor, and no connection of the server's is left of them."""
    time_out(streamguard_gateway("raw x\nstall"), 50, 0.02)


@pytest.mark.stress
@pytest.mark.timeout(300)
@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_five_hundred_timed_out_calls_leave_nothing(
    streamguard_gateway: Serve, tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No thread, no descriptor, and no connection of the server's is left of them, plain and TLS."""
    gateway = streamguard_gateway("raw x\nstall", tls=tls)
    if tls:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", gateway.ca)
    time_out(gateway, 500, 0.05)


def test_a_forked_child_makes_calls_of_its_own(streamguard_gateway: Serve) -> None:
    """A child can call, and be timed out, while its parent's call goes on unharmed."""
    gateway = streamguard_gateway("wait 0.5\nbody parent", "stall")
    output = run_script(
        """
        import warnings
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        texts = []
        session = Session(timeout=10)
        thread = threading.Thread(target=lambda: texts.append(session.get(sys.argv[1]).text))
        thread.start()
        wait_blocked("readinto")
        pid = os.fork()
        if not pid:
            try:
                Session(timeout=0.1).get(sys.argv[1])
            except TotalTimeoutError:
                os._exit(7)
            os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        thread.join()
        print(status, *texts)
        """,
        gateway.url,
    )
    assert output == "7 parent\n"


def test_a_stuck_call_does_not_hold_up_the_exit(streamguard_gateway: Serve) -> None:
    """A program ends at once, without a message, although a call is stuck in name resolution."""
    begun = monotonic()
    output = run_script(
        """
        import socket
        socket.getaddrinfo = lambda *args, **options: time.sleep(60)
        try:
            Session(timeout=0.1).get("http://example.invalid/")
        except TotalTimeoutError as error:
            print(error.overran, abandoned_threads())
        """
    )
    assert output == "True 1\n"
    assert monotonic() - begun < 20
