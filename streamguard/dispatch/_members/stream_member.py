"""A member that is a chat endpoint: an HTTP stream, under the turn's own timer and no second one (T36)."""

from collections.abc import Callable, Iterator
from typing import Any

from ..._core import Timeouts
from ..._core.limits import Limit
from ..._sse import Chunk
from ..._stream import HEARTBEAT, GuardedStream, guarded_stream
from ...errors import (
    DeadlineExceededError,
    EmptyStreamError,
    HTTPStatusError,
    IncompleteStreamError,
    InStreamError,
    MalformedChunkError,
    NotEventStreamError,
    StreamCancelledError,
    StreamguardError,
    TransportError,
    TransportTimeoutError,
    UsageError,
)
from .._data.turn_events import STARTUP_TIMEOUT, Event, Kind
from .member import TurnContext

_CODES: tuple[tuple[type[StreamguardError], str], ...] = (
    (DeadlineExceededError, "deadline_exceeded"),
    (EmptyStreamError, "empty_stream"),
    (IncompleteStreamError, "incomplete_stream"),
    (MalformedChunkError, "malformed_chunk"),
    (NotEventStreamError, "not_an_event_stream"),
    (InStreamError, "error_in_stream"),
    (UsageError, "usage_error"),
)


class StreamMember:
    """Asks an OpenAI-compatible endpoint by `guarded_stream`, one request for each turn.

    name:      of the member.
    url:       the endpoint, such as `https://api.example.com/v1/chat/completions`.
    model:     the model's name: the payload is then a chat with the prompt as its one message.
    payload:   in place of *model*: a function of the prompt that returns the JSON payload.
    timeouts:  limits of the stream's own. Default: `Timeouts.off()`, for the turn has its output timeout; its start-up
               limit (`first=` of the dispatch), if there is one, bounds each phase up to the first chunk.
    retry:     as of `guarded_stream()`. Default None: a turn asks once.
    heartbeat: seconds after which silence is looked at for comments, which become `signal` events. Default 5.
    keywords:  all others of `guarded_stream()`, such as *headers*, *session*, *strict*.

    Text, reasoning and pieces of tool calls are output; comments, role chunks and usage are not.

    Limits
        Stopping it closes the connection. Whether the server stops computing is not known: the response says
        `remote_termination: unconfirmed`.
    """

    remote = True
    """It runs elsewhere: see the limits."""
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
            raise UsageError("a StreamMember takes a name, and either model= or payload=")
        self.name = name
        self._url = url
        self._payload = payload or _chat(model)
        self._timeouts = timeouts
        self._options = {"method": "POST", "retry": retry, "heartbeat": heartbeat, **keywords}

    def run(self, prompt: str, context: TurnContext) -> Iterator[Event]:
        """Yield what the endpoint says."""
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
            code = _code_of(exc, starting=context.first is not None and not exc.chunks)
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
            seen, comments = comments, stream.report.comments
            if comments > seen:
                yield Event(kind=Kind.SIGNAL, text="comment")
            continue
        words = [*_words(chunk)]
        yield from words or [Event(kind=Kind.STATUS)]


def _words(chunk: Chunk) -> Iterator[Event]:
    if chunk.reasoning:
        yield Event(kind=Kind.THINKING, text=chunk.reasoning, delta=True)
    if chunk.text:
        yield Event(kind=Kind.TEXT, text=chunk.text, delta=True)
    for piece in chunk.tool_calls:
        call = piece.get("function") if isinstance(piece, dict) else None
        if isinstance(call, dict):
            text = str(call.get("arguments") or "")
            yield Event(kind=Kind.TOOL_CALL, text=text, tool=call.get("name"), tool_id=piece.get("id"), delta=True)


def _code_of(exc: StreamguardError, *, starting: bool) -> str:
    if starting and isinstance(exc, TransportTimeoutError):
        return STARTUP_TIMEOUT
    if isinstance(exc, HTTPStatusError):
        return f"http_{exc.status_code}"
    if isinstance(exc, TransportError):
        return exc.code
    return next((code for kind, code in _CODES if isinstance(exc, kind)), "provider_error")
