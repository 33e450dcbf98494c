"""`sse_response`: a guarded stream as the answer of a view."""

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.asgi import ASGIRequest
from django.http import HttpResponse, StreamingHttpResponse

from .._core import NOT_GIVEN, Deadline, current_deadline, shield
from .._core.limits import NotGiven, seconds_of
from .._sse import has_content
from .._stream import HEARTBEAT, GuardedStream
from .._stream.any_stream import guarded_from
from ..errors import DeadlineExceededError, StreamguardError, UsageError
from .client import LOOK_SECONDS, departure_of
from .client_errors import failure_response
from .connections import close_connections, close_connections_of_our_threads
from .middleware import BUDGET_ATTRIBUTE
from .settings import load_settings
from .sse_frames import EventBody, Render, default_render

_HEADERS = {
    "Cache-Control": "no-cache, no-transform",
    "Content-Encoding": "identity",  # or GZipMiddleware would collect what it compresses
    "X-Accel-Buffering": "no",
}
_CLIENT_CLOSED_REQUEST = 499


def sse_response(
    request: Any,
    stream: Any,
    *,
    render: Render | None = None,
    heartbeat: float | NotGiven = NOT_GIVEN,
) -> HttpResponse | StreamingHttpResponse:
    """Return a response that streams *stream* to the client as server-sent events, and closes it when the client leaves.

    stream:    a guarded stream, or one that `guard()` takes without options, such as the stream of an SDK.
    render:    converts a chunk to what is sent: text, None for nothing, anything else as JSON. Default: a chat chunk's text
               as `{"text": ...}`, an event's data.
    heartbeat: seconds. It waits this long for the first content, so that a failure before that is a 502 or 504;
               and after this long without other output it writes a `: ping`. Default: `STREAMGUARD["HEARTBEAT"]`, or 15.

    The frames are data, then one `end`, or one `error` that a client may show. The response is not compressed, cached or
    buffered. Raises ImproperlyConfigured under ASGI, where Django would collect the whole answer first; TypeError for
    any other stream.

    The view's database connections are closed before the stream begins, and during its silence, unless they are inside
    `atomic()`.

    *Limits*: a client that leaves is noticed within half a second under gunicorn (and waitress, with
    `channel_request_lookahead`); elsewhere by the second write after it, so after two heartbeats. The stream's own
    `heartbeat` is changed. A stream that the view has opened itself stays under `DeadlineMiddleware`'s budget.
    """
    guarded = guarded_from(stream, "sse_response")
    request = getattr(request, "_request", request)  # Django REST framework's is a wrapper
    _refuse_asgi(request, guarded)
    seconds = _heartbeat(heartbeat)
    if request.method == "HEAD" or "Last-Event-ID" in request.headers:
        return _without_asking(request, guarded)
    return _Opening(request, guarded, seconds).response(render or default_render)


def _refuse_asgi(request: Any, stream: GuardedStream[Any]) -> None:
    if isinstance(request, ASGIRequest):
        stream.close()
        raise ImproperlyConfigured(
            "sse_response() needs WSGI: under ASGI Django collects the whole of a synchronous answer before it sends any. "
            "Serve with gunicorn's gthread or gevent workers, or see 'Under ASGI' in docs/django.md."
        )


def _heartbeat(given: float | NotGiven) -> float:
    value = load_settings().heartbeat if isinstance(given, NotGiven) else given
    seconds = seconds_of("heartbeat", value)
    if seconds is None or seconds <= 0:
        raise UsageError(f"heartbeat= takes seconds above 0, not {value!r}")
    return seconds


def _without_asking(request: Any, stream: GuardedStream[Any]) -> HttpResponse:
    """Answer without the upstream: a HEAD, or a browser's EventSource that reconnects, which would be billed twice.

    204 stops an EventSource from reconnecting (WHATWG HTML, 9.2.3).
    """
    stream.close()
    if request.method != "HEAD":
        return HttpResponse(status=204)
    return HttpResponse(content_type="text/event-stream", headers=_HEADERS)


class _Opening:
    """The wait before the response: for the first content, a failure, or at most `heartbeat` seconds."""

    def __init__(self, request: Any, stream: GuardedStream[Any], seconds: float) -> None:
        self._stream = stream
        self._heartbeat = seconds
        self._client_left = departure_of(request.META)
        self._until = Deadline.after(seconds)
        self._budget: Deadline | None = getattr(request, BUDGET_ATTRIBUTE, None)
        self._first: list[Any] = []

    def response(self, render: Render) -> HttpResponse | StreamingHttpResponse:
        """Return the streaming response, or the failure."""
        close_connections_of_our_threads()
        close_connections()  # the wait for the upstream may be long
        try:
            failure = self._wait()
        except StreamguardError as exc:
            if isinstance(exc, UsageError):
                raise
            failure = failure_response(exc)
        except BaseException:
            self._stream.close()
            raise
        if failure is not None:
            self._stream.close()
            return failure
        body = EventBody(
            self._stream,
            first=self._first,
            render=render,
            heartbeat=self._heartbeat,
            client_left=self._client_left,
        )
        return StreamingHttpResponse(body, content_type="text/event-stream", headers=_HEADERS)

    def _wait(self) -> HttpResponse | None:
        self._stream.heartbeat = min(LOOK_SECONDS, self._heartbeat)
        if self._budget is not None and current_deadline() == self._budget:
            # The budget is the view's, and the stream goes on after it. A nearer deadline of the view's own stays.
            with shield():
                return self._take_first()
        return self._take_first()

    def _take_first(self) -> HttpResponse | None:
        for item in self._stream:
            if item is not HEARTBEAT:
                self._first.append(item)
                if has_content(item):
                    return None
            if self._client_left():
                return HttpResponse(status=_CLIENT_CLOSED_REQUEST)
            if self._budget is not None and self._budget.expired:
                return failure_response(self._budget_spent())
            if self._until.expired:
                return None
        return None

    def _budget_spent(self) -> DeadlineExceededError:
        report = self._stream.report
        return DeadlineExceededError("the request's budget is spent", scope="ambient", phase=report.phase, id=report.id)
