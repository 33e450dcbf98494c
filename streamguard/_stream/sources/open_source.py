"""The one table of sources: how each kind is detected, cut, and read.

| kind | cut by | gives |
|---|---|---|
| requests and urllib3 responses | shutdown of the body's socket | bytes |
| httpx and httpx2 responses | shutdown of the network stream's socket | bytes |
| `http.client.HTTPResponse` | shutdown of the socket below its file | bytes |
| the stream of an SDK over httpx (openai, anthropic, ...) | as the httpx response in it | the SDK's objects |
| botocore's event stream and body | as the urllib3 response in it | botocore's dicts, or bytes |
| a gRPC call | `call.cancel()` | messages |
| a stream socket, plain or TLS, and its file | its shutdown | bytes |
| a pipe, a terminal, a file of these | a wake-up descriptor | bytes |
| any iterator, with `interrupt=` | `interrupt()` | its items |
| any iterator, with `abandon=True` | nothing: its thread is abandoned | its items |

None of these libraries is imported. A duplicate of the descriptor is shut down: see `_http/sockets.py`.
"""

import _thread
import contextlib
import contextvars
import http.client
import io
import os
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import requests
import urllib3

from ..._core.cancel import CancelToken
from ..._core.thread_hooks import run_thread_hooks
from ..._http import SocketGuard, attach_response, find_socket, require_close_notify
from ...errors import UsageError
from ...telemetry.events import CloserFailed
from ...telemetry.hooks import defer
from ..upstream.aws_events import AwsEventWatcher, MessageLengths
from ..upstream.cut_off import CutOffError
from ..upstream.decode import EndWatcher
from .descriptors import read_descriptor, take_buffered
from .detect import (
    below,
    httpx_response,
    is_cuttable_httpx,
    is_descriptor,
    is_iterable,
    is_manager,
    is_of,
    is_sdk_stream,
)
from .refusal import refusal_of
from .sdk_views import view_of_http_client, view_of_httpx, view_of_urllib3


@dataclass(frozen=True, slots=True)
class OpenSource:
    """A source that is open and can be cut."""

    response: requests.Response | None = None
    """Its status and headers, if it has them."""
    blocks: Iterator[Any] | None = None
    """Its items; None: the body of the response."""
    objects: bool = False
    """Whether it gives objects, not bytes."""
    may_be_empty: bool = True
    """Whether an end without a single item is a complete one."""
    watcher: EndWatcher | None = None
    """What notices the end of the objects, if it is not one of the model APIs."""


@dataclass(frozen=True, slots=True)
class SourceHold:
    """What cuts and releases a source while it is read."""

    guard: SocketGuard
    token: CancelToken
    stack: contextlib.ExitStack
    """Releases it at the end, in the reader's thread."""
    interrupt: Callable[[], object] | None = None
    abandon: bool = False

    @property
    def may_stay_blocked(self) -> bool:
        """Whether the caller provides the cut, or does without one."""
        return self.interrupt is not None or self.abandon

    def interrupted_by(self, interrupt: Callable[[], object]) -> None:
        """Call *interrupt* at the cut, in a thread of its own, for it may block."""
        self.stack.callback(self.token.on_cancel(_in_background(interrupt)))


@dataclass(frozen=True, slots=True)
class _Kind:
    detects: Callable[[Any], bool]
    open: Callable[[Any, SourceHold], OpenSource]
    is_http: bool = False
    """Whether its items may be the chunks of a model's message."""


def open_source(source: Any, hold: SourceHold) -> OpenSource:
    """Open *source*, so that it can be cut and is released at the end, and return how to read it.

    A function or a context manager that only opens a stream is called or entered first. Raises UsageError for a source that
    cannot be cut, CutError if the call has been cut meanwhile, and whatever opening raises.
    """
    if hold.interrupt is not None:
        hold.interrupted_by(hold.interrupt)
    kind = _kind_of(source, hold.may_stay_blocked)
    if kind is None:
        source = _opened(source, hold)
        kind = _kind_of(source, hold.may_stay_blocked)
    if kind is None:
        raise UsageError(refusal_of(source))
    return kind.open(source, hold)


def _opened(source: Any, hold: SourceHold) -> Any:
    if not is_manager(source) and callable(source):
        source = source()
    if _kind_of(source, hold.may_stay_blocked) is None and is_manager(source):
        return hold.stack.enter_context(source)
    if _kind_of(source, hold.may_stay_blocked) is None and hasattr(source, "close"):
        hold.stack.callback(source.close)  # it will be refused, and only we have it
    return source


def can_be_opened(source: Any) -> bool:
    """Return whether *source* is a function that opens a stream, so that it can open another one."""
    return callable(source) and not is_iterable(source) and _kind_of(source, may_stay_blocked=False) is None


def check_source(source: Any, *, may_stay_blocked: bool) -> None:
    """Raise UsageError, at once, for a source that cannot be cut, unless it *may_stay_blocked*."""
    if _kind_of(source, may_stay_blocked) is None and not is_manager(source) and not callable(source):
        raise UsageError(refusal_of(source))


def gives_message(source: Any) -> bool:
    """Return whether *source* may give the chunks of a model's message: an HTTP response, or one that is not open yet."""
    kind = _kind_of(source, may_stay_blocked=False)
    return kind.is_http if kind is not None else not is_iterable(source)


def _kind_of(source: Any, may_stay_blocked: bool) -> _Kind | None:
    for kind in _KINDS:
        if kind.detects(source):
            return kind
    return _ANY if may_stay_blocked and is_iterable(source) else None


def _in_background(interrupt: Callable[[], object]) -> Callable[[], None]:
    pid, context = os.getpid(), contextvars.copy_context()

    def call() -> None:
        try:
            context.run(interrupt)
        except Exception as exc:
            defer(CloserFailed(error_type=type(exc).__name__))
        finally:
            run_thread_hooks()

    def cut() -> None:
        # Not `threading.Thread`: its start() waits for locks that the code under a signal handler may hold.
        if os.getpid() == pid:
            with contextlib.suppress(RuntimeError):  # the interpreter is ending
                _thread.start_new_thread(call, ())

    return cut


def _open_requests(response: requests.Response, hold: SourceHold) -> OpenSource:
    hold.stack.callback(response.close)
    attach_response(hold.guard, response)
    _without_timeout(find_socket(response))
    return OpenSource(response)


def _open_urllib3(raw: Any, hold: SourceHold) -> OpenSource:
    return _open_requests(view_of_urllib3(raw), hold)


def _open_botocore(stream: Any, hold: SourceHold) -> OpenSource:
    raw = stream._raw_stream
    view = _open_requests(view_of_urllib3(raw), hold).response
    if not hasattr(stream, "_event_generator"):  # a body of bytes
        return OpenSource(view, iter(stream), objects=True)
    body = stream._raw_stream = _WatchedBody(raw)
    return OpenSource(view, _whole_messages(stream, body), objects=True, watcher=AwsEventWatcher())


class _WatchedBody:
    """A raw body whose messages are followed: botocore itself drops a last one that is not whole."""

    def __init__(self, raw: Any) -> None:
        self.messages = MessageLengths()
        self._raw = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raw, name)

    def stream(self) -> Iterator[bytes]:
        for block in self._raw.stream():
            self.messages.take(block)
            yield block


def _whole_messages(stream: Any, body: _WatchedBody) -> Iterator[Any]:
    yield from stream
    if body.messages.amid:
        raise CutOffError("the event stream ended in the middle of a message")


def _open_http_client(response: http.client.HTTPResponse, hold: SourceHold) -> OpenSource:
    hold.stack.callback(response.close)
    sock = below(response, "fp", "raw", "_sock")
    if sock is not None:
        hold.stack.enter_context(_shut_down_at_cut(sock, hold))
    return OpenSource(view_of_http_client(response))


def _open_httpx(response: Any, hold: SourceHold) -> OpenSource:
    _hold_httpx(response, response, hold)
    return OpenSource(view_of_httpx(response, body=True))


def _open_sdk(stream: Any, hold: SourceHold) -> OpenSource:
    response = httpx_response(stream)
    _hold_httpx(stream if hasattr(stream, "close") else response, response, hold)
    return OpenSource(view_of_httpx(response, body=False), iter(stream), objects=True, may_be_empty=False)


def _hold_httpx(stream: Any, response: Any, hold: SourceHold) -> None:
    hold.stack.callback(response.__dict__.pop, "close", None)
    hold.stack.callback(lambda: stream.close())
    timeouts = below(response, "_request", "extensions", "timeout")
    if isinstance(timeouts, dict):
        timeouts["read"] = None  # the body is under the consumer's clocks
    network = response.extensions.get("network_stream")
    sock = None if network is None else network.get_extra_info("socket")
    if sock is not None and not response.is_closed:  # else a mock, or a body that is here already
        require_close_notify(response.headers, sock)
        hold.guard.attach("httpx", sock)
        response.close = _detach_first(hold.guard, response.close)


def _detach_first(guard: SocketGuard, close: Callable[[], object]) -> Callable[[], None]:
    """Detach the connection before it is in its pool again, where a late cut would hit its next user."""

    def detach_and_close() -> None:
        guard.detach("httpx")
        close()

    return detach_and_close


def _open_grpc(call: Any, hold: SourceHold) -> OpenSource:
    hold.interrupted_by(call.cancel)
    return OpenSource(blocks=iter(call), objects=True)


def _open_socket(sock: socket.socket, hold: SourceHold) -> OpenSource:
    hold.stack.enter_context(_shut_down_at_cut(sock, hold))
    return OpenSource(blocks=iter(lambda: sock.recv(65536), b""))


def _open_socket_file(file: io.BufferedReader, hold: SourceHold) -> OpenSource:
    hold.stack.enter_context(_shut_down_at_cut(file.raw._sock, hold))  # type: ignore[attr-defined]
    return OpenSource(blocks=iter(lambda: file.read1(65536), b""))


def _open_descriptor(file: Any, hold: SourceHold) -> OpenSource:
    descriptor = file if isinstance(file, int) else file.fileno()
    ahead = take_buffered(file) if isinstance(file, io.BufferedReader) else b""
    return OpenSource(blocks=_chain(ahead, read_descriptor(descriptor, hold.guard)))


def _open_any(source: Any, hold: SourceHold) -> OpenSource:
    return OpenSource(blocks=iter(source), objects=True)


@contextlib.contextmanager
def _shut_down_at_cut(sock: Any, hold: SourceHold) -> Iterator[None]:
    """Guard a socket of the caller's, and restore its timeout at the end."""
    hold.guard.attach("socket", sock)
    timeout = sock.gettimeout()
    _without_timeout(sock)
    try:
        yield
    finally:
        hold.guard.detach("socket")
        with contextlib.suppress(OSError):
            sock.settimeout(timeout)


def _without_timeout(sock: Any) -> None:
    if sock is not None:
        sock.settimeout(None)  # the body is under the consumer's clocks


def _chain(ahead: bytes, blocks: Iterator[bytes]) -> Iterator[bytes]:
    if ahead:
        yield ahead
    yield from blocks


_KINDS = (
    _Kind(lambda source: isinstance(source, requests.Response), _open_requests, is_http=True),
    _Kind(lambda source: isinstance(source, urllib3.BaseHTTPResponse), _open_urllib3, is_http=True),
    _Kind(lambda source: isinstance(source, http.client.HTTPResponse), _open_http_client, is_http=True),
    _Kind(is_cuttable_httpx, _open_httpx, is_http=True),
    _Kind(is_sdk_stream, _open_sdk, is_http=True),
    _Kind(lambda source: is_of(source, ("botocore",)) and hasattr(source, "_raw_stream"), _open_botocore),
    _Kind(lambda source: is_of(source, ("grpc",), "Call") and hasattr(source, "__next__"), _open_grpc),
    _Kind(lambda source: isinstance(source, socket.socket) and source.type == socket.SOCK_STREAM, _open_socket),
    _Kind(lambda s: isinstance(s, io.BufferedReader) and isinstance(s.raw, socket.SocketIO), _open_socket_file),
    _Kind(is_descriptor, _open_descriptor),
)
_ANY = _Kind(is_iterable, _open_any)
