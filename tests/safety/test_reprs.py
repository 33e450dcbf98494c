"""Credentials, planted wherever a caller can pass one: no repr of our objects and no error's text shows them."""

import contextlib
import gc
import threading
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests
from requests.auth import HTTPBasicAuth

import streamguard
from streamguard import (
    CancelToken,
    Chain,
    Session,
    StreamguardError,
    UsageError,
    bounded_call,
    guard,
    guarded_stream,
)
from streamguard.dispatch import CallableMember, CommandMember, Dispatcher, Member, StreamMember, iter_command
from streamguard.testing import Gateway

Serve = Callable[..., Gateway]

SECRET = "sk-PLANTED-0123456789"
LATE = 0.3


def with_secrets(url: str) -> dict[str, Any]:
    """Return the arguments of a call that is full of them."""
    return {
        "url": f"{url.replace('http://', f'http://{SECRET}:{SECRET}@')}/{SECRET}?key={SECRET}",
        "headers": {"Authorization": f"Bearer {SECRET}", "X-Key": SECRET},
        "cookies": {"session": SECRET},
        "params": {"api_key": SECRET},
        "json": {"model": "m", "messages": [{"content": SECRET}], "stream": True},
    }


def own_objects() -> Iterator[object]:
    """Yield every live object of streamguard's classes, except the scripted server, which receives all of it."""
    gc.collect()
    for thing in gc.get_objects():
        module = getattr(type(thing), "__module__", None)
        if isinstance(module, str) and module.startswith("streamguard.") and not module.startswith("streamguard.testing"):
            yield thing


def leaking() -> set[str]:
    """Name the classes whose repr or str shows the secret."""
    found = set()
    for thing in own_objects():
        with contextlib.suppress(Exception):
            if SECRET in f"{thing!r} {thing}":
                found.add(f"{type(thing).__module__}.{type(thing).__qualname__}")
    return found


def text_of(error: BaseException) -> str:
    """Return the text of the whole traceback, causes included."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))


def test_the_search_finds_what_it_looks_for() -> None:
    """An object of ours that shows the secret is named, and dozens are searched."""
    token = CancelToken()
    token.cancel(SECRET)
    kept = UsageError(SECRET)
    assert leaking() == {"streamguard.errors.UsageError"}
    assert len([*own_objects()]) > 50
    del kept


STREAMS = {
    "flowing": "chat a\nstall",
    "status": "headers 401\nbody no",
    "reset": "chat a\nwait 0.05\nreset",
    "silent": "headers\nstall",
    "html": "headers content-type: text/html\nraw <html>",
    "malformed": "event nonsense",
    "moved": "headers 307 location: http://127.0.0.1:1/; content-length: 0",
}


@pytest.mark.parametrize("script", STREAMS)
def test_streams(streamguard_gateway: Serve, script: str) -> None:
    """Before, during and after a stream, at any end."""
    gateway = streamguard_gateway(STREAMS[script])
    arguments = with_secrets(gateway.url)
    stream = guarded_stream("POST", **arguments, idle=LATE, first=LATE, retry=None, auth=HTTPBasicAuth(SECRET, SECRET))
    assert leaking() == set()
    raised: list[StreamguardError] = []
    try:
        for _ in stream:
            assert leaking() == set()
    except StreamguardError as error:
        raised.append(error)
    assert leaking() == set()
    assert [failure for failure in raised if SECRET in f"{failure!r} {failure} {vars(failure)}"] == []
    assert len(raised) == 1
    assert SECRET not in f"{stream!r} {stream.report} {stream.report!r} {stream.report.to_dict()}"


def test_a_session_in_the_middle_of_a_call(streamguard_gateway: Serve) -> None:
    """A Session with secrets in its headers, proxies and cookies, while a worker runs its call."""
    gateway = streamguard_gateway("stall")
    with Session(timeout=10) as session:
        session.headers["Authorization"] = SECRET
        session.cookies.set("session", SECRET)
        session.auth = (SECRET, SECRET)
        session.params = {"key": SECRET}
        arguments, errors = with_secrets(gateway.url), []

        def call() -> None:
            try:
                session.get(arguments["url"], timeout=1)
            except (StreamguardError, requests.RequestException) as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        gateway.wait_step("stall")
        assert leaking() == set()
        thread.join()
        (error,) = errors
        assert SECRET not in f"{error!r} {error}"
        assert leaking() == set()


def test_a_chain_in_the_middle_of_a_run() -> None:
    """Inputs, values and fallbacks of a chain, during a step and after the run."""
    seen: list[set[str]] = []
    chain = Chain("agent", deadline=20)
    chain.step(lambda ctx: SECRET, name="one", fallback=SECRET)
    chain.step(lambda ctx: seen.append(leaking()), name="two", needs="one", limit=10)
    result = chain.run(user=SECRET, key={"token": SECRET})
    assert seen == [set()]
    assert leaking() == set()
    assert SECRET not in f"{result!r} {result}"


def test_dispatches(streamguard_gateway: Serve) -> None:
    """Prompts, environments, arguments and headers of members, while they run."""
    gateway = streamguard_gateway("chat a\nstall")
    arguments = with_secrets(gateway.url)
    members: list[Member] = [
        CommandMember("command", ["/bin/sh", "-c", "echo begun; sleep 20", SECRET], env={"KEY": SECRET}, grace=0.2),
        StreamMember("stream", arguments["url"], model="m", headers=arguments["headers"], cookies=arguments["cookies"]),
        CallableMember("callable", lambda prompt, context: str(context.token.wait(20))),
    ]
    with Dispatcher() as dispatcher, dispatcher.stream("c", members, SECRET) as stream:
        next(stream)
        gateway.wait_step("stall")
        assert leaking() == set()
    assert leaking() == set()


def test_commands() -> None:
    """A command's arguments, environment and input."""
    with iter_command(["/bin/sh", "-c", "echo begun; sleep 20", SECRET], env={"KEY": SECRET}, input=SECRET) as command:
        next(iter(command))
        assert leaking() == set()


def test_calls_and_guards() -> None:
    """The arguments of a bounded call, and a guarded iterator."""
    assert bounded_call(lambda key: leaking(), SECRET, limit=10) == set()
    stream = guard(iter([SECRET, SECRET]), abandon=True)
    next(stream)
    assert leaking() == set()
    stream.close()


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{SECRET}@127.0.0.1:1/name",
        f"postgres//user:{SECRET}@host/name",
        f"mysql://user:{SECRET}@host/name",
        f"nonsense://user:{SECRET}@host/name",
        f"postgresql://user:{SECRET}@host:port/name",
    ],
)
@pytest.mark.parametrize("use", ["records", "journal"])
def test_databases(url: str, use: str) -> None:
    """The password in a database's URL, valid or not."""
    shown: list[str] = []
    try:
        if use == "records":
            with Dispatcher(url) as dispatcher:
                assert leaking() == set()
                shown.append(repr(dispatcher.records.engine))
        else:
            streamguard.configure(journal=url)
    except UsageError as error:
        shown.append(text_of(error))
    finally:
        streamguard.configure(journal=None)
    assert leaking() == set()
    assert [text for text in shown if SECRET in text] == []


@pytest.mark.parametrize(
    "url",
    [
        f"http://user:{SECRET}@host:port/",
        f"htp://user:{SECRET}@host/",
        f"user:{SECRET}@host/",
        f"http://user:{SECRET}@/",
        f"http://user:{SECRET}@[::1/",
    ],
)
def test_invalid_urls(url: str) -> None:
    """The password in a URL that is refused: neither in the error nor in its causes."""
    with pytest.raises(StreamguardError) as caught:
        guarded_stream("GET", url)
    shown = f"{caught.value!r} {caught.value} {vars(caught.value)} {caught.value.__cause__!r}"
    assert SECRET not in shown
