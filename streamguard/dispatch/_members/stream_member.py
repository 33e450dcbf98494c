"""A member that is a chat endpoint: an HTTP stream without limits of its own; the turn has its timer (T36)."""

from collections.abc import Callable, Iterator
from typing import Any

from ..._core import Timeouts
from ..._core.limits import Limit
from ..._sse import Chunk
from ..._stream import HEARTBEAT, GuardedStream, guarded_stream
from ...errors import StreamCancelledError, StreamguardError, TransportTimeoutError, UsageError
from .._data.turn_events import STARTUP_TIMEOUT, Event, Kind
from .failure_codes import failure_code
from .member import TurnContext


class StreamMember:
    """A member that sends one request per turn to an OpenAI-compatible endpoint, with `guarded_stream`.

    name:      the member's name.
    url:       the endpoint, such as `https://api.example.com/v1/chat/completions`.
    model:     the model's name. The payload is a chat with the prompt as its only message.
    payload:   in place of *model*: a function that returns the JSON payload for a prompt.
    timeouts:  the stream's own limits. Default None: `Timeouts.off()`, because the turn has its output timeout; then the
               start-up limit of the dispatch (`first=`) bounds each phase until the first chunk.
    retry:     as for `guarded_stream()`. Default None: one request.
    heartbeat: seconds between two checks for comments, which become `signal` events. Default 5.
    keywords:  other arguments of `guarded_stream()`, such as *headers*, *session*, *strict*.

    Text, reasoning and pieces of tool calls are output; comments, role chunks and usage are not.

    Raises UsageError for an invalid argument.

    Limits
        A stop closes the connection. It is unknown whether the server stops to compute: the response has
        `remote_termination: unconfirmed`.
    """

    remote = True
    """Whether it runs on another machine: see *Limits*."""
    stop_grace = 1.0

    def __init__(
        self,
        name: str,
        url: str,
        *,
        model: str | None = None,
        payload: Callable[[str], Any] | None = None,
        timeouts: Timeouts | None = None,
        retry: Any = None,
        heartbeat: Limit = 5.0,
        **keywords: Any,
    ) -> None:
        if not name or (model is None) == (payload is None):
            raise UsageError("StreamMember needs name=, and exactly one of model= and payload=")
        self.name = name
        self._url = url
        self._payload = payload or _chat(model)
        self._timeouts = timeouts
        self._options = {"method": "POST", "retry": retry, "heartbeat": heartbeat, **keywords}

    def run(self, prompt: str, context: TurnContext) -> Iterator[Event]:
        """Send the request, and yield the events of the answer."""
        options = {**self._options, "timeouts": self._limits(context), "cancel": context.token}
        method = options.pop("method")
        try:
            with guarded_stream(method, self._url, json=self._payload(prompt), name=self.name, **options) as stream:
                yield from _events(stream)
                message = stream.message
            yield Event.done(data={"usage": message.usage, "finish_reason": message.finish_reason})
        except StreamCancelledError:
            return
        except StreamguardError as exc:
            starting = context.first is not None and not exc.chunks and isinstance(exc, TransportTimeoutError)
            code = STARTUP_TIMEOUT if starting else failure_code(exc) or "provider_error"
            yield Event.failure(str(exc), code)
            yield Event.done(code)

    def _limits(self, context: TurnContext) -> Timeouts:
        if self._timeouts is not None:
            return self._timeouts
        off = Timeouts.off()
        first = context.first
        return off if first is None else off.replace(connect=first, response=first, first=first)


def _chat(model: str | None) -> Callable[[str], Any]:
    def payload(prompt: str) -> Any:
        return {"model": model, "messages": [{"role": "user", "content": prompt}], "stream": True}

    return payload


def _events(stream: GuardedStream[Chunk]) -> Iterator[Event]:
    comments = 0
    for chunk in stream:
        if chunk is HEARTBEAT:
            before, comments = comments, stream.report.comments
            if comments > before:
                yield Event(kind=Kind.SIGNAL, text="comment")
            continue
        yield from [*_output(chunk)] or [Event(kind=Kind.STATUS)]


def _output(chunk: Chunk) -> Iterator[Event]:
    if chunk.reasoning:
        yield Event(kind=Kind.THINKING, text=chunk.reasoning, delta=True)
    if chunk.text:
        yield Event(kind=Kind.TEXT, text=chunk.text, delta=True)
    for piece in chunk.tool_calls:
        call = piece.get("function") if isinstance(piece, dict) else None
        if isinstance(call, dict):
            text = str(call.get("arguments") or "")
            yield Event(kind=Kind.TOOL_CALL, text=text, tool=call.get("name"), tool_id=piece.get("id"), delta=True)
