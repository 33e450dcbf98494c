"""The streams of openai, anthropic and botocore: their objects, their exceptions, our ends and retries."""

import contextlib
import threading
from typing import Any

import anthropic
import openai
import pytest
from botocore.exceptions import ClientError, EventStreamError
from openai.types.chat import ChatCompletionChunk
from openai.types.responses import ResponseStreamEvent, ResponseTextDeltaEvent

import streamguard
from streamguard import (
    EmptyStreamError,
    InStreamError,
    Message,
    StreamInactivityTimeoutError,
    ToolCall,
    TransportError,
    TransportTimeoutError,
    before_first_chunk,
    guard,
    has_content,
)
from streamguard.testing import Gateway

from ...helpers import Serve
from . import wire
from .clients import CLIENTS, PATIENCE, Consumer, assert_released

Stack = contextlib.ExitStack
CHAT = "chat hello\nfinish\nusage 3 5\ndone"


def chat(client: openai.OpenAI) -> Any:
    return client.chat.completions.create(model="m", messages=wire.QUESTION, stream=True)


def ask_claude(client: anthropic.Anthropic) -> Any:
    return client.messages.create(model="m", max_tokens=9, messages=wire.QUESTION, stream=True)


class TestOpenAI:
    """`openai.Stream`, and the helper streams around it."""

    def test_chunks_are_the_sdks_own(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """They are returned unchanged; the message, the usage and the response's headers are available too."""
        gateway = streamguard_gateway(f"headers x-request-id: req_1\n{CHAT}")
        with guard(chat(wire.openai_client(gateway, stack)), name="sdk") as stream:
            chunks = list(stream)
        assert all(isinstance(chunk, ChatCompletionChunk) for chunk in chunks)
        assert [choice.delta.content for chunk in chunks for choice in chunk.choices] == ["hello", None]
        usage = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
        assert stream.message == Message(text="hello", finish_reason="stop", usage=usage)
        report = stream.report
        assert (report.outcome, report.chunks, report.usage, report.name) == ("completed", 3, usage, "sdk")
        assert (report.status_code, report.request_id, report.host) == (200, "req_1", gateway.url.removeprefix("http://"))
        assert stream.response.headers["X-Request-Id"] == "req_1"

    def test_tool_calls_are_put_together(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """Tool calls are assembled as those of our own chunks."""
        head = '"choices":[{"index":0,"finish_reason":null,"delta":{"tool_calls":[{"index":0'
        gateway = streamguard_gateway(
            f'event {{{head},"id":"call_1","function":{{"name":"f","arguments":"{{"}}}}]}}}}]}}\n'
            f'event {{{head},"function":{{"arguments":"}}"}}}}]}}}}]}}\n'
            "finish tool_calls\ndone"
        )
        with guard(chat(wire.openai_client(gateway, stack))) as stream:
            list(stream)
        assert stream.message.tool_calls == (ToolCall("call_1", "f", "{}"),)

    def test_read_returns_the_text(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """`.read()` returns the text, also for a function that opens the stream."""
        gateway = streamguard_gateway(CHAT)
        client = wire.openai_client(gateway, stack)
        assert guard(chat(client)).read() == "hello"
        assert guard(lambda: chat(client)).read() == "hello"

    def test_counts_and_decode_work_on_the_objects(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """`has_content` reads the objects; a callable converts each, or skips it."""
        client = wire.openai_client(streamguard_gateway(CHAT), stack)
        assert [has_content(chunk) for chunk in guard(chat(client))] == [True, False, False]
        texts = guard(chat(client), decode=lambda chunk: chunk.choices[0].delta.content if chunk.choices else None)
        assert list(texts) == ["hello"]

    def test_chunks_that_do_not_count_do_not_rearm_idle(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """With `counts=has_content` empty chunks are silence."""
        gateway = streamguard_gateway('chat hello\nloop forever\nevent {"choices":[]}\nwait 0.02\nendloop')
        consumer = Consumer(guard(chat(wire.openai_client(gateway, stack)), idle=0.2, counts=has_content))
        assert isinstance(consumer.wait(), StreamInactivityTimeoutError)
        assert len(consumer.items) > 2

    def test_an_empty_stream_is_an_error(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """An empty 200 is an error, though the SDK ends quietly."""
        gateway = streamguard_gateway("headers")
        with pytest.raises(EmptyStreamError):
            list(guard(chat(wire.openai_client(gateway, stack))))

    def test_an_error_in_the_stream_is_the_sdks_own(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """An error frame raises the SDK's exception, unchanged, after the chunks before it."""
        gateway = streamguard_gateway("chat hello\nerror boom")
        stream = guard(chat(wire.openai_client(gateway, stack)))
        consumer = Consumer(stream)
        error = consumer.wait()
        assert isinstance(error, openai.APIError)
        assert (error.message, len(consumer.items)) == ("boom", 1)
        assert (stream.report.outcome, stream.report.error_type) == ("error", "APIError")

    def test_a_reset_is_a_transport_error(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """A reset is a TransportError with the SDK's exception as its cause."""
        gateway = streamguard_gateway("chat hello\nwait 0.1\nreset")
        error = Consumer(guard(chat(wire.openai_client(gateway, stack)))).wait()
        assert isinstance(error, TransportError)
        assert (error.code, error.partial_text) == ("ECONNRESET", "hello")
        assert isinstance(error.__cause__, openai.APIConnectionError)

    def test_a_failed_response_is_an_error(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """`response.failed` raises, though the SDK returns it like any event and ends quietly."""
        gateway = streamguard_gateway(f"{wire.RESPONSES_START}\n{wire.RESPONSES_FAILED}")
        source = CLIENTS["openai-responses"].open(gateway, stack)
        consumer = Consumer(guard(source))
        error = consumer.wait()
        assert isinstance(error, InStreamError)
        assert (error.code, error.partial_text, len(consumer.items)) == ("server_error", "hello", 4)

    def test_responses_are_complete_though_the_server_lingers(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """`response.completed` ends the stream, though the server keeps the connection open."""
        gateway = streamguard_gateway(f"{wire.RESPONSES_START}\n{wire.RESPONSES_END}\nlinger")
        stream = guard(CLIENTS["openai-responses"].open(gateway, stack), idle=60)
        consumer = Consumer(stream)
        assert consumer.wait() is None
        deltas: list[ResponseStreamEvent] = [item for item in consumer.items if isinstance(item, ResponseTextDeltaEvent)]
        assert [event.delta for event in deltas if isinstance(event, ResponseTextDeltaEvent)] == ["hello"]
        assert stream.message.usage == {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8}
        assert gateway.wait_left(timeout=PATIENCE).during == "linger"

    def test_the_client_works_after_a_cut(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """Only the connection of the cut stream is closed."""
        gateway = streamguard_gateway("chat hello\nstall", CHAT)
        client = wire.openai_client(gateway, stack)
        assert isinstance(Consumer(guard(chat(client), idle=0.1)).wait(), StreamInactivityTimeoutError)
        assert guard(chat(client)).read() == "hello"

    def test_a_manager_is_entered(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """`client.chat.completions.stream(...)` opens nothing before it is entered: guard() enters and exits it."""
        gateway = streamguard_gateway(CHAT)
        client = wire.openai_client(gateway, stack)
        stream = guard(lambda: client.chat.completions.stream(model="m", messages=wire.QUESTION))
        assert stream.read() == "hello"
        assert stream.report.outcome == "completed"


class TestAnthropic:
    """`anthropic.Stream` and `MessageStream`."""

    def test_events_are_the_sdks_own(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """They are returned unchanged, without the pings that the SDK swallows."""
        gateway = streamguard_gateway(f"{wire.ANTHROPIC_START}\n{wire.ANTHROPIC_END}\nlinger")
        with guard(ask_claude(wire.anthropic_client(gateway, stack)), idle=60) as stream:
            events = list(stream)
        assert [event.type for event in events] == [
            *("message_start", "content_block_start", "content_block_delta"),
            *("content_block_stop", "message_delta", "message_stop"),
        ]
        assert stream.message == Message(
            text="hello", finish_reason="end_turn", usage={"input_tokens": 3, "output_tokens": 9}
        )
        assert gateway.wait_left(timeout=PATIENCE).during == "linger"

    def test_an_error_event_is_the_sdks_own(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """An overload in the middle raises anthropic's exception."""
        overloaded = wire.event(type="error", error={"type": "overloaded_error", "message": "Overloaded"})
        gateway = streamguard_gateway(f"{wire.ANTHROPIC_START}\n{overloaded}")
        error = Consumer(guard(ask_claude(wire.anthropic_client(gateway, stack)))).wait()
        assert isinstance(error, anthropic.APIStatusError)
        assert "Overloaded" in str(error)

    def test_a_stop_reason_is_enough(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """A server that omits `message_stop` and keeps the connection open is complete after a second of grace."""
        end = wire.ANTHROPIC_END.rpartition("\n")[0]
        gateway = streamguard_gateway(f"{wire.ANTHROPIC_START}\n{end}\nstall")
        stream = guard(ask_claude(wire.anthropic_client(gateway, stack)), end_grace=0.1, idle=60)
        assert stream.read() == "hello"
        assert_released(stream, gateway)


class TestBedrock:
    """botocore's event stream."""

    def test_events_are_botocores_dicts(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """They are returned unchanged, and the report has the request's id."""
        gateway = streamguard_gateway(f"{wire.BEDROCK_START}\n{wire.BEDROCK_END}")
        stream = guard(CLIENTS["botocore"].open(gateway, stack))
        events = list(stream)
        assert [next(iter(event)) for event in events] == ["messageStart", "contentBlockDelta", "messageStop"]
        assert events[1]["contentBlockDelta"]["delta"] == {"text": "hello"}
        assert (stream.report.outcome, stream.report.request_id) == ("completed", "aws-1")

    def test_an_exception_frame_is_botocores_own(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """A throttling in the middle raises botocore's exception."""
        frame = wire.bedrock("throttlingException", {"message": "slow down"}, "exception")
        gateway = streamguard_gateway(f"{wire.BEDROCK_START}\n{frame}")
        consumer = Consumer(guard(CLIENTS["botocore"].open(gateway, stack)))
        assert isinstance(consumer.wait(), EventStreamError)
        assert len(consumer.items) == 2

    def test_a_broken_body_is_a_transport_error(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """A connection that is lost in the middle of a chunked body is a TransportError."""
        gateway = streamguard_gateway(f"{wire.BEDROCK_START}\nclose")
        error = Consumer(guard(CLIENTS["botocore"].open(gateway, stack))).wait()
        assert isinstance(error, TransportError)

    def test_a_refused_connection_is_retried_if_asked(self, stack: Stack) -> None:
        """botocore keeps the fault in an attribute of its own, where the policy finds it."""
        with Gateway() as gateway:
            client = wire.bedrock_client(gateway, stack)
        client._client_config.retries = {"total_max_attempts": 1}
        attempts = []

        def opening() -> Any:
            attempts.append(1)
            return client.converse_stream(modelId="m", messages=[{"role": "user", "content": [{"text": "x"}]}])["stream"]

        stream = guard(opening, retry=before_first_chunk(1, on={"ECONNREFUSED"}, wait=lambda _: 0))
        error = Consumer(stream).wait()
        assert isinstance(error, TransportError)
        assert (error.code, len(attempts)) == ("ECONNREFUSED", 2)

    def test_its_status_is_asked_for_a_retry(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """`status=` looks into botocore's ClientError."""
        denied = 'headers 403 content-type: application/json\nbody {"message":"no"}'
        gateway = streamguard_gateway(denied, denied, f"{wire.BEDROCK_START}\n{wire.BEDROCK_END}")
        client = wire.bedrock_client(gateway, stack)

        def opening() -> Any:
            return client.converse_stream(modelId="m", messages=[{"role": "user", "content": [{"text": "x"}]}])["stream"]

        assert isinstance(Consumer(guard(opening)).wait(), ClientError)
        assert len(gateway.requests) == 1
        stream = guard(opening, retry=before_first_chunk(1, status={403}, wait=lambda _: 0))
        assert Consumer(stream).wait() is None
        assert stream.report.attempts == 2


class TestOpening:
    """A function that opens the stream: while it opens, and for each attempt."""

    def test_silence_before_the_first_chunk_is_retried(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """The default policy opens another stream; the first is cut."""
        gateway = streamguard_gateway("headers\nstall", CHAT)
        client = wire.openai_client(gateway, stack)
        stream = guard(lambda: chat(client), first=0.2)
        assert stream.read() == "hello"
        assert (stream.report.attempts, len(gateway.requests)) == (2, 2)
        assert gateway.wait_left(1, timeout=PATIENCE).during == "stall"

    def test_silence_after_a_chunk_is_not(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """It is not retried: a second attempt would repeat the chunks that were returned."""
        gateway = streamguard_gateway("chat hello\nstall", CHAT)
        client = wire.openai_client(gateway, stack)
        assert isinstance(Consumer(guard(lambda: chat(client), idle=0.1)).wait(), StreamInactivityTimeoutError)
        assert len(gateway.requests) == 1

    def test_the_sdks_own_exception_is_raised(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """A 401 raises openai's exception, and is not retried."""
        gateway = streamguard_gateway('headers 401\nbody {"error":{"message":"no key"}}')
        client = wire.openai_client(gateway, stack)
        assert isinstance(Consumer(guard(lambda: chat(client))).wait(), openai.AuthenticationError)
        assert len(gateway.requests) == 1

    def test_its_status_and_retry_after_are_asked(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """`status=` matches the SDK's exceptions as it does ours, and `Retry-After` is obeyed."""
        limited = 'headers 429 retry-after: 0.3\nbody {"error":{"message":"slow"}}'
        gateway = streamguard_gateway(limited, CHAT)
        client = wire.openai_client(gateway, stack)
        stream = guard(lambda: chat(client), retry=before_first_chunk(status={429}, wait=lambda _: 0))
        assert stream.read() == "hello"
        first, second = gateway.requests
        assert second.at - first.at >= 0.3

    def test_its_type_is_asked(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """`on=` matches the SDK's exception types, also as the cause of ours."""
        gateway = streamguard_gateway("headers\nreset", CHAT)
        client = wire.openai_client(gateway, stack)
        stream = guard(lambda: chat(client), retry=before_first_chunk(on={openai.APIConnectionError}))
        assert stream.read() == "hello"

    def test_its_own_timeout_is_a_timeout(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """An `openai.APITimeoutError` while opening is a TransportTimeoutError, and retried by default."""
        gateway = streamguard_gateway("stall", CHAT)
        client = wire.openai_client(gateway, stack, timeout=0.2)
        stream = guard(lambda: chat(client))
        assert stream.read() == "hello"
        assert stream.report.attempts == 2

    def test_a_silent_opening_frees_the_consumer(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """The error is on time; the thread stays until the SDK's own timeout, and is counted."""
        gateway = streamguard_gateway("stall")
        client = wire.openai_client(gateway, stack, timeout=0.6)
        stream = guard(lambda: chat(client), connect=0.1, response=0.1, retry=None)
        error = Consumer(stream).wait()
        assert isinstance(error, TransportTimeoutError)
        assert (error.phase, stream.report.abandoned_threads) == ("response", 1)
        assert gateway.wait_left(timeout=PATIENCE).during == "stall"
        gone = threading.Event()
        while any(thread.name.startswith("streamguard-reader") for thread in threading.enumerate()):
            gone.wait(0.01)

    def test_a_stream_that_opens_too_late_is_closed(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """A stream that opens after the limit is closed at once."""
        gateway = streamguard_gateway("wait 0.4\nchat hello\nstall")
        client = wire.openai_client(gateway, stack)
        stream = guard(lambda: chat(client), connect=0.1, response=0.1, retry=None)
        assert isinstance(Consumer(stream).wait(), TransportTimeoutError)
        assert gateway.wait_left(timeout=PATIENCE).during in ("chat", "stall")

    def test_our_adapter_is_cut_while_it_opens(self, streamguard_gateway: Serve, stack: Stack) -> None:
        """A connection through `streamguard.Adapter` inside the function is cut, too."""
        gateway = streamguard_gateway("stall")
        session = stack.enter_context(streamguard.Session())
        stream = guard(lambda: session.get(gateway.url, stream=True), connect=0.1, response=0.1, retry=None)
        assert isinstance(Consumer(stream).wait(), TransportTimeoutError)
        assert_released(stream, gateway)
