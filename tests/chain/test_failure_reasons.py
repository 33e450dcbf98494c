"""Which exceptions are failures of services, and their reasons."""

import errno
import json
import socket
import ssl
import urllib.error
from collections.abc import Callable
from email.message import Message
from typing import Any

import pytest
import requests
import urllib3.exceptions as u3

import streamguard
from streamguard import Chain, HTTPStatusError, StepContext, errors
from streamguard._chain.failure_reasons import Failure, failure_of, is_retryable
from streamguard._chain.step_status import REASONS
from streamguard.testing import Gateway

from .steps import endings


class OwnError(Exception):
    """Some SDK's."""


def response(status: int) -> requests.Response:
    made = requests.Response()
    made.status_code = status
    return made


def bad_json() -> ValueError:
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("<html>")
    return caught.value


def wrapped(inner: Exception) -> requests.ConnectionError:
    return requests.ConnectionError(u3.MaxRetryError(None, "/", inner))  # type: ignore[arg-type]


def caused(exc: Exception, cause: Exception) -> Exception:
    exc.__cause__ = cause
    return exc


FAILURES = [
    (errors.HTTPStatusError("", status_code=500), "error", "http_500"),
    (errors.HTTPStatusError("", status_code=404), "error", "http_404"),
    (requests.HTTPError(response=response(503)), "error", "http_503"),
    (requests.HTTPError("no response"), "error", "http_error"),
    (errors.InvalidJSONError(""), "error", "invalid_json"),
    (errors.ResponseValidationError(""), "error", "validation_failed"),
    (requests.exceptions.JSONDecodeError("", "x", 0), "error", "invalid_json"),
    (bad_json(), "error", "invalid_json"),
    (ConnectionRefusedError(), "error", "connection_refused"),
    (wrapped(u3.NewConnectionError(None, "refused")), "error", "transport_error"),  # type: ignore[arg-type]
    (errors.TransportError("", code="ECONNREFUSED"), "error", "connection_refused"),
    (ConnectionResetError(), "error", "connection_reset"),
    (BrokenPipeError(), "error", "connection_reset"),
    (errors.TransportError("", code="ECONNABORTED"), "error", "connection_reset"),
    (socket.gaierror(-2, "unknown"), "error", "name_resolution"),
    (ssl.SSLCertVerificationError(), "error", "certificate_invalid"),
    (requests.TooManyRedirects(), "error", "too_many_redirects"),
    (ssl.SSLError(), "error", "protocol_error"),
    (requests.Timeout(), "timeout", "transport_timeout"),
    (requests.ConnectTimeout(), "timeout", "transport_timeout"),
    (TimeoutError(), "timeout", "transport_timeout"),
    (errors.TransportTimeoutError("", phase="connect"), "timeout", "transport_timeout"),
    (errors.StreamInactivityTimeoutError("", phase="idle"), "timeout", "stream_inactive"),
    (errors.DeadlineExceededError("", scope="total"), "timeout", "call_limit"),
    (errors.TotalTimeoutError(""), "timeout", "call_limit"),
    (errors.StreamCancelledError(""), "error", "stream_cancelled"),
    (errors.IncompleteStreamError(""), "error", "incomplete_stream"),
    (errors.EmptyStreamError(""), "error", "empty_stream"),
    (errors.InStreamError(""), "error", "in_stream_error"),
    (errors.MalformedChunkError(""), "error", "malformed_chunk"),
    (errors.NotEventStreamError(""), "error", "not_event_stream"),
    (errors.StepFailedError(""), "error", "step_failed"),
    (errors.StreamguardError("no thread could be started"), "error", "streamguard_error"),
    (errors.TransportError("", code="EIO"), "error", "transport_error"),
    (requests.exceptions.InvalidURL("x"), "error", "invalid_request"),
    (requests.exceptions.RetryError(), "error", "request_failed"),
    (FileNotFoundError(errno.ENOENT, "gone"), "error", "os_error"),
    (urllib.error.HTTPError("http://h/", 503, "busy", Message(), None), "error", "http_503"),
    (caused(OSError("failed"), requests.HTTPError(response=response(404))), "error", "http_404"),
    (caused(TimeoutError(), requests.HTTPError(response=response(503))), "timeout", "transport_timeout"),
    (caused(OSError("failed"), ConnectionResetError()), "error", "connection_reset"),
]
BUGS = [NameError("x"), ValueError("x"), KeyError("x"), AssertionError(), errors.UsageError("x"), KeyboardInterrupt()]


@pytest.mark.parametrize(("exc", "status", "reason"), FAILURES, ids=lambda value: str(getattr(value, "__class__", value)))
def test_each_failure_has_its_reason(exc: BaseException, status: Any, reason: str) -> None:
    """A failure gives its step a status and a reason, by its type."""
    assert failure_of(exc) == Failure(status, reason)


@pytest.mark.parametrize("exc", BUGS, ids=lambda exc: type(exc).__name__)
def test_a_bug_is_not_a_failure(exc: BaseException) -> None:
    """An exception that is not of streamguard, requests, the system or bad JSON is a bug, and so is a UsageError."""
    assert failure_of(exc) is None
    assert not is_retryable(exc)


def test_json_too_deep_to_read_is_invalid_json() -> None:
    """A body of forty thousand brackets is a failure of the service; a program that recurses without end has a bug."""

    def endless() -> None:
        endless()

    with pytest.raises(RecursionError) as deep:
        json.loads("[" * 40_000)
    assert failure_of(deep.value) == Failure("error", "invalid_json")
    with pytest.raises(RecursionError) as bug:
        endless()
    assert failure_of(bug.value) is None


def test_handles_declares_further_failures() -> None:
    """`handles=` makes a failure of its own exceptions, and of no other bug."""
    assert failure_of(OwnError(), (OwnError,)) == Failure("error", "handled_error")
    assert failure_of(OwnError()) is None
    assert failure_of(NameError(), (OwnError,)) is None


def test_every_reason_is_one_of_the_documented() -> None:
    """No failure has a reason that is not in the contract."""
    words = {reason for _, _, reason in FAILURES}
    assert {word for word in words if not word.startswith("http_") or word == "http_error"} - REASONS.keys() == set()


@pytest.mark.parametrize("name", sorted(set(errors.__all__) - {"UsageError"}))
def test_every_error_of_ours_is_a_failure(name: str) -> None:
    """Each error of streamguard, except UsageError, has a documented reason."""
    failure = failure_of(getattr(streamguard, name)("message"))
    assert failure is not None
    assert failure.reason in REASONS


@pytest.mark.parametrize(
    ("exc", "may_pass"),
    [
        (errors.HTTPStatusError("", status_code=503), True),
        (errors.HTTPStatusError("", status_code=404), False),
        (ConnectionResetError(), True),
        (errors.TotalTimeoutError(""), True),
        (errors.StreamCancelledError(""), False),
        (bad_json(), False),
        (OwnError(), True),
    ],
    ids=lambda value: str(getattr(value, "__class__", value)),
)
def test_what_may_pass_is_retried(exc: BaseException, may_pass: bool) -> None:
    """What classify() calls retryable, one call's own limit, and what the step handles, may go better the next time."""
    assert is_retryable(exc, (OwnError,)) is may_pass


Gateways = Callable[..., Gateway]


@pytest.mark.parametrize(
    ("script", "ending"),
    [
        ("headers 500\nbody broken", ("error", "http_500")),
        ("body <html>", ("error", "invalid_json")),
        ("reset", ("error", "connection_reset")),
        ("headers 200 content-type: application/json\nreset", ("error", "connection_reset")),
    ],
)
def test_the_reason_is_the_services_own(script: str, ending: tuple[str, str], streamguard_gateway: Gateways) -> None:
    """Each way in which a service fails has its own reason."""
    gateway = streamguard_gateway(script)
    chain = Chain("c")
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="a")
    result = chain.run()
    assert endings(result) == {"a": ending}
    assert result.status == "waiting_external_service"


@pytest.mark.parametrize(
    ("script", "ending"),
    [
        ("chat Hello", ("error", "incomplete_stream")),
        ("headers 200", ("error", "empty_stream")),
        ("chat Hello\nerror overloaded", ("error", "in_stream_error")),
        ("event {broken", ("error", "malformed_chunk")),
        ("headers 200 content-type: text/html\nbody <html>", ("error", "not_event_stream")),
        ("chat Hello\nstall", ("timeout", "stream_inactive")),
        ("stall", ("timeout", "transport_timeout")),
        ("headers 401\nbody no", ("error", "http_401")),
    ],
)
def test_the_reason_is_the_streams_own(script: str, ending: tuple[str, str], streamguard_gateway: Gateways) -> None:
    """Each way in which a stream ends badly inside of a step has its own reason."""
    gateway = streamguard_gateway(script)
    chain = Chain("c", deadline=20)
    options: dict[str, Any] = {"idle": 0.2, "response": 0.3, "retry": None}
    chain.step(lambda ctx: ctx.stream("POST", gateway.url, json={}, **options).read(), name="a")
    assert endings(chain.run()) == {"a": ending}


def test_an_unknown_host_is_its_own_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown name is name_resolution, not a refusal."""

    def unknown(*args: object, **kwargs: object) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    chain = Chain("c")
    chain.step(lambda ctx: ctx.get_json("http://policy.invalid/"), name="a")
    assert endings(chain.run()) == {"a": ("error", "name_resolution")}


def test_a_calls_own_limit_is_the_steps_timeout(streamguard_gateway: Gateways) -> None:
    """A limit that a step gives to one call fires as call_limit: not the step's, not the run's."""
    gateway = streamguard_gateway("stall")
    chain = Chain("c", deadline=20)
    chain.step(lambda ctx: ctx.session.get(gateway.url, timeout=0.1), name="a", limit=10)
    assert endings(chain.run()) == {"a": ("timeout", "call_limit")}


def test_the_report_has_the_original_exception(streamguard_gateway: Gateways) -> None:
    """What the step raised is on its report, for the program."""
    gateway = streamguard_gateway("headers 500\nbody broken")
    chain = Chain("c")
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="a")
    error = chain.run().steps["a"].error
    assert isinstance(error, HTTPStatusError)
    assert error.body == "broken"


@pytest.mark.parametrize("body", ["{}", "null", '{"allowed": "no"}', "[]", "7"])
def test_c243_json_of_the_wrong_shape_is_a_failure_of_the_step(body: str, streamguard_gateway: Gateways) -> None:
    """C243: `get_json(validate=...)` makes an outage, or a fallback, of JSON of the wrong shape."""
    gateway = streamguard_gateway(f"body {body}")

    def ask(ctx: StepContext) -> Any:
        return ctx.get_json(gateway.url, validate=lambda answer: answer["allowed"] is True)

    cases: list[tuple[Any, str]] = [({}, "waiting_external_service"), ({"fallback": None}, "completed_with_fallback")]
    for options, status in cases:
        chain = Chain("c")
        chain.step(ask, name="a", **options)
        result = chain.run()
        assert (endings(result), result.status) == ({"a": ("error", "validation_failed")}, status)
