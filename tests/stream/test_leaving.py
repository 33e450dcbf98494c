"""Names and tokens, and every way to leave a stream."""

import gc
import json
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import streamguard
from streamguard import (
    CancelToken,
    GuardedStream,
    StreamCancelledError,
    StreamguardError,
    UsageError,
    guarded_stream,
)
from streamguard.testing import Gateway

from ..helpers import Serve
from .helpers import ask, consume

GOOD = "chat a\nchat b\ndone"
OPEN = "chat a\nstall"


@pytest.mark.parametrize(
    ("name", "wrong"), [("cancel", "token"), ("cancel", threading.Event()), ("name", 5), ("name", b"x")]
)
def test_what_is_no_token_or_name(name: str, wrong: Any) -> None:
    """`cancel=` takes a CancelToken, `name=` a str."""
    options: dict[str, Any] = {name: wrong}
    with pytest.raises(TypeError, match=f"{name}="):
        guarded_stream("GET", "http://127.0.0.1:9/", **options)


def test_one_token_stops_many_streams(streamguard_gateway: Serve) -> None:
    """A token of the caller's ends all streams that it was given to, and their own ends do not touch it."""
    gateway = streamguard_gateway(GOOD, OPEN)
    token = CancelToken()
    assert ask(gateway, cancel=token).error is None
    assert ask(gateway, cancel=token, idle=0.1).error is not None
    streams = [guarded_stream("POST", gateway.url, cancel=token, name=f"s{number}") for number in range(3)]
    for stream in streams:
        next(stream)
    assert not token.cancelled
    assert token.cancel("all") is True
    errors = [consume(stream).error for stream in streams]
    assert all(isinstance(error, StreamCancelledError) and error.reason == "all" for error in errors)
    assert [stream.report.outcome for stream in streams] == ["cancelled"] * 3


def test_a_token_that_is_cancelled_already(streamguard_gateway: Serve) -> None:
    """Nothing is sent."""
    gateway = streamguard_gateway(GOOD)
    token = CancelToken()
    token.cancel("early")
    run = ask(gateway, cancel=token)
    assert isinstance(run.error, StreamCancelledError)
    assert (run.error.reason, gateway.connections) == ("early", 0)


def test_a_token_does_not_keep_streams(streamguard_gateway: Serve) -> None:
    """A long-lived token holds no stream that has ended, or was dropped."""
    gateway = streamguard_gateway(GOOD, OPEN)
    token = CancelToken()
    ended = guarded_stream("POST", gateway.url, cancel=token)
    assert ended.read() == "ab"
    left = guarded_stream("POST", gateway.url, cancel=token)
    next(left)
    references = [weakref.ref(ended), weakref.ref(left)]
    del ended, left
    gc.collect()
    assert [reference() for reference in references] == [None, None]
    assert gateway.wait_left(2).during == "stall"


def test_a_name_is_in_everything(streamguard_gateway: Serve) -> None:
    """The caller's name is in the report, the repr and the error's message."""
    run = ask(streamguard_gateway("chat a"), name="summary")
    assert run.stream.report.name == "summary"
    assert "summary" in repr(run.stream)
    assert "summary" in str(run.error)
    assert "summary" in str(run.stream.report)


def test_no_secret_is_told(streamguard_gateway: Serve) -> None:
    """Neither error, report nor repr has the URL's path, query, user or password, a header, or the body."""
    gateway = streamguard_gateway("chat a")
    url = gateway.url.replace("http://", "http://user:hush1@") + "/hush2?key=hush3"
    run = consume(guarded_stream("POST", url, headers={"X-Key": "hush4"}, json={"p": "hush5"}, cookies={"c": "hush6"}))
    assert gateway.requests[0].target == "/hush2?key=hush3"
    report = run.stream.report
    told = (str(run.error), repr(run.error), repr(run.stream), repr(report), str(report), json.dumps(report.to_dict()))
    assert "hush" not in " ".join(told)


def test_the_response_is_there_when_its_headers_are() -> None:
    """`.response` before the start is a UsageError that says how to start."""
    stream = guarded_stream("GET", "http://127.0.0.1:9/")
    with pytest.raises(UsageError, match="next"):
        _ = stream.response
    stream.close()


def test_the_response_is_that_of_the_last_attempt(streamguard_gateway: Serve) -> None:
    """After a retry `.response` and the report's request_id are those of the attempt that was read."""
    gateway = streamguard_gateway("headers 503 x-request-id: one", f"headers x-request-id: two\n{GOOD}")
    retry = streamguard.before_first_chunk(1, status={503}, wait=lambda state: 0)
    run = ask(gateway, retry=retry)
    assert (run.stream.response.status_code, run.stream.report.request_id, run.stream.report.status_code) == (
        200,
        "two",
        200,
    )


def leave_by_break(stream: GuardedStream[Any]) -> None:
    """Leave a `with` block in the middle."""
    with stream:
        for _ in stream:
            break


def leave_by_close(stream: GuardedStream[Any]) -> None:
    """Close after a chunk."""
    next(stream)
    stream.close()


def raise_inside(stream: GuardedStream[Any], error: BaseException) -> None:
    """Raise in the middle of a `with` block."""
    with stream:
        next(stream)
        raise error


def leave_by_interrupt(stream: GuardedStream[Any]) -> None:
    """Leave as by Ctrl-C."""
    with pytest.raises(KeyboardInterrupt):
        raise_inside(stream, KeyboardInterrupt())


def leave_by_exit(stream: GuardedStream[Any]) -> None:
    """Leave by sys.exit()."""
    with pytest.raises(SystemExit):
        raise_inside(stream, SystemExit(3))


@pytest.mark.parametrize("leave", [leave_by_break, leave_by_close, leave_by_interrupt, leave_by_exit])
def test_leaving_frees_the_connection(streamguard_gateway: Serve, leave: Callable[[GuardedStream[Any]], None]) -> None:
    """Whatever leads out of the block, the server sees the client leave, the stream has ended, and says `closed`."""
    gateway = streamguard_gateway(OPEN)
    stream = guarded_stream("POST", gateway.url)
    leave(stream)
    assert gateway.wait_left().during == "stall"
    assert (stream.report.outcome, stream.report.chunks, list(stream)) == ("closed", 1, [])


def consume_some(gateway: Gateway) -> None:
    """Iterate without `with`, and leave by break: the last reference goes with the loop."""
    for _ in guarded_stream("POST", gateway.url):
        break


def test_dropping_the_last_reference_is_enough(streamguard_gateway: Serve) -> None:
    """Without `with` and without close() a loop that is left frees everything at once."""
    gateway = streamguard_gateway(OPEN)
    consume_some(gateway)
    assert gateway.wait_left().during == "stall"


def test_a_cycle_waits_for_the_collector(streamguard_gateway: Serve) -> None:
    """A stream in a reference cycle is freed when the collector finds it."""
    gateway = streamguard_gateway(OPEN)
    cycle: list[Any] = [guarded_stream("POST", gateway.url)]
    cycle.append(cycle)
    next(cycle[0])
    del cycle
    gc.collect()
    assert gateway.wait_left().during == "stall"


def test_a_stream_that_was_never_started_warns() -> None:
    """Collected unstarted, a stream warns, by its name: somebody forgot to iterate."""
    with pytest.warns(ResourceWarning, match="summary"):
        guarded_stream("GET", "http://127.0.0.1:9/", name="summary")


@pytest.mark.parametrize("use", ["close", "cancel", "next", "with"])
def test_a_stream_that_was_used_does_not_warn(streamguard_gateway: Serve, use: str) -> None:
    """Closed, cancelled, iterated or opened, it does not."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        stream = guarded_stream("POST", streamguard_gateway(OPEN).url)
        if use == "with":
            with stream:
                pass
        elif use == "next":
            next(stream)
        else:
            getattr(stream, use)()
        del stream
        gc.collect()
    assert [warning for warning in caught if warning.category is ResourceWarning] == []


def test_closing_twice_and_before_the_start(streamguard_gateway: Serve) -> None:
    """close() may come at any time and any number of times; before the start it means that nothing is sent."""
    gateway = streamguard_gateway(GOOD)
    stream = guarded_stream("POST", gateway.url)
    stream.close()
    stream.close()
    assert (list(stream), stream.report.outcome, gateway.connections) == ([], "closed", 0)


def test_cancelling_before_the_start(streamguard_gateway: Serve) -> None:
    """cancel() before the start is raised by the first next(), once, and nothing is sent."""
    gateway = streamguard_gateway(GOOD)
    stream = guarded_stream("POST", gateway.url)
    assert (stream.cancel("no"), stream.cancel("again")) == (True, False)
    with pytest.raises(StreamCancelledError) as caught:
        next(stream)
    assert (caught.value.reason, list(stream), gateway.connections) == ("no", [], 0)


def test_after_the_end_nothing_changes(streamguard_gateway: Serve) -> None:
    """cancel() and close() after the end leave report and text as they are."""
    stream = guarded_stream("POST", streamguard_gateway(GOOD).url)
    assert stream.read() == "ab"
    report = stream.report
    stream.cancel()
    stream.close()
    assert (stream.report is report, report.outcome, list(stream), stream.text) == (True, "completed", [], "ab")


@pytest.mark.parametrize(("how", "outcome"), [("close", "closed"), ("cancel", "cancelled")])
def test_the_end_may_come_from_another_thread(streamguard_gateway: Serve, how: str, outcome: str) -> None:
    """close() ends a blocked loop quietly, cancel() raises in it."""
    gateway = streamguard_gateway(OPEN)
    stream = guarded_stream("POST", gateway.url)
    next(stream)

    def stop() -> None:
        gateway.wait_step("stall")
        getattr(stream, how)()

    thread = threading.Thread(target=stop)
    thread.start()
    run = consume(stream)
    thread.join()
    assert type(run.error) is (type(None) if how == "close" else StreamCancelledError)
    assert (run.chunks, stream.report.outcome) == ([], outcome)
    gateway.wait_left()


@pytest.mark.parametrize(
    "script", ["chat a\nreset", "headers 500", "headers 200 content-type: text/html\nraw <p>", "event x"]
)
def test_a_failed_stream_waits_for_no_collector(streamguard_gateway: Serve, script: str) -> None:
    """What a stream held goes with the last reference to it: its error makes no reference cycle."""
    gateway = streamguard_gateway(script)
    gc.collect()
    gc.disable()
    try:
        stream = guarded_stream("GET", gateway.url, retry=None)
        loop = weakref.ref(stream._hand_over)
        failed = False
        try:
            stream.read()
        except StreamguardError:
            failed = True
        del stream
        assert failed
        assert loop() is None
    finally:
        gc.enable()
