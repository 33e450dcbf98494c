"""One stream among several threads: one error once, nobody hangs, no chunk is lost or doubled."""

import threading
from typing import Any

import pytest

from streamguard import (
    CancelToken,
    DeadlineExceededError,
    StreamCancelledError,
    StreamInactivityTimeoutError,
    guarded_stream,
)
from streamguard._core.clock import monotonic

from ..helpers import PROMPT, Consumer, Serve, in_threads, join, switching_often, wait_until


@pytest.mark.parametrize("count", [2, 8])
def test_next_from_several_threads_loses_and_doubles_nothing(streamguard_gateway: Serve, count: int) -> None:
    """Each chunk goes to exactly one of the threads that ask; at the end all of them stop."""
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
    """The error is raised once, in one of the threads; the others see the end, and nobody hangs."""
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
    """A cancel comes before chunks that wait, and its error holds their text."""
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
    """A consumer that looks while another thread is still cancelling hears of the cancel, with all text, at once."""
    gateway = streamguard_gateway("chat hello\nchat world\nstall")
    stream = guarded_stream("GET", gateway.url)
    assert next(stream).text == "hello"
    gateway.wait_step("stall")
    CancelToken().wait(0.1)
    cancelling, release = threading.Event(), threading.Event()

    def dawdle() -> None:
        cancelling.set()
        release.wait(10)

    assert stream._attempt._pump is not None
    stream._attempt._pump.token.on_cancel(dawdle)
    threads = in_threads(1, lambda _: stream.cancel("slowly"))
    assert cancelling.wait(10)
    with pytest.raises(StreamCancelledError) as caught:
        next(stream)
    assert (caught.value.reason, caught.value.partial_text) == ("slowly", "helloworld")
    release.set()
    join(threads)
    gateway.wait_left()


def test_a_cancel_at_the_instant_of_the_timeout_wins(streamguard_gateway: Serve) -> None:
    """When both have happened by the time that the consumer looks, it hears of the cancel, however often one tries."""
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
    """Whenever the other thread strikes, the loop ends quietly or with the one error, and never with another one."""
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
    """A loop that is blocked in any phase just ends; the server sees it, and a second close changes nothing."""
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
