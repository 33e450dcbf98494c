"""`classify()` reads the exceptions of other clients: by type, wherever they keep what they wrap."""

import anthropic
import botocore.exceptions
import grpc
import httpx
import httpx2
import openai
import pytest

from streamguard import classify

REQUEST = httpx2.Request("GET", "http://127.0.0.1/")


def response(status: int) -> httpx2.Response:
    return httpx2.Response(status, request=REQUEST)


class Unavailable(grpc.RpcError):
    """The exception of a failed gRPC call, as far as classify() reads it."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


def botocore_client_error(status: int) -> Exception:
    answer = {"Error": {"Code": "X"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return botocore.exceptions.ClientError(answer, "ConverseStream")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("exc", "code"),
    [
        (httpx.ReadTimeout("silent"), "ETIMEDOUT"),
        (httpx2.ConnectTimeout("silent"), "ETIMEDOUT"),
        (httpx.PoolTimeout("busy"), "ETIMEDOUT"),
        (httpx.RemoteProtocolError("cut short"), "EPROTO"),
        (httpx2.ReadError("gone"), "EIO"),
        (openai.APITimeoutError(request=REQUEST), None),
        (Unavailable(), "EIO"),
        (botocore.exceptions.EndpointConnectionError(endpoint_url="x", error=ConnectionRefusedError()), "ECONNREFUSED"),
        (botocore.exceptions.ReadTimeoutError(endpoint_url="x", error=TimeoutError()), "ETIMEDOUT"),
    ],
)
def test_faults_of_the_transport(exc: Exception, code: str | None) -> None:
    """They have the same codes as our errors; an SDK's wrapper has the code of what it wraps, and none without it."""
    found = classify(exc)
    assert found.transport_code == code
    assert (found.kind, found.diagnosis) == (("transport", "retryable") if code else ("unknown", "fail-fast"))


def test_an_sdks_wrapper_is_looked_through() -> None:
    """An SDK's wrapper is looked through when it is raised with its cause."""
    wrapper = openai.APITimeoutError(request=REQUEST)
    wrapper.__cause__ = httpx2.ReadTimeout("silent")
    assert classify(wrapper).transport_code == "ETIMEDOUT"


@pytest.mark.parametrize(("status", "diagnosis"), [(401, "fail-fast"), (429, "retryable"), (503, "retryable")])
def test_statuses(status: int, diagnosis: str) -> None:
    """The exceptions of openai, anthropic and botocore for a response are judged by its status."""
    errors = (
        openai.APIStatusError("x", response=response(status), body=None),
        anthropic.APIStatusError("x", response=response(status), body=None),
        botocore_client_error(status),
    )
    assert {(classify(error).kind, classify(error).diagnosis) for error in errors} == {("http", diagnosis)}


@pytest.mark.parametrize("exc", [httpx.UnsupportedProtocol("ftp"), httpx.LocalProtocolError("bad header")])
def test_the_callers_own_faults_are_none_of_the_transport(exc: Exception) -> None:
    """They have no transport code: another attempt would repeat them."""
    assert classify(exc).kind == "unknown"
