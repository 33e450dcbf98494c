"""`Session`: a `requests.Session` whose `timeout=` bounds the whole call.

The timeout of requests bounds each single wait for the network, so a server that trickles never exceeds it. Here the
whole call runs in a worker, from the wait for a connection to the last byte of the body, with all redirects. When the time
is up, the caller gets the error, and the sockets of the call are shut down, which ends the worker.
"""

import contextlib
import contextvars
import functools
import inspect
import numbers
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import urlsplit

import requests
import urllib3

from ._core.bounded import run_until
from ._core.cancel import current_token
from ._core.clock import longest_wait, monotonic
from ._core.deadline import Deadline, current_deadline
from ._core.limits import NOT_GIVEN, NotGiven, seconds_of
from ._http import QUOTED_BYTES, Adapter, SocketGuard, attach_response, current_guard, status_error, unpack_gzip
from ._stream import guarded_stream
from .errors import DeadlineExceededError, InvalidJSONError, ResponseValidationError, TotalTimeoutError, UsageError

T = TypeVar("T")
S = TypeVar("S", bound="Session")

Timeout = float | str | timedelta | tuple[float | None, float | None] | None

_SIGNATURE = inspect.signature(requests.Session.request)
_ERROR_BODY_BYTES = 65536
_MARGIN_SECONDS = 1.0
"""How much later than the cut a socket's own timeout is. If both are at the same instant, a thousand calls take ten
times as long."""
_STREAMS_UNBOUNDED = (
    "stream=True cannot be bounded by a total or a deadline(), because the body is read later: use "
    "session.stream(method, url, total=...), or the timeout=(connect, read) of requests outside a deadline() block"
)

_sending: contextvars.ContextVar[tuple[object, ...] | None] = contextvars.ContextVar("streamguard_session", default=None)
"""The bounds of the call that is made in this context, from `_bounds()`. A request with the same bounds, such as the next
hop of a redirect, belongs to that call. A hook may send requests with other bounds."""


class Session(requests.Session):
    """A `requests.Session` with hard totals: `Session(timeout=5).get(url)` returns or raises within five seconds.

    timeout:         the default for calls without `timeout=`. A number, a text such as `"30s"` or a `timedelta`: seconds
                     for the whole call (pool, DNS, connect, TLS, headers, redirects, body). A tuple: the (connect, read)
                     of requests. Default None: no limit.
    deadline_header: the name of a header, such as `"X-Request-Timeout-Ms"`, in which the milliseconds left until the
                     nearest deadline are sent. Default None: not sent.

    A surrounding `deadline()` bounds every call, whatever its timeout; cancelling the current token ends it. A response
    that is late is an error.

    Raises `TotalTimeoutError` when its own total is spent (0 or less: before anything is sent), `DeadlineExceededError`
    with `scope="ambient"` when the surrounding deadline is, `StreamCancelledError`, and what requests raises.

    Limits
        Hooks and auth run in the worker, in a copy of the caller's context. Name resolution and the wait for a slot of a
        blocking pool cannot be cut: the caller is free in time, and the thread is abandoned and counted. The same holds for
        another adapter than `streamguard.Adapter` until the headers arrive. Threads may share a session as they may share
        one of requests.
    """

    __attrs__ = [*requests.Session.__attrs__, "timeout", "deadline_header"]  # noqa: RUF012 - as in requests

    __slots__ = ("_observer",)  # not in `__dict__`, which an observed view shares with its session

    timeout: Timeout = None
    deadline_header: str | None = None
    _streams_by_default = False
    _observer: Callable[[str], None] | None

    def __init__(self, timeout: Timeout = None, *, deadline_header: str | None = None) -> None:
        _total_of(timeout)
        if not _is_timeout(timeout):
            raise TypeError(f"timeout= takes seconds, or requests' own (connect, read), not {timeout!r}")
        super().__init__()
        self.timeout = timeout
        self.deadline_header = deadline_header
        for prefix in ("https://", "http://"):
            self.mount(prefix, Adapter())

    def __getstate__(self) -> dict[str, Any]:
        return {**dict(super().__getstate__()), "stream": bool(self.stream)}  # type: ignore[call-overload]

    @property  # type: ignore[override]
    def stream(self) -> "_StreamMethod":
        """Stream with this Session, as `guarded_stream()` does: `session.stream("POST", url, json=..., idle=30)`.

        requests has a flag of this name. It can still be set, and its value is the truth value of this attribute.
        """
        return _StreamMethod(self._observed(None), self._streams_by_default)

    @stream.setter
    def stream(self, by_default: object) -> None:
        self._streams_by_default = bool(by_default)

    def request(  # type: ignore[override]
        self, method: str, url: str | bytes, *args: Any, timeout: Timeout | NotGiven = NOT_GIVEN, **options: Any
    ) -> requests.Response:
        """Make a request, with the arguments of requests; return its response, whose body is read.

        timeout: seconds for the whole call, or the tuple of requests, or None: no limit. Default: the Session's.

        Raises UsageError for `stream=True` under a total or a surrounding deadline, which cannot bound a later read.
        """
        self._before_request(method)
        if not isinstance(timeout, NotGiven):
            options["timeout"] = timeout
        if args:
            options = dict(_SIGNATURE.bind(self, method, url, *args, **options).arguments)
            del options["self"], options["method"], options["url"]
        return self._make(_Call(method, url), functools.partial(super().request, method, url), options)

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a prepared request; bounded as `request()` is."""
        self._before_request(request.method or "")
        if _sending.get() == _bounds(self, options.get("timeout", NOT_GIVEN)):
            return self._send(request, options)
        return self._make(_Call(request.method, request.url), functools.partial(self._send_as_own, request), options)

    def get_json(
        self, url: str, *, method: str = "GET", validate: Callable[[Any], Any] | None = None, **options: Any
    ) -> Any:
        """Return the parsed JSON body that *url* answers with; *options* are those of `request()`.

        validate: a function of the parsed JSON. It raises, or returns False, if that is not the expected answer. It may
                  return the value to use, as `Model.model_validate` of pydantic does; True and None keep the JSON.

        Raises `HTTPStatusError` for a status of 400 or above, `InvalidJSONError` for a body that is not JSON,
        `ResponseValidationError` for JSON that *validate* does not accept, and what `request()` raises.
        """
        if validate is not None and not callable(validate):
            raise TypeError(f"validate= must be a function of the parsed JSON, got {type(validate).__name__}")
        response = self.request(method, url, **options)
        if response.status_code >= 400:
            raise status_error(response, response.content[:_ERROR_BODY_BYTES])
        try:
            value = response.json()
        except (ValueError, RecursionError) as exc:
            raise _unusable(response, InvalidJSONError, "its body is not JSON") from exc
        return value if validate is None else _validated(value, validate, response)

    def close(self) -> None:
        """Close all connections. An observed view, which shares them with its session, closes nothing."""
        if getattr(self, "_observer", None) is None:
            super().close()

    def _before_request(self, method: str) -> None:
        """Report the method of a request that is about to be sent, in the caller's thread."""
        observer = getattr(self, "_observer", None)
        if observer is not None:
            observer(method)

    def _observed(self, observer: Callable[[str], None] | None) -> Self:
        """Return a view of this session that calls *observer* with the method of each request it makes, except streams.

        It is of the same class and has the same state: cookies, headers and what either of them sets later.
        """
        if getattr(self, "_observer", None) is observer:
            return self
        view = object.__new__(_without_finalizer(type(self)))
        # Neither __init__(), which makes adapters, nor a copy of the state, nor the class's own __setattr__().
        object.__setattr__(view, "__dict__", self.__dict__)
        object.__setattr__(view, "_observer", observer)
        return view

    def _make(self, call: "_Call", send: Callable[..., requests.Response], options: dict[str, Any]) -> requests.Response:
        """Run *send* with *options*: in a worker if the call is bounded, else in this thread."""
        streams = bool(self._streams_by_default if options.get("stream") is None else options["stream"])
        if isinstance(timeout := options.get("timeout", NOT_GIVEN), NotGiven):
            timeout, call.source = self.timeout, "the Session's default"
        elsewhere = streams and _guard_of_call() is not None
        call.limit_to(timeout)
        options = {**options, "stream": streams, "timeout": call.timeout_of_requests(timeout)}
        if call.until is not None and streams and not elsewhere:
            raise UsageError(_STREAMS_UNBOUNDED)
        token = current_token()
        if streams or (call.until is None and token is None):
            return _as_own(self, send, options)
        work = functools.partial(_work, self, send, options, call)
        return run_until(work, call.until, token, expired=call.expired, name=call.name, reuse=True)

    def _send_as_own(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        return self._send(request, options)

    def _send(self, request: requests.PreparedRequest, options: dict[str, Any]) -> requests.Response:
        """Send one request (a hop, if it is redirected), in the thread where the call is made."""
        until = current_deadline()
        if self.deadline_header is not None and until is not None:
            request = request.copy()
            request.headers[self.deadline_header] = str(max(1, int(until.remaining() * 1000)))
        guard = _guard_of_call()
        if guard is None or isinstance(self.get_adapter(request.url or ""), Adapter):
            return super().send(request, **options)
        response = super().send(request, **{**options, "stream": True})
        attach_response(guard, response)
        unpack_gzip(response.raw)
        if not options.get("stream"):
            _ = response.content
        return response


class _StreamMethod:
    """The method `stream` of a Session; as a truth value it is requests' flag of that name."""

    __slots__ = ("_by_default", "_session")

    def __init__(self, session: Session, by_default: bool) -> None:
        self._session = session
        self._by_default = by_default

    def __bool__(self) -> bool:
        return self._by_default

    def __eq__(self, other: object) -> bool:
        return self._by_default == other

    __hash__ = None  # type: ignore[assignment]

    if TYPE_CHECKING:
        __call__ = staticmethod(guarded_stream)
    else:

        def __call__(self, method: str, url: str, **options: Any) -> Any:
            return guarded_stream(method, url, session=self._session, **options)


def _without_finalizer(kind: type[S]) -> type[S]:
    """Return *kind*, or a subclass of it without its `__del__()`: the end of a view is not that of its session."""
    return type(kind.__name__, (kind,), {"__slots__": (), "__del__": lambda _: None}) if hasattr(kind, "__del__") else kind


class _Call:
    """One call: its bounds, its phase, and its error if it is late."""

    __slots__ = ("begun", "host", "limit", "margin", "method", "phase", "scope", "source", "until")

    def __init__(self, method: object, url: object) -> None:
        self.method = str(method).upper()
        self.host = _host_of(url)
        self.source = "argument"
        self.begun = monotonic()
        self.limit: float | None = None
        self.margin = 0.0
        self.until: Deadline | None = None
        self.scope = "ambient"
        self.phase = "new"

    @property
    def name(self) -> str:
        """The name of the call in messages."""
        return f"{self.method} {self.host}".rstrip()

    def limit_to(self, timeout: Any) -> None:
        """Set the nearest deadline: that of *timeout*, if it is a total, or the surrounding one."""
        self.limit = _total_of(timeout)
        self.margin = _MARGIN_SECONDS if timeout is None or self.limit is not None else 0.0  # those of requests stay exact
        own = None if self.limit is None else Deadline(self.begun + self.limit)
        self.until = Deadline.nearest(own, current_deadline())
        self.scope = "total" if own is not None and self.until is own else "ambient"

    def timeout_of_requests(self, timeout: Any) -> Any:
        """Return the timeout for requests. It gets a total too, which ends a thread that a cut cannot reach."""
        if timeout is not None and not _is_total(timeout):
            return timeout
        if self.until is None:
            return None
        return longest_wait(self.limit if self.scope == "total" else self.until.remaining())

    def enter(self, phase: str) -> None:
        """Set the phase of the connection."""
        self.phase = "body" if phase == "headers" else phase

    def expired(self, overran: bool) -> DeadlineExceededError:
        """Return the error for a call that is late; *overran*: its thread still runs."""
        own = self.scope == "total"
        elapsed = monotonic() - self.begun
        whose = f"timeout={self.limit:g} ({self.source})" if own else "the surrounding deadline()"
        if self.until is not None and self.until.at <= self.begun:
            what = f"was not sent: {whose} is already spent"
        else:
            what = f"took longer than {whose}: {elapsed:.2f} s, in phase {self.phase}"
        still = "; its thread could not be stopped and is abandoned" if overran else ""
        return (TotalTimeoutError if own else DeadlineExceededError)(
            f"{self.name} {what}{still}. {'Raise timeout=' if own else 'Give the deadline() block more time'}.",
            scope=self.scope,
            limit=self.limit if own else None,
            elapsed=elapsed,
            phase=self.phase,
            host=self.host,
            overran=overran,
        )


def _work(
    session: Session, send: Callable[..., requests.Response], options: dict[str, Any], call: _Call
) -> requests.Response:
    """Make *call* in this thread, with a guard for its sockets."""
    token = current_token()
    assert token is not None
    guard = SocketGuard(token, call.enter, margin=call.margin)
    current_guard.set(guard)
    _sending.set(_bounds(session, options["timeout"]))
    try:
        return send(**options)
    except BaseException as exc:
        if guard.response is not None:
            _settle(guard.response, exc)
        raise
    finally:
        guard.release()


def _settle(response: requests.Response, exc: BaseException) -> None:
    """Read the body if the error has the response, as that of raise_for_status() in a hook; close the response."""
    if getattr(exc, "response", None) is response:
        with contextlib.suppress(Exception):
            _ = response.content
    response.close()


def _as_own(session: Session, send: Callable[..., T], options: dict[str, Any]) -> T:
    """Run *send* in this thread as a call of its own."""
    before = _sending.set(_bounds(session, options["timeout"]))
    try:
        return send(**options)
    finally:
        _sending.reset(before)


def _bounds(session: Session, timeout: object) -> tuple[object, ...]:
    """Return the bounds of a request that *session* sends now, with this timeout for requests."""
    return session, timeout, current_deadline(), current_token()


def _guard_of_call() -> SocketGuard | None:
    """Return the guard that was made for the call of this context, by us or by a stream."""
    guard, token = current_guard.get(), current_token()
    return guard if guard is not None and token is not None and guard.serves(token) else None


def _is_total(timeout: object) -> bool:
    return isinstance(timeout, numbers.Real | str | timedelta)


def _is_timeout(timeout: object) -> bool:
    if isinstance(timeout, tuple):
        return len(timeout) == 2
    return timeout is None or _is_total(timeout) or isinstance(timeout, urllib3.Timeout)


def _total_of(timeout: Any) -> float | None:
    """Return the seconds of a total; None for None, a tuple, and a Timeout of urllib3."""
    return seconds_of("timeout", timeout) if _is_total(timeout) else None


def _host_of(url: object) -> str:
    """Return host and port: the only parts of the URL that messages may contain."""
    try:
        return urlsplit(url.decode() if isinstance(url, bytes) else str(url)).netloc.rpartition("@")[2]
    except ValueError:
        return ""


def _validated(value: Any, validate: Callable[[Any], Any], response: requests.Response) -> Any:
    try:
        result = validate(value)
    except Exception as exc:  # each library of schemas has its own
        problem = f"validate= does not accept its JSON ({type(exc).__name__})"
        raise _unusable(response, ResponseValidationError, problem) from exc
    if result is False:
        raise _unusable(response, ResponseValidationError, "validate= does not accept its JSON")
    return value if result is None or result is True else result


def _unusable(response: requests.Response, error: type[InvalidJSONError], problem: str) -> InvalidJSONError:
    body = response.content[:QUOTED_BYTES].decode("utf-8", "replace")
    kind = response.headers.get("Content-Type")
    return error(
        f"status {response.status_code}, but {problem}: Content-Type {kind!r}; it begins {body[:200]!r}",
        status_code=response.status_code,
        content_type=kind,
        body=body,
    )
