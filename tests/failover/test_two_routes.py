"""What a caller's own failover needs of a single route: it can be written with the public names, and stays honest."""

from collections.abc import Sequence
from typing import Any

import pytest

from streamguard import (
    DeadlineExceededError,
    GuardedStream,
    HTTPStatusError,
    StreamguardError,
    StreamInactivityTimeoutError,
    classify,
    deadline,
    guarded_stream,
)

from ..helpers import Serve
from ..stream.helpers import GOOD, STALL, choice, line, script
from .scenarios import BROKEN, NO_PREFILL, TOO_LONG

ANSWER = script(line(choice("ab"), model="secondary"), "finish", line(usage={"total_tokens": 7}), "done")


def first_that_begins(urls: Sequence[str], **options: Any) -> GuardedStream[Any]:
    """Open a stream on the first of *urls* whose answer begins, unless asking elsewhere is of no use."""
    failure: StreamguardError | None = None
    for url in urls:
        try:
            return guarded_stream("POST", url, retry=None, **options).open(until="first")
        except StreamguardError as error:
            if classify(error).diagnosis == "fail-fast":
                raise
            failure = error
    assert failure is not None
    raise failure


@pytest.mark.parametrize("fault", ["headers 429", "headers 503", "reset", STALL, "stall", BROKEN])
def test_the_second_route_answers(streamguard_gateway: Serve, fault: str) -> None:
    """A route that fails before its first chunk costs its limit, no more; model, usage and report are the second's."""
    primary, secondary = streamguard_gateway(fault), streamguard_gateway(ANSWER)
    with first_that_begins([primary.url, secondary.url], first=0.2, response=0.2) as stream:
        chunks = list(stream)
    report = stream.report
    assert (stream.text, chunks[0]["model"]) == ("ab", "secondary")
    assert (report.usage, report.host, report.attempts) == ({"total_tokens": 7}, secondary.url[7:], 1)
    assert (len(primary.requests), len(secondary.requests)) == (1, 1)
    primary.wait_connections(1, still_open=0)


def test_a_refusal_of_the_request_itself_is_not_passed_on(streamguard_gateway: Serve) -> None:
    """A prompt that is too long is too long for each route: the second one is not asked."""
    primary, secondary = streamguard_gateway(TOO_LONG), streamguard_gateway(ANSWER)
    with pytest.raises(HTTPStatusError, match="refused here"):
        first_that_begins([primary.url, secondary.url])
    assert secondary.requests == []


def test_the_second_route_rejects_what_the_first_had_begun(streamguard_gateway: Serve) -> None:
    """The half answer stays with the first error, marked as such; the rejection is a 400 of its own, made once."""
    primary, secondary = streamguard_gateway("chat a\nchat b\nstall"), streamguard_gateway(NO_PREFILL)
    with pytest.raises(StreamInactivityTimeoutError) as cut:
        first_that_begins([primary.url, secondary.url], idle=0.2).read()
    prefill = [{"role": "assistant", "content": cut.value.partial_text}]
    stream = guarded_stream("POST", secondary.url, json={"stream": True, "messages": prefill})
    with pytest.raises(HTTPStatusError) as rejected:
        stream.read()
    assert (cut.value.partial_text, rejected.value.partial_text or "", stream.text) == ("ab", "", "")
    assert b'"content": "ab"' in secondary.requests[0].body
    assert len(secondary.requests) == 1


def test_all_routes_share_one_deadline(streamguard_gateway: Serve) -> None:
    """However many routes hang, the surrounding deadline ends the search, and no further route is asked."""
    gateways = [streamguard_gateway("stall") for _ in range(5)]
    with deadline(0.5), pytest.raises(DeadlineExceededError) as caught:
        first_that_begins([gateway.url for gateway in gateways], response=0.2)
    assert caught.value.scope == "ambient"
    assert [len(gateway.requests) for gateway in gateways] == [1, 1, 1, 0, 0]


def test_a_flapping_primary_is_tried_again_each_time(streamguard_gateway: Serve) -> None:
    """Nothing is remembered between calls: each call goes to the primary first, and to the secondary if it fails."""
    primary = streamguard_gateway(BROKEN, GOOD, BROKEN, GOOD)
    secondary = streamguard_gateway(ANSWER)
    hosts = []
    for _ in range(4):
        with first_that_begins([primary.url, secondary.url]) as stream:
            assert stream.read() == "ab"
        hosts.append(stream.report.host)
    assert hosts == [secondary.url[7:], primary.url[7:]] * 2
    assert (len(primary.requests), len(secondary.requests)) == (4, 2)
