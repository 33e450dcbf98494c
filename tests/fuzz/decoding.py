"""What hostile bytes are fed to that have been received: framing, events, chunks, agents' lines, single words.

Each target takes the bytes of one input, and raises AssertionError, or what the code under it lets out, for a finding.
"""

import contextlib
import json
import re
from collections.abc import Callable
from typing import Any

import requests

from streamguard import InStreamError, MalformedChunkError, UsageError, has_content
from streamguard._core.limits import parse_duration
from streamguard._http import retry_after, status_error
from streamguard._sse import EventClient
from streamguard._sse.event_stream.heartbeats import is_heartbeat_name, is_heartbeat_text
from streamguard._stream.upstream.decode import assembler_of, decoder_of
from streamguard.dispatch._data.turn_events import Event, Kind
from streamguard.dispatch._formats.registry import FORMATS, make_format
from streamguard.testing import parse_script

from ..sse.reference import Reference

__all__ = ["anthropic", "chat", "events", "lines", "responses", "words"]

_ABSURD_RETRY = re.compile(rb"\d{101}")
"""More digits than ours takes for a `retry`; the standard names no limit."""


def pieces_of(data: bytes) -> list[bytes]:
    """Cut the input as its first two bytes say: whole, in single bytes, or in pieces of two sizes by turns."""
    if len(data) < 2:
        return [data]
    sizes, rest = (data[0] % 32, data[1] % 7), data[2:]
    if not any(sizes):
        return [rest]
    pieces: list[bytes] = []
    while rest:
        size = max(1, sizes[len(pieces) % 2])
        pieces.append(rest[:size])
        rest = rest[size:]
    return pieces


def events(data: bytes) -> None:
    """Events, ids, retries and comments are the standard's, in whatever pieces the stream comes."""
    pieces = pieces_of(data)
    stream = b"".join(pieces)
    if _ABSURD_RETRY.search(stream):
        return
    client = EventClient()
    found = [_fields(event) for piece in pieces for event in client.feed(piece)]
    standard = Reference().decode(stream)
    assert found == standard.events
    assert client.last_event_id == standard.last_event_id
    last, closed = client.finish(), Reference().decode(stream + b"\n\n")
    assert found + ([_fields(last)] if last else []) == closed.events
    assert (client.retry_ms, client.comments) == (closed.reconnection_time, closed.comments)


def _fields(event: Any) -> tuple[Any, ...]:
    return event.event, event.data, event.id, event.retry


def chat(data: bytes) -> None:
    """Chunks are the JSON objects of the standard's events, up to the end marker or the first that is none."""
    pieces = pieces_of(data)
    stream = b"".join(pieces)
    chunks, fault = decoded("chat", pieces)
    complete = Reference().decode(stream).events
    unfinished = Reference().decode(stream + b"\n\n").events[len(complete) :]
    expected = _objects([(name, text) for name, text, *_ in complete + unfinished])
    # An unfinished last event that is not a chat chunk may be cut: it is neither returned nor an error.
    without = _objects([(name, text) for name, text, *_ in complete]) if unfinished else expected
    assert repr(chunks) in map(repr, (expected, without) if fault is None else (expected[: len(chunks)],))


def _objects(events: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Return the JSON objects among the events' data, up to the end marker or other text; heartbeats are left out."""
    objects = []
    for name, text in events:
        value = _json(text)
        if is_heartbeat_name(name):
            continue
        if isinstance(value, dict):
            objects.append(value)
        elif not is_heartbeat_text(text):
            break
    return objects


def responses(data: bytes) -> None:
    """The events of the Responses API: as for any decoder, see `decoded`."""
    decoded("responses", pieces_of(data))


def anthropic(data: bytes) -> None:
    """The events of the Messages API: as for any decoder, see `decoded`."""
    decoded("anthropic", pieces_of(data))


def decoded(decode: str, pieces: list[bytes]) -> tuple[list[Any], type[Exception] | None]:
    """Decode, and check what holds for each decoder: cuts mean nothing, two errors are known, no property raises."""
    chunks, fault, ending = _run(decode, pieces)
    whole = _run(decode, [b"".join(pieces)])
    assert (repr(chunks), fault, ending) == (repr(whole[0]), *whole[1:])
    assembler = assembler_of(decode)
    assert assembler is not None
    texts = []
    for chunk in chunks:
        texts.append(chunk.text)
        assert isinstance(chunk.text, str)
        assert isinstance(has_content(chunk), bool)
        for name in ("reasoning", "tool_calls", "finish_reason", "usage"):
            getattr(chunk, name, None)
        assembler.add(chunk)
    unfinished = assembler.message(complete=False)
    assert unfinished.tool_calls == ()
    assert isinstance(repr(assembler.message(complete=True)), str)
    if decode == "chat":
        assert unfinished.text == assembler.text == "".join(texts)
    return chunks, fault


def _run(decode: str, pieces: list[bytes]) -> tuple[list[Any], type[Exception] | None, object]:
    decoder = decoder_of(decode)()
    chunks: list[Any] = []
    try:
        for piece in pieces:
            chunks.extend(decoder.feed(piece))
        chunks.extend(decoder.finish())
    except InStreamError as error:
        return chunks, type(error), None
    except MalformedChunkError as error:
        return chunks, _short(error), None
    return chunks, None, decoder.completion


def _short(error: Exception) -> type[Exception]:
    assert len(str(error)) < 1000
    return type(error)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def lines(data: bytes) -> None:
    """Whatever a program prints becomes events, the same in whatever pieces, and one `done` at most ends them."""
    pieces = pieces_of(data)
    for name in FORMATS:
        seen = _events_of(name, pieces)
        whole = _events_of(name, [b"".join(pieces)])
        assert _told(seen) == _told(whole), name
        ends = [event.kind for event in seen].count(Kind.DONE)
        assert ends <= 1
        assert not ends or seen[-1].kind is Kind.DONE


def _events_of(name: str, pieces: list[bytes]) -> list[Event]:
    reader = make_format(name)
    found = [event for piece in pieces for event in reader.feed(piece)]
    return [*found, *reader.close(0)]


def _told(found: list[Event]) -> list[tuple[object, str]]:
    """Return kinds and texts; lines that follow each other may come as one text or as several."""
    told: list[tuple[object, str]] = []
    for event in found:
        if told and event.kind is Kind.TEXT is told[-1][0]:
            told[-1] = (Kind.TEXT, told[-1][1] + event.text)
        else:
            told.append((event.kind, event.text))
    return told


def words(data: bytes) -> None:
    """Single words of a server's or a user's are read, or refused by the one error that says so."""
    text = data.decode("latin-1")
    response = requests.Response()
    response.status_code = 500
    error = status_error(response, data)
    assert len(str(error)) < 1000
    seconds = retry_after(text)
    assert seconds is None or seconds >= 0
    with contextlib.suppress(ValueError):
        assert parse_duration(text) >= 0
    with contextlib.suppress(UsageError):
        parse_script(data.decode("utf-8", "replace"))


TARGETS: dict[str, Callable[[bytes], None]] = {
    function.__name__: function for function in (events, chat, responses, anthropic, lines, words)
}
