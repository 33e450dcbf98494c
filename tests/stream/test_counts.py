"""`counts=`: which chunks are progress."""

import pytest

from streamguard import (
    DeadlineExceededError,
    StreamInactivityTimeoutError,
    has_content,
)

from ..helpers import PROMPT, Serve
from .helpers import ask, choice, consume, failure, line, stream_from

KEEPALIVE = line(choice(""))


def test_counts_narrows_what_is_progress(streamguard_gateway: Serve) -> None:
    """Chunks that do not count are returned, and re-arm nothing."""
    gateway = streamguard_gateway(f"chat a\nloop forever\n{KEEPALIVE}\nwait 0.05\nendloop")
    run = ask(gateway, counts=has_content, idle=0.4)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert (run.error.phase, run.texts) == ("idle", ["a"])
    assert len(run.chunks) > 2


def test_counts_narrows_what_ends_first(streamguard_gateway: Serve) -> None:
    """Until a chunk counts, `first` applies."""
    gateway = streamguard_gateway(f"loop forever\n{KEEPALIVE}\nwait 0.05\nendloop")
    run = ask(gateway, counts=has_content, first=0.4, idle=0.1)
    assert isinstance(run.error, StreamInactivityTimeoutError)
    assert run.error.phase == "first"
    assert run.stream.report.time_to_first_chunk is None


def test_counts_sees_what_is_handed_over(streamguard_gateway: Serve) -> None:
    """The predicate gets the chunk as the consumer does: converted by the caller's decode."""
    seen: list[str] = []
    run = ask(streamguard_gateway("event 1\nevent 2"), decode=lambda event: f"<{event.data}>", counts=seen.append)
    assert run.chunks == seen == ["<1>", "<2>"]


def test_a_predicate_that_fails(streamguard_gateway: Serve) -> None:
    """Its exception ends the stream, unchanged."""
    run = ask(streamguard_gateway("chat a\nstall"), counts=lambda chunk: chunk["nothing"])
    assert type(run.error) is KeyError
    assert run.stream.report.outcome == "error"


@pytest.mark.parametrize(
    "beat",
    [
        "event {}",
        'event {"choices": []}',
        'event {"choices": [{"index": 0, "delta": {}}]}',
        'event {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}',
        'event {"choices": [{"index": 0, "delta": {"content": null, "tool_calls": []}}]}',
    ],
)
def test_a_provider_that_only_beats_is_stale(streamguard_gateway: Serve, beat: str) -> None:
    """With `counts=has_content` empty payloads are returned, and re-arm nothing (B023)."""
    gateway = streamguard_gateway(f"loop forever\n{beat}\nwait 0.03\nendloop")
    seen = consume(stream_from(gateway, first=0.2, counts=has_content, retry=None))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert seen.error.phase == "first"
    assert len(seen.chunks) >= 2
    assert 0.19 <= seen.elapsed < 0.2 + PROMPT


BEATS = ['event ping | {"type": "ping"}', "event ping | ping", "event keep-alive | null", "event ping"]


@pytest.mark.parametrize("beat", BEATS)
def test_named_heartbeats_are_not_chunks(streamguard_gateway: Serve, beat: str) -> None:
    """They never count, with and without `counts=`, and are not handed over (C215)."""
    gateway = streamguard_gateway(*[f"loop forever\n{beat}\nwait 0.03\nendloop"] * 2)
    for counts in (None, has_content):
        seen = consume(stream_from(gateway, first=0.2, counts=counts, retry=None))
        assert isinstance(seen.error, StreamInactivityTimeoutError)
        assert (seen.error.phase, seen.chunks) == ("first", [])


def test_keep_alives_do_not_hold_a_run_open(streamguard_gateway: Serve) -> None:
    """Comments alone lead to `idle`, long before any total (B024)."""
    gateway = streamguard_gateway("chat a\nloop forever\ncomment keep-alive\nwait 0.03\nendloop")
    seen = consume(stream_from(gateway, idle=0.2, dead=0.15, total=30))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert seen.error.phase == "idle"
    assert seen.error.comments is not None
    assert seen.error.comments >= 2


def test_endless_reasoning_can_be_told_from_an_answer(streamguard_gateway: Serve) -> None:
    """`counts=` for content stops a model that reasons for ever; otherwise `total` does (B025)."""
    gateway = streamguard_gateway("loop forever\nreasoning hm\nwait 0.02\nendloop")
    seen = consume(stream_from(gateway, first=0.25, counts=lambda chunk: chunk.text, retry=None))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert {item.reasoning for item in seen.chunks} == {"hm"}
    assert isinstance(failure(stream_from(gateway, idle=0.2, total=0.5)), DeadlineExceededError)


def test_counts_narrows_what_rearms_idle(streamguard_gateway: Serve) -> None:
    """Chunks that do not count are returned, and do not restart the limit."""
    gateway = streamguard_gateway("chat a\nloop forever\nevent {}\nwait 0.03\nendloop")
    seen = consume(stream_from(gateway, idle=0.3, counts=has_content))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert seen.error.phase == "idle"
    assert seen.texts[0] == "a"
    assert len(seen.chunks) >= 3
    assert 0.28 <= seen.elapsed < 0.3 + PROMPT


def test_counts_decides_when_the_retry_gate_closes(streamguard_gateway: Serve) -> None:
    """A chunk that does not count allows another attempt; one that counts does not."""
    gateway = streamguard_gateway("event {}\nstall", "event {}\nchat a\nstall")
    seen = consume(stream := stream_from(gateway, first=0.15, idle=0.2, counts=has_content))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert ([chunk.text for chunk in seen.chunks], stream.report.attempts) == (["", "", "a"], 2)


def test_counts_that_counts_keeps_the_stream_alive(streamguard_gateway: Serve) -> None:
    """A chunk that counts re-arms `idle`, among any number of chunks that do not."""
    gateway = streamguard_gateway("loop 8\ntick\nevent {}\nwait 0.07\nendloop\ndone")
    seen = consume(stream := stream_from(gateway, idle=0.4, counts=has_content))
    assert (seen.error, len(seen.chunks)) == (None, 16)
    assert stream.report.max_gap is not None
    assert stream.report.max_gap >= 0.07


ROLE = '{"choices": [{"index": %d, "delta": {"role": "assistant"}, "finish_reason": null}]}'


def test_a_late_choice_reopens_the_stream_though_it_does_not_count(streamguard_gateway: Serve) -> None:
    """The same if the other choice begins with a chunk that does not count."""
    gateway = streamguard_gateway(f"chat a\nfinish\nwait 0.03\nevent {ROLE % 1}\nstall")
    seen = consume(stream := stream_from(gateway, end_grace=0.15, idle=0.3, counts=has_content))
    assert isinstance(seen.error, StreamInactivityTimeoutError)
    assert (len(seen.chunks), stream.report.outcome) == (3, "timeout")


@pytest.mark.parametrize("end", ["linger", "end", "loop forever\nevent {}\nwait 0.03\nendloop"])
def test_a_finished_answer_without_anything_that_counts_is_complete(streamguard_gateway: Serve, end: str) -> None:
    """An empty answer with a finish reason is complete: it is neither silence nor retried."""
    gateway = streamguard_gateway(f"event {ROLE % 0}\nfinish content_filter\n{end}")
    seen = consume(stream := stream_from(gateway, end_grace=0.1, first=5, counts=has_content))
    assert (seen.error, seen.text, stream.report.outcome, stream.report.attempts) == (None, "", "completed", 1)
