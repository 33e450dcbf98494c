"""`sse_response` in this process: what it answers, and what becomes of the upstream."""

import gc
import gzip
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.core.handlers.wsgi import WSGIRequest
from django.middleware.gzip import GZipMiddleware
from django.test import RequestFactory, override_settings

from streamguard import GuardedStream, UsageError, deadline, guarded_stream
from streamguard._core.clock import monotonic
from streamguard.django import sse_response
from streamguard.testing import Gateway

Serve = Callable[..., Gateway]


@pytest.fixture
def request_(rf: RequestFactory) -> WSGIRequest:
    """Return a plain GET."""
    return rf.get("/")


def ask(gateway: Gateway, **options: Any) -> GuardedStream[Any]:
    return guarded_stream("POST", gateway.url, json={"stream": True}, **{"retry": None, **options})


def body(response: Any) -> str:
    return b"".join(response.streaming_content).decode()


def test_a_whole_answer(request_: WSGIRequest, streamguard_gateway: Serve) -> None:
    """Every frame of a complete answer, the stream's id with the first one."""
    stream = ask(streamguard_gateway("chat Hello\nchat , world\nfinish\ndone"))
    id = stream.report.id
    assert body(sse_response(request_, stream)) == (
        ": ping\n\n"
        f'id: {id}\ndata: {{"text":"Hello"}}\n\n'
        'data: {"text":", world"}\n\n'
        f'event: end\ndata: {{"outcome":"completed","finish_reason":"stop","chunks":3,"id":"{id}"}}\n\n'
    )


def test_it_waits_for_content_and_not_for_a_role(request_: WSGIRequest, streamguard_gateway: Serve) -> None:
    """A chunk with nothing in it is no content: a failure right behind it still has a status of its own."""
    role = '{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}'
    gateway = streamguard_gateway(f"event {role}\nwait 0.1\nerror overloaded")
    assert sse_response(request_, ask(gateway)).status_code == 502


def test_it_waits_no_longer_than_the_heartbeat(request_: WSGIRequest, streamguard_gateway: Serve) -> None:
    """With no content after `heartbeat` seconds the response begins, and its first piece is a ping."""
    gateway = streamguard_gateway("headers\nstall")
    began = monotonic()
    response = sse_response(request_, ask(gateway), heartbeat=0.3)
    assert 0.3 <= monotonic() - began < 5
    assert next(response.streaming_content) == b": ping\n\n"
    response.close()
    assert gateway.wait_left().during == "stall"


def test_render_decides_what_is_sent(request_: WSGIRequest, streamguard_gateway: Serve) -> None:
    """It gets each chunk; text goes as it is, None is skipped, anything else is JSON."""
    answers: Iterator[Any] = iter(["one\ntwo", None, {"three": 3}, None])
    stream = ask(streamguard_gateway("chat a\nchat b\nchat c\nfinish\ndone"))
    sent = body(sse_response(request_, stream, render=lambda chunk: next(answers)))
    assert 'data: one\ndata: two\n\ndata: {"three":3}\n\nevent: end' in sent


def test_a_fault_of_render_s_is_told_and_raised(request_: WSGIRequest, streamguard_gateway: Serve) -> None:
    """The client gets an error frame without the exception's text; the server gets the exception, for its log."""
    gateway = streamguard_gateway("chat a\nstall")
    response = sse_response(request_, ask(gateway), render=lambda chunk: chunk["no such key"])
    pieces: list[bytes] = []
    with pytest.raises(KeyError, match="no such key"):
        pieces.extend(response.streaming_content)
    assert gateway.wait_left().during == "stall"


def test_a_fault_of_render_s_is_in_the_last_frame(request_: WSGIRequest, streamguard_gateway: Serve) -> None:
    """That frame's kind is `internal`."""
    response = sse_response(request_, ask(streamguard_gateway("chat a\nstall")), render=lambda chunk: chunk["hush"])
    pieces = iter(response.streaming_content)
    seen = [next(pieces), next(pieces)]
    assert seen[1].startswith(b'event: error\ndata: {"kind":"internal"')
    assert b"hush" not in b"".join(seen)
    response.close()


def test_gzip_leaves_it_alone(rf: RequestFactory, streamguard_gateway: Serve) -> None:
    """Django's GZipMiddleware, which would hold pieces back, does not touch it."""
    request = rf.get("/", headers={"Accept-Encoding": "gzip"})
    response = sse_response(request, ask(streamguard_gateway("chat Hello\nfinish\ndone")))
    passed: Any = GZipMiddleware(lambda request: response)(request)
    assert passed["Content-Encoding"] == "identity"
    with pytest.raises(gzip.BadGzipFile):
        gzip.decompress(b"".join(passed.streaming_content))


@pytest.mark.parametrize("read", [0, 1, 2], ids=["unread", "after a ping", "after a chunk"])
def test_closing_the_response_closes_the_upstream(request_: WSGIRequest, streamguard_gateway: Serve, read: int) -> None:
    """However much of it was read, close() frees the upstream; so does dropping the response."""
    gateway = streamguard_gateway("chat Hello\nstall")
    for number, leave in enumerate((lambda response: response.close(), lambda response: None), start=1):
        response: Any = sse_response(request_, ask(gateway))
        content = iter(response.streaming_content)
        for _ in range(read):
            next(content)
        leave(response)
        del content, response
        gc.collect()
        assert gateway.wait_left(number).during == "stall"


def test_it_can_be_closed_from_another_thread(request_: WSGIRequest, streamguard_gateway: Serve) -> None:
    """While one thread waits for the next piece, close() in another one ends that wait, with an end frame."""
    gateway = streamguard_gateway("chat Hello\nstall")
    stream = ask(gateway)
    response: Any = sse_response(request_, stream)
    pieces: list[bytes] = []
    reader = threading.Thread(target=lambda: pieces.extend(response.streaming_content))
    reader.start()
    gateway.wait_step("stall")
    stream.close()
    reader.join(5)
    assert not reader.is_alive()
    assert pieces[-1].startswith(b'event: end\ndata: {"outcome":"closed"')


@pytest.mark.parametrize(("method", "headers", "status"), [("head", {}, 200), ("get", {"Last-Event-ID": "4f0c"}, 204)])
def test_some_requests_ask_nothing(
    rf: RequestFactory, streamguard_gateway: Serve, method: str, headers: dict[str, str], status: int
) -> None:
    """A HEAD, and a browser's EventSource that comes again by itself, cost no question to the upstream."""
    gateway = streamguard_gateway("chat Hello\ndone")
    stream = ask(gateway)
    response = sse_response(getattr(rf, method)("/", headers=headers), stream)
    assert (response.status_code, response.content, stream.report.outcome) == (status, b"", "closed")
    assert gateway.connections == 0


def test_a_nearer_deadline_of_the_view_s_own_stays(request_: WSGIRequest, streamguard_gateway: Serve) -> None:
    """What a view sets around it bounds the whole stream, as everywhere else."""
    gateway = streamguard_gateway("chat Hello\nstall")
    with deadline(0.3):
        response = sse_response(request_, ask(gateway))
    assert '"kind":"deadline"' in body(response)


def test_a_stream_that_is_open_already(request_: WSGIRequest, streamguard_gateway: Serve) -> None:
    """A view may open it first, and look at the response."""
    stream = ask(streamguard_gateway("chat Hello\nfinish\ndone")).open(until="first")
    assert "Hello" in body(sse_response(request_, stream))


@override_settings(STREAMGUARD={"HEARTBEAT": 0.2})
def test_the_project_s_heartbeat(request_: WSGIRequest, streamguard_gateway: Serve) -> None:
    """Without `heartbeat=` it is the setting's: pings while nothing comes."""
    response = sse_response(request_, ask(streamguard_gateway("headers\nwait 0.7\nchat Hello\nfinish\ndone")))
    before, _, _ = body(response).partition("data:")
    assert before.count(": ping\n\n") >= 2


@pytest.mark.parametrize("wrong", [0, -1, None])
def test_a_heartbeat_that_cannot_be(request_: WSGIRequest, wrong: Any) -> None:
    """It takes seconds above 0, and nothing was asked."""
    stream = guarded_stream("GET", "http://127.0.0.1:9/")
    with pytest.raises(UsageError, match="heartbeat="):
        sse_response(request_, stream, heartbeat=wrong)
    assert stream.report.attempts == 0
    stream.close()


@pytest.mark.parametrize("value", [iter(["text"]), ["text"], object(), None])
def test_what_is_not_a_stream_is_refused(request_: WSGIRequest, value: object) -> None:
    """What guard() cannot take without options is one TypeError that names sse_response() and the type."""
    with pytest.raises(TypeError, match=rf"sse_response\(\) takes a guarded stream.*not {type(value).__name__}: "):
        sse_response(request_, value)


def test_the_stream_of_an_sdk(request_: WSGIRequest, streamguard_gateway: Serve) -> None:
    """The stream of an SDK goes through guard(): its text is sent, as that of our own chunks."""
    openai = pytest.importorskip("openai")
    gateway = streamguard_gateway("chat Hello\nchat , world\nfinish\ndone")
    with openai.OpenAI(api_key="dummy", base_url=f"{gateway.url}/v1", max_retries=0) as client:
        messages = [{"role": "user", "content": "Hi"}]
        shown = body(sse_response(request_, client.chat.completions.create(model="m", messages=messages, stream=True)))
    assert 'data: {"text":"Hello"}' in shown
    assert 'data: {"text":", world"}' in shown
    assert "event: end" in shown
