"""Signals during `next()`: handlers run at once, and their exceptions propagate unchanged."""

import contextlib
import gc
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import streamguard
from streamguard import (
    CancelToken,
    StreamCancelledError,
    guarded_stream,
)
from streamguard._core.clock import monotonic

from ..helpers import PROMPT, Serve, finish, started, wait_until
from .helpers import ENDLESS, SoftLimit, has_reader, signal_when, stream_from


@pytest.mark.parametrize("kind", [SoftLimit, KeyboardInterrupt, SystemExit, OSError, TimeoutError])
@pytest.mark.parametrize("retry", [None, 3])
def test_what_a_signal_handler_raises_is_not_ours(
    streamguard_gateway: Serve, kind: type[BaseException], retry: int | None
) -> None:
    """It propagates unchanged from a waiting `next()`, is never retried, and closes the stream (B051)."""
    gateway = streamguard_gateway("headers\nstall")
    raised = kind("from outside")

    def handler(*_: object) -> None:
        raise raised

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        stream = stream_from(gateway, retry=retry)
        signal_when(lambda: bool(gateway.requests) and gateway.requests[0].reached["stall"] > 0, signal.SIGUSR1)
        with pytest.raises(kind) as caught:
            next(stream)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert caught.value is raised
    assert (len(gateway.requests), has_reader(stream)) == (1, False)
    gateway.wait_left()
    assert stream.report.outcome == ("error" if issubclass(kind, Exception) else "closed")
    assert next(stream, "over") == "over"


@pytest.mark.parametrize("limits", [{"idle": 30}, {"idle": 0, "first": 0}, {"idle": 30, "total": 60, "heartbeat": 20}])
@pytest.mark.parametrize("step", ["stall", ENDLESS])
def test_ctrl_c_interrupts_a_waiting_next(streamguard_gateway: Serve, limits: dict[str, float], step: str) -> None:
    """KeyboardInterrupt at once, whatever the limits; the socket is closed and the thread gone (B116)."""
    gateway = streamguard_gateway(f"chat a\n{step}")
    stream = stream_from(gateway, **limits)
    next(stream)
    sent = signal_when(lambda: True, signal.SIGINT, after=0.1)
    with pytest.raises(KeyboardInterrupt):
        for _ in stream:
            pass
    assert monotonic() - sent[0] < PROMPT
    stream.close()
    wait_until(lambda: not has_reader(stream))
    gateway.wait_left()


@pytest.mark.parametrize(
    ("script", "options"),
    [
        ("stall", {}),
        ("", {"tls_stall": True}),
        ("headers 503 retry-after: 30; content-length: 0", {"framing": "length"}),
    ],
    ids=["headers", "handshake", "pause"],
)
def test_ctrl_c_interrupts_every_other_wait(streamguard_gateway: Serve, script: str, options: dict[str, Any]) -> None:
    """Before the headers, in a handshake, in the pause before another attempt (B116)."""
    gateway = streamguard_gateway(script, **options)
    retry = streamguard.before_first_chunk(3, status={503})
    stream = guarded_stream("GET", gateway.url, retry=retry)
    sent = signal_when(lambda: gateway.connections > 0, signal.SIGINT, after=0.1)
    with pytest.raises(KeyboardInterrupt):
        stream.open()
    assert monotonic() - sent[0] < PROMPT
    assert (stream.report.outcome, has_reader(stream)) == ("closed", False)
    gateway.wait_connections(1, still_open=0)


@contextlib.contextmanager
def handler_during_the_stall(gateway: Any, handler: Callable[[], object]) -> Iterator[None]:
    """Have *handler* called by a signal in the main thread, once the gateway is silent."""
    main = threading.main_thread().ident or 0

    def send() -> None:
        gateway.wait_step("stall")
        CancelToken().wait(0.05)  # so that the consumer is inside of its wait
        signal.pthread_kill(main, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        sender.join()
        signal.signal(signal.SIGUSR1, before)


def throw(error: BaseException) -> Callable[[], None]:
    def handler() -> None:
        raise error

    return handler


class Hurry(Exception):
    """What an application's own alarm raises."""


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(3), Hurry(), TimeoutError("the alarm"), GeneratorExit(), StopIteration()]
)
@pytest.mark.parametrize("retry", [None, 5])
def test_what_a_handler_raises_comes_out_unchanged(streamguard_gateway: Serve, error: BaseException, retry: Any) -> None:
    """It is the same object, raised once, at once, never retried; the server sees the close, and the stream has ended.

    Only StopIteration cannot leave an iterator: it is a RuntimeError, as in a generator (PEP 479).
    """
    gateway = streamguard_gateway("chat hello\nstall")
    stream = guarded_stream("GET", gateway.url, retry=retry)
    assert next(stream).text == "hello"
    expected = RuntimeError if isinstance(error, StopIteration) else type(error)
    with handler_during_the_stall(gateway, throw(error)), pytest.raises(expected) as caught:
        next(stream)
    assert error in (caught.value, caught.value.__cause__)
    gateway.wait_left()
    assert list(stream) == []
    assert stream.text == "hello"
    assert stream.report.outcome == ("error" if isinstance(error, Exception) else "closed")
    assert len(gateway.requests) == 1


@pytest.mark.parametrize("script", ["stall", "headers\nstall"], ids=["response", "first"])
def test_an_interrupt_before_the_first_chunk(streamguard_gateway: Serve, script: str) -> None:
    """The same before the first chunk, in every method that waits."""
    for wait in (next, lambda stream: stream.open(until="first"), lambda stream: stream.__enter__().read()):
        gateway = streamguard_gateway(script)
        stream = guarded_stream("GET", gateway.url)
        with handler_during_the_stall(gateway, throw(KeyboardInterrupt())), pytest.raises(KeyboardInterrupt):
            wait(stream)
        gateway.wait_left()
        assert list(stream) == []
        assert stream.report.outcome == "closed"


def test_a_handler_that_cancels_the_stream_it_interrupts(streamguard_gateway: Serve) -> None:
    """A cancel from a handler, in the thread that is blocked in next(), raises there with its reason."""
    gateway = streamguard_gateway("chat hello\nstall")
    stream = guarded_stream("GET", gateway.url)
    assert next(stream).text == "hello"
    heard: list[bool] = []
    with (
        handler_during_the_stall(gateway, lambda: heard.extend((stream.cancel("signal"), stream.cancel("again")))),
        pytest.raises(StreamCancelledError) as caught,
    ):
        next(stream)
    assert heard == [True, False]
    assert (caught.value.reason, caught.value.partial_text) == ("signal", "hello")
    gateway.wait_left()


def test_a_handler_that_cancels_the_callers_token(streamguard_gateway: Serve) -> None:
    """A cancel of the caller's token from a handler raises in the blocked next()."""
    gateway = streamguard_gateway("stall")
    token = CancelToken()
    with handler_during_the_stall(gateway, token.cancel), pytest.raises(StreamCancelledError):
        guarded_stream("GET", gateway.url, cancel=token).read()
    gateway.wait_left()


def test_a_handler_that_closes_the_stream_it_interrupts(streamguard_gateway: Serve) -> None:
    """A close from a handler ends the loop quietly."""
    gateway = streamguard_gateway("chat hello\nstall")
    stream = guarded_stream("GET", gateway.url)
    with handler_during_the_stall(gateway, stream.close):
        assert [chunk.text for chunk in stream] == ["hello"]
    assert stream.report.outcome == "closed"
    gateway.wait_left()


def test_a_handler_that_does_nothing_ends_no_wait(streamguard_gateway: Serve) -> None:
    """A handler that does nothing neither shortens nor ends the wait."""
    gateway = streamguard_gateway("chat a\nwait 0.3\nchat b\nfinish\ndone", "stall")
    stream = guarded_stream("GET", gateway.url, idle=5)
    heard: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    main = threading.main_thread().ident
    assert main is not None
    timers = [threading.Timer(0.05 * n, signal.pthread_kill, (main, signal.SIGUSR1)) for n in range(1, 6)]
    try:
        assert next(stream).text == "a"
        for timer in timers:
            timer.start()
        assert stream.read() == "ab"
    finally:
        for timer in timers:
            timer.join()
        signal.signal(signal.SIGUSR1, before)
    assert heard


class Node:
    def __init__(self) -> None:
        self.me = self


def test_a_finalizer_that_cancels_a_stream_in_its_own_thread(streamguard_gateway: Serve) -> None:
    """A finalizer that runs in the consumer's loop may cancel the stream: the next next() raises."""
    gateway = streamguard_gateway("loop forever\ntick\nwait 0.001\nendloop")
    stream = guarded_stream("GET", gateway.url)
    assert next(stream).text == "1 "
    weakref.finalize(Node(), stream.cancel, "collected")
    with pytest.raises(StreamCancelledError) as caught:  # noqa: PT012 - the collection is what raises
        for _ in stream:
            gc.collect()
    assert caught.value.reason == "collected"
    gateway.wait_left()


def test_ctrl_c_at_a_terminal(streamguard_gateway: Serve) -> None:
    """SIGINT in a blocked next() is a KeyboardInterrupt within a second; the server sees the close, no more is printed."""
    gateway = streamguard_gateway("chat hello\nstall")
    code = """
        import signal
        signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in what a shell runs in the background
        try:
            for chunk in guarded_stream("GET", sys.argv[1], idle=60):
                print(chunk.text, flush=True)
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    with started(code, gateway.url) as script:
        gateway.wait_step("stall", timeout=20)
        assert script.stdout is not None
        assert script.stdout.readline() == "hello\n"
        CancelToken().wait(0.1)
        sent = monotonic()
        script.send_signal(signal.SIGINT)
        assert gateway.wait_left().at - sent < 1.0
        assert finish(script) == "interrupted\n"
