r"""What goes to the client: server-sent events of three kinds, and comments during silence.

    : ping                                        nothing new for `heartbeat` seconds

    id: 4f0c...                                   with the first data frame: the stream's id
    data: {"text":"Hello"}                        data, as `render` made it

    event: error                                  it failed: the last frame
    data: {"kind":"transport","code":"ETIMEDOUT","phase":"idle","message":"The upstream went silent.","id":"4f0c..."}

    event: end                                    it is over, and nothing failed: the last frame
    data: {"outcome":"completed","finish_reason":"stop","chunks":12,"id":"4f0c..."}

A response that ends with neither `error` nor `end` was cut on its way.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from .._core import monotonic
from .._sse import Event, text_of
from .._stream import HEARTBEAT, GuardedStream
from ..errors import StreamguardError
from .client_errors import failure_of
from .connections import close_connections

Render = Callable[[Any], Any]
"""Makes of a chunk what is sent: text as it is, None or `""` for nothing, anything else as JSON."""

PING = b": ping\n\n"
_LINE_END = re.compile(r"\r\n|\r|\n")


def default_render(chunk: Any) -> Any:
    """Return a chat chunk's text as `{"text": ...}`, None if it has none; an event's data; anything else as it is."""
    if isinstance(chunk, Event):
        return chunk.data
    text = text_of(chunk)
    if text is None:
        return chunk
    return {"text": text} if text else None


def data_frame(data: Any, *, event: str | None = None, id: str | None = None) -> bytes:
    """Return one server-sent event (WHATWG HTML, 9.2): *data* is text, whose lines become lines of it, or else JSON.

    Raises TypeError, or for NaN and infinities ValueError, for what is neither.
    """
    if isinstance(data, bytes):
        raise TypeError("cannot send bytes as an event: pass render=, a function that returns text or JSON data")
    text = data if isinstance(data, str) else _json(data)
    fields = [("id", id), ("event", event), *(("data", line) for line in _LINE_END.split(text))]
    frame = "".join(f"{name}: {value}\n" for name, value in fields if value is not None)
    return f"{frame}\n".encode("utf-8", "replace")


def _json(data: Any) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def error_frame(exc: BaseException) -> bytes:
    """Return the last frame of a stream that failed."""
    return data_frame(failure_of(exc), event="error")


def end_frame(stream: GuardedStream[Any]) -> bytes:
    """Return the last frame of a stream that did not fail: it is complete, or it was closed."""
    report = stream.report.to_log()
    return data_frame({key: report[key] for key in ("outcome", "finish_reason", "chunks", "id")}, event="end")


class EventBody:
    """The body of a streaming response: iterate it once; `close()`, from any thread, ends the upstream.

    *Limits*: while a write to a client that does not read blocks, the upstream waits too; that time does not count as
    its silence.
    """

    def __init__(
        self,
        stream: GuardedStream[Any],
        *,
        first: Iterable[Any] = (),
        render: Render = default_render,
        heartbeat: float = 15.0,
        client_left: Callable[[], bool] = lambda: False,
    ) -> None:
        self._stream = stream
        self._first = list(first)
        self._render = render
        self._heartbeat = heartbeat
        self._client_left = client_left
        self._written = -math.inf
        self._id: str | None = stream.report.id

    def __iter__(self) -> Iterator[bytes]:
        """Yield the frames; the upstream is closed after the last one, and as soon as the client has left."""
        try:
            for item in self._items():
                if item is HEARTBEAT:
                    close_connections()  # of this thread: `render` may have opened one
                frame = self._frame(item) or self._ping()
                if frame:
                    self._written = monotonic()
                    yield frame
                if self._client_left():
                    return
            yield end_frame(self._stream)
        except StreamguardError as exc:
            yield error_frame(exc)
        except Exception as exc:
            yield error_frame(exc)
            raise  # an error in the caller's code: the server logs it
        finally:
            self._stream.close()

    def close(self) -> None:
        """End the upstream: the server calls this when the response is over, for whatever reason."""
        self._stream.close()

    def _items(self) -> Iterator[Any]:
        yield HEARTBEAT  # headers go out with the first piece
        yield from self._first
        yield from self._stream

    def _frame(self, item: Any) -> bytes:
        data = None if item is HEARTBEAT else self._render(item)
        if data is None or data == "":
            return b""
        id, self._id = self._id, None
        return data_frame(data, id=id)

    def _ping(self) -> bytes:
        return PING if monotonic() - self._written >= self._heartbeat else b""
