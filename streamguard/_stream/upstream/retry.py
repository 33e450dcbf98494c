"""When a stream may be tried again. The policies are tenacity's; the pause is taken where it can be cancelled.

A policy only ever decides about failures *before the first chunk* was handed over. After a chunk, a second attempt would
repeat text that the reader has already seen, as it did in openai/openai-python and HKUDS/nanobot#4038.
"""

import errno
from collections.abc import Collection, Mapping
from typing import Any

import tenacity

from ..._core.limits import whole_number
from ..._http import asked_pause
from ..._transient import names_of, statuses_of
from ...classify import http_status, transport_code
from ...errors import (
    DeadlineExceededError,
    HTTPStatusError,
    InStreamError,
    StreamCancelledError,
    StreamguardError,
    TransportError,
    UsageError,
)

On = Collection[str | type[BaseException]]

_CODES = frozenset({*(name for name in dir(errno) if name.isupper()), "ECERT"})


def before_first_chunk(
    max_retries: int = 2,
    *,
    on: On = frozenset({"ETIMEDOUT"}),
    status: Collection[int] = (),
    wait: Any = None,
) -> tenacity.Retrying:
    """Return the policy that retries transport timeouts before the first chunk, and nothing else.

    max_retries: attempts after the first. Default 2; 0: none.
    on:     transport codes (`"ETIMEDOUT"`, `"ECONNRESET"`, …) and exception types that get another attempt.
    status: HTTP statuses that do, too, and errors inside a stream that say the same by name or code (docs/retry.md); the
            pause that the server asks for is then obeyed, if the deadline allows it.
    wait:   a tenacity wait. Default: exponential, from 0.2 s, up to 10 s, with up to 0.2 s of jitter.

    Limits
        A POST that timed out may have been carried out: a repeated one may be billed twice. All attempts carry the same
        `Idempotency-Key`, which helps only if the server honours it.
    """
    whole_number("max_retries", max_retries, 0)
    if wait is not None and not callable(wait):
        raise TypeError(f"wait= takes a tenacity wait, such as wait_fixed(1), not {type(wait).__name__}")
    codes, kinds, statuses = _wanted(on), tuple(k for k in on if isinstance(k, type)), _numbers(status)

    def worth_it(exc: BaseException) -> bool:
        if isinstance(exc, kinds) or isinstance(exc.__cause__, kinds):
            return True
        if isinstance(exc, InStreamError):
            return not statuses.isdisjoint(statuses_of((exc.type, exc.code)))
        if isinstance(exc, HTTPStatusError):
            return exc.status_code in statuses
        if not isinstance(exc, StreamguardError):  # an SDK's own
            return http_status(exc) in statuses or not statuses.isdisjoint(statuses_of(names_of(exc)))
        return isinstance(exc, TransportError) and transport_code(exc) in codes

    return tenacity.Retrying(
        retry=tenacity.retry_if_exception(worth_it),
        stop=tenacity.stop_after_attempt(max_retries + 1),
        wait=wait or tenacity.wait_exponential(multiplier=0.2, max=10) + tenacity.wait_random(0, 0.2),
        reraise=True,
    )


def policy_of(retry: object) -> tenacity.Retrying | None:
    """Return the policy for a caller's `retry=`: None, a number of retries, or a tenacity `Retrying`."""
    if retry is None:
        return None
    if isinstance(retry, tenacity.Retrying):
        return retry if getattr(retry, "enabled", True) else None
    if isinstance(retry, int) and not isinstance(retry, bool):
        return before_first_chunk(retry) if retry else None
    raise TypeError(f"retry= takes None, a number of retries, or a tenacity.Retrying, not {type(retry).__name__}")


class RetryState:
    """Consult a tenacity policy about one call's failures, one after another."""

    def __init__(self, policy: tenacity.Retrying | None) -> None:
        self._policy = policy
        self._state: tenacity.RetryCallState | None = None

    @property
    def max_attempts(self) -> int | None:
        """How many attempts the policy allows, if it says so by number."""
        if self._policy is None:
            return 1
        number = getattr(self._policy.stop, "max_attempt_number", None)
        return number if isinstance(number, int) else None

    def starting(self) -> None:
        """Call the policy's `before` callback for an attempt that starts; the first one starts the policy's clock."""
        if self._policy is None:
            return
        if self._state is None:
            self._state = tenacity.RetryCallState(self._policy, None, (), {})
        if self._policy.before is not None:
            self._policy.before(self._state)

    def pause_after(self, exc: BaseException) -> float | None:
        """Return the seconds to sleep before another attempt, or None if there is none.

        Under any policy, there is none after a cancel, a spent deadline, or what is not an `Exception`.
        """
        if self._policy is None or self._state is None or not isinstance(exc, Exception):
            return None
        if isinstance(exc, StreamCancelledError | DeadlineExceededError):
            return None
        state, policy = self._state, self._policy
        state.set_exception((type(exc), exc, exc.__traceback__))
        if not policy.retry(state):
            return None
        if policy.after is not None:
            policy.after(state)
        pause = self._pause(policy, state, exc)
        state.upcoming_sleep = pause
        return None if policy.stop(state) else pause

    def sleeping(self, pause: float) -> None:
        """Call the policy's `before_sleep` callback, and count the attempt that failed."""
        state, policy = self._state, self._policy
        if state is None or policy is None:
            return
        state.next_action = tenacity.RetryAction(pause)
        if policy.before_sleep is not None:
            policy.before_sleep(state)
        state.idle_for += pause
        state.prepare_for_next_attempt()

    @staticmethod
    def _pause(policy: tenacity.Retrying, state: tenacity.RetryCallState, exc: Exception) -> float:
        pause = float(policy.wait(state)) if policy.wait is not None else 0.0
        return max(pause, requested_pause(exc) or 0.0)


def requested_pause(exc: BaseException) -> float | None:
    """Return the seconds that the server asks to wait, as our errors hold them, or as an SDK's response does."""
    try:
        seconds = getattr(exc, "retry_after", None)
        if seconds is None:
            body = getattr(exc, "body", None) or getattr(exc, "details", None)
            seconds = asked_pause(_headers_of(getattr(exc, "response", None)), body)
    except Exception:  # raised by a property of a foreign class
        return None
    return seconds if isinstance(seconds, int | float) else None


def _headers_of(response: Any) -> Mapping[str, str]:
    if isinstance(response, dict):  # botocore's
        response = response.get("ResponseMetadata")
        headers = response.get("HTTPHeaders") if isinstance(response, dict) else None
    else:
        headers = getattr(response, "headers", None)
    return headers if isinstance(headers, Mapping) else {}


def _numbers(status: Collection[int]) -> frozenset[int]:
    if not isinstance(status, Collection) or not all(isinstance(item, int) for item in status):
        raise TypeError(f"status= takes a collection of HTTP statuses, such as {{429, 503}}, not {status!r}")
    return frozenset(status)


def _wanted(on: On) -> frozenset[str]:
    if isinstance(on, str) or not all(isinstance(item, str | type) for item in on):
        raise TypeError(
            f'on= takes a collection of codes and exception types, such as {{"ETIMEDOUT", "ECONNRESET"}}, not {on!r}'
        )
    codes = frozenset(item for item in on if isinstance(item, str))
    unknown = sorted(code for code in codes if code not in _CODES and not code.startswith("EAI_"))
    if unknown:
        raise UsageError(f"on= has unknown transport codes: {', '.join(unknown)}; known are errno's names, ECERT and EAI_*")
    return codes
