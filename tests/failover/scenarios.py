"""Faults of providers, as a table: what the gateway answers, and what each call to it has to come to.

Today a call has one route. What a failover between several will stand on is fixed here: a bounded time, an error whose
class and details say what to do, the attempts made, never a truncated answer as a success, and a route that can be used
again.
"""

from dataclasses import dataclass, field
from typing import Any

from streamguard import (
    DeadlineExceededError,
    EmptyStreamError,
    HTTPStatusError,
    IncompleteStreamError,
    InStreamError,
    MalformedChunkError,
    StreamInactivityTimeoutError,
    TransportError,
    TransportTimeoutError,
    before_first_chunk,
    has_content,
)

from ..stream.helpers import GOOD, NOW, STALL, choice, line, script

__all__ = ["ALIVE", "SCENARIOS", "Call", "Scenario"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One call, and what it comes to."""

    options: dict[str, Any] = field(default_factory=dict)
    error: type[Exception] | None = None
    """The exact class of the error; None: the answer is complete."""
    details: dict[str, Any] = field(default_factory=dict)
    """Attributes of the error."""
    again: bool = False
    """Whether `classify` calls the error retryable."""
    text: str = ""
    """All the text that was handed over."""
    attempts: int = 1
    """Requests that the gateway saw."""
    takes: float = 0.0
    """Seconds that it takes at least."""
    report: dict[str, Any] = field(default_factory=dict)
    """Fields of the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What the gateway answers, request by request, and the calls that are made, one after another."""

    answers: tuple[str, ...]
    calls: tuple[Call, ...]
    framing: str = "chunked"


ALIVE = Call(text="ab")
"""A call that gets the answer `GOOD`: the route can be used as before."""


def status(code: int, error: str, *headers: str) -> str:
    """Return the script of a refusal, with an error body of OpenAI's shape."""
    fields = "; ".join(headers)
    return f'headers {code} {fields}\nbody {{"error": {{"message": "refused here", "code": "{error}"}}}}'


def refused(code: int, error: str, *, again: bool, **details: Any) -> Call:
    """Return the call that such a refusal ends."""
    body = f'{{"error": {{"message": "refused here", "code": "{error}"}}}}'
    known = {"status_code": code, "body": body, "retry_after": None, "chunks": 0, **details}
    return Call(error=HTTPStatusError, details=known, again=again)


def after(*wanted: Any, status: tuple[int, ...] = ()) -> dict[str, Any]:
    """Return the option that tries once more after these faults, at once."""
    return {"retry": before_first_chunk(1, on=set(wanted), status=set(status), wait=NOW)}


def answer(model: str, text: str, **usage: int) -> str:
    """Return the script of an answer that names its model, and has its usage if given."""
    counted = [line(model=model, usage=usage)] if usage else []
    return script(line(choice(text), model=model), line(choice(finish="stop"), model=model), counted, "done")


LIMITED = status(429, "rate_limit_exceeded")
LIMITED_SHORT = status(429, "rate_limit_exceeded", "retry-after: 0.3")
LIMITED_LONG = status(429, "rate_limit_exceeded", "retry-after: 30")
BROKEN = status(500, "server_error")
AWAY = "headers 503 content-type: text/html\nraw <html>upstream connect error</html>"
TOO_LONG = status(400, "context_length_exceeded")
FILTERED = status(400, "content_filter")
NO_PREFILL = status(400, "invalid_request_error")
CUT = "chat a\nchat b\nraw data: {\\x22choices\\x22: [{\\x22del\nwait 0.1\nclose"
CUT_CLEANLY = "chat a\nchat b\nend"
CUT_IN_A_CALL = script(
    line(choice(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "rm", "arguments": '{"path": "/tmp'}}])), "end"
)
FILTERED_LATE = script(
    line(choice("a", tool_calls=[{"index": 0, "id": "c1", "function": {"name": "rm", "arguments": '{"path": "/"}'}}])),
    "finish content_filter",
    "done",
)
HALF_THEN_SILENT = script(line(choice(role="assistant"), model="primary"), line(usage={"total_tokens": 999}), "stall")
BOTH = {"phase": "idle", "chunks": 2, "code": "ETIMEDOUT"}

SCENARIOS: dict[str, Scenario] = {
    "429 without Retry-After": Scenario(
        answers=(LIMITED, LIMITED, GOOD),
        calls=(
            refused(429, "rate_limit_exceeded", again=True),
            Call(options=after(status=(429,)), text="ab", attempts=2),
        ),
    ),
    "429 with Retry-After": Scenario(
        answers=(LIMITED_LONG, LIMITED_SHORT, GOOD, LIMITED_LONG),
        calls=(
            refused(429, "rate_limit_exceeded", again=True, retry_after=30.0),
            Call(options=after(status=(429,)), text="ab", attempts=2, takes=0.3),
            Call(
                options={**after(status=(429,)), "total": 2},
                error=HTTPStatusError,
                details={"status_code": 429, "retry_after": 30.0},
                again=True,
            ),
        ),
    ),
    "500 once": Scenario(
        answers=(BROKEN, BROKEN, GOOD),
        calls=(
            refused(500, "server_error", again=True),
            Call(options=after(status=(500,)), text="ab", attempts=2),
        ),
    ),
    "503": Scenario(
        answers=(AWAY, AWAY, AWAY),
        calls=(
            Call(
                error=HTTPStatusError,
                details={"status_code": 503, "body": "<html>upstream connect error</html>", "attempt": 1},
                again=True,
            ),
            Call(
                options=after(status=(503,)),
                error=HTTPStatusError,
                details={"status_code": 503, "attempt": 2, "max_attempts": 2},
                again=True,
                attempts=2,
            ),
        ),
    ),
    "reset before headers": Scenario(
        answers=("reset", "reset", GOOD),
        calls=(
            Call(error=TransportError, details={"code": "ECONNRESET", "phase": "response", "chunks": 0}, again=True),
            Call(options=after("ECONNRESET"), text="ab", attempts=2),
        ),
    ),
    "no answer": Scenario(
        answers=("stall",) * 6,
        calls=(
            Call(
                options={"response": 0.2, "retry": before_first_chunk(2, wait=NOW)},
                error=TransportTimeoutError,
                details={"phase": "response", "limit": 0.2, "attempt": 3, "max_attempts": 3},
                again=True,
                attempts=3,
                takes=0.6,
            ),
            Call(
                options={"response": 0.2, "total": 0.5, "retry": before_first_chunk(9, wait=NOW)},
                error=DeadlineExceededError,
                details={"scope": "total", "limit": 0.5, "chunks": 0},
                attempts=3,
                takes=0.5,
            ),
        ),
    ),
    "slow first token": Scenario(
        answers=(STALL, "headers\nloop 3\ncomment working\nwait 0.1\nendloop\n" + GOOD),
        calls=(
            Call(
                options={"first": 0.2, "retry": None},
                error=StreamInactivityTimeoutError,
                details={"phase": "first", "limit": 0.2, "chunks": 0},
                again=True,
                takes=0.2,
            ),
            Call(options={"first": 10, "dead": 5}, text="ab", takes=0.3, report={"comments": 3}),
        ),
    ),
    "cut mid-answer": Scenario(
        answers=(CUT,),
        calls=(
            Call(
                options=after("ECONNRESET", "ETIMEDOUT"),
                error=TransportError,
                details={"code": "ECONNRESET", "chunks": 2},
                again=True,
                text="ab",
            ),
        ),
    ),
    "cut mid-answer, cleanly": Scenario(
        answers=(CUT_CLEANLY, CUT_IN_A_CALL),
        calls=(
            Call(error=IncompleteStreamError, details={"chunks": 2}, text="ab"),
            Call(error=IncompleteStreamError, details={"chunks": 1}),
        ),
        framing="close",
    ),
    "stall mid-answer": Scenario(
        answers=("chat a\nchat b\nstall",),
        calls=(
            Call(
                options={"idle": 0.2},
                error=StreamInactivityTimeoutError,
                details=BOTH,
                again=True,
                text="ab",
                takes=0.2,
            ),
        ),
    ),
    "stall mid-answer with heartbeats": Scenario(
        answers=("chat a\nchat b\nloop forever\ncomment ping\nwait 0.05\nendloop",),
        calls=(
            Call(
                options={"idle": 0.3, "dead": 0.25},
                error=StreamInactivityTimeoutError,
                details=BOTH,
                again=True,
                text="ab",
                takes=0.3,
            ),
        ),
    ),
    "malformed chunk": Scenario(
        answers=('chat a\nevent {"choices": [{"delta": \nchat b\nfinish\ndone', "chat a\nevent <html>\nstall"),
        calls=(Call(error=MalformedChunkError, details={"chunks": 1}, text="a"),) * 2,
    ),
    "error inside a 200": Scenario(
        answers=(
            'chat a\nevent {"error": {"message": "busy", "type": "overloaded_error"}}',
            'event {"error": {"message": "busy", "type": "overloaded_error"}}',
            GOOD,
        ),
        calls=(
            Call(
                options=after(InStreamError),
                error=InStreamError,
                details={"type": "overloaded_error", "chunks": 1, "status_code": 200},
                again=True,
                text="a",
            ),
            Call(options=after(InStreamError), text="ab", attempts=2),
        ),
    ),
    "no [DONE]": Scenario(
        answers=("chat a\nchat b\nfinish\nend", "chat a\nchat b\nfinish\nlinger", "chat a\nchat b\nend", "end"),
        calls=(
            Call(text="ab", report={"finish_reason": "stop"}),
            Call(options={"end_grace": 0.2}, text="ab", takes=0.2, report={"finish_reason": "stop"}),
            Call(error=IncompleteStreamError, details={"chunks": 2}, text="ab"),
            Call(error=EmptyStreamError, details={"chunks": 0}),
        ),
    ),
    "context length 400": Scenario(
        answers=(TOO_LONG,),
        calls=(refused(400, "context_length_exceeded", again=False, attempt=1),),
    ),
    "content filter 400": Scenario(
        answers=(FILTERED, FILTERED_LATE),
        calls=(
            refused(400, "content_filter", again=False, attempt=1),
            Call(text="a", report={"finish_reason": "content_filter"}),
        ),
    ),
    "prefill rejected": Scenario(
        answers=("chat a\nchat b\nstall", NO_PREFILL),
        calls=(
            Call(
                options={"idle": 0.2, "json": {"stream": True, "messages": [{"role": "user", "content": "?"}]}},
                error=StreamInactivityTimeoutError,
                details={**BOTH, "partial_text": "ab"},
                again=True,
                text="ab",
                takes=0.2,
            ),
            Call(
                options={"json": {"stream": True, "messages": [{"role": "assistant", "content": "ab"}]}},
                error=HTTPStatusError,
                details={"status_code": 400, "attempt": 1, "chunks": 0},
            ),
        ),
    ),
    "flapping primary": Scenario(
        answers=(BROKEN, GOOD, "reset", GOOD, STALL, GOOD, BROKEN, GOOD),
        calls=(
            refused(500, "server_error", again=True),
            ALIVE,
            Call(error=TransportError, details={"code": "ECONNRESET"}, again=True),
            ALIVE,
            Call(options={"first": 0.2}, text="ab", attempts=2, takes=0.2),
            Call(options=after(status=(500,)), text="ab", attempts=2),
        ),
    ),
    "model and usage after a second attempt": Scenario(
        answers=(HALF_THEN_SILENT, answer("secondary", "ab", total_tokens=7), answer("other", "ab")),
        calls=(
            Call(
                options={"first": 0.2, "counts": has_content},
                text="ab",
                attempts=2,
                takes=0.2,
                report={"usage": {"total_tokens": 7}, "finish_reason": "stop"},
            ),
            Call(text="ab", report={"usage": None}),
        ),
    ),
}
