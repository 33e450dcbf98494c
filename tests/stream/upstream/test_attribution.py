"""An exception of the caller's own function in the reader thread propagates as it is: it is not a fault of the network."""

import errno
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest
import requests
import urllib3

from streamguard import (
    TransportError,
    TransportTimeoutError,
    UsageError,
    before_first_chunk,
    classify,
    guard,
    guarded_stream,
)

from ...helpers import Serve
from ..helpers import SoftLimit, ask, consume, stream_from

OWN: list[Exception] = [
    FileNotFoundError(2, "No such file", "/etc/token"),
    PermissionError(13, "denied"),
    OSError("no key"),
    ChildProcessError(10, "gone"),
    UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"),
    ValueError("no"),
    requests.RequestException("no"),
    requests.HTTPError("no"),
    ImportError("no"),
]


def raising(fault: BaseException) -> Callable[..., NoReturn]:
    def function(*_: Any, **__: Any) -> NoReturn:
        raise fault

    return function


def body_with(fault: BaseException) -> Iterator[bytes]:
    yield b"half"
    raise fault


WAYS: dict[str, Callable[[BaseException], dict[str, Any]]] = {
    "auth": lambda fault: {"auth": raising(fault)},
    "hook": lambda fault: {"hooks": {"response": raising(fault)}},
    "body": lambda fault: {"data": body_with(fault)},
}

CASES = [
    pytest.param(way, fault, id=f"{way}-{type(fault).__name__}")
    for way in WAYS
    for fault in OWN
    if way != "body" or not isinstance(fault, requests.RequestException)  # those requests takes for its own
]


@pytest.mark.parametrize(("way", "fault"), CASES)
def test_it_is_raised_as_it_is(streamguard_gateway: Serve, way: str, fault: Exception) -> None:
    """It is raised once, unchanged, and the report has the phase."""
    stream = guarded_stream("POST", streamguard_gateway("chat a\ndone").url, **WAYS[way](fault))
    assert consume(stream).error is fault
    assert stream.report.attempts == 1
    assert stream.report.phase == {"auth": "connect"}.get(way, "response")


def test_it_is_not_replaced_by_its_cause(streamguard_gateway: Serve) -> None:
    """The raised exception propagates, not its cause."""

    def unreadable(*_: Any) -> NoReturn:
        try:
            Path("/nowhere/token").read_text()
        except OSError as exc:
            raise RuntimeError("no token") from exc
        raise AssertionError

    error = consume(guarded_stream("GET", streamguard_gateway("chat a").url, auth=unreadable)).error
    assert isinstance(error, RuntimeError)
    assert isinstance(error.__cause__, FileNotFoundError)


def test_an_exception_of_a_function_that_opens() -> None:
    """guard() raises it unchanged."""
    fault = FileNotFoundError(2, "No such file", "/nowhere")
    assert consume(guard(raising(fault))).error is fault


def test_a_phase_attribute_of_its_own_is_ignored() -> None:
    """An exception may have an attribute `phase` of its own."""
    fault = RuntimeError("no")
    fault.phase = "login"  # type: ignore[attr-defined]
    stream = guard(raising(fault))
    assert consume(stream).error is fault
    assert stream.report.phase == "response"


class SocketFileAdapter(requests.adapters.HTTPAdapter):
    """An adapter of another library, whose socket does not exist."""

    def send(self, *_: Any, **__: Any) -> NoReturn:  # type: ignore[override]
        raise FileNotFoundError(2, "No such file", "/run/gateway.sock")


class Unconnectable(urllib3.connection.HTTPConnection):
    """A connection that the system refuses."""

    def _new_conn(self) -> NoReturn:
        raise OSError(errno.ENODEV, "No such device")


def unconnectable() -> requests.adapters.HTTPAdapter:
    adapter = requests.adapters.HTTPAdapter()
    pool = type("Pool", (urllib3.HTTPConnectionPool,), {"ConnectionCls": Unconnectable})
    adapter.poolmanager.pool_classes_by_scheme = {"http": pool}
    return adapter


@pytest.mark.parametrize(("adapter", "code"), [(SocketFileAdapter, "ENOENT"), (unconnectable, "ENODEV")])
def test_another_librarys_transport_is_the_network(adapter: Callable[[], Any], code: str) -> None:
    """A fault of another library's adapter or connection is a transport error."""
    with requests.Session() as session:
        session.mount("http://", adapter())
        error = consume(guarded_stream("GET", "http://gateway/", session=session, retry=None)).error
    assert isinstance(error, TransportError)
    assert error.code == code


@pytest.mark.parametrize("way", ["auth", "hook"])
def test_a_body_that_is_not_json(streamguard_gateway: Serve, way: str) -> None:
    """A JSON error of a hook or an auth is raised unchanged; it does not blame `json=`."""
    gateway = streamguard_gateway("headers\nraw no json")

    def ask(*_: Any, **__: Any) -> NoReturn:
        requests.get(gateway.url).json()
        raise AssertionError

    options: dict[str, Any] = {"auth": ask} if way == "auth" else {"hooks": {"response": ask}}
    error = consume(guarded_stream("GET", gateway.url, retry=None, **options)).error
    assert isinstance(error, requests.JSONDecodeError)


def test_a_timeout_of_the_callers_own_names_no_limit_of_ours(streamguard_gateway: Serve) -> None:
    """The error of an own timeout does not name `connect`."""
    stream = guarded_stream("GET", streamguard_gateway("chat a").url, auth=raising(TimeoutError("no lock")), retry=None)
    error = consume(stream).error
    assert isinstance(error, TransportTimeoutError)
    assert (error.limit, "connect=" in str(error)) == (None, False)


@pytest.mark.parametrize("way", ["auth", "guard"])
def test_causes_in_a_circle(streamguard_gateway: Serve, way: str) -> None:
    """The original error is raised, and the thread ends."""

    def circle(*_: Any) -> NoReturn:
        inner, outer = KeyError("inner"), RuntimeError("outer")
        inner.__cause__, outer.__cause__ = outer, inner
        raise outer

    options: dict[str, Any] = {"auth": circle}
    source = streamguard_gateway("chat a").url
    stream: Any = guarded_stream("GET", source, **options) if way == "auth" else guard(circle)
    error = consume(stream).error
    assert isinstance(error, RuntimeError)
    assert stream.report.attempts == 1


def test_a_circle_of_transport_faults() -> None:
    """Transport errors in a circle have a code."""
    inner, outer = ConnectionResetError("inner"), requests.ConnectionError("outer")
    inner.__cause__, outer.__cause__ = outer, inner
    error = consume(guard(raising(outer), retry=None)).error
    assert isinstance(error, TransportError)
    assert error.code == "ECONNRESET"


@pytest.mark.parametrize(("status", "attempts"), [(429, 2), (404, 1)])
def test_a_status_that_urllib_raises_is_not_a_transport_fault(
    streamguard_gateway: Serve, status: int, attempts: int
) -> None:
    """It is an OSError, but it is raised unchanged, and a policy sees its status."""
    gateway = streamguard_gateway(f"headers {status}\nbody no")
    policy = before_first_chunk(1, status={429}, wait=lambda state: 0.0)
    error = consume(guard(lambda: urllib.request.urlopen(gateway.url), retry=policy)).error
    assert isinstance(error, urllib.error.HTTPError)
    error.close()
    assert classify(error).kind == "http"
    assert len(gateway.requests) == attempts


def test_a_manager_that_opens_no_stream_is_refused() -> None:
    """A process and a lock are context managers, too: neither is entered."""
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        with pytest.raises(UsageError, match=r"\.stdout"):
            guard(process)
        assert process.poll() is None
        assert process.stdin is not None
    lock = threading.Lock()
    with pytest.raises(UsageError):
        guard(lock)
    assert not lock.locked()


@pytest.mark.parametrize("kind", [SoftLimit, TimeoutError, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["counts", "decode"])
def test_what_the_callers_functions_raise_is_not_ours(
    streamguard_gateway: Serve, kind: type[BaseException], where: str
) -> None:
    """A fault in `counts=` or `decode=` is raised unchanged, once, and the stream is closed (B051)."""
    gateway = streamguard_gateway("chat a\nstall")

    def faulty(_: object) -> None:
        raise kind("a bug")

    stream = stream_from(gateway, retry=3, **{where: faulty})
    with pytest.raises(kind, match="a bug"):
        next(stream)
    assert next(stream, "over") == "over"
    assert len(gateway.requests) == 1
    gateway.wait_left()


def test_a_hook_that_fails(streamguard_gateway: Serve) -> None:
    """A hook that raises, such as one that calls raise_for_status(), ends the stream, and its connection."""

    def hook(response: requests.Response, **options: Any) -> None:
        response.raise_for_status()

    gateway = streamguard_gateway("headers 500\nstall")
    run = ask(gateway, hooks={"response": hook})
    assert isinstance(run.error, requests.HTTPError)
    assert run.stream.report.outcome == "error"
    gateway.wait_left()
