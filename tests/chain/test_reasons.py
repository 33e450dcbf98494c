"""How a step's failure is told: each way to fail has a word of its own, learnt from a real server."""

import socket
from collections.abc import Callable
from typing import Any

import pytest

from streamguard import Chain, HTTPStatusError
from streamguard.testing import Gateway

from .steps import endings

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
    """A name that nobody knows is name_resolution, not a refusal."""

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
