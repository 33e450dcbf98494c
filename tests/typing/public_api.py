"""The types of the public API, for a type checker. This is checked, never run; an ignore that is not needed is an error."""

from datetime import timedelta
from typing import Any, assert_type

import requests
import sseclient
import tenacity

import streamguard
from streamguard import (
    HEARTBEAT,
    Adapter,
    AnthropicChunk,
    CancelToken,
    Chunk,
    Classification,
    Deadline,
    DeadlineExceededError,
    GuardedStream,
    HTTPStatusError,
    Message,
    ResponseChunk,
    StreamCancelledError,
    StreamguardError,
    StreamInactivityTimeoutError,
    StreamReport,
    Timeouts,
    ToolCall,
    TransportError,
    before_first_chunk,
    classify,
    configure,
    current_deadline,
    deadline,
    guard,
    guarded_stream,
    has_content,
    shield,
)

URL = "https://api.example.com/v1/chat/completions"


def length(event: sseclient.Event) -> int | None:
    """Decode an event to a number."""
    return len(event.data) or None


def what_decode_returns() -> None:
    """The type of the chunks follows from `decode=`."""
    assert_type(guarded_stream("POST", URL), GuardedStream[Chunk])
    assert_type(guarded_stream("POST", URL, decode="chat"), GuardedStream[Chunk])
    assert_type(guarded_stream("POST", URL, decode="responses"), GuardedStream[ResponseChunk])
    assert_type(guarded_stream("POST", URL, decode="anthropic"), GuardedStream[AnthropicChunk])
    assert_type(guarded_stream("GET", URL, decode="events"), GuardedStream[sseclient.Event])
    assert_type(guarded_stream("GET", URL, decode="json"), GuardedStream[Any])
    assert_type(guarded_stream("GET", URL, decode="bytes"), GuardedStream[bytes])
    assert_type(guarded_stream("GET", URL, decode=length), GuardedStream[int])
    guarded_stream("GET", URL, decode="lines")  # type: ignore[call-overload]
    assert_type(guard(iter(()), abandon=True), GuardedStream[Any])
    guard(open, interrupt=print, retry=2, idle=3, total=timedelta(minutes=1), cancel=CancelToken(), name="x")
    guard(open, timeout=3)  # type: ignore[call-arg]


def every_keyword(session: requests.Session, token: CancelToken) -> None:
    """The keywords of requests, ours and the limits are known by name and type; others are refused."""
    guarded_stream(
        "POST",
        URL,
        json={"stream": True},
        headers={"Authorization": "Bearer x"},
        params={"a": 1},
        data=b"x",
        cookies={"a": "b"},
        files=None,
        auth=("user", "password"),
        allow_redirects=False,
        proxies={"https": "http://proxy:3128"},
        verify="ca.pem",
        cert=("client.pem", "client.key"),
        session=session,
        timeouts=Timeouts(idle=30),
        connect=5,
        response=timedelta(minutes=1),
        first=60.0,
        idle=None,
        dead=0,
        total=300,
        counts=has_content,
        strict=False,
        end_grace=0.5,
        heartbeat=5,
        retry=before_first_chunk(2, on={"ETIMEDOUT", ConnectionError}, status={429}),
        cancel=token,
        name="chat",
    )
    guarded_stream("GET", URL, retry=tenacity.Retrying(stop=tenacity.stop_after_attempt(3)))
    guarded_stream("GET", URL, retry=None)
    guarded_stream("GET", URL, idle="30s")
    guarded_stream("GET", URL, idle=b"30s")  # type: ignore[call-overload]
    guarded_stream("GET", URL, timeout=30)  # type: ignore[call-overload]
    guarded_stream("GET", URL, stream=True)  # type: ignore[call-overload]
    guarded_stream("GET")  # type: ignore[call-overload]


def using_a_stream() -> None:
    """Chunks, the assembled message, and the report."""
    with guarded_stream("POST", URL) as stream:
        assert_type(stream, GuardedStream[Chunk])
        for chunk in stream:
            assert_type(chunk, Chunk)
            assert_type(chunk.text, str)
            assert_type(chunk.finish_reason, str | None)
            if chunk is HEARTBEAT:
                print(HEARTBEAT.silence + 1.0, HEARTBEAT.phase.upper())
    assert_type(next(stream), Chunk)
    assert_type(stream.open(until="first"), GuardedStream[Chunk])
    stream.open(until="end")  # type: ignore[arg-type]
    assert_type(stream.text, str)
    assert_type(stream.message, Message)
    assert_type(stream.message.text, str)
    for call in stream.message.tool_calls:
        assert_type(call, ToolCall)
    assert_type(stream.response, requests.Response)
    assert_type(stream.report, StreamReport)
    assert_type(stream.report.max_gap, float | None)
    assert_type(stream.cancel("why"), bool)
    stream.close()
    stream.report.chunks = 5  # type: ignore[misc]


def limits_and_deadlines() -> None:
    """Limits are numbers of seconds, durations as text, timedeltas or None."""
    assert_type(Timeouts(idle=5, total=timedelta(minutes=1)).idle, float | None)
    assert_type(Timeouts.off().replace(idle=5), Timeouts)
    Timeouts(idle="5")
    Timeouts(idle=b"5")  # type: ignore[arg-type]
    Timeouts(5)  # type: ignore[call-arg]
    configure(idle=60, total=None)
    with deadline(1.2) as until:
        assert_type(until, Deadline | None)
        with shield() as nothing:
            assert_type(nothing, None)
    assert_type(current_deadline(), Deadline | None)
    assert_type(Deadline.after(1).clamp(None), float)


def stopping(token: CancelToken) -> None:
    """Tokens take any reason and any closer."""
    assert_type(token.cancel(), bool)
    assert_type(token.reason, object)
    assert_type(token.wait(1.5), bool)
    token.on_cancel(lambda: print("stopped"))()
    with token.child() as child:
        assert_type(child, CancelToken)


def errors_and_what_they_mean() -> None:
    """The details of errors have types, and the `except` clauses of requests still work."""
    try:
        guarded_stream("POST", URL).read()
    except HTTPStatusError as error:
        assert_type(error.status_code, int | None)
        assert_type(error.retry_after, float | None)
    except StreamInactivityTimeoutError as error:
        assert_type(error.idle, float | None)
        assert_type(error.partial_text, str | None)
    except TransportError as error:
        assert_type(error.code, str)
    except DeadlineExceededError as error:
        assert_type(error.scope, str)
    except StreamCancelledError as error:
        assert_type(error.reason, object)
    except StreamguardError as error:
        verdict = classify(error)
        assert_type(verdict, Classification)
        if verdict.kind == "bogus":  # type: ignore[comparison-overlap]
            raise
    except requests.Timeout:
        pass


def own_sessions(session: requests.Session) -> None:
    """The adapter is one of requests'."""
    session.mount("https://", Adapter(pool_maxsize=20))
    assert_type(streamguard.__version__, str)
