"""One stream in several threads: one error once, no thread hangs, no chunk is lost or duplicated."""

import signal
import threading
import time
from typing import Any

import pytest
import requests

from streamguard import (
    CancelToken,
    DeadlineExceededError,
    StreamCancelledError,
    StreamInactivityTimeoutError,
    current_token,
    guarded_stream,
)
from streamguard._core.clock import monotonic

from ..helpers import PROMPT, Consumer, Serve, in_thread, in_threads, join, switching_often, wait_until
from ..http.servers import Peer, Server
from .helpers import consume, failure, signal_when, stream_from


@pytest.mark.parametrize("ending", ["done", "end", "close"])
def test_the_end_comes_through_a_full_queue(streamguard_gateway: Serve, ending: str) -> None:
    """More than the reader may hold, a late consumer, a server that has left: all chunks, then the end (B042)."""
    chunk = '{"choices": [{"index": 0, "delta": {"content": "%s"}}]}' % ("x" * 20_000)
    gateway = streamguard_gateway(f"loop 150\nevent {chunk}\nendloop\n{ending}")
    stream = stream_from(gateway, strict=False)
    next(stream)
    time.sleep(0.3)
    seen = consume(stream)
    assert len(seen.chunks) == 149
    assert (seen.error is None) == (ending != "close")
    assert next(stream, "over") == "over"


@pytest.mark.parametrize("limit", ["total", "idle"])
def test_limits_work_off_the_main_thread(streamguard_gateway: Serve, limit: str) -> None:
    """No signal is involved: in a worker thread the limits are the same, and no handler is touched (B117)."""
    handlers = _signal_handlers()
    stream = stream_from(streamguard_gateway("chat a\nstall"), **{limit: 0.2})
    errors: list[Any] = []
    in_thread(lambda: errors.append(failure(stream))).join(5)
    assert isinstance(errors[0], TimeoutError)
    assert _signal_handlers() == handlers


def test_streams_in_many_threads_do_not_mix() -> None:
    """8 threads × 20 streams: each gets the number that it sent, on its own connection, without others' cookies (B118)."""

    def echo(peer: Peer) -> None:
        head = peer.read_request().lower()
        number = head.partition(b"x-number: ")[2].partition(b"\r\n")[0].decode()
        cookie = "" if b"\ncookie:" not in head else "leaked"
        payload = '{"choices": [{"index": 0, "delta": {"content": "%s"}}]}' % (number + cookie)
        start = f"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nSet-Cookie: n={number}\r\n\r\n"
        peer.send(f"{start}data: {payload}\n\ndata: [DONE]\n\n".encode())

    wrong: list[str] = []

    def work(thread: int) -> None:
        for number in range(20):
            mine = f"{thread}-{number}"
            got = guarded_stream("GET", server.url, headers={"X-Number": mine}).read()
            if got != mine:
                wrong.append(f"{mine}: {got}")

    with Server(echo) as server:
        threads = [in_thread(lambda thread=thread: work(thread)) for thread in range(8)]
        for thread in threads:
            thread.join(30)
    assert (wrong, server.connections) == ([], 160)


def test_no_timer_and_no_lasting_thread(streamguard_gateway: Serve) -> None:
    """While limits are armed there is one thread, a daemon, and no timer; an interrupt leaves none of them (B119)."""
    before = set(threading.enumerate())
    gateway = streamguard_gateway("chat a\nstall")
    stream = stream_from(gateway, idle=30, total=60, dead=20, heartbeat=10)
    next(stream)
    own = [t for t in threading.enumerate() if t not in before and "gateway" not in t.name]
    assert [(thread.daemon, isinstance(thread, threading.Timer)) for thread in own] == [(True, False)]
    signal_when(lambda: True, signal.SIGINT, after=0.05)
    with pytest.raises(KeyboardInterrupt):
        next(stream)
    assert not own[0].is_alive()


def _signal_handlers() -> list[Any]:
    return [signal.getsignal(number) for number in sorted(signal.valid_signals())]


@pytest.mark.parametrize("count", [2, 8])
def test_next_from_several_threads_loses_and_duplicates_nothing(streamguard_gateway: Serve, count: int) -> None:
    """Each chunk goes to exactly one of the threads; at the end all of them stop."""
    gateway = streamguard_gateway("loop 500\ntick\nendloop\nfinish\ndone")
    stream = guarded_stream("GET", gateway.url)
    consumers = [Consumer(stream) for _ in range(count)]
    with switching_often():
        join(in_threads(count, lambda number: consumers[number]()))
    assert [consumer.errors for consumer in consumers] == [[]] * count
    numbers = [int(text) for consumer in consumers for text in consumer.texts if text]
    assert sorted(numbers) == list(range(1, 501))
    assert all(consumer.texts == sorted(consumer.texts, key=lambda text: int(text or 501)) for consumer in consumers)
    assert stream.report.chunks == 501


@pytest.mark.parametrize(
    ("limits", "expected"),
    [({"idle": 0.2}, StreamInactivityTimeoutError), ({"total": 0.2}, DeadlineExceededError), ({}, StreamCancelledError)],
    ids=["idle", "total", "cancel"],
)
def test_of_several_threads_one_gets_the_error(
    streamguard_gateway: Serve, limits: dict[str, float], expected: type[Exception]
) -> None:
    """The error is raised once, in one of the threads; the others see the end, and none hangs."""
    gateway = streamguard_gateway("chat hello\nstall")
    stream = guarded_stream("GET", gateway.url, **limits)  # type: ignore[call-overload]
    consumers = [Consumer(stream) for _ in range(4)]
    threads = in_threads(4, lambda number: consumers[number]())
    if not limits:
        wait_until(lambda: stream.text)
        assert stream.cancel()
    join(threads)
    assert [text for consumer in consumers for text in consumer.texts] == ["hello"]
    (error,) = [error for consumer in consumers for error in consumer.errors]
    assert type(error) is expected
    assert list(stream) == []
    gateway.wait_left()


def test_queued_chunks_when_the_caller_cancels(streamguard_gateway: Serve) -> None:
    """A cancel comes before queued chunks, and its error has their text."""
    gateway = streamguard_gateway("loop 50\ntick\nendloop\nstall")
    stream = guarded_stream("GET", gateway.url)
    assert next(stream).text == "1 "
    gateway.wait_step("stall")
    CancelToken().wait(0.2)
    stream.cancel()
    with pytest.raises(StreamCancelledError) as caught:
        next(stream)
    assert caught.value.partial_text == "".join(f"{number} " for number in range(1, 51))


def test_next_in_the_middle_of_a_cancel(streamguard_gateway: Serve) -> None:
    """A next() while another thread is still cancelling raises the cancel at once, with all text."""
    gateway = streamguard_gateway("chat hello\nchat world\nstall")
    cancelling, release = threading.Event(), threading.Event()

    def dawdle() -> None:
        cancelling.set()
        release.wait(10)

    def register(response: requests.Response, **_: object) -> None:
        token = current_token()
        assert token is not None
        token.on_cancel(dawdle)

    stream = guarded_stream("GET", gateway.url, hooks={"response": register})
    assert next(stream).text == "hello"
    gateway.wait_step("stall")
    CancelToken().wait(0.1)
    threads = in_threads(1, lambda _: stream.cancel("slowly"))
    assert cancelling.wait(10)
    with pytest.raises(StreamCancelledError) as caught:
        next(stream)
    assert (caught.value.reason, caught.value.partial_text) == ("slowly", "helloworld")
    release.set()
    join(threads)
    gateway.wait_left()


def test_a_cancel_at_the_instant_of_the_timeout_wins(streamguard_gateway: Serve) -> None:
    """If both have happened when the consumer looks, the cancel is raised, in every try."""
    gateway = streamguard_gateway("chat hello\nstall")
    for _ in range(20):
        stream = guarded_stream("GET", gateway.url, idle=0.05, total=0.05)
        assert next(stream).text == "hello"
        CancelToken().wait(0.06)
        stream.cancel("mine")
        with pytest.raises(StreamCancelledError) as caught:
            next(stream)
        assert caught.value.reason == "mine"
        assert stream.report.outcome == "cancelled"


@pytest.mark.parametrize("end", ["close", "cancel"])
def test_ending_a_stream_from_elsewhere_while_chunks_fly(streamguard_gateway: Serve, end: str) -> None:
    """Whenever the other thread ends the stream, the loop ends quietly or with that error, never with another."""
    gateway = streamguard_gateway("loop forever\ntick\nendloop")
    with switching_often():
        for number in range(40):
            consumer = Consumer(guarded_stream("GET", gateway.url))
            threads = in_threads(1, consumer)
            wait_until(lambda consumer=consumer, number=number: len(consumer.texts) > number)  # type: ignore[misc]
            getattr(consumer.stream, end)()
            join(threads)
            assert [type(error) for error in consumer.errors] == ([] if end == "close" else [StreamCancelledError])
            assert consumer.stream.report.outcome == {"close": "closed", "cancel": "cancelled"}[end]
            assert list(consumer.stream) == []


@pytest.mark.parametrize("phase", ["", "headers", "chat hello"], ids=["response", "first", "idle"])
def test_close_from_another_thread_is_prompt_and_quiet(streamguard_gateway: Serve, phase: str) -> None:
    """A loop that is blocked in any phase ends quietly; the server sees the close, and a second close changes nothing."""
    gateway = streamguard_gateway(f"{phase}\nstall")
    consumer = Consumer(guarded_stream("GET", gateway.url))
    threads = in_threads(1, consumer)
    gateway.wait_step("stall")
    CancelToken().wait(0.05)
    begun = monotonic()
    consumer.stream.close()
    join(threads)
    assert monotonic() - begun < PROMPT
    consumer.stream.close()
    assert consumer.errors == []
    assert consumer.stream.report.outcome == "closed"
    gateway.wait_left()


def test_a_close_in_the_instant_before_the_reader_starts(
    streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a quiet end like any other (found by the random races of `make stress`)."""
    stream = guarded_stream("GET", streamguard_gateway("chat hello\nstall").url)
    register, closers = CancelToken.on_cancel, list[threading.Thread]()

    def on_cancel(self: CancelToken, closer: Any) -> Any:
        if getattr(closer, "__func__", None) is CancelToken.detach and not closers:
            closers.append(threading.Thread(target=stream.close))
            closers[0].start()
            closers[0].join()
        return register(self, closer)

    monkeypatch.setattr(CancelToken, "on_cancel", on_cancel)
    assert list(stream) == []
    assert len(closers) == 1
    assert stream.report.outcome == "closed"
