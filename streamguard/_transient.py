"""Which errors that a server reports by name or number may pass: one table, for streams and SDKs. Pure."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

_BUSY: Final = frozenset({429, 503, 529})
_LIMITED: Final = frozenset({429})
_BROKEN: Final = frozenset({500, 502, 503, 504})
_SLOW: Final = frozenset({408, 504})

_WORDS: Final[dict[frozenset[int], str]] = {
    _BUSY: "overloaded serverisoverloaded serveroverloaded engineoverloaded modeloverloaded busy serverbusy systembusy"
    " servicetiercapacityexceeded capacityexceeded atcapacity nocapacity queueexceeded queuefull queuetimeout slowdown"
    " modelnotready",
    _LIMITED: "ratelimit ratelimitexceeded ratelimitreached ratelimited throttling throttled requestlimitexceeded"
    " toomanyrequests resourceexhausted limitrequests limitburstrate requestthrottled concurrencylimitexceeded",
    _BROKEN: "api server internal internalserver internalfailure internalservice serviceunavailable unavailable"
    " temporarilyunavailable modelunavailable badgateway modelstream upstreamunavailable",
    _SLOW | _BROKEN: "timeout requesttimeout gatewaytimeout modeltimeout deadlineexceeded upstreamtimeout",
}
_STATUSES: Final = {word: statuses for statuses, words in _WORDS.items() for word in words.split()}
"""Names without case, punctuation and a final "error" or "exception", and the HTTP statuses that say the same."""

_HOPELESS: Final = (
    *("insufficientquota", "insufficientbalance", "insufficientcredit", "insufficientfunds", "quotaexhausted", "arrearage"),
    *("billing", "paymentrequired", "creditbalance", "usagelimit", "usagenotincluded", "exceededcurrentquota"),
)
"""How names begin that time does not heal, whatever number stands next to them."""

_FAMILIES: Final = ("throttling",)
"""Names that are transient with any suffix, such as `Throttling.RateQuota`."""


def statuses_of(names: Iterator[object] | tuple[object, ...]) -> frozenset[int]:
    """Return the HTTP statuses that say the same as these types and codes of one error; none if it is not transient."""
    found: set[int] = set()
    for name in names:
        if isinstance(name, bool):
            continue
        text = str(name) if isinstance(name, int | str) else ""
        if text.isascii() and text.isdigit() and len(text) == 3:
            number = int(text)
            found |= {number} if number in (408, 425, 429) or 500 <= number <= 599 else set()
            continue
        stem = _stem(text)
        if stem.startswith(_HOPELESS):
            return frozenset()
        found |= _STATUSES.get(stem, frozenset()) or (_LIMITED if stem.startswith(_FAMILIES) else frozenset())
    return frozenset(found)


def is_hopeless(names: Iterator[object] | tuple[object, ...]) -> bool:
    """Return whether one of the names says that time does not heal the error."""
    return any(isinstance(name, str) and _stem(name).startswith(_HOPELESS) for name in names)


def names_of(exc: BaseException) -> tuple[object, ...]:
    """Return the types and codes in an exception of an SDK: its attributes, its body, or botocore's response."""
    try:
        return tuple(_names(exc))
    except Exception:  # raised by a property of a foreign class
        return ()


def names_in(body: object) -> tuple[object, ...]:
    """Return the types and codes in an error body: JSON text, or the object that it stands for."""
    return tuple(name for error in errors_in(body) for name in _own_names(error))


def errors_in(body: object) -> Iterator[dict[str, Any]]:
    """Yield the error objects in a body, outermost first."""
    if isinstance(body, str | bytes):
        try:
            body = json.loads(body)
        except (ValueError, RecursionError):
            return
    if isinstance(body, list):
        body = body[0] if body else None
    if isinstance(body, dict):
        yield body
        if isinstance(body.get("error"), dict):
            yield body["error"]


def _names(exc: BaseException) -> Iterator[object]:
    for attribute in ("type", "code", "status"):
        value = getattr(exc, attribute, None)
        if isinstance(value, str | int):
            yield value
    yield from names_in(getattr(exc, "body", None))
    yield from names_in(getattr(exc, "details", None))
    response = getattr(exc, "response", None)
    error = response.get("Error") if isinstance(response, dict) else None
    if isinstance(error, dict):
        yield error.get("Code")


def _own_names(error: dict[str, Any]) -> Iterator[object]:
    return (error[key] for key in ("type", "error_type", "code", "status") if isinstance(error.get(key), str | int))


def _stem(name: str) -> str:
    stem = re.sub(r"[^a-z0-9]", "", name.lower())
    return re.sub(r"(error|exception)$", "", stem) or stem
