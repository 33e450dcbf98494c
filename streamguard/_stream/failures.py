"""The errors of a stream: what was expected, what came, and which argument to change."""

import http.client
from typing import Any

import requests
import urllib3

from .._core.clock import monotonic
from .._core.limits import Timeouts
from .._http import RefusedHeaderError
from .._sse import Assembler
from .._text import counted
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

_COMMENTS = "Comments do not count; dead= limits the time without a byte."
_ADVICE = {
    Phase.CONNECT: "Raise connect= if the network is slow; check host, port and proxy.",
    Phase.RESPONSE: "Raise response= if the server may take this long to send headers.",
    Phase.FIRST: f"Raise first= if the model may take this long to begin. {_COMMENTS}",
    Phase.IDLE: f"Raise idle= if the model may pause this long. {_COMMENTS}",
    Phase.DEAD: "Raise dead= if the server sends heartbeats less often than this.",
}
_MISSING = {
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
"""How much of lines that are not part of an event an error quotes."""


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
        message = (
            f"{_MISSING[phase]} for {alarm.elapsed:.1f} s ({self._limit_of(phase, limit)}): "
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
            advice = "Raise total=; None means no limit."
        elif scope == "total":
            what = f"the whole call took longer than total={limit:g} ({self._limits.source('total')})"
            advice = "Raise total= if it may take this long."
        else:
            what, advice = "the surrounding deadline() passed", "Give the deadline() block more time."
        phase = self._recorder.phase
        where = "" if phase is Phase.NEW else f" in phase {phase.value}"
        message = f"{what}{where}: {self._so_far()}. {advice}"
        elapsed = self._recorder.lifetime
        return DeadlineExceededError(message, **self._details(phase), scope=scope, limit=limit, elapsed=elapsed)

    def cancelled(self, reason: object) -> StreamCancelledError:
        """Return the error for the caller's own cancel."""
        return StreamCancelledError(f"cancelled: {self._so_far()}", **self._details(self._recorder.phase), reason=reason)

    def incomplete(self, missing: str, unparsed: bytes) -> IncompleteStreamError:
        """Return the error for a body that ended without saying that it was complete; *missing* says what it lacks.

        *unparsed* are lines between the events that are not part of one.
        """
        kind = IncompleteStreamError if self._recorder.chunks else EmptyStreamError
        what = missing if self._recorder.chunks else "an empty stream"
        quoted = unparsed.decode("utf-8", "replace").strip()[:_QUOTED_CHARACTERS]
        message = (
            f"{what}: {self._so_far()}."
            + (" The text that arrived is in .partial_text." if self._text else "")
            + (f" Unparsed lines between events: {quoted!r}." if quoted else "")
            + " If this server never sends an end marker, pass strict=False."
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
        """Return the error for what requests or http.client did not send; None if the fault lies elsewhere."""
        if self._recorder.headers_at is not None or isinstance(exc, requests.HTTPError):  # a hook's raise_for_status()
            return None
        if is_callers_function(innermost(exc)):
            return None
        if isinstance(exc, RefusedHeaderError):
            return UsageError("headers= has a name or a value that http.client refuses to send")
        if isinstance(exc, UnicodeError):
            return UsageError(
                "an argument cannot be encoded: a header must be Latin-1 with an ASCII name, a body that is a str UTF-8"
            )
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
        silent = "" if answered else "; not one byte of a response arrived"
        message = f"{code} in phase {phase.value}: {type(fault).__name__}{_why(fault)}{silent}; {self._so_far()}"
        details = self._details(phase)
        if code == "ETIMEDOUT":
            return self._timed_out_below(exc, phase, message, details)
        return TransportError(message, **details, code=code)

    def _timed_out_below(
        self, exc: BaseException, phase: Phase, message: str, details: dict[str, Any]
    ) -> TransportTimeoutError:
        """Return the error for a timeout of requests' own, which a Session without our adapter raises, or the kernel's."""
        if isinstance(exc, requests.ConnectTimeout):
            phase = Phase.CONNECT
        ours = isinstance(exc, requests.Timeout | urllib3.exceptions.TimeoutError)  # requests was given our limit
        limit = getattr(self._limits, phase.value, None) if ours else None
        if phase in (Phase.CONNECT, Phase.RESPONSE) and limit is not None:
            message = f"{_MISSING[phase]} ({self._limit_of(phase, limit)}): {message}. {_ADVICE[phase]}"
        return TransportTimeoutError(message, **details | {"phase": phase.value, "limit": limit})

    def _completed(self, exc: StreamguardError, phase: Phase) -> StreamguardError:
        """Add the stream's details to an error that was built elsewhere."""
        if exc.id is None and exc.host is None and not isinstance(exc, UsageError):
            exc._stream = self._identity()
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

    def _limit_of(self, phase: Phase, limit: float) -> str:
        limits = self._limits
        connect, response = limits.connect, limits.response
        if phase is Phase.RESPONSE and connect and response is not None and limit == connect + response:
            # A source that opens itself does not report when it is connected: both limits apply as one.
            parts = (("connect", connect), ("response", response))
            return " + ".join(f"{name}={seconds:g} ({limits.source(name)})" for name, seconds in parts)
        return f"{phase.value}={limit:g}, {self._limits.source(phase.value)}"

    def _so_far(self) -> str:
        """Say what had arrived (counts of zero are left out: an SDK does not report bytes), and in which attempt."""
        r = self._recorder
        counts = [counted(n, noun) for n, noun in ((r.bytes, "byte"), (r.comments, "comment")) if n]
        if r.chunks or counts:
            counts.insert(0, counted(r.chunks, "chunk"))
        received = " and ".join(filter(None, (", ".join(counts[:-1]), *counts[-1:]))) or "nothing"
        last = f" of {r.attempts}" if r.attempts == self._max_attempts and r.attempts > 1 else ""
        attempt = f"attempt {r.attempts}{last}, " if r.attempts else ""
        return f"received {received} in {r.lifetime:.1f} s; {attempt}{self._identity()}"

    def _identity(self) -> str:
        r = self._recorder
        host = f"host {r.host}, " if r.host else ""
        name = f"stream {r.name!r}, " if r.name else ""
        return f"{host}{name}id {r.id}"

    def _hint(self, phase: Phase) -> str:
        if phase is not Phase.FIRST or self._recorder.last_byte_at is not None:
            return ""
        if self._recorder.headers_at is None:  # a pipe, say
            return " Not one byte arrived: the writer may be buffering its output."
        return " Nothing arrived after the headers: a proxy or compression may be buffering the stream."


def _why(fault: BaseException) -> str:
    """Return the operating system's or TLS library's own words for a fault; no others (they may hold a URL)."""
    words = getattr(fault, "verify_message", None) or getattr(fault, "strerror", None)
    if type(fault) is OSError and not words:
        words = str(fault)  # requests' for a certificate file that is not there, http.client's for a refused CONNECT
    return f" ({words})" if isinstance(words, str) and words else ""


def _ago(at: float | None, now: float) -> float | None:
    return None if at is None else now - at
