"""The exceptions of streamguard: the tree, the details, and that every error pickles."""

import copy
import errno
import functools
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import requests

from streamguard import (
    CancelToken,
    DeadlineExceededError,
    EmptyStreamError,
    HTTPStatusError,
    IncompleteStreamError,
    InStreamError,
    MalformedChunkError,
    NotEventStreamError,
    StreamCancelledError,
    StreamguardError,
    StreamInactivityTimeoutError,
    TransportError,
    TransportTimeoutError,
    UsageError,
    deadline,
    errors,
    guarded_stream,
)

Serve = Callable[..., Any]

CLASSES: list[type[StreamguardError]] = [getattr(errors, name) for name in errors.__all__]

TREE: dict[type[StreamguardError], tuple[type[BaseException], ...]] = {
    StreamguardError: (Exception,),
    TransportError: (StreamguardError, requests.RequestException, OSError),
    TransportTimeoutError: (TransportError, requests.Timeout, TimeoutError),
    StreamInactivityTimeoutError: (TransportTimeoutError,),
    DeadlineExceededError: (StreamguardError, TimeoutError),
    errors.TotalTimeoutError: (DeadlineExceededError, requests.Timeout),
    StreamCancelledError: (StreamguardError,),
    IncompleteStreamError: (StreamguardError, requests.RequestException),
    EmptyStreamError: (IncompleteStreamError,),
    InStreamError: (StreamguardError, requests.RequestException),
    MalformedChunkError: (StreamguardError, requests.RequestException),
    NotEventStreamError: (StreamguardError, requests.RequestException),
    errors.InvalidJSONError: (StreamguardError, requests.exceptions.InvalidJSONError),
    errors.ResponseValidationError: (errors.InvalidJSONError,),
    HTTPStatusError: (StreamguardError, requests.HTTPError),
    errors.StepFailedError: (StreamguardError,),
    UsageError: (StreamguardError, ValueError),
}
FOREIGN = (
    OSError,
    TimeoutError,
    ConnectionError,
    ValueError,
    requests.RequestException,
    requests.Timeout,
    requests.ConnectionError,
    requests.HTTPError,
)


def travel(protocol: int, error: Any) -> Any:
    """Return *error* after a pickle."""
    return pickle.loads(pickle.dumps(error, protocol))


COPIES: dict[str, Callable[[Any], Any]] = {
    **{f"pickle {number}": functools.partial(travel, number) for number in range(pickle.HIGHEST_PROTOCOL + 1)},
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}
SAMPLES: dict[str, Any] = {"headers": {"X-A": "b"}, "reason": ("why", 1), "code": "ECONNRESET", "scope": "ambient"}


def details_of(cls: type[StreamguardError]) -> dict[str, Any]:
    """Return a value for each detail that *cls* declares."""
    hints: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if issubclass(base, StreamguardError):
            hints |= inspect.get_annotations(base)
    return {name: SAMPLES.get(name, 7 if "str" not in str(hint) else f"a {name}") for name, hint in hints.items()}


def test_every_class_is_in_the_tree() -> None:
    """Each public class of the module is drawn in its docstring and tested here, and no other one exists."""
    assert set(CLASSES) == set(TREE)
    defined = [value for value in vars(errors).values() if isinstance(value, type)]
    ours = {cls.__name__ for cls in defined if cls.__module__ == errors.__name__}
    assert {name for name in ours if not name.startswith("_")} == set(errors.__all__)
    assert errors.__doc__ is not None
    for cls in CLASSES:
        assert cls.__name__ in errors.__doc__


@pytest.mark.parametrize("cls", CLASSES)
def test_the_tree(cls: type[StreamguardError]) -> None:
    """Each class has the bases that are drawn, and no others of requests or Python: so `except` catches the right ones."""
    for base in TREE[cls]:
        assert issubclass(cls, base)
    allowed = {kind for base in TREE[cls] for kind in FOREIGN if issubclass(base, kind)}
    assert {kind for kind in FOREIGN if issubclass(cls, kind)} == allowed


@pytest.mark.parametrize("cls", CLASSES)
def test_details_are_attributes_with_defaults(cls: type[StreamguardError]) -> None:
    """Every declared detail is a keyword, and has a default."""
    bare, given = cls("what"), details_of(cls)
    full = cls("what", **given)
    assert {"phase", "limit", "elapsed", "lifetime", "chunks", "bytes", "comments", "attempt", "max_attempts"} <= set(given)
    assert {"host", "name", "id", "partial_text"} <= set(given)
    for name, value in given.items():
        assert getattr(full, name) == value
        assert hasattr(bare, name)
    assert str(bare) == str(full) == full.message == "what"
    assert str(cls()) == ""


@pytest.mark.parametrize("cls", CLASSES)
def test_an_unknown_detail_is_refused(cls: type[StreamguardError]) -> None:
    """A misspelt detail is a TypeError that names class and detail."""
    with pytest.raises(TypeError, match=f"{cls.__name__} has no detail 'lmit'"):
        cls("what", lmit=5)


@pytest.mark.parametrize("how", COPIES)
@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_pickles(cls: type[StreamguardError], how: str) -> None:
    """Pickled with any protocol or copied, an error keeps type, message, every detail, errno, args and notes."""
    error = cls("what", **details_of(cls))
    error.add_note("a note")
    error.partial_text = "set later"
    twin = COPIES[how](error)
    assert type(twin) is cls
    assert (str(twin), twin.args, repr(twin)) == (str(error), error.args, repr(error))
    assert {name: getattr(twin, name) for name in details_of(cls)} == details_of(cls) | {"partial_text": "set later"}
    assert getattr(twin, "errno", None) == getattr(error, "errno", None)
    assert twin.__notes__ == ["a note"]


def test_a_subclass_pickles_too() -> None:
    """An application's own subclass, with a detail of its own, pickles as that class."""
    twin = pickle.loads(pickle.dumps(Annotated("what", tenant="t", chunks=3)))
    assert type(twin) is Annotated
    assert (twin.tenant, twin.chunks) == ("t", 3)


class Annotated(MalformedChunkError):
    tenant: str | None = None


@pytest.mark.parametrize("code", ["ECONNRESET", "ECONNREFUSED", "EPIPE", "ETIMEDOUT", "EPROTO"])
def test_the_errno_of_a_code(code: str) -> None:
    """A code that the system knows has its errno, also after a pickle."""
    error = TransportError("what", code=code)
    assert error.errno == getattr(errno, code)
    assert pickle.loads(pickle.dumps(error)).errno == error.errno


@pytest.mark.parametrize("code", ["ECERT", "EAI_NONAME", "ELOOP_OR_SO"])
def test_a_code_without_an_errno(code: str) -> None:
    """A code that the system does not know has none."""
    assert TransportError("what", code=code).errno is None


def test_timeouts_say_etimedout() -> None:
    """Each kind of timeout has the errno ETIMEDOUT; the transport's have the code as well."""
    for cls in (TransportTimeoutError, StreamInactivityTimeoutError, DeadlineExceededError):
        assert cls("what").errno == errno.ETIMEDOUT
    assert TransportTimeoutError("what").code == StreamInactivityTimeoutError("what").code == "ETIMEDOUT"


def test_defaults_are_not_shared() -> None:
    """Details of one error are not in another one."""
    HTTPStatusError("one", headers={"a": "b"})
    assert HTTPStatusError("two").headers == {}
    assert HTTPStatusError.headers == {}


def test_a_status_error_is_what_requests_raises(streamguard_gateway: Serve) -> None:
    """`except requests.HTTPError` finds response and request; a pickle drops these two."""
    headers = "headers 429 retry-after: 7; x-request-id: abc"
    gateway = streamguard_gateway(headers + '\nbody {"error": {"message": "slow down"}}')
    with pytest.raises(requests.HTTPError) as caught:
        guarded_stream("GET", gateway.url).read()
    error = caught.value
    assert isinstance(error, HTTPStatusError)
    assert error.response.status_code == error.status_code == 429
    assert str(error.request.url).startswith(gateway.url)
    assert (error.retry_after, error.request_id) == (7, "abc")
    assert "slow down" in str(error)
    twin = pickle.loads(pickle.dumps(error))
    assert twin.response is None
    assert (twin.status_code, twin.body, twin.headers, str(twin)) == (429, error.body, error.headers, str(error))


SECRETS = ("s3cret-path", "s3cret-query", "s3cret-header", "s3cret-body", "s3cret-user")

ENDS: dict[str, tuple[str, dict[str, Any], type[StreamguardError]]] = {
    "first": ("headers\ncomment ping\nstall", {"first": 0.1}, StreamInactivityTimeoutError),
    "idle": ("chat hello\nstall", {"idle": 0.1}, StreamInactivityTimeoutError),
    "dead": ("chat hello\nstall", {"dead": 0.1}, StreamInactivityTimeoutError),
    "response": ("stall", {"response": 0.1}, TransportTimeoutError),
    "total": ("chat hello\nstall", {"total": 0.1}, DeadlineExceededError),
    "reset": ("chat hello\nreset", {}, TransportError),
    "cut short": ("chat hello\nclose", {}, TransportError),
    "incomplete": ("chat hello", {}, IncompleteStreamError),
    "empty": ("headers", {}, EmptyStreamError),
    "in stream": ("chat hello\nerror it broke", {}, InStreamError),
    "malformed": ("chat hello\nraw data: {oops\\n\\n", {}, MalformedChunkError),
    "no events": ("headers 200 content-type: text/html\nraw <html>", {}, NotEventStreamError),
    "status": ("headers 503", {}, HTTPStatusError),
}


def travelling(error: StreamguardError) -> dict[str, Any]:
    """Return all that an error holds, except requests' own objects."""
    return {name: value for name, value in vars(error).items() if name not in ("request", "response")}


@pytest.mark.parametrize("end", ENDS)
def test_every_error_of_a_stream(streamguard_gateway: Serve, end: str) -> None:
    """At any end of a stream, the error says how far it came, names the host, has no secret, and pickles."""
    script, limits, expected = ENDS[end]
    gateway = streamguard_gateway(script)
    host = gateway.url.partition("://")[2]
    stream = guarded_stream(
        "POST",
        f"http://s3cret-user:s3cret-user@{host}/s3cret-path?key=s3cret-query",
        headers={"X-Key": "s3cret-header"},
        json={"prompt": "s3cret-body", "stream": True},
        retry=None,
        name="mine",
        **limits,
    )
    with pytest.raises(StreamguardError) as caught:
        stream.read()
    error = caught.value
    assert type(error) is expected
    sent = script.count("chat ")
    assert (error.host, error.name, error.id) == (host, "mine", stream.report.id)
    assert (error.attempt, error.max_attempts) == (1, 1)
    assert (error.chunks, error.partial_text, error.comments) == (sent, "hello" * sent, script.count("comment"))
    if limits:
        assert error.phase == ("idle" if end == "total" else end)
    assert error.lifetime is not None
    assert error.bytes is not None
    if limits:
        assert error.limit == 0.1
        assert error.elapsed is not None
        assert error.elapsed >= 0.1
        assert f"{end}=" in str(error), "the message names the knob"
    assert [secret for secret in SECRETS if secret in f"{error}{error!r}{travelling(error)}"] == []
    assert travelling(pickle.loads(pickle.dumps(error))) == travelling(error)


def test_the_silence_in_detail(streamguard_gateway: Serve) -> None:
    """An inactivity timeout says when the last byte and the last chunk came, under its own names and the common ones."""
    gateway = streamguard_gateway("chat hello\nwait 0.1\ncomment ping\nstall")
    with pytest.raises(StreamInactivityTimeoutError) as caught:
        guarded_stream("GET", gateway.url, idle=0.3).read()
    error = caught.value
    assert (error.idle, error.chunks_received, error.stream_lifetime) == (error.limit, error.chunks, error.lifetime)
    assert (error.code, error.errno, error.comments) == ("ETIMEDOUT", errno.ETIMEDOUT, 1)
    assert error.last_chunk_ago is not None
    assert error.last_byte_ago is not None
    assert error.last_chunk_ago >= 0.3 - 0.05
    assert error.last_byte_ago <= error.last_chunk_ago - 0.05


def test_the_cause_is_the_original(streamguard_gateway: Serve) -> None:
    """requests' own exception is the `__cause__`; our own timeout has none."""
    gateway = streamguard_gateway("reset", "stall")
    with pytest.raises(TransportError) as caught:
        guarded_stream("GET", gateway.url).read()
    assert type(caught.value.__cause__) is requests.ConnectionError
    with pytest.raises(TransportTimeoutError) as timeout:
        guarded_stream("GET", gateway.url, response=0.1, retry=None).read()
    assert timeout.value.__cause__ is None


def test_attempts_are_counted(streamguard_gateway: Serve) -> None:
    """The error of the last attempt has its number, and the number of allowed ones."""
    gateway = streamguard_gateway("headers\nstall")
    with pytest.raises(StreamInactivityTimeoutError, match="attempt 2 of 2") as caught:
        guarded_stream("GET", gateway.url, first=0.1, retry=1).read()
    assert (caught.value.attempt, caught.value.max_attempts) == (2, 2)
    assert len(gateway.requests) == 2


def test_a_cancel_is_not_a_transport_fault(streamguard_gateway: Serve) -> None:
    """A cancel's error is neither an OSError nor a requests error, and has the given reason."""
    reason = object()
    token = CancelToken()
    token.cancel(reason)
    with pytest.raises(StreamCancelledError) as caught:
        guarded_stream("GET", "http://127.0.0.1:9/", cancel=token).read()
    assert caught.value.reason is reason
    assert not isinstance(caught.value, OSError)


def test_the_scope_of_a_deadline() -> None:
    """The scope is that of the call's own total or of a surrounding deadline, and the message names its argument."""
    with pytest.raises(DeadlineExceededError, match=r"total=0 .*Raise total=") as caught:
        guarded_stream("GET", "http://127.0.0.1:9/", total=0).read()
    assert (caught.value.scope, caught.value.limit) == ("total", 0)
    with deadline(0), pytest.raises(DeadlineExceededError, match=r"deadline\(\)") as caught:
        guarded_stream("GET", "http://127.0.0.1:9/").read()
    assert caught.value.scope == "ambient"
