"""A real gunicorn between real clients, which leave in the middle, and an upstream that must see it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamguard.testing import Gateway

from .serving import Server, Visitor, gunicorn

pytest.importorskip("gunicorn")
pytest.importorskip("gevent")

WITHIN = 1.0
"""Seconds from the client's leaving to the upstream's seeing it."""
BEATING = "headers\nloop forever\ncomment working\nwait 0.05\nendloop"
ENDLESS = "loop forever\nchat word\nwait 0.02\nendloop"

Serve = Callable[..., Gateway]


@pytest.fixture(scope="module", params=["gthread", "gevent"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Serve the test site, by both kinds of workers in turn."""
    with gunicorn(request.param) as running:
        yield running


def visit(server: Server, gateway: Gateway, path: str = "/stream", **options: Any) -> Visitor:
    return Visitor(server, path, upstream=gateway.url, **options)


@pytest.mark.parametrize("reset", [False, True], ids=["fin", "reset"])
def test_upstream_sees_the_client_leave_while_it_is_silent(server: Server, streamguard_gateway: Serve, reset: bool) -> None:
    """The client leaves a silent stream: the upstream is closed within a second, long before the next ping."""
    gateway = streamguard_gateway("chat Hello\nstall")
    with visit(server, gateway, heartbeat=60) as visitor:
        visitor.until(b'data: {"text":"Hello"}\n\n')
        gateway.wait_step("stall")
        left_at = visitor.leave(reset=reset)
        seen = gateway.wait_left()
    assert seen.during == "stall"
    assert seen.at - left_at < WITHIN


def test_upstream_sees_the_client_leave_before_the_first_content(server: Server, streamguard_gateway: Serve) -> None:
    """The view still waits for the first content, and nothing was ever written: the upstream is closed all the same."""
    gateway = streamguard_gateway("headers\nstall")
    with visit(server, gateway, heartbeat=60) as visitor:
        gateway.wait_step("stall")
        left_at = visitor.leave()
        assert gateway.wait_left().at - left_at < WITHIN


@pytest.mark.parametrize("script", [BEATING, ENDLESS], ids=["comments only", "in full flow"])
def test_upstream_sees_the_client_leave_while_it_is_busy(server: Server, streamguard_gateway: Serve, script: str) -> None:
    """It makes no difference that something comes from the upstream, whether it is passed on or not."""
    gateway = streamguard_gateway(f"chat Hello\n{script.removeprefix('headers')}")
    with visit(server, gateway, heartbeat=60) as visitor:
        visitor.until(b"Hello")
        left_at = visitor.leave()
        assert gateway.wait_left().at - left_at < WITHIN


def test_all_of_many_clients_are_seen_to_leave(server: Server, streamguard_gateway: Serve) -> None:
    """Twenty silent streams, twenty clients that leave: no upstream connection is left."""
    gateway = streamguard_gateway("chat Hello\nstall")
    visitors = [visit(server, gateway, heartbeat=60) for _ in range(20)]
    for visitor in visitors:
        visitor.until(b"Hello")
    gateway.wait_connections(20, still_open=20)
    for visitor in visitors:
        visitor.leave()
    gateway.wait_connections(20, still_open=0)


@pytest.mark.parametrize("worker", ["gthread", "gevent"])
def test_the_client_is_seen_through_a_unix_socket(worker: str, streamguard_gateway: Serve, tmp_path: Path) -> None:
    """Behind a Unix socket, where nginx would be, it is the same."""
    gateway = streamguard_gateway("chat Hello\nstall")
    with gunicorn(worker, path=str(tmp_path / "web.sock")) as server, visit(server, gateway, heartbeat=60) as visitor:
        visitor.until(b"Hello")
        gateway.wait_step("stall")
        left_at = visitor.leave()
        assert gateway.wait_left().at - left_at < WITHIN


def test_text_comes_as_it_is_written(server: Server, streamguard_gateway: Serve) -> None:
    """A piece is with the client while the upstream is already silent again; nothing compresses, caches or buffers it."""
    gateway = streamguard_gateway("chat Hello\nstall")
    with visit(server, gateway, headers={"Accept-Encoding": "gzip"}) as visitor:
        head = visitor.until(b'data: {"text":"Hello"}\n\n').lower()
        assert gateway.requests[0].left is None
    assert b"content-type: text/event-stream\r\n" in head
    assert b"cache-control: no-cache, no-transform\r\n" in head
    assert b"x-accel-buffering: no\r\n" in head
    assert b"gzip" not in head


def test_a_whole_answer_ends_with_its_end_frame(server: Server, streamguard_gateway: Serve) -> None:
    """The last frame says that it is complete, and the connection can be used again."""
    gateway = streamguard_gateway("chat Hello\nchat , world\nfinish\ndone")
    with visit(server, gateway) as visitor:
        received = visitor.until(b"\r\n0\r\n\r\n")
    assert received.index(b"Hello") < received.index(b", world") < received.index(b"event: end\n")
    assert b'"outcome":"completed","finish_reason":"stop"' in received


def test_pings_are_written_in_silence(server: Server, streamguard_gateway: Serve) -> None:
    """A client that waits hears that it is not forgotten: before the first content, and behind it."""
    gateway = streamguard_gateway("headers\nwait 0.5\nchat Hello\nstall")
    with visit(server, gateway, heartbeat=0.2) as visitor:
        before, _, _ = visitor.until(b"Hello").partition(b"data:")
        assert b": ping\n\n" in before
        visitor.received = b""
        visitor.until(b": ping\n\n")


def test_silence_in_the_middle_ends_with_an_error_frame(server: Server, streamguard_gateway: Serve) -> None:
    """The upstream goes silent behind some text: the client is told, in the last frame, and the response ends well."""
    gateway = streamguard_gateway("chat Hello\nstall")
    with visit(server, gateway, idle=0.3) as visitor:
        received = visitor.until(b"\r\n0\r\n\r\n")
    assert received.index(b"Hello") < received.index(b"event: error\n")
    assert b'"code":"ETIMEDOUT","phase":"idle","message":"The upstream went silent."' in received


@pytest.mark.parametrize(
    ("script", "limits", "status"),
    [
        ("headers 503\nbody overloaded", {}, b"502"),
        ("headers\nstall", {"first": 0.2}, b"504"),
        ("headers\nstall", {"total": 0.2}, b"504"),
        ("reset", {}, b"502"),
        ("headers 200 content-type: text/html\nbody <p>no</p>", {}, b"502"),
        ("error out of tokens", {}, b"502"),
        ("headers", {}, b"502"),
    ],
)
def test_a_failure_before_the_first_content_is_a_status(
    server: Server, streamguard_gateway: Serve, script: str, limits: dict[str, float], status: bytes
) -> None:
    """As long as nothing was promised, a failure is a 502, or a 504 if it was too late."""
    gateway = streamguard_gateway(script)
    with visit(server, gateway, **limits) as visitor:
        assert visitor.until(b"}}").split()[1] == status
    gateway.wait_connections(1, still_open=0)


def test_the_clients_budget_is_capped(server: Server, streamguard_gateway: Serve) -> None:
    """A client may ask, in a header, for less time than there is: the view's stream is cut, and it gets a 504."""
    gateway = streamguard_gateway("chat Hello\nstall")
    with visit(server, gateway, "/read", headers={"X-Request-Timeout": "300ms"}) as visitor:
        assert visitor.until(b"}}").split()[1] == b"504"
    assert gateway.wait_left().during == "stall"
