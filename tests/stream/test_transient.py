"""Errors that a server reports inside a stream: which of them may pass, through SDKs too, and how long to wait."""

import contextlib
import json
import time
from email.utils import formatdate
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from botocore.exceptions import ClientError, EventStreamError

from streamguard import HTTPStatusError, InStreamError, before_first_chunk, classify, guard

from ..helpers import Serve
from .helpers import ask, consume
from .sources import wire
from .sources.clients import CLIENTS

PASSING = [
    *(
        "server_is_overloaded",
        "service_unavailable_error",
        "internal_server_error",
        "engine_overloaded_error",
        "overloaded",
    ),
    *("Throttling.RateQuota", "Throttling", "queue_exceeded", "ServiceUnavailable", "TooManyRequests", "UNAVAILABLE"),
    *("service_tier_capacity_exceeded", "RESOURCE_EXHAUSTED", "throttlingException", "serviceUnavailableException"),
    *("internalServerException", "overloaded_error", "rate_limit_error", "api_error", "server_error", "timeout_error"),
    *(429, "429", 500, 502, "503", 504, 529, "599"),
]
LASTING = [
    *("insufficient_quota", "invalid_request_error", "authentication_error", "not_found_error", "validationException"),
    *("billing_error", "Arrearage", "context_length_exceeded", "content_filter", 400, "401", 404, 1305, "4290", "", "x"),
]


@pytest.mark.parametrize("key", ["type", "code"])
@pytest.mark.parametrize(("names", "diagnosis"), [(PASSING, "retryable"), (LASTING, "fail-fast")])
def test_what_may_pass(streamguard_gateway: Serve, key: str, names: list[str | int], diagnosis: str) -> None:
    """C211: by type or code, whatever its spelling, as a number or as text."""
    frames = ["event " + json.dumps({"error": {"message": "no", key: name}}) for name in names]
    gateway = streamguard_gateway(*frames)
    for name in names:
        if key == "type" and isinstance(name, int):
            name = str(name)
        run = ask(gateway)
        assert isinstance(run.error, InStreamError), name
        assert classify(InStreamError("no", **{key: name})).diagnosis == diagnosis, name


@pytest.mark.parametrize("code", [429, "429"])
def test_a_spent_quota_does_not_pass(streamguard_gateway: Serve, code: object) -> None:
    """C211: `insufficient_quota` fails fast though its code is 429, in a stream and as a status."""
    body = json.dumps({"error": {"message": "pay", "type": "insufficient_quota", "code": code}})
    for line in (f"event {body}", f"headers 429 content-type: application/json\nbody {body}"):
        error = ask(streamguard_gateway(line)).error
        assert isinstance(error, InStreamError | HTTPStatusError)
        assert classify(error).diagnosis == "fail-fast"


def refused(body: object, status: int = 200) -> tuple[str, httpx2.Response, object]:
    return "no", httpx2.Response(status, request=httpx2.Request("POST", "http://x")), body


def test_the_exceptions_of_sdks() -> None:
    """C212: what they say in attributes, in a body, or in botocore's response; a spent quota again is none."""
    _, response, _ = refused(None)
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    spent = {"message": "pay", "type": "insufficient_quota", "code": "insufficient_quota"}
    _, limited, _ = refused(None, 429)
    request = response.request
    passing: list[Exception] = [
        anthropic.APIStatusError("no", response=response, body=overloaded),
        openai.APIError("no", request=request, body={"type": "server_error", "code": None, "message": "no"}),
        EventStreamError({"Error": {"Code": "throttlingException", "Message": "no"}}, "ConverseStream"),
        ClientError({"Error": {"Code": "ThrottlingException"}, "ResponseMetadata": {"HTTPStatusCode": 400}}, "Converse"),
    ]
    lasting: list[Exception] = [
        openai.APIError("no", request=request, body=spent),
        openai.RateLimitError("no", response=limited, body=spent),
        EventStreamError({"Error": {"Code": "validationException", "Message": "no"}}, "ConverseStream"),
        ClientError({"Error": {"Code": "ValidationException"}, "ResponseMetadata": {"HTTPStatusCode": 400}}, "Converse"),
    ]
    assert [classify(error).diagnosis for error in passing] == ["retryable"] * 4
    assert [classify(error).diagnosis for error in lasting] == ["fail-fast"] * 4


OVERLOADED = 'event error | {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
THROTTLED = "headers content-type: application/vnd.amazon.eventstream\n" + wire.bedrock(
    "throttlingException", {"message": "slow down"}, "exception"
)


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("anthropic", OVERLOADED),
        ("openai-chat", 'event {"error":{"type":"server_error","message":"no","code":null}}'),
        ("botocore", THROTTLED),
    ],
)
def test_the_exceptions_of_sdks_are_retried(streamguard_gateway: Serve, name: str, fault: str) -> None:
    """C212: before the first chunk, if `status=` has a status that says the same."""
    client = CLIENTS[name]
    gateway = streamguard_gateway(fault, f"{client.start}\n{client.end}")
    policy = before_first_chunk(status={429, 503, 529}, wait=lambda _: 0)
    with contextlib.ExitStack() as stack:
        run = consume(guard(lambda: client.open(gateway, stack), retry=policy))
    assert (run.error, run.stream.report.attempts) == (None, 2)


def test_our_own_errors_are_retried_alike(streamguard_gateway: Serve) -> None:
    """C212: an error inside our own stream too, and only if it may pass."""
    policy = before_first_chunk(1, status={429, 503, 529}, wait=lambda _: 0)
    fault = 'event {"error":{"type":"%s","message":"no"}}'
    assert ask(streamguard_gateway(fault % "overloaded", "chat a\ndone"), retry=policy).error is None
    run = ask(streamguard_gateway(fault % "insufficient_quota", "chat a\ndone"), retry=policy)
    assert (type(run.error), run.stream.report.attempts) == (InStreamError, 1)


RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"}


@pytest.mark.parametrize(
    ("headers", "body", "seconds"),
    [
        ("retry-after-ms: 1500; retry-after: 5", "", 1.5),
        ("retry-after: 5; retry-after-ms: x", "", 5),
        ("retry-after: 2; retry-after: 4", "", 4),
        ("retry-after: 3; retry-after: 3", "", 3),
        ("retry-after: 2s", "", 2),
        ("", {"error": {"code": 429, "details": [{"@type": "x"}, RETRY_INFO]}}, 2.5),
        ("", [{"error": {"code": 429, "details": [RETRY_INFO]}}], 2.5),
        ("", {"error": {"details": [{**RETRY_INFO, "retryDelay": {"seconds": "2", "nanos": 500000000}}]}}, 2.5),
        ("retry-after: 1", {"error": {"details": [RETRY_INFO]}}, 1),
        ("", {"error": {"details": ["x", {"@type": None}, {**RETRY_INFO, "retryDelay": "soon"}]}}, None),
        ("retry-after: soon", "", None),
        ("retry-after: nan", "", None),
    ],
)
def test_how_long_to_wait(streamguard_gateway: Serve, headers: str, body: Any, seconds: float | None) -> None:
    """C213: `retry-after-ms` before `Retry-After`, the longest of a doubled header, and Google's RetryInfo."""
    line = f"headers 429 {headers}" + (f"\nbody {json.dumps(body)}" if body else "")
    error = ask(streamguard_gateway(line)).error
    assert isinstance(error, HTTPStatusError)
    assert error.retry_after == seconds


def test_a_doubled_date(streamguard_gateway: Serve) -> None:
    """C213: a date has a comma of its own."""
    date = formatdate(time.time() + 100, usegmt=True)
    error = ask(streamguard_gateway(f"headers 429 retry-after: {date}; retry-after: {date}")).error
    assert 80 < error.retry_after <= 101


def test_the_pause_is_what_was_asked(streamguard_gateway: Serve) -> None:
    """C213: by an error inside a stream, too."""
    body = {"error": {"code": 503, "message": "no", "details": [{**RETRY_INFO, "retryDelay": "0.4s"}]}}
    gateway = streamguard_gateway(f"event {json.dumps(body)}", "chat a\ndone")
    run = ask(gateway, retry=before_first_chunk(1, status={503}, wait=lambda _: 0))
    assert (run.error, run.stream.report.attempts) == (None, 2)
    assert run.elapsed >= 0.4
