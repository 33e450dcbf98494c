"""Whether a client has left, as its socket tells."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from streamguard.django.client import departure_of

Wait = Callable[[Callable[[], bool]], None]
Ends = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["tcp", "unix"])
def ends(request: pytest.FixtureRequest) -> Iterator[Ends]:
    """Return the server's and the client's end of a connection."""
    with ExitStack() as opened:
        if request.param == "unix":
            server, client = socket.socketpair()
        else:
            listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
            client = socket.create_connection(listener.getsockname())
            server, _ = listener.accept()
        opened.callback(server.close)
        opened.callback(client.close)
        yield server, client


def test_a_client_that_is_there(ends: Ends) -> None:
    """It is there while it is silent and while it has sent more than was read; asking takes nothing from the socket."""
    server, client = ends
    left = departure_of({"gunicorn.socket": server})
    assert not left()
    client.sendall(b"more")
    assert [left(), left()] == [False, False]
    assert (server.recv(10), server.getblocking()) == (b"more", True)


def test_a_client_that_has_closed(ends: Ends, wait_until: Wait) -> None:
    """Its close is seen without any write."""
    server, client = ends
    left = departure_of({"gunicorn.socket": server})
    client.close()
    wait_until(left)


def test_a_client_that_has_shut_down_its_sending_half(ends: Ends, wait_until: Wait) -> None:
    """It counts as gone."""
    server, client = ends
    left = departure_of({"gunicorn.socket": server})
    client.shutdown(socket.SHUT_WR)
    wait_until(left)


@pytest.mark.parametrize("ends", ["tcp"], indirect=True)
def test_a_client_that_has_left_something_unread(ends: Ends, wait_until: Wait) -> None:
    """Over TCP a close is seen through bytes that nobody reads, such as the last word of TLS."""
    server, client = ends
    left = departure_of({"gunicorn.socket": server})
    client.sendall(b"bye")
    client.close()
    wait_until(left)


def test_a_socket_that_is_closed_here(ends: Ends) -> None:
    """A server that has closed its end has no client there."""
    server, _ = ends
    left = departure_of({"gunicorn.socket": server})
    server.close()
    assert left()


@pytest.mark.parametrize("answer", [True, False])
def test_waitress_is_asked(answer: bool) -> None:
    """Where the server answers itself, its answer counts."""
    assert departure_of({"waitress.client_disconnected": lambda: answer})() is answer


def test_a_server_that_tells_nothing() -> None:
    """Then nobody is ever known to have left."""
    assert departure_of({})() is False
