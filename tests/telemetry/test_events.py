"""The events of a stream: which, in which order, and that an event is plain and bounded."""

import contextlib
import dataclasses
import typing
from collections.abc import Callable
from typing import Any

import pytest
import requests
import tenacity
from hypothesis import given
from hypothesis import strategies as st

from streamguard import (
    CancelToken,
    DeadlineExceededError,
    StreamCancelledError,
    StreamguardError,
    before_first_chunk,
    bounded_call,
    guarded_stream,
    has_content,
)
from streamguard._stream.timing.gaps import GapCounts
from streamguard.telemetry import (
    GAP_BOUNDS,
    AttemptFinished,
    AttemptStarted,
    Event,
    StreamFinished,
    StreamRetry,
    StreamStalled,
    StreamStarted,
    ThreadAbandoned,
    Upstream,
)
from streamguard.testing import Gateway

Serve = Callable[..., Gateway]

KINDS: list[Any] = [kind for kind in typing.get_args(Event) if isinstance(kind, type)]
GOOD = "chat a\nchat b\nfinish\ndone"
NOW = tenacity.wait_none()


def consume(gateway: Gateway, **options: Any) -> Any:
    """Read a stream to its end, with or without an error; return it."""
    options.setdefault("retry", None)
    stream = guarded_stream("POST", gateway.url, **options)
    with contextlib.suppress(StreamguardError):
        stream.read()
    return stream


def names(emitted: list[Event]) -> list[str]:
    return [type(event).__name__ for event in emitted]


def only(emitted: list[Event], kind: type) -> list[Any]:
    return [event for event in emitted if isinstance(event, kind)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_is_frozen_slotted_and_documented(kind: Any) -> None:
    """Each kind is immutable plain data with a docstring of one sentence."""
    assert dataclasses.is_dataclass(kind)
    assert kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    assert "__slots__" in vars(kind)
    assert kind.__doc__.split("\n\n")[0].rstrip().endswith(".")


def test_a_good_stream(streamguard_gateway: Serve, emitted: list[Event]) -> None:
    """Four events: start and end of the stream, and of its one attempt."""
    stream = consume(streamguard_gateway(GOOD), name="mine")
    assert names(emitted) == ["StreamStarted", "AttemptStarted", "AttemptFinished", "StreamFinished"]
    finished = only(emitted, StreamFinished)[0]
    assert finished.report is stream.report
    assert {event.id for event in emitted[:3]} == {stream.report.id}  # type: ignore[union-attr]
    assert {event.name for event in emitted[:3]} == {"mine"}  # type: ignore[union-attr]
    assert only(emitted, AttemptFinished)[0].error_type is None


def test_nothing_is_emitted_before_the_start(streamguard_gateway: Serve, emitted: list[Event]) -> None:
    """Making a stream emits nothing; its first `next()` does."""
    stream = guarded_stream("POST", streamguard_gateway(GOOD).url)
    assert emitted == []
    with stream:
        assert names(emitted) == ["StreamStarted", "AttemptStarted"]


def test_the_end_is_emitted_once(streamguard_gateway: Serve, emitted: list[Event]) -> None:
    """A cancel that `report`, then `next()`, then `close()` notice is one end."""
    stream = guarded_stream("POST", streamguard_gateway("chat a\nstall").url)
    next(stream)
    stream.cancel()
    assert stream.report.outcome == "cancelled"
    with pytest.raises(StreamCancelledError):
        next(stream)
    stream.close()
    (finished,) = only(emitted, StreamFinished)
    assert finished.report.outcome == "cancelled"


@pytest.mark.parametrize(
    ("script", "options", "phase"),
    [
        ("stall", {"response": 0.1}, "response"),
        ("headers\nstall", {"first": 0.1}, "first"),
        ("chat a\nstall", {"idle": 0.1}, "idle"),
        ("chat a\nstall", {"dead": 0.1, "idle": 9, "first": 9}, "dead"),
    ],
)
def test_a_stall_has_its_phase(
    streamguard_gateway: Serve, emitted: list[Event], script: str, options: dict[str, float], phase: str
) -> None:
    """The limit that fired: its phase, its seconds and the silence; before it the warning at half, except for `dead`."""
    consume(streamguard_gateway(script), **options)
    *halves, stall = only(emitted, StreamStalled)
    assert (stall.phase, stall.fired, stall.limit) == (phase, True, 0.1)
    assert stall.silence >= 0.1
    assert [(half.phase, half.fired, half.limit) for half in halves] == [(phase, False, 0.1)] * (phase != "dead")
    assert all(half.silence >= 0.05 for half in halves)


def test_a_timeout_of_requests_own_is_a_stall(streamguard_gateway: Serve, emitted: list[Event]) -> None:
    """On a session without our adapter requests' own timeout fires: the event is the same."""
    with requests.Session() as session:
        consume(streamguard_gateway("stall"), session=session, response=0.1)
    stall = only(emitted, StreamStalled)[-1]
    assert (stall.phase, stall.fired) == ("response", True)


def test_a_spent_deadline_is_not_a_stall(streamguard_gateway: Serve, emitted: list[Event]) -> None:
    """`total` is not a limit on silence: only limits of phases are."""
    stream = consume(streamguard_gateway("loop forever\ntick\nwait 0.02\nendloop"), total=0.15)
    assert stream.report.outcome == "timeout"
    assert only(emitted, StreamStalled) == []


def test_a_retry_is_emitted_between_its_attempts(streamguard_gateway: Serve, emitted: list[Event]) -> None:
    """The failed attempt, the reason of the retry, and the next attempt: numbered from 1."""
    retry = before_first_chunk(1, on={"ECONNRESET"}, wait=NOW)
    consume(streamguard_gateway("reset", GOOD), retry=retry)
    assert names(emitted) == [
        *("StreamStarted", "AttemptStarted", "AttemptFinished", "StreamRetry"),
        *("AttemptStarted", "AttemptFinished", "StreamFinished"),
    ]
    again = only(emitted, StreamRetry)[0]
    assert (again.attempt, again.error_type, again.phase, again.pause) == (1, "TransportError", "response", 0.0)
    assert [event.attempt for event in only(emitted, AttemptStarted)] == [1, 2]
    assert [(event.attempt, event.error_type) for event in only(emitted, AttemptFinished)] == [
        (1, "TransportError"),
        (2, None),
    ]


def test_a_cancel_in_the_pause_ends_no_attempt_twice(streamguard_gateway: Serve, emitted: list[Event]) -> None:
    """The attempt before the pause has ended: the end of the stream does not emit it again."""
    token = CancelToken()
    policy = before_first_chunk(1, on={"ECONNRESET"}, wait=tenacity.wait_fixed(30))
    policy.before_sleep = lambda state: token.cancel("enough")
    stream = consume(streamguard_gateway("reset", GOOD), retry=policy, cancel=token)
    assert stream.report.outcome == "cancelled"
    assert len(only(emitted, AttemptFinished)) == len(only(emitted, AttemptStarted)) == 1


def test_a_fault_of_the_callers_ends_the_attempt(streamguard_gateway: Serve, emitted: list[Event]) -> None:
    """The exception of the caller's own function is named by its type."""

    def broken(chunk: Any) -> bool:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(guarded_stream("POST", streamguard_gateway(GOOD).url, counts=broken))
    assert only(emitted, AttemptFinished)[0].error_type == "ZeroDivisionError"
    assert only(emitted, StreamFinished)[0].report.outcome == "error"


def test_leaving_in_the_middle_is_emitted(streamguard_gateway: Serve, emitted: list[Event]) -> None:
    """`with` and `break`: the outcome is closed, an end like any other."""
    with guarded_stream("POST", streamguard_gateway("chat a\nstall").url) as stream:
        next(stream)
    assert only(emitted, StreamFinished)[0].report.outcome == "closed"


@pytest.mark.parametrize(
    ("url", "upstream"),
    [
        ("http://user:pw@example.test/v1?key=1", Upstream(address="example.test", port=80)),
        ("https://example.test/v1", Upstream(address="example.test", port=443)),
        ("https://[::1]:8443/v1", Upstream(address="::1", port=8443)),
    ],
)
def test_an_upstream_is_host_and_port(emitted: list[Event], url: str, upstream: Upstream) -> None:
    """Of a URL the event has only host and port: no user, no path, no query."""
    stream = guarded_stream("POST", url, total=0)
    with pytest.raises(DeadlineExceededError):
        next(stream)
    assert only(emitted, StreamStarted)[0].upstream == upstream
    assert only(emitted, StreamFinished)[0].upstream == upstream


@pytest.mark.parametrize(
    ("payload", "model"),
    [
        ({"model": "gpt-5-mini"}, "gpt-5-mini"),
        ({"model": "accounts/x/models/llama-v3p1:free@2"}, "accounts/x/models/llama-v3p1:free@2"),
        ({"model": "m" * 101}, None),
        ({"model": "two words"}, None),
        ({"model": "line\nbreak"}, None),
        ({"model": "ünïcode"}, None),
        ({"model": {"secret": 1}}, None),
        ({"model": 7}, None),
        ({"messages": []}, None),
        (["model"], None),
    ],
)
def test_a_model_is_a_short_word(emitted: list[Event], payload: Any, model: str | None) -> None:
    """The payload's `"model"` is in the event only if it is a short ASCII word."""
    with pytest.raises(DeadlineExceededError):
        next(guarded_stream("POST", "http://example.test", json=payload, total=0))
    assert only(emitted, StreamStarted)[0].upstream.model == model


@pytest.mark.parametrize(
    ("options", "operation"),
    [
        ({}, "chat"),
        ({"decode": "bytes"}, None),
        ({"decode": "events", "json": {"model": "m"}}, "chat"),
        ({"decode": "events", "json": {"query": "m"}}, None),
    ],
)
def test_the_operation_of_calls_of_a_model_and_of_other_streams(
    emitted: list[Event], options: dict[str, Any], operation: str | None
) -> None:
    """A stream that decodes as chat, or whose payload names a model, is a chat; a download is not."""
    with pytest.raises(DeadlineExceededError):
        next(guarded_stream("POST", "http://example.test", total=0, **options))
    assert only(emitted, StreamFinished)[0].operation == operation


def test_every_chunk_but_the_first_has_a_gap(streamguard_gateway: Serve, emitted: list[Event]) -> None:
    """Chunks that arrive together have gaps of zero; a pause is a gap of its length, and the longest one."""
    consume(streamguard_gateway("raw data: {}\\n\\ndata: {}\\n\\ndata: {}\\n\\n\nwait 0.1\nevent {}\nend"), decode="events")
    finished = only(emitted, StreamFinished)[0]
    assert finished.report.chunks == 4
    assert sum(count for count, _ in finished.gaps) == 3
    assert sum(total for _, total in finished.gaps) == pytest.approx(finished.report.max_gap)
    assert finished.report.max_gap >= 0.09


def test_with_counts_only_chunks_that_count_have_gaps(streamguard_gateway: Serve, emitted: list[Event]) -> None:
    """Chunks that `counts=` ignores have no gaps."""
    role = 'event {"choices":[{"index":0,"delta":{"role":"assistant"}}]}'
    consume(streamguard_gateway(f"{role}\nchat a\n{role}\nchat b\nfinish\ndone"), counts=has_content)
    finished = only(emitted, StreamFinished)[0]
    assert finished.report.chunks == 5
    assert sum(count for count, _ in finished.gaps) == 1


@given(st.lists(st.floats(0, 1000)), st.integers(0, 50))
def test_gaps_lose_nothing(gaps: list[float], together: int) -> None:
    """For any gaps, the counts and sums are right, each in the bucket whose bounds hold it."""
    counts = GapCounts()
    for gap in gaps:
        counts.add(gap)
    frozen = counts.frozen(len(gaps) + 1 + together)
    assert sum(count for count, _ in frozen) == len(gaps) + together
    assert sum(total for _, total in frozen) == pytest.approx(sum(gaps))
    below = [0.0, *GAP_BOUNDS]
    for (count, total), low, high in zip(frozen, below, [*GAP_BOUNDS, float("inf")], strict=True):
        assert count * low <= total * (1 + 1e-9)
        assert total <= count * high or count == 0


def test_the_buckets_are_those_of_the_conventions() -> None:
    """From 0.01 s, doubling, to 81.92 s."""
    assert (GAP_BOUNDS[0], GAP_BOUNDS[-1], len(GAP_BOUNDS)) == (0.01, 81.92, 14)


def test_a_call_that_cannot_be_stopped_is_emitted(emitted: list[Event]) -> None:
    """`bounded_call` abandons a thread: one event, with the kind."""
    import threading

    end = threading.Event()
    with pytest.raises(DeadlineExceededError):
        bounded_call(end.wait, limit=0.05)
    end.set()
    assert emitted == [ThreadAbandoned(kind="call")]
