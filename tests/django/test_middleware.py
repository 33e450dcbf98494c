"""`DeadlineMiddleware`, with the whole of the test site around it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import override_settings

from streamguard import Timeouts
from streamguard.django.middleware import budget_of
from streamguard.django.settings import Settings
from streamguard.testing import Gateway

Serve = Callable[..., Gateway]
Ask = Callable[..., Any]


def budget(settings: Settings, value: str | None) -> float | None:
    """Return the budget of a request that has *value* in the header."""

    class Request:
        headers = {} if value is None else {"X-Budget": value}

    return budget_of(Request(), settings)


@pytest.mark.parametrize(
    ("deadline", "most", "header", "seconds"),
    [
        (10, None, None, 10),
        (10, None, "3", 3),
        (10, None, "800ms", 0.8),
        (10, None, "11", 10),
        (10, 60, "11", 11),
        (10, 60, "61", 60),
        (10, 60, None, 10),
        (None, 60, None, None),
        (None, 60, "9" * 400, None),  # more than any number: no duration
        (10, 60, "soon", 10),
        (10, 60, "", 10),
        (10, 60, "-3", 10),
        (10, 60, "nan", 10),
        (10, 60, "0", 0),
    ],
)
def test_budgets(deadline: float | None, most: float | None, header: str | None, seconds: float | None) -> None:
    """A client may ask for more or less, up to the cap; what is no duration counts as not sent."""
    settings = Settings(deadline=deadline, deadline_header="X-Budget", deadline_max=most)
    assert budget(settings, header) == seconds


def test_no_client_may_ask_unless_it_is_said() -> None:
    """Without DEADLINE_HEADER the header is nothing special."""
    assert budget(Settings(deadline=10), "3") == 10


@override_settings(STREAMGUARD={"DEADLINE": 0.3})
def test_a_view_that_runs_out_of_time_is_a_504(client: Ask, streamguard_gateway: Serve) -> None:
    """The stream inside the view is cut, the upstream sees it, and the client gets a 504 that a program can read."""
    gateway = streamguard_gateway("chat Hello\nstall")
    response = client("/read", {"upstream": gateway.url})
    assert response.status_code == 504
    assert response.json()["error"]["kind"] == "deadline"
    assert gateway.wait_left().during == "stall"


@override_settings(STREAMGUARD={"DEADLINE": 0.2})
def test_a_finished_response_is_never_replaced(client: Ask) -> None:
    """A view that copes with its lost time, and returns late, is answered by what it returned."""
    response = client("/slow")
    assert (response.status_code, response.content) == (200, b"a view that copes")


@override_settings(STREAMGUARD={"DEADLINE": 30})
def test_other_faults_are_none_of_its_business(client: Ask, streamguard_gateway: Serve) -> None:
    """A bug in a view, and an upstream's failure that is not for lack of time, stay what they are."""
    assert client("/broken").status_code == 500
    assert client("/read", {"upstream": streamguard_gateway("headers 500\nbody x").url}).status_code == 500


@override_settings(STREAMGUARD={"DEADLINE": 0.3})
def test_the_budget_ends_with_the_view(client: Ask, streamguard_gateway: Serve) -> None:
    """What is streamed behind the view's return is not under its budget; the stream's own limits hold."""
    gateway = streamguard_gateway("chat Hello\nwait 0.6\nchat , world\nfinish\ndone")
    response = client("/stream", {"upstream": gateway.url})
    body = b"".join(response.streaming_content)
    assert b", world" in body
    assert b'"outcome":"completed"' in body


@override_settings(STREAMGUARD={"DEADLINE": 0.3})
def test_the_budget_holds_for_the_first_content(client: Ask, streamguard_gateway: Serve) -> None:
    """If the time is up before there is any content, the answer is a 504, and the upstream is closed."""
    gateway = streamguard_gateway("headers\nstall")
    response = client("/stream", {"upstream": gateway.url})
    assert (response.status_code, response.json()["error"]["kind"]) == (504, "deadline")
    assert gateway.wait_left().during == "stall"


@override_settings(STREAMGUARD={})
def test_without_a_budget_there_is_no_deadline(client: Ask, streamguard_gateway: Serve) -> None:
    """The middleware alone changes nothing."""
    assert Timeouts().total is None
    assert client("/read", {"upstream": streamguard_gateway("chat Hello\nfinish\ndone").url}).content == b"Hello"
