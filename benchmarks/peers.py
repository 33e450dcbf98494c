"""Peers, with the strictest settings that each offers: every timeout that can be given is given.

Each function takes a URL, the seconds for one wait (`limit`) and for the whole call (`total`, which only ours knows), makes
the client, and returns a call that reads the stream as the manual shows, and returns how many events it was handed.
"""

import importlib.util
import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import requests
import sseclient

from streamguard import guard, guarded_stream

from .packages import imported

__all__ = ["PEERS", "Peer"]

Call = Callable[[], int]
Start = Callable[[], Any]

_PROMPT = [{"role": "user", "content": "x"}]


def _limits(limit: float, total: float) -> dict[str, Any]:
    return {"connect": limit, "response": limit, "first": limit, "idle": limit, "total": total}


def _read(stream: Any) -> int:
    with stream:
        return sum(1 for _chunk in stream)


def guarded(url: str, limit: float, total: float) -> Call:
    """streamguard; one attempt."""
    return lambda: _read(guarded_stream("GET", url, retry=None, **_limits(limit, total)))


def guarded_retrying(url: str, limit: float, total: float) -> Call:
    """streamguard with the retries that it has by default."""
    return lambda: _read(guarded_stream("GET", url, **_limits(limit, total)))


def guarded_openai(url: str, limit: float, total: float) -> Call:
    """openai-python in streamguard's `guard()`."""
    start = _openai(url, limit, retries=0)
    return lambda: _read(guard(start, retry=None, **_limits(limit, total)))


def guarded_anthropic(url: str, limit: float, total: float) -> Call:
    """Anthropic's client in streamguard's `guard()`."""
    start = _anthropic(url, limit)
    return lambda: _read(guard(start, retry=None, **_limits(limit, total)))


def unguarded(url: str, limit: float, _total: float) -> Call:
    """requests and sseclient-py, with `timeout=(connect, read)`."""

    def call() -> int:
        with requests.get(url, stream=True, timeout=(limit, limit)) as response:
            response.raise_for_status()
            return _count(sseclient.SSEClient(response).events())  # type: ignore[arg-type]

    return call


def httpx_sse(url: str, limit: float, _total: float) -> Call:
    """httpx-sse with all four timeouts of httpx."""
    client, connect = imported("httpx").Client(timeout=limit), imported("httpx_sse").connect_sse

    def call() -> int:
        with connect(client, "GET", url) as source:
            source.response.raise_for_status()
            return _count(source.iter_sse())

    return call


def requests_sse(url: str, limit: float, _total: float) -> Call:
    """requests-sse with its timeout, without retries of the connect, and with a short wait before it reconnects."""
    source, wait = imported("requests_sse").EventSource, timedelta(seconds=0.1)

    def call() -> int:
        with source(url, timeout=limit, max_connect_retry=0, reconnection_time=wait) as events:
            return _count(events)

    return call


def _count(events: Any) -> int:
    """Read bare events as far as `[DONE]`, as who uses such a library has to."""
    seen = 0
    for event in events:
        if event.data == "[DONE]":
            break
        json.loads(event.data)
        seen += 1
    return seen


def _openai(url: str, limit: float, retries: int) -> Start:
    client = imported("openai").OpenAI(base_url=url, api_key="x", timeout=limit, max_retries=retries)
    return lambda: client.chat.completions.create(model="x", messages=_PROMPT, stream=True)


def openai_python(url: str, limit: float, _total: float) -> Call:
    """openai-python with `timeout=` and without retries."""
    start = _openai(url, limit, retries=0)
    return lambda: _read(start())


def openai_retrying(url: str, limit: float, _total: float) -> Call:
    """openai-python with the two retries that it has by default."""
    start = _openai(url, limit, retries=2)
    return lambda: _read(start())


def _anthropic(url: str, limit: float) -> Start:
    client = imported("anthropic").Anthropic(base_url=url, api_key="x", timeout=limit, max_retries=0)
    return lambda: client.messages.create(model="x", max_tokens=1, messages=_PROMPT, stream=True)


def anthropic_python(url: str, limit: float, _total: float) -> Call:
    """Anthropic's own client with `timeout=` and without retries."""
    start = _anthropic(url, limit)
    return lambda: _read(start())


def litellm_completion(url: str, limit: float, _total: float) -> Call:
    """litellm with `timeout=` and `stream_timeout=`, and without retries."""
    litellm = imported("litellm")
    api = {"model": "openai/x", "api_base": url, "api_key": "x"}
    once = {"timeout": limit, "stream_timeout": limit, "num_retries": 0, "max_retries": 0}
    return lambda: sum(1 for _chunk in litellm.completion(messages=_PROMPT, stream=True, **api, **once))


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is tried, and with what."""

    name: str
    prepare: Callable[[str, float, float], Call]
    settings: str
    module: str | None = None
    """What has to be installed for it."""
    dialect: str = "chat"

    @property
    def installed(self) -> bool:
        """Whether it can take part."""
        return self.module is None or importlib.util.find_spec(self.module) is not None


_OURS = "`connect= response= first= idle= total=`"

PEERS = (
    Peer("guarded_stream", guarded, f"{_OURS}, `retry=None`"),
    Peer("guarded_stream, retries", guarded_retrying, f"{_OURS}; its default of two retries, before the first chunk only"),
    Peer("guard(openai-python)", guarded_openai, f"{_OURS}, `retry=None`", "openai"),
    Peer("guard(anthropic)", guarded_anthropic, f"{_OURS}, `retry=None`", "anthropic", "anthropic"),
    Peer("requests + sseclient-py", unguarded, "`timeout=(connect, read)`"),
    Peer("httpx-sse", httpx_sse, "`timeout=`: connect, read, write and pool", "httpx_sse"),
    Peer("requests-sse", requests_sse, "`timeout=`, `max_connect_retry=0`, `reconnection_time=` 0.1 s", "requests_sse"),
    Peer("openai-python", openai_python, "`timeout=`, `max_retries=0`", "openai"),
    Peer("openai-python, retries", openai_retrying, "`timeout=`; its default of two retries", "openai"),
    Peer("anthropic", anthropic_python, "`timeout=`, `max_retries=0`", "anthropic", "anthropic"),
    Peer("litellm", litellm_completion, "`timeout= stream_timeout=`, `num_retries=0 max_retries=0`", "litellm"),
)
