"""Who reads a stream of events, at full speed: ours, what it is measured against, and its peers.

Each reader takes a URL, reads the stream to its end, parses each event's JSON, and returns how many chunks it saw. Peers
are imported where they are used, by name: those that are not installed are left out.
"""

import functools
import importlib.util
import json
import socket
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests
import sseclient

from streamguard import Adapter, guarded_stream
from streamguard._http import read_blocks
from streamguard._sse import AnthropicAssembler, AnthropicDecoder, ChatDecoder, EventClient, MessageAssembler

from .packages import imported

__all__ = ["READERS", "Reader", "plain_session"]

_PROMPT = [{"role": "user", "content": "x"}]


def counts(data: str) -> bool:
    """Parse an event's data, and say whether it is a chunk of an answer: what every reader of bare events does here."""
    chunk = json.loads(data)
    return bool(chunk.get("choices")) or chunk.get("type") == "content_block_delta"


def floor(url: str) -> int:
    """Raw socket, split on blank lines, json.loads: the least that is possible (it does not even unframe)."""
    parts = urlsplit(url)
    seen, rest = 0, b""
    with socket.create_connection((parts.hostname, parts.port)) as sock:
        sock.sendall(f"GET {parts.path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        while data := sock.recv(65536):
            *blocks, rest = (rest + data).split(b"\n\n")
            for block in blocks:
                begin = block.find(b"data: {")
                if begin >= 0:
                    chunk = json.loads(block[begin + 6 :])
                    seen += bool(chunk.get("choices")) or chunk.get("type") == "content_block_delta"
    return seen


def plain_session() -> requests.Session:
    """Return a session whose bodies can be read promptly, as our reader's."""
    session = requests.Session()
    session.mount("http://", Adapter())
    return session


def no_thread(url: str) -> int:
    """What our reader does, in the calling thread: read, frame, parse, assemble; no queue, no clock, no cut."""
    client, decoder, assembler = EventClient(()), ChatDecoder(), MessageAssembler()
    return _read_here(url, client, decoder, assembler)


def no_thread_named(url: str) -> int:
    """The same for the events of the Messages API."""
    return _read_here(url, EventClient(()), AnthropicDecoder(), AnthropicAssembler())


def _read_here(url: str, client: EventClient, decoder: Any, assembler: Any) -> int:
    seen, decode = 0, decoder.decode
    with plain_session() as session, session.get(url, stream=True) as response:
        for block in read_blocks(response):
            for event in client.feed(block):
                chunk = decode(event)
                if chunk is not None:
                    assembler.add(chunk)
                    seen += 1
    return seen


def guarded(url: str) -> int:
    """streamguard with its default limits."""
    seen = 0
    with guarded_stream("GET", url) as stream:
        for _ in stream:
            seen += 1
    return seen


def guarded_named(url: str) -> int:
    """The same for the events of the Messages API."""
    seen = 0
    with guarded_stream("GET", url, decode="anthropic") as stream:
        for _ in stream:
            seen += 1
    return seen


def unguarded(url: str) -> int:
    """requests and sseclient-py as their manuals show them."""
    seen = 0
    with requests.get(url, stream=True) as response:
        for event in sseclient.SSEClient(response).events():  # type: ignore[arg-type]
            if event.data != "[DONE]":
                seen += counts(event.data)
    return seen


@functools.cache
def _httpx_client() -> Any:
    return imported("httpx").Client()


def httpx_sse(url: str) -> int:
    """httpx-sse on httpx; the client, which takes its time to make, is kept."""
    seen = 0
    with imported("httpx_sse").connect_sse(_httpx_client(), "GET", url) as source:
        for event in source.iter_sse():
            if event.data != "[DONE]":
                seen += counts(event.data)
    return seen


def requests_sse(url: str) -> int:
    """requests-sse, left at the end marker: at the end of a body it would connect again, as the standard has it."""
    seen = 0
    with imported("requests_sse").EventSource(url) as source:
        for event in source:
            if event.data == "[DONE]" or event.type == "message_stop":
                break
            seen += counts(event.data)
    return seen


@functools.cache
def _openai_client() -> Any:
    return imported("openai").OpenAI(api_key="x", max_retries=0)


def openai_python(url: str) -> int:
    """openai-python, with its models; the client is kept."""
    client = _openai_client().with_options(base_url=url)
    stream = client.chat.completions.create(model="bench", messages=_PROMPT, stream=True)
    return sum(1 for chunk in stream)


@functools.cache
def _anthropic_client() -> Any:
    return imported("anthropic").Anthropic(api_key="x", max_retries=0)


def anthropic_python(url: str) -> int:
    """anthropic's own client, with its models; it is kept."""
    client = _anthropic_client().with_options(base_url=url)
    return sum(1 for event in client.messages.create(model="bench", max_tokens=1, messages=_PROMPT, stream=True))


def litellm_completion(url: str) -> int:
    """litellm, in front of an OpenAI-compatible API."""
    stream = imported("litellm").completion(
        model="openai/bench", api_base=url, api_key="x", messages=_PROMPT, stream=True, num_retries=0, max_retries=0
    )
    return sum(1 for chunk in stream)


@dataclass(frozen=True, slots=True)
class Reader:
    """A contender: how it reads chat chunks, and named events; None where it cannot."""

    chat: Callable[[str], int] | None
    named: Callable[[str], int] | None
    module: str | None = None
    """What has to be installed for it."""
    share: int = 1
    """It reads one of this many events, so that a run does not take an hour; the result is the cost of one."""

    @property
    def installed(self) -> bool:
        """Whether it can take part."""
        return self.module is None or importlib.util.find_spec(self.module) is not None

    def on(self, kind: str) -> Callable[[str], int] | None:
        """Return what reads a load of that *kind*."""
        return self.named if kind == "named" else self.chat


READERS: dict[str, Reader] = {
    "floor": Reader(floor, floor),
    "no thread": Reader(no_thread, no_thread_named),
    "guarded_stream": Reader(guarded, guarded_named),
    "requests + sseclient-py": Reader(unguarded, unguarded),
    "httpx-sse": Reader(httpx_sse, httpx_sse, "httpx_sse"),
    "requests-sse": Reader(requests_sse, requests_sse, "requests_sse"),
    "openai-python": Reader(openai_python, None, "openai", share=10),
    "anthropic": Reader(None, anthropic_python, "anthropic", share=10),
    "litellm": Reader(litellm_completion, None, "litellm", share=50),
}
