"""Its views. Each asks the upstream that its query names."""

from typing import Any

from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.urls import path

from streamguard import CancelToken, GuardedStream, bounded_call, current_token, guarded_stream
from streamguard.django import sse_response

LIMITS = ("first", "idle", "total")
stopping = CancelToken()
"""Cancelled when the server is told to stop: see `tests/django/stopping.py`."""


def upstream(request: HttpRequest, **options: Any) -> GuardedStream[Any]:
    """Ask the gateway that the query names, under the limits that it names."""
    limits = {name: float(request.GET[name]) for name in LIMITS if name in request.GET}
    return guarded_stream("POST", request.GET["upstream"], json={"stream": True}, retry=None, **limits, **options)


def stream(request: HttpRequest) -> HttpResponse:
    """Answer by `sse_response`."""
    heartbeat = float(request.GET.get("heartbeat", 15))
    return sse_response(request, upstream(request, cancel=stopping), heartbeat=heartbeat)


def plain(request: HttpRequest) -> HttpResponse:
    """Answer by Django's own streaming response: a stream is an iterator that can be closed."""
    return StreamingHttpResponse(upstream(request, decode="bytes"))


def pinged(request: HttpRequest) -> HttpResponse:
    """Write something at each heartbeat, by hand."""
    body = (chunk.text or ": ping\n\n" for chunk in upstream(request, heartbeat=0.2))
    return StreamingHttpResponse(body, content_type="text/event-stream")


def read(request: HttpRequest) -> HttpResponse:
    """Read the whole of it, and answer by text."""
    return HttpResponse(upstream(request).read())


def slow(request: HttpRequest) -> HttpResponse:
    """Return a response later than a deadline that something in the view had."""
    try:
        bounded_call(until_stopped)
    except TimeoutError:
        return HttpResponse("a view that copes")
    raise AssertionError("there was no deadline")


def until_stopped() -> None:
    """Take as long as the caller lets it."""
    token = current_token()
    assert token is not None
    token.wait(10)


def broken(request: HttpRequest) -> HttpResponse:
    """Have a fault of its own."""
    raise ZeroDivisionError("in the view")


urlpatterns = [
    path("stream", stream),
    path("plain", plain),
    path("pinged", pinged),
    path("read", read),
    path("slow", slow),
    path("broken", broken),
]
