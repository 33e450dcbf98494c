"""Database connections of threads that are streamguard's."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from django.db import connection, connections, transaction
from django.test import RequestFactory

from streamguard import Chain, StepContext, bounded_call, guarded_stream
from streamguard.django import sse_response
from streamguard.django.connections import close_connections
from streamguard.testing import Gateway

used: list[Any] = []
"""The connection objects that code in threads of ours has used."""


@pytest.fixture(autouse=True)
def _database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(connections.settings["default"], "NAME", str(tmp_path / "db.sqlite3"))
    used.clear()
    yield
    close_connections()


def query() -> int:
    """Ask the database, in whichever thread this is."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        (number,) = cursor.fetchone()
    used.append(connections["default"])
    return number


class Auth(requests.auth.AuthBase):
    """Takes the key from the database, in the reader thread."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["X-Key"] = str(query())
        return request


def in_a_call() -> None:
    """Ask in a bounded call."""
    bounded_call(query, limit=5)


def in_steps() -> None:
    """Ask in the steps of a chain."""
    chain = Chain("steps", deadline=5)

    @chain.step()
    def one(ctx: StepContext) -> int:
        return query()

    @chain.step(limit=3)
    def two(ctx: StepContext) -> int:
        return query()

    assert chain.run().status == "completed"


def in_auth() -> None:
    """Ask in what requests calls before it sends."""
    with Gateway("chat Hello\nfinish\ndone") as gateway:
        assert guarded_stream("POST", gateway.url, auth=Auth()).read() == "Hello"
        assert gateway.requests[0].headers["X-Key"] == "1"


@pytest.mark.parametrize("work", [in_a_call, in_steps, in_auth])
def test_our_threads_close_what_they_opened(work: Callable[[], None], wait_until: Callable[..., None]) -> None:
    """When code of the caller's in a thread of ours has used the database, its connection is closed behind it."""
    mine = connections["default"]
    work()
    assert used
    assert mine not in used
    wait_until(lambda: all(wrapper.connection is None for wrapper in used))


def test_the_view_s_own_connection_is_left_alone() -> None:
    """The thread that asks streamguard keeps its connection."""
    query()
    in_a_call()
    mine, theirs = used
    assert (mine.connection is None, mine is theirs) == (False, False)


def test_an_atomic_block_is_not_torn() -> None:
    """In a transaction nothing is closed: a test case's, in the thread of which a step runs inline."""
    with transaction.atomic():
        query()
        close_connections()
        assert used[0].connection is not None
    close_connections()
    assert used[0].connection is None


def is_open() -> bool:
    """Whether this thread holds a connection to the database."""
    return connections["default"].connection is not None


def test_a_stream_holds_no_connection(rf: RequestFactory) -> None:
    """A view queries, then streams: no connection is held, neither while it waits nor while it streams (C247)."""
    query()
    with Gateway("chat Hello\nwait 0.8\nchat !\nfinish\ndone") as gateway:
        stream = guarded_stream("POST", gateway.url)
        response = sse_response(rf.get("/"), stream)
        assert not is_open()
        seen = [is_open() for _ in response.streaming_content]
    assert seen
    assert not any(seen)


def test_what_render_opened_is_closed_in_silence(rf: RequestFactory) -> None:
    """A connection that `render` has opened is closed when the upstream falls silent (C247)."""

    def render(chunk: Any) -> str:
        query()
        return str(chunk.text)

    with Gateway("chat Hello\nwait 0.8\nchat !\nfinish\ndone") as gateway:
        response = sse_response(rf.get("/"), guarded_stream("POST", gateway.url), render=render, heartbeat=0.1)
        seen = {piece: is_open() for piece in response.streaming_content}
    assert not seen[b": ping\n\n"]


def test_a_transaction_keeps_its_connection_while_it_streams(rf: RequestFactory) -> None:
    """Inside `atomic()` the connection stays (C247)."""
    with transaction.atomic(), Gateway("chat Hello\nfinish\ndone") as gateway:
        query()
        response = sse_response(rf.get("/"), guarded_stream("POST", gateway.url))
        seen = [is_open() for _ in response.streaming_content]
        assert all(seen)
    close_connections()
