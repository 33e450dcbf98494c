"""The wire formats of the model APIs, as lines for a gateway's script, and clients of their SDKs."""

import binascii
import contextlib
import json
import ssl
import struct
from typing import Any

import anthropic
import botocore.session
import httpx2
import openai

from streamguard.testing import Gateway

QUESTION: list[Any] = [{"role": "user", "content": "Say hello."}]


def event(**frame: Any) -> str:
    """Return the script line of an event that is named by its type."""
    return f"event {frame['type']} | {json.dumps(frame)}"


def anthropic_text(piece: str) -> str:
    """Return the line of a text delta of the Messages API."""
    return event(type="content_block_delta", index=0, delta={"type": "text_delta", "text": piece})


ANTHROPIC_START = "\n".join(
    [
        event(
            type="message_start",
            message={
                "id": "msg_1",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": {"input_tokens": 3, "output_tokens": 1},
            },
        ),
        event(type="content_block_start", index=0, content_block={"type": "text", "text": ""}),
        event(type="ping"),
        anthropic_text("hello"),
    ]
)
ANTHROPIC_END = "\n".join(
    [
        event(type="content_block_stop", index=0),
        event(type="message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 9}),
        event(type="message_stop"),
    ]
)


def response(status: str, **more: Any) -> dict[str, Any]:
    """Return a response object of the Responses API."""
    fixed = {"id": "resp_1", "object": "response", "created_at": 0, "model": "m", "output": [], "error": None}
    return {**fixed, "status": status, "tools": [], "parallel_tool_calls": True, "tool_choice": "auto", **more}


RESPONSES_START = "\n".join(
    [
        event(type="response.created", response=response("in_progress"), sequence_number=0),
        event(
            type="response.output_item.added",
            output_index=0,
            item={"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress", "content": []},
        ),
        event(
            type="response.content_part.added",
            item_id="msg_1",
            output_index=0,
            content_index=0,
            part={"type": "output_text", "text": "", "annotations": []},
        ),
        event(
            type="response.output_text.delta", item_id="msg_1", output_index=0, content_index=0, delta="hello", logprobs=[]
        ),
    ]
)
RESPONSES_END = event(
    type="response.completed",
    response=response("completed", usage={"input_tokens": 3, "output_tokens": 5, "total_tokens": 8}),
)
RESPONSES_FAILED = event(
    type="response.failed", response=response("failed", error={"code": "server_error", "message": "boom"})
)


def frame(payload: bytes, **headers: str) -> bytes:
    """Return one message of Amazon's binary event stream: prelude, headers, payload, each with its checksum."""
    block = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(block) + len(payload), len(block))
    message = prelude + struct.pack(">I", binascii.crc32(prelude)) + block + payload
    return message + struct.pack(">I", binascii.crc32(message))


def bedrock(kind: str, payload: dict[str, Any], message_type: str = "event") -> str:
    """Return the script line of one binary frame of Bedrock."""
    name = ":event-type" if message_type == "event" else ":exception-type"
    headers = {":message-type": message_type, name: kind, ":content-type": "application/json"}
    return "raw " + "".join(f"\\x{byte:02x}" for byte in frame(json.dumps(payload).encode(), **headers))


BEDROCK_START = "\n".join(
    [
        "headers content-type: application/vnd.amazon.eventstream; x-amzn-requestid: aws-1",
        bedrock("messageStart", {"role": "assistant"}),
        bedrock("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "hello"}}),
    ]
)
BEDROCK_END = bedrock("messageStop", {"stopReason": "end_turn"})


def trust(gateway: Gateway) -> ssl.SSLContext | bool:
    """Return what httpx takes as `verify=` to trust the gateway."""
    return ssl.create_default_context(cafile=gateway.ca) if gateway.url.startswith("https") else True


def http_client(gateway: Gateway, stack: contextlib.ExitStack) -> httpx2.Client:
    """Return an httpx2 client that trusts the gateway."""
    return stack.enter_context(httpx2.Client(verify=trust(gateway)))


def openai_client(gateway: Gateway, stack: contextlib.ExitStack, **options: Any) -> openai.OpenAI:
    """Return openai's client for the gateway, without retries of its own."""
    settings = {"api_key": "dummy", "max_retries": 0, "http_client": http_client(gateway, stack), **options}
    return stack.enter_context(openai.OpenAI(base_url=f"{gateway.url}/v1", **settings))


def anthropic_client(gateway: Gateway, stack: contextlib.ExitStack) -> anthropic.Anthropic:
    """Return anthropic's client for the gateway, without retries of its own."""
    client = anthropic.Anthropic(
        api_key="dummy", base_url=gateway.url, max_retries=0, http_client=http_client(gateway, stack)
    )
    return stack.enter_context(client)


def bedrock_client(gateway: Gateway, stack: contextlib.ExitStack) -> Any:
    """Return botocore's client for Bedrock, with dummy keys."""
    client = botocore.session.Session().create_client(
        "bedrock-runtime",
        region_name="us-east-1",
        endpoint_url=gateway.url,
        aws_access_key_id="dummy",
        aws_secret_access_key="dummy",
        verify=gateway.ca if gateway.url.startswith("https") else True,
    )
    stack.callback(client.close)
    return client
