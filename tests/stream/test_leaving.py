"""Every way to leave a stream frees its connection."""

import gc
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streamguard import (
    GuardedStream,
    StreamguardError,
    guarded_stream,
)
from streamguard.testing import Gateway

from ..helpers import Serve
from .helpers import ENDLESS, OPEN, SoftLimit, has_reader, stream_from


def test_what_the_body_of_the_loop_raises_frees_the_stream(streamguard_gateway: Serve) -> None:
    """An exception in a `with` block closes the stream (B051)."""
    gateway = streamguard_gateway(ENDLESS)
    stream = stream_from(gateway)
    with pytest.raises(SoftLimit):
        _fail_in_the_middle(stream)
    assert (stream.report.outcome, has_reader(stream)) == ("closed", False)
    gateway.wait_left()


def test_an_exception_in_a_plain_loop_frees_the_stream(streamguard_gateway: Serve) -> None:
    """Also without `with`, while the exception with its traceback is still being handled (B051)."""
    gateway = streamguard_gateway(ENDLESS)
    try:
        for _ in stream_from(gateway):
            raise SoftLimit
    except SoftLimit:
        gateway.wait_left()


def test_a_generator_that_is_closed_frees_its_stream(streamguard_gateway: Serve) -> None:
    """A host whose client leaves closes the view's generator in the middle (B051)."""
    gateway = streamguard_gateway(ENDLESS)

    def view() -> Iterator[str]:
        for chunk in stream_from(gateway):
            yield chunk.text

    body = view()
    assert next(body) == "1 "
    body.close()
    gateway.wait_left()


def _fail_in_the_middle(stream: GuardedStream[Any]) -> None:
    with stream:
        next(stream)
        raise SoftLimit


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
    """However the block is left, the server sees the client leave, and the stream has ended as `closed`."""
    gateway = streamguard_gateway(OPEN)
    stream = guarded_stream("POST", gateway.url)
    leave(stream)
    assert gateway.wait_left().during == "stall"
    assert (stream.report.outcome, stream.report.chunks, list(stream)) == ("closed", 1, [])


def consume_some(gateway: Gateway) -> None:
    """Iterate without `with`, and leave by break: the loop has the last reference."""
    for _ in guarded_stream("POST", gateway.url):
        break


def test_dropping_the_last_reference_is_enough(streamguard_gateway: Serve) -> None:
    """A loop that is left without `with` and close() releases everything at once."""
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
    """A stream that is collected unstarted warns, with its name."""
    with pytest.warns(ResourceWarning, match="summary"):
        guarded_stream("GET", "http://127.0.0.1:9/", name="summary")


@pytest.mark.parametrize("use", ["close", "cancel", "next", "with"])
def test_a_stream_that_was_used_does_not_warn(streamguard_gateway: Serve, use: str) -> None:
    """A stream that was closed, cancelled, iterated or opened does not warn."""
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


@pytest.mark.parametrize(
    "script", ["chat a\nreset", "headers 500", "headers 200 content-type: text/html\nraw <p>", "event x"]
)
def test_a_failed_stream_waits_for_no_collector(streamguard_gateway: Serve, script: str) -> None:
    """A failed stream is freed with its last reference: its error makes no reference cycle."""
    gateway = streamguard_gateway(script)
    gc.collect()
    gc.disable()
    try:
        held: Any = lambda *_, **__: None  # noqa: E731 - as long as anything of the stream is alive
        stream = guarded_stream("GET", gateway.url, retry=None, counts=held, hooks={"response": held})
        inside = weakref.ref(held)
        del held
        failed = False
        try:
            stream.read()
        except StreamguardError:
            failed = True
        del stream
        assert failed
        assert inside() is None
    finally:
        gc.enable()
