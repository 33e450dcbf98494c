"""The errors of a stream, each with what was known and which knob to turn."""

import http.client
from typing import Any

import requests
import urllib3

from .._core.clock import monotonic
from .._core.limits import Timeouts
from .._http import RefusedHeaderError
from .._sse import Assembler
from ..classify import classify, transport_code
from ..errors import (
    DeadlineExceededError,
    EmptyStreamError,
    IncompleteStreamError,
    StreamCancelledError,
    StreamguardError,
    StreamInactivityTimeoutError,
    TransportError,
    TransportTimeoutError,
    UsageError,
)
from .recorder import Recorder
from .timing.clocks import Alarm, Phase
from .upstream.attribution import callers_own, innermost, is_callers_function, unusable_redirect

_ADVICE = {
    Phase.CONNECT: "Raise connect= if the way to the upstream is slow; check name, port and proxy.",
    Phase.RESPONSE: "Raise response= if the upstream may think this long before it sends headers.",
    Phase.FIRST: "Raise first= if the model may take this long to begin; comments do not count, dead= watches the line.",
    Phase.IDLE: "Raise idle= if the model may pause this long; comments do not count, dead= watches the line.",
    Phase.DEAD: "Raise dead= if the upstream sends heartbeats less often than this.",
}
_WAITED_FOR = {
    Phase.CONNECT: "no connection",
    Phase.RESPONSE: "no response headers",
    Phase.FIRST: "no first chunk",
    Phase.IDLE: "no further chunk",
    Phase.DEAD: "not a single byte",
}
_ARGUMENTS: tuple[tuple[type[Exception], str], ...] = (
    (requests.exceptions.InvalidProxyURL, "proxies="),
    (requests.exceptions.InvalidURL, "url=, or the URL of a proxy"),
    (urllib3.exceptions.LocationValueError, "url=, or the URL of a proxy"),
    (requests.exceptions.InvalidHeader, "headers="),
    (requests.exceptions.InvalidJSONError, "json="),
    (requests.exceptions.InvalidSchema, "the scheme in url= or proxies="),
)

_REQUESTS_OWN = (requests.RequestException, urllib3.exceptions.HTTPError)
_QUOTED_CHARACTERS = 200
"""How much of what is no event an error quotes."""


class Failures:
    """Build the errors of one stream from its recorder's numbers."""

    def __init__(self, recorder: Recorder, limits: Timeouts, max_attempts: int | None, assembler: Assembler | None) -> None:
        self._recorder = recorder
        self._limits = limits
        self._max_attempts = max_attempts
        self._assembler = assembler

    def limit(self, alarm: Alarm) -> StreamguardError:
        """Return the error for a phase limit that fired."""
        phase, recorder, now, limit = alarm.phase, self._recorder, monotonic(), alarm.limit or 0.0
        source = self._limits.source(phase.value)
        message = (
            f"{_WAITED_FOR[phase]} for {alarm.elapsed:.1f} s ({phase.value}={limit:g}, {source}): "
            f"{self._so_far()}. {_ADVICE[phase]}{self._hint(phase)}"
        )
        details = self._details(phase) | {"limit": limit, "elapsed": alarm.elapsed}
        if phase in (Phase.CONNECT, Phase.RESPONSE):
            return TransportTimeoutError(message, **details)
        return StreamInactivityTimeoutError(
            message,
            **details,
            idle=limit,
            chunks_received=recorder.chunks,
            stream_lifetime=details["lifetime"],
            last_byte_ago=_ago(recorder.last_byte_at, now),
            last_chunk_ago=_ago(recorder.last_chunk_at, now),
        )

    def deadline(self, scope: str, limit: float | None) -> DeadlineExceededError:
        """Return the error for the spent `total=` or ambient deadline."""
        if scope == "total" and limit is not None and limit <= 0:
            what = f"total={limit:g} ({self._limits.source('total')}) is already spent: nothing was sent"
            knob = "Raise total=; None means no limit."
        elif scope == "total":
            what = f"the whole call took longer than total={limit:g} ({self._limits.source('total')})"
            knob = "Raise total= if it may take this long."
        else:
            what, knob = "the surrounding deadline() passed", "Give the deadline() block more time."
        phase = self._recorder.phase
        where = "" if phase is Phase.NEW else f" in phase {phase.value}"
        message = f"{what}{where}: {self._so_far()}. {knob}"
        elapsed = self._recorder.lifetime
        return DeadlineExceededError(message, **self._details(phase), scope=scope, limit=limit, elapsed=elapsed)

    def cancelled(self, reason: object) -> StreamCancelledError:
        """Return the error for the caller's own cancel."""
        return StreamCancelledError(f"cancelled: {self._so_far()}", **self._details(self._recorder.phase), reason=reason)

    def incomplete(self, missing: str, strays: bytes) -> IncompleteStreamError:
        """Return the error for a body that ended without saying that it was complete; *missing* says what it lacks.

        *strays* are lines that came between the events, and belong to none.
        """
        kind = IncompleteStreamError if self._recorder.chunks else EmptyStreamError
        what = missing if self._recorder.chunks else "an empty stream"
        words = strays.decode("utf-8", "replace").strip()[:_QUOTED_CHARACTERS]
        message = (
            f"{what}: {self._so_far()}."
            + (" All that came is in .partial_text." if self._text else "")
            + (f" Between the events stood {words!r}." if words else "")
            + " If this upstream always ends so, strict=False accepts it."
        )
        return kind(message, **self._details(self._recorder.phase))

    def from_reader(self, exc: BaseException) -> BaseException:
        """Return what the caller gets for an exception of the reader thread; the original is its `__cause__`."""
        phase = self._recorder.phase
        if isinstance(exc, StreamguardError):
            return self._completed(exc, phase)
        own = callers_own(exc)
        if own is not None:
            return own
        if classify(exc).kind == "http":
            return exc
        code = transport_code(exc)
        error: StreamguardError | None
        error = self._refused(exc, phase) if code is None else self._transport(exc, code, phase)
        if error is None:
            return exc
        error.__cause__ = exc
        return error

    def _refused(self, exc: BaseException, phase: Phase) -> StreamguardError | None:
        """Return the error for what requests or http.client would not send; None if the fault lies elsewhere."""
        if self._recorder.headers_at is not None or isinstance(exc, requests.HTTPError):  # a hook's raise_for_status()
            return None
        if is_callers_function(innermost(exc)):
            return None
        if isinstance(exc, RefusedHeaderError):
            return UsageError("http.client refused headers=: a name or a value cannot be sent")
        if isinstance(exc, UnicodeError):
            return UsageError("an argument cannot be sent: a header must be Latin-1, with an ASCII name, a text UTF-8")
        if phase is Phase.RESPONSE and isinstance(exc, ValueError) and isinstance(exc, _REQUESTS_OWN):
            return self._completed(unusable_redirect(exc), phase)
        if isinstance(exc, requests.RequestException | urllib3.exceptions.LocationValueError):
            argument = next((name for kind, name in _ARGUMENTS if isinstance(exc, kind)), "the arguments")
            return UsageError(f"requests refused {argument}: {type(exc).__name__}")
        return None

    def _transport(self, exc: BaseException, code: str, phase: Phase) -> TransportError:
        fault = innermost(exc)
        answered = self._recorder.headers_at is not None or code in ("EPROTO", "ELOOP")
        answered = answered or isinstance(fault, http.client.IncompleteRead)
        silent = "" if answered else "; not one byte of a response had come"
        message = f"{code} in phase {phase.value}: {type(fault).__name__}{_why(fault)}{silent}; {self._so_far()}"
        details = self._details(phase)
        if code == "ETIMEDOUT":
            return self._timed_out_below(exc, phase, message, details)
        return TransportError(message, **details, code=code)

    def _timed_out_below(
        self, exc: BaseException, phase: Phase, message: str, details: dict[str, Any]
    ) -> TransportTimeoutError:
        """Return the error for a timeout of requests' own, given to a Session without our adapter, or the kernel's."""
        if isinstance(exc, requests.ConnectTimeout):
            phase = Phase.CONNECT
        told = isinstance(exc, requests.Timeout | urllib3.exceptions.TimeoutError)  # else nobody was given our limit
        limit = getattr(self._limits, phase.value, None) if told else None
        if phase in (Phase.CONNECT, Phase.RESPONSE) and limit is not None:
            source = self._limits.source(phase.value)
            message = f"{_WAITED_FOR[phase]} ({phase.value}={limit:g}, {source}): {message}. {_ADVICE[phase]}"
        return TransportTimeoutError(message, **details | {"phase": phase.value, "limit": limit})

    def _completed(self, exc: StreamguardError, phase: Phase) -> StreamguardError:
        for key, value in {**self._details(phase), "status_code": self._recorder.status_code}.items():
            if getattr(exc, key, value) is None:
                setattr(exc, key, value)
        return exc

    @property
    def _text(self) -> str | None:
        """The text so far, of a stream whose message is put together."""
        return None if self._assembler is None else self._assembler.text

    def _details(self, phase: Phase) -> dict[str, Any]:
        recorder = self._recorder
        return {
            "phase": phase.value,
            "lifetime": recorder.lifetime,
            "chunks": recorder.chunks,
            "bytes": recorder.bytes,
            "comments": recorder.comments,
            "attempt": recorder.attempts,
            "max_attempts": self._max_attempts,
            "host": recorder.host or None,
            "name": recorder.name,
            "id": recorder.id,
            "partial_text": self._text,
        }

    def _so_far(self) -> str:
        r = self._recorder
        of = f" of {self._max_attempts}" if self._max_attempts else ""
        name = f", stream {r.name!r}" if r.name else ""
        host = f", host {r.host}" if r.host else ""
        return (
            f"{r.chunks} chunks, {r.bytes} bytes and {r.comments} comments had come in {r.lifetime:.1f} s; "
            f"attempt {r.attempts}{of}{host}{name}, id {r.id}"
        )

    def _hint(self, phase: Phase) -> str:
        if phase is not Phase.FIRST or self._recorder.last_byte_at is not None:
            return ""
        if self._recorder.headers_at is None:  # a pipe, say
            return " Not one byte arrived: whoever writes may be buffering."
        return " Nothing arrived after the headers: a proxy or compression may be buffering the stream."


def _why(fault: BaseException) -> str:
    """Return the operating system's or TLS library's own words for a fault; no others (they may hold a URL)."""
    words = getattr(fault, "verify_message", None) or getattr(fault, "strerror", None)
    if type(fault) is OSError and not words:
        words = str(fault)  # requests' for a certificate file that is not there, http.client's for a refused CONNECT
    return f" ({words})" if isinstance(words, str) and words else ""


def _ago(at: float | None, now: float) -> float | None:
    return None if at is None else now - at
