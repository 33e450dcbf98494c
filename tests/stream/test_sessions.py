"""A caller's session: it is not changed, and its connections are reused if they can be."""

import threading

import pytest
import requests

import streamguard
from streamguard import (
    guarded_stream,
)

from ..helpers import PROMPT, Serve
from .helpers import COMPLETE, GOOD, OPEN, ask, consume, stream_from


def test_a_connection_that_closed_while_idle(streamguard_gateway: Serve) -> None:
    """A kept connection that the server closed is replaced, without an error (B107)."""
    gateway = streamguard_gateway(f"{GOOD}\nend\nclose", GOOD)
    with requests.Session() as session:
        session.mount("http://", streamguard.Adapter())
        assert ask(gateway, session=session).error is None
        threading.Event().wait(0.1)
        assert ask(gateway, session=session).error is None
    assert gateway.connections == 2


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("mounted", [False, True], ids=["plain session", "our adapter"])
def test_the_connection_survives_the_end_marker(streamguard_gateway: Serve, mounted: bool, tls: bool) -> None:
    """Two streams on one Session whose bodies end after [DONE] share one connection (B039)."""
    gateway = streamguard_gateway("chat a\ndone", tls=tls)
    with requests.Session() as session:
        if mounted:
            session.mount("https://" if tls else "http://", streamguard.Adapter())
        for _ in range(3):
            assert consume(stream_from(gateway, session=session)).text == "a"
    assert (gateway.connections, len(gateway.requests)) == (1, 3)


def test_a_lingering_server_is_not_waited_for(streamguard_gateway: Serve) -> None:
    """A body that does not end after [DONE] costs the connection, and little time (B039)."""
    gateway = streamguard_gateway("chat a\ndone\nlinger")
    with requests.Session() as session:
        session.mount("http://", streamguard.Adapter())
        for _ in range(2):
            seen = consume(stream_from(gateway, session=session))
            assert (seen.error, seen.text) == (None, "a")
            assert seen.elapsed < PROMPT
        gateway.wait_left(1)
        gateway.wait_left(2)
    assert gateway.connections == 2


def own_session(adapter: bool) -> requests.Session:
    """Return a session of the caller's, with `streamguard.Adapter` or as it is."""
    session = requests.Session()
    if adapter:
        session.mount("http://", streamguard.Adapter())
    return session


def looks(session: requests.Session) -> tuple[object, ...]:
    """Return the state of a session that the caller can see."""
    adapters = {prefix: id(adapter) for prefix, adapter in session.adapters.items()}
    plain = (session.verify, session.cert, session.trust_env, session.max_redirects, session.stream)
    return dict(session.headers), adapters, session.cookies.get_dict(), dict(session.proxies), session.auth, plain


@pytest.mark.parametrize("adapter", [True, False], ids=["adapter", "plain"])
@pytest.mark.parametrize("script", [COMPLETE, OPEN, "chat a", "headers 500", "chat a\nwait 0.05\nreset", "headers\nstall"])
def test_the_callers_session_stays_as_it_was(streamguard_gateway: Serve, script: str, adapter: bool) -> None:
    """However the stream ends, the session's headers, adapters, cookies and settings are unchanged, and it still works."""
    gateway = streamguard_gateway(script, COMPLETE)
    with own_session(adapter) as session:
        session.cookies.set("mine", "1")
        before = looks(session)
        ask(gateway, session=session, first=0.2, idle=0.2)
        assert looks(session) == before
        with session.get(gateway.url, timeout=5) as response:
            assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("adapter", [True, False], ids=["adapter", "plain"])
@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_a_session_reuses_its_connection(streamguard_gateway: Serve, framing: str, adapter: bool) -> None:
    """Streams that were read to their end leave the session's connection for the next; so do plain calls between (B039)."""
    gateway = streamguard_gateway(COMPLETE, framing=framing)
    with own_session(adapter) as session:
        for _ in range(3):
            assert ask(gateway, session=session).texts == ["a", "b"]
            assert session.get(gateway.url, timeout=5).status_code == 200
    assert (gateway.connections, len(gateway.requests)) == (1, 6)


@pytest.mark.parametrize("adapter", [True, False], ids=["adapter", "plain"])
@pytest.mark.parametrize("leave", ["break", "close", "cancel", "timeout"])
def test_a_connection_left_in_the_middle_is_not_reused(streamguard_gateway: Serve, leave: str, adapter: bool) -> None:
    """The next call gets a connection of its own, and nothing of the old stream (B039)."""
    gateway = streamguard_gateway(OPEN, COMPLETE)
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


def test_without_a_session_each_call_has_its_connection(streamguard_gateway: Serve) -> None:
    """Calls without `session=` share nothing."""
    gateway = streamguard_gateway(COMPLETE)
    ask(gateway)
    ask(gateway)
    assert gateway.connections == 2
    gateway.wait_connections(2, still_open=0)


@pytest.mark.parametrize("adapter", [True, False], ids=["adapter", "plain"])
def test_a_session_in_many_threads(streamguard_gateway: Serve, adapter: bool) -> None:
    """Parallel streams on one session do not disturb each other, though one of them is cut."""
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
