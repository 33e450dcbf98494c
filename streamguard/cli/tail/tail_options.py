"""The options of `tail`, and the call that they make."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any
from urllib.parse import parse_qsl, urlsplit

import requests

from ..._core import Timeouts
from ..._core.limits import LIMITS
from ..._stream import before_first_chunk

_SHORTEST_SECRET = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class TailOptions:
    """The arguments of `streamguard tail`, by the names of its options. Durations are seconds; infinity is off."""

    url: str = field(repr=False)
    request: str | None
    headers: dict[str, str | None] = field(repr=False)
    token: str | None = field(repr=False)
    data: bytes | None = field(repr=False)
    connect: float | None
    response: float | None
    first: float | None
    idle: float | None
    dead: float | None
    total: float | None
    retry: int
    decode: str
    strict: bool
    heartbeat: float | None
    reasoning: bool
    insecure: bool
    cacert: str | None
    report: IO[str] | None
    quiet: bool

    @property
    def method(self) -> str:
        """The given method; else POST with a body, else GET."""
        return self.request or ("GET" if self.data is None else "POST")

    def limits(self) -> Timeouts:
        """Return the limits. Raises UsageError if they contradict each other."""
        given = {name: getattr(self, name) for name in LIMITS}
        return Timeouts(**{name: value for name, value in given.items() if value is not None})

    def keywords(self, before_sleep: Any) -> dict[str, Any]:
        """Return the call's other keywords; *before_sleep* is called before each retry, as tenacity does."""
        headers = {name: _sendable(value) for name, value in self.headers.items() if name != "Authorization"}
        if self.data is not None and _is_json(self.data):
            headers.setdefault("Content-Type", "application/json")
        return {
            "headers": headers,
            "auth": _Authorization(self._authorization) if self._authorization else None,
            "data": self.data,
            "decode": self.decode,
            "strict": self.strict,
            "verify": False if self.insecure else self.cacert or True,
            "retry": before_first_chunk(self.retry).copy(before_sleep=before_sleep) if self.retry else None,
        }

    def secrets(self) -> "Secrets":
        """Return what no message may contain."""
        parts = [self.token, *self.headers.values(), *_secrets_of(self.url)]
        return Secrets(word for part in parts if part for word in (part, *part.split()))

    @property
    def _authorization(self) -> str | None:
        return f"Bearer {self.token}" if self.token else self.headers.get("Authorization")


class Secrets:
    """Hides words in the text of others: a server's error message may repeat the key that it refuses."""

    def __init__(self, words: Iterator[str]) -> None:
        longest_first = sorted({word for word in words if len(word) >= _SHORTEST_SECRET}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")

    def hidden(self, text: str) -> str:
        """Return *text* without them."""
        return self._pattern.sub("[hidden]", text)


@dataclass(frozen=True, slots=True)
class _Authorization(requests.auth.AuthBase):
    """Sets the header where requests sets it, so that no `.netrc` replaces it."""

    value: str = field(repr=False)

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = _sendable(self.value)  # type: ignore[assignment]
        return request


def _secrets_of(url: str) -> list[str | None]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return [*re.split(r"[/?#@:&=]", url)]
    return [parts.password, parts.query, *(value for _, value in parse_qsl(parts.query))]


def _sendable(value: str | None) -> str | bytes | None:
    return value if value is None or value.isascii() else value.encode("utf-8", "surrogateescape")


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except ValueError:
        return False
    return True
