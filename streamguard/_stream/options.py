"""What a caller may ask of a stream: the keywords of `guarded_stream()`, `guard()` and `Session.stream()`, checked once."""

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass
from typing import Any, Self, TypedDict

import tenacity

from .._core.ambient import Ambient
from .._core.cancel import CancelToken
from .._core.limits import LIMITS, NOT_GIVEN, Limit, NotGiven, Timeouts, seconds_of
from .._sse import Assembler
from ..errors import UsageError
from .upstream.decode import Decoder, decoder_of
from .upstream.retry import policy_of

_END_GRACE_SECONDS = 3.0

stream_defaults_off: Ambient[bool] = Ambient("streamguard_stream_defaults_off")
"""Set where something else bounds the silence, as in a dispatch: then only the limits and retries that are given apply."""


class LimitKeywords(TypedDict, total=False):
    """The limits of one call: the short forms."""

    connect: Limit
    response: Limit
    first: Limit
    idle: Limit
    dead: Limit
    total: Limit


class StreamKeywords(LimitKeywords, total=False):
    """The keywords that every way to open a stream takes."""

    timeouts: Timeouts | None
    counts: Callable[[Any], object] | None
    strict: bool
    end_grace: Limit
    heartbeat: Limit
    retry: Any
    cancel: CancelToken | None
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """What the caller asked for, checked."""

    limits: Timeouts
    retry: tenacity.Retrying | None
    make_decoder: Callable[[], Decoder]
    convert: Callable[[Any], Any] | None
    """What makes a chunk of what was decoded; its None is skipped."""
    assembler: Assembler | None
    """What puts the message together."""
    counts: Callable[[Any], object] | None
    strict: bool
    end_grace: float | None
    heartbeat: float | None
    cancel: CancelToken | None
    name: str | None

    @classmethod
    def of(
        cls,
        keywords: StreamKeywords,
        *,
        decode: Any,
        assembler: Assembler | None,
        default_retry: tenacity.Retrying | None,
        choices: int = 1,
    ) -> Self:
        """Check *keywords* and *decode*; raise TypeError or UsageError naming the one that is wrong.

        *choices*: how many choices of a chat the request asks for.
        """
        counts, cancel, name = keywords.get("counts"), keywords.get("cancel"), keywords.get("name")
        limits = _limits_of(keywords)
        retry = keywords.get("retry", NOT_GIVEN)
        default = None if stream_defaults_off.get() else default_retry
        policy = default if isinstance(retry, NotGiven) else policy_of(retry)
        _check_type("counts", counts, callable(counts), "a function of a chunk")
        _check_type("cancel", cancel, isinstance(cancel, CancelToken), "a CancelToken")
        _check_type("name", name, isinstance(name, str), "a str")
        return cls(
            limits=limits,
            retry=policy,
            make_decoder=decoder_of(decode, choices),
            convert=decode if callable(decode) else None,
            assembler=assembler,
            counts=counts,
            strict=bool(keywords.get("strict", True)),
            end_grace=seconds_of("end_grace", keywords.get("end_grace", _END_GRACE_SECONDS)),
            heartbeat=seconds_above_zero("heartbeat", keywords.get("heartbeat")),
            cancel=cancel,
            name=name,
        )


def refuse_unknown(function: str, keywords: Mapping[str, Any], known: Set[str]) -> None:
    """Raise UsageError or TypeError if one of *keywords* is not *known* to *function*."""
    if "timeout" in keywords:
        raise UsageError("timeout= is ambiguous here: idle= is silence, total= the whole call")
    if "stream" in keywords:
        raise UsageError(f"stream= is not needed: {function}() always streams (the payload says json={{'stream': True}})")
    unknown = keywords.keys() - known
    if unknown:
        raise TypeError(f"{function}() got an unexpected keyword argument {min(unknown)!r}")


def seconds_above_zero(name: str, value: Limit) -> float | None:
    """Return the seconds, or None if *value* means off."""
    seconds = seconds_of(name, value)
    return seconds if seconds is not None and seconds > 0 else None


def _limits_of(keywords: StreamKeywords) -> Timeouts:
    """Return the limits of one call: the short forms override those of `timeouts=`."""
    timeouts = keywords.get("timeouts")
    short: Any = {name: limit for name, limit in keywords.items() if name in LIMITS}
    if timeouts is None and stream_defaults_off.get():
        return Timeouts.off().replace(**{"first": short["idle"], **short} if "idle" in short else short)
    if timeouts is None:
        return Timeouts(**short)
    _check_type("timeouts", timeouts, isinstance(timeouts, Timeouts), "a Timeouts")
    return timeouts.replace(**short)


def _check_type(name: str, value: object, fits: bool, expected: str) -> None:
    if value is not None and not fits:
        raise TypeError(f"{name}= takes {expected}, not {type(value).__name__}")
