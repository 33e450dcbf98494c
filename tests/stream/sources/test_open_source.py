"""What guard() accepts and refuses: with `interrupt=`, with `abandon=True`, and with wrong options."""

import contextlib
import gc
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import requests
import urllib3

from streamguard import (
    HEARTBEAT,
    CancelToken,
    DeadlineExceededError,
    HTTPStatusError,
    NotEventStreamError,
    StreamCancelledError,
    StreamguardError,
    StreamInactivityTimeoutError,
    TransportError,
    UsageError,
    abandoned_threads,
    deadline,
    guard,
)

from ...helpers import Serve
from ..helpers import reader_of
from .clients import CLIENTS, PATIENCE, Consumer, assert_released

HTTP = ("requests", "urllib3", "http.client", "httpx", "httpx2")


class Tap:
    """An iterator that blocks after its items until it is turned off."""

    def __init__(self, *items: Any) -> None:
        self.items, self.off, self.turned = list(items), threading.Event(), 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self.items:
            return self.items.pop(0)
        self.off.wait(30)
        raise StopIteration

    def turn_off(self) -> None:
        self.turned += 1
        self.off.set()


class TestInterrupt:
    """`interrupt=`: the caller's function that wakes a blocked read."""

    def test_it_wakes_the_reader(self) -> None:
        """It is called once, at the cut; the items were delivered before."""
        tap = Tap("a", "b")
        stream = guard(tap, interrupt=tap.turn_off, idle=0.1)
        consumer = Consumer(stream)
        assert isinstance(consumer.wait(), StreamInactivityTimeoutError)
        assert consumer.items == ["a", "b"]
        assert_released(stream)
        assert tap.turned == 1

    def test_it_is_not_called_after_a_quiet_end(self) -> None:
        """A source that has ended needs no cut, however the stream is closed afterwards."""
        tap = Tap("a")
        tap.off.set()
        with guard(tap, interrupt=tap.turn_off) as stream:
            assert list(stream) == ["a"]
        stream.cancel()
        assert tap.turned == 0

    def test_one_that_blocks_delays_no_thread(self) -> None:
        """It runs in a thread of its own: some `close()` methods wait for the read that they should end."""
        tap, held = Tap(), threading.Event()
        stream = guard(tap, interrupt=lambda: held.wait(10), first=0.1)
        consumer = Consumer(stream)
        assert isinstance(consumer.wait(), StreamInactivityTimeoutError)
        assert stream.report.abandoned_threads == 1
        held.set()
        tap.turn_off()

    def test_one_that_raises_is_no_obstacle(self) -> None:
        """Its exception is logged; the error is that of the limit."""
        tap = Tap()

        def interrupt() -> None:
            tap.turn_off()
            raise OSError("already gone")

        stream = guard(tap, interrupt=interrupt, first=0.1)
        assert isinstance(Consumer(stream).wait(), StreamInactivityTimeoutError)
        assert_released(stream)

    def test_it_may_belong_to_a_function(self) -> None:
        """A function that opens a new iterator for each attempt can interrupt the last one."""
        taps: list[Tap] = []

        def opening() -> Tap:
            taps.append(Tap(*(["late"] if taps else [])))
            return taps[-1]

        stream = guard(opening, interrupt=lambda: taps[-1].turn_off(), first=0.1, idle=0.1)
        consumer = Consumer(stream)
        assert isinstance(consumer.wait(), StreamInactivityTimeoutError)
        assert (consumer.items, [tap.turned for tap in taps], stream.report.attempts) == (["late"], [1, 1], 2)

    def test_bytes_of_an_iterator_can_be_decoded(self) -> None:
        """`decode=` applies to bytes as to a body; for objects it is refused, with the type and the way out."""
        tap = Tap(b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n', b"data: [DONE]\n\n")
        assert guard(tap, interrupt=tap.turn_off, decode="chat").read() == "hi"
        tap = Tap({"a": 1})
        with pytest.raises(UsageError, match="dict objects"):
            next(guard(tap, interrupt=tap.turn_off, decode="json"))
        tap.turn_off()


class TestAbandon:
    """`abandon=True`: the caller accepts that the read cannot be interrupted."""

    def test_the_consumer_is_free_and_the_thread_is_counted(self) -> None:
        """The error is on time; the report and the process count the thread."""
        tap = Tap("a")
        before = abandoned_threads()
        stream = guard(tap, abandon=True, idle=0.1)
        assert isinstance(Consumer(stream).wait(), StreamInactivityTimeoutError)
        assert (stream.report.abandoned_threads, abandoned_threads() - before) == (1, 1)
        assert reader_of(stream) is not None
        tap.turn_off()
        end = time.monotonic() + PATIENCE
        while abandoned_threads() > before:
            assert time.monotonic() < end
            time.sleep(0.005)

    def test_a_late_item_is_dropped(self) -> None:
        """An item that arrives after the limit is dropped."""
        tap = Tap()
        stream = guard(tap, abandon=True, first=0.05)
        assert isinstance(Consumer(stream).wait(), StreamInactivityTimeoutError)
        tap.items.append("late")
        tap.turn_off()
        assert list(stream) == []
        assert stream.report.chunks == 0


class TestRefusals:
    """Sources that cannot be cut, and wrong options."""

    @pytest.mark.parametrize(
        "source", [[1, 2], iter([1]), (n for n in (1,)), "text", b"bytes", {"a": 1}, None, 1.5, object()]
    )
    def test_an_unknown_source(self, source: Any) -> None:
        """It is refused at once, with its type and the two ways out; nothing of its text."""
        with pytest.raises(UsageError, match=r"interrupt=.*abandon=True") as caught:
            guard(source)
        assert type(source).__name__ in caught.value.message

    @pytest.mark.parametrize(
        ("source", "words"),
        [
            (requests.Response().iter_lines(), r"the generator Response\.iter_lines\(\): .*guard\(response\)"),
            (httpx.Response(200, text="x").iter_lines(), r"the generator Response\.iter_lines\(\): .*guard\(response\)"),
            ([1, 2], "holds its items already, .*iterate over it"),
            (None, "takes an open stream, a function that opens one, .*not builtins.NoneType"),
        ],
    )
    def test_a_refusal_says_what_to_pass(self, source: Any, words: str) -> None:
        """A generator over a response, a list, None: the message names what guard() takes instead."""
        with pytest.raises(UsageError, match=words):
            guard(source)

    def test_a_function_that_returns_one(self) -> None:
        """It is refused when it has been called; the source that it opened is closed."""
        closed = threading.Event()

        class Opened:
            def __iter__(self) -> Iterator[int]:
                return iter(())

            def close(self) -> None:
                closed.set()

        with pytest.raises(UsageError, match="interrupt="):
            next(guard(Opened))
        assert closed.is_set()

    @pytest.mark.parametrize("opened", [None, 17.0, lambda: None, object()])
    def test_a_function_that_returns_no_source(self, opened: Any) -> None:
        """It is a UsageError when the stream starts."""
        with pytest.raises(UsageError):
            next(guard(lambda: opened))

    def test_asynchronous_sources(self) -> None:
        """The message names asyncio."""

        class Stream:
            def __aiter__(self) -> Any: ...

        async def opening() -> None: ...

        async_body = httpx.Response(200, stream=_AsyncBody())
        for source in (Stream(), async_body):
            with pytest.raises(UsageError, match="asynchronous"):
                guard(source)
        with pytest.raises(UsageError, match="asynchronous"):
            next(guard(opening))

    def test_http2(self) -> None:
        """HTTP/2 is refused: one connection carries many calls, and a cut would end them all."""
        response = httpx.Response(200, extensions={"http_version": b"HTTP/2"}, text="x")
        with pytest.raises(UsageError, match="http2=False"):
            guard(response)

    def test_what_is_guarded_already(self) -> None:
        """A property that raises, as `.response` does before the start, does not change the message."""
        tap = Tap()
        stream = guard(tap, interrupt=tap.turn_off)
        with pytest.raises(UsageError, match="GuardedStream"):
            guard(stream)
        stream.close()

    def test_retry_needs_a_function(self) -> None:
        """An open source cannot be opened again; None and 0 mean no retry."""
        tap = Tap()
        with pytest.raises(UsageError, match="a function that opens it"):
            guard(tap, interrupt=tap.turn_off, retry=2)
        tap.turn_off()
        for retry in (None, 0):
            assert list(guard(tap, interrupt=tap.turn_off, retry=retry)) == []

    @pytest.mark.parametrize(
        "options",
        [
            {"interrupt": 1},
            {"counts": 1},
            {"cancel": 1},
            {"name": 1},
            {"timeouts": 1},
            {"idle": b"5"},
            {"retry": "often"},
        ],
    )
    def test_options_of_the_wrong_type(self, options: dict[str, Any]) -> None:
        """They are refused by name, at once."""
        with pytest.raises(TypeError, match=next(iter(options))):
            guard(lambda: None, **options)

    def test_an_unknown_decoder(self) -> None:
        """It is refused at once."""
        with pytest.raises(UsageError, match="decode="):
            guard(0, decode="lines")


class TestOptions:
    """The other options are those of guarded_stream()."""

    def test_heartbeats(self) -> None:
        """Heartbeats are returned while the source is silent."""
        tap = Tap("a")
        stream = guard(tap, interrupt=tap.turn_off, heartbeat=0.05, idle=10)
        assert (next(stream), next(stream)) == ("a", HEARTBEAT)
        stream.close()
        assert_released(stream)

    def test_a_token_and_a_name(self) -> None:
        """One token cancels several sources, and the error has the name."""
        tap, token = Tap(), CancelToken()
        consumer = Consumer(guard(tap, interrupt=tap.turn_off, cancel=token, name="tap"))
        token.cancel("all")
        error = consumer.wait()
        assert isinstance(error, StreamCancelledError)
        assert (error.reason, error.name) == ("all", "tap")

    def test_a_surrounding_deadline(self) -> None:
        """A surrounding deadline bounds a guarded source like any stream."""
        tap = Tap()
        with deadline(0.1), pytest.raises(DeadlineExceededError) as caught:
            list(guard(tap, interrupt=tap.turn_off))
        assert caught.value.scope == "ambient"

    def test_a_callable_decodes_items(self) -> None:
        """A callable converts each item; its None is skipped."""
        tap = Tap(1, 2, 3)
        tap.off.set()
        stream = guard(tap, interrupt=tap.turn_off, decode=lambda n: n * 10 if n != 2 else None)
        assert list(stream) == [10, 30]

    def test_a_source_without_a_message_has_none(self) -> None:
        """Without a message there is no text, and the report has neither usage nor finish reason."""
        tap = Tap(1)
        tap.off.set()
        stream = guard(tap, interrupt=tap.turn_off)
        assert stream.read() == [1]
        with pytest.raises(UsageError):
            _ = stream.message
        assert (stream.text, stream.report.finish_reason) == ("", None)
        with pytest.raises(UsageError, match="no response"):
            _ = stream.response

    def test_a_fault_of_the_iterator_is_its_own(self) -> None:
        """It is raised unchanged, after the items before it."""

        def source() -> Iterator[int]:
            yield 1
            raise KeyError("mine")

        consumer = Consumer(guard(source(), abandon=True))
        assert isinstance(consumer.wait(), KeyError)
        assert consumer.items == [1]

    def test_a_fast_source_waits_for_a_slow_consumer(self) -> None:
        """The reader holds no more than about a thousand objects."""
        made = []

        def source() -> Iterator[int]:
            for number in range(20_000):
                made.append(number)
                yield number

        with guard(source(), abandon=True) as stream:
            assert next(stream) == 0
            time.sleep(0.1)
            assert len(made) < 2_000
            assert sum(1 for _ in stream) == 19_999

    def test_a_dropped_stream_frees_its_source(self) -> None:
        """When the last reference is dropped, the reader is woken and releases the source."""
        tap = Tap("a")
        gone = weakref.ref(tap)
        off = tap.off
        stream = guard(tap, interrupt=off.set)
        next(stream)
        del tap, stream
        end = time.monotonic() + PATIENCE
        while gone() is not None:
            assert time.monotonic() < end
            gc.collect()
            time.sleep(0.005)
        assert off.is_set()


class _AsyncBody(httpx.AsyncByteStream):
    async def __aiter__(self) -> Any:
        yield b""


class TestHTTP:
    """Responses: judged, decoded and released as in guarded_stream()."""

    def test_every_decoder(self, streamguard_gateway: Serve, stack: contextlib.ExitStack) -> None:
        """`decode=` works as in guarded_stream()."""
        gateway = streamguard_gateway("chat a\nfinish\ndone")
        client = stack.enter_context(httpx.Client())

        def items(decode: Any) -> list[Any]:
            return list(guard(lambda: client.stream("GET", gateway.url), decode=decode))

        assert [chunk.text for chunk in items(None)] == [chunk.text for chunk in items("chat")] == ["a", ""]
        assert [event.data for event in items("events")][-1] == "[DONE]"
        assert len(items("json")) == 2
        assert b"".join(items("bytes")).endswith(b"data: [DONE]\n\n")
        assert items(lambda event: len(event.data))[-1] == 6

    @pytest.mark.parametrize("framing", ["chunked", "length", "close", "http10"])
    @pytest.mark.parametrize("encoding", [None, "gzip", "deflate"])
    def test_every_framing(
        self, streamguard_gateway: Serve, stack: contextlib.ExitStack, framing: str, encoding: str | None
    ) -> None:
        """httpx delivers chunks promptly in every framing and encoding."""
        gateway = streamguard_gateway("chat a\nwait 0.2\nchat b\ndone", framing=framing, encoding=encoding)
        client = stack.enter_context(httpx.Client())
        stream = guard(lambda: client.stream("GET", gateway.url), idle=10)
        assert next(stream).text == "a"
        assert gateway.requests[0].reached["done"] == 0
        assert stream.read() == "ab"

    def test_a_status_is_an_error(self, streamguard_gateway: Serve, stack: contextlib.ExitStack) -> None:
        """A status error has the server's message, in all HTTP libraries."""
        gateway = streamguard_gateway('headers 503 retry-after: 7\nbody {"error":{"message":"busy"}}')
        for name in HTTP:
            with pytest.raises(HTTPStatusError, match="busy") as caught:
                next(guard(CLIENTS[name].open(gateway, stack)))
            assert (caught.value.status_code, caught.value.retry_after) == (503, 7)

    def test_a_body_that_is_not_an_event_stream_is_an_error(
        self, streamguard_gateway: Serve, stack: contextlib.ExitStack
    ) -> None:
        """It is an error in all HTTP libraries; `decode="bytes"` accepts it."""
        gateway = streamguard_gateway('body {"a": 1}')
        for name in HTTP:
            with pytest.raises(NotEventStreamError, match="looks like JSON"):
                next(guard(CLIENTS[name].open(gateway, stack)))
            assert guard(CLIENTS[name].open(gateway, stack), decode="bytes").read() == b'{"a": 1}'

    def test_a_short_body_is_an_error(self, streamguard_gateway: Serve, stack: contextlib.ExitStack) -> None:
        """It is an error also if the library itself reports none."""
        gateway = streamguard_gateway("chat a\nclose", framing="length", length=1000)
        for name in HTTP:
            consumer = Consumer(guard(CLIENTS[name].open(gateway, stack)))
            assert isinstance(consumer.wait(), TransportError), name
            assert [chunk.text for chunk in consumer.items] == ["a"]

    @pytest.mark.parametrize("library", ["requests", "urllib3", "httpx"])
    def test_a_body_that_is_here_already(self, streamguard_gateway: Serve, library: str) -> None:
        """A body that was read before needs no cut, and is decoded like any other."""
        gateway = streamguard_gateway("chat a\ndone")
        if library == "requests":
            with requests.Session() as session:
                response: Any = session.get(gateway.url)
        elif library == "urllib3":
            with urllib3.PoolManager() as pool:
                response = pool.request("GET", gateway.url)
        else:
            with httpx.Client() as client:
                response = client.get(gateway.url)
        assert guard(response).read() == "a"

    def test_a_late_cut_never_hits_the_next_user(self, streamguard_gateway: Serve, stack: contextlib.ExitStack) -> None:
        """A connection that is back in its pool is no longer guarded, and the response is unchanged."""
        gateway = streamguard_gateway("chat a\nfinish", "chat b\nwait 0.2\ndone")
        client = stack.enter_context(httpx.Client())
        token = CancelToken()
        response = client.send(client.build_request("GET", gateway.url), stream=True)
        assert guard(response, cancel=token).read() == "a"
        assert "close" not in vars(response)
        second = guard(client.send(client.build_request("GET", gateway.url), stream=True))
        assert next(second).text == "b"
        token.cancel()
        assert second.read() == "b"
        assert gateway.connections == 1

    def test_responses_are_closed_at_the_end(self, streamguard_gateway: Serve, stack: contextlib.ExitStack) -> None:
        """guard() closes the response that it was given."""
        gateway = streamguard_gateway("chat a\nstall")
        client = stack.enter_context(httpx.Client())
        response = client.send(client.build_request("GET", gateway.url), stream=True)
        with guard(response) as stream:
            next(stream)
        assert_released(stream, gateway)
        assert response.is_closed

    def test_a_manager_that_gives_no_stream_is_refused_and_exited(self) -> None:
        """A context manager is entered to see what it gives, and exited when that is refused."""
        left = threading.Event()

        @contextlib.contextmanager
        def manager() -> Iterator[int | None]:
            try:
                yield None
            finally:
                left.set()

        with pytest.raises(StreamguardError):
            next(guard(manager()))
        assert left.is_set()
