"""Every kind of stream over HTTP that guard() takes, opened with its real library from a scripted gateway."""

import contextlib
import http.client
import socket
import ssl
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import httpx
import httpx2
import requests
import urllib3

from streamguard import GuardedStream
from streamguard._core.clock import monotonic
from streamguard.testing import Gateway

from ..helpers import reader_of
from . import wire

PATIENCE = 15.0
"""Seconds for what takes a hundredth of them: SDKs are slow on a busy machine."""


@dataclass(frozen=True, slots=True)
class Client:
    """How to open a stream of one kind, what the server says first, and what makes it complete."""

    open: Callable[[Gateway, contextlib.ExitStack], Any]
    start: str = "chat hello"
    end: str = "finish\ndone"


def _requests(gateway: Gateway, stack: contextlib.ExitStack) -> Any:
    session = stack.enter_context(requests.Session())
    verify = gateway.ca if gateway.url.startswith("https") else True
    return session.get(gateway.url, stream=True, verify=verify, timeout=0.1)


def _urllib3(gateway: Gateway, stack: contextlib.ExitStack) -> Any:
    pool = urllib3.PoolManager(ca_certs=gateway.ca if gateway.url.startswith("https") else None, timeout=0.1, retries=False)
    stack.callback(pool.clear)
    return pool.request("GET", gateway.url, preload_content=False)


def _http_client(gateway: Gateway, stack: contextlib.ExitStack) -> Any:
    context = wire.trust(gateway)
    address = urlsplit(gateway.url).netloc
    secure = isinstance(context, ssl.SSLContext)
    connection = (
        http.client.HTTPSConnection(address, context=context, timeout=0.1)
        if secure
        else http.client.HTTPConnection(address, timeout=0.1)
    )
    stack.callback(connection.close)
    connection.request("GET", "/")
    return connection.getresponse()


def _urlopen(gateway: Gateway, stack: contextlib.ExitStack) -> Any:
    context = wire.trust(gateway)
    handler = urllib.request.HTTPSHandler(context=context if isinstance(context, ssl.SSLContext) else None)
    return stack.enter_context(urllib.request.build_opener(handler).open(gateway.url, timeout=0.1))


def _httpx(library: Any) -> Callable[[Gateway, contextlib.ExitStack], Any]:
    def open_it(gateway: Gateway, stack: contextlib.ExitStack) -> Any:
        client = stack.enter_context(library.Client(verify=wire.trust(gateway), timeout=0.1))
        return client.send(client.build_request("GET", gateway.url), stream=True)

    return open_it


def _openai_chat(gateway: Gateway, stack: contextlib.ExitStack) -> Any:
    client = wire.openai_client(gateway, stack)
    return client.chat.completions.create(model="m", messages=wire.QUESTION, stream=True)


def _openai_chat_helper(gateway: Gateway, stack: contextlib.ExitStack) -> Any:
    client = wire.openai_client(gateway, stack)
    return stack.enter_context(client.chat.completions.stream(model="m", messages=wire.QUESTION))


def _openai_responses(gateway: Gateway, stack: contextlib.ExitStack) -> Any:
    return wire.openai_client(gateway, stack).responses.create(model="m", input="Say hello.", stream=True)


def _anthropic(gateway: Gateway, stack: contextlib.ExitStack) -> Any:
    client = wire.anthropic_client(gateway, stack)
    return client.messages.create(model="m", max_tokens=9, messages=wire.QUESTION, stream=True)


def _anthropic_helper(gateway: Gateway, stack: contextlib.ExitStack) -> Any:
    client = wire.anthropic_client(gateway, stack)
    return stack.enter_context(client.messages.stream(model="m", max_tokens=9, messages=wire.QUESTION))


def _bedrock(gateway: Gateway, stack: contextlib.ExitStack) -> Any:
    question = [{"role": "user", "content": [{"text": "Say hello."}]}]
    return wire.bedrock_client(gateway, stack).converse_stream(modelId="m", messages=question)["stream"]


def _socket(gateway: Gateway, stack: contextlib.ExitStack) -> Any:
    parts, context = urlsplit(gateway.url), wire.trust(gateway)
    sock: Any = stack.enter_context(socket.create_connection((parts.hostname, parts.port), timeout=0.1))
    if isinstance(context, ssl.SSLContext):
        sock = stack.enter_context(context.wrap_socket(sock, server_hostname=parts.hostname))
    sock.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    return sock


def _socket_file(gateway: Gateway, stack: contextlib.ExitStack) -> Any:
    return stack.enter_context(_socket(gateway, stack).makefile("rb"))


CLIENTS = {
    "requests": Client(_requests),
    "urllib3": Client(_urllib3),
    "http.client": Client(_http_client),
    "urlopen": Client(_urlopen),
    "httpx": Client(_httpx(httpx)),
    "httpx2": Client(_httpx(httpx2)),
    "openai-chat": Client(_openai_chat),
    "openai-chat-helper": Client(_openai_chat_helper),
    "openai-responses": Client(_openai_responses, wire.RESPONSES_START, wire.RESPONSES_END),
    "anthropic": Client(_anthropic, wire.ANTHROPIC_START, wire.ANTHROPIC_END),
    "anthropic-helper": Client(_anthropic_helper, wire.ANTHROPIC_START, wire.ANTHROPIC_END),
    "botocore": Client(_bedrock, wire.BEDROCK_START, wire.BEDROCK_END),
    "socket": Client(_socket, end="close"),
    "socket-file": Client(_socket_file, end="close"),
}
"""All of them have a timeout of their own of 0.1 s, where they have one: guard() must lift it."""
MODELS = [name for name in CLIENTS if name not in ("botocore", "socket", "socket-file")]
"""Those whose chunks make a message."""


def assert_blocked(stream: GuardedStream[Any], seconds: float = 0.05) -> None:
    """Prove that the reader is in a call that does not return: twice in the same instruction of the same frame."""
    end = monotonic() + PATIENCE
    while True:
        before = _where(stream)
        time.sleep(seconds)
        if before is not None and before == _where(stream):
            return
        assert monotonic() < end, f"the reader is not blocked: {before}, {_where(stream)}"


def _where(stream: GuardedStream[Any]) -> tuple[int, int] | None:
    reader = reader_of(stream)
    frame = None if reader is None else sys._current_frames().get(reader.ident or 0)
    return None if frame is None else (id(frame), frame.f_lasti)


def assert_released(stream: GuardedStream[Any], gateway: Gateway | None = None) -> None:
    """Require that the reader goes, and that the server has seen the client leave."""
    end = monotonic() + PATIENCE
    while reader_of(stream) is not None:
        assert monotonic() < end, "the reader is still there"
        time.sleep(0.002)
    if gateway is not None:
        assert gateway.wait_left(timeout=PATIENCE).during == "stall"


class Consumer(threading.Thread):
    """Iterate over a stream in a thread, and keep what came and what was raised."""

    def __init__(self, stream: GuardedStream[Any]) -> None:
        super().__init__(daemon=True)
        self.stream, self.items, self.error = stream, list[Any](), None
        self.start()

    def run(self) -> None:
        try:
            for item in self.stream:
                self.items.append(item)
        except BaseException as error:
            self.error = error

    def wait(self) -> Any:
        """Wait for the end and return the error, if there was one."""
        self.join(PATIENCE)
        assert not self.is_alive(), "the consumer hangs"
        return self.error
