"""The last failures, in memory."""

import gc
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

import streamguard
from streamguard import (
    Chain,
    before_first_chunk,
    bounded_call,
    current_token,
    deadline,
    guarded_stream,
    recent_failures,
)
from streamguard._core import NOT_GIVEN
from streamguard.journal import JournalEntry
from streamguard.journal.collector import Collector
from streamguard.telemetry import RunFinished, StepStarted, StreamFinished, TurnFinished, set_hooks
from streamguard.testing import Gateway

from .causes import failing_stream, good_stream, run_that_waits, stream, turn_that_hangs


def found(id: str) -> JournalEntry | None:
    return next((entry for entry in recent_failures() if entry.id == id), None)


def the(id: str) -> JournalEntry:
    entry = found(id)
    assert entry is not None
    return entry


def turn(number: int, status: str = "failed") -> TurnFinished:
    """A turn that is over."""
    id = f"t{number}"
    return TurnFinished(id=id, execution_id="x", member="m", status=status, reason=None, seconds=1, silence=None)


def test_a_stream_that_failed_is_remembered() -> None:
    """The entry has the report's numbers, the phases of the attempt, and the limit that fired."""
    entry = the(failing_stream())
    assert (entry.kind, entry.name, entry.outcome, entry.stopped_in) == ("stream", "chat", "timeout", "idle")
    assert entry.error_type == "StreamInactivityTimeoutError"
    assert entry.failed
    assert entry.seconds >= 0.1
    assert (entry.numbers["chunks"], entry.numbers["attempts"], entry.numbers["status_code"]) == (1, 1, 200)
    assert [(m.what, m.name) for m in entry.moments] == [
        *(("phase", phase) for phase in ("connect", "response", "first", "idle")),
        ("silence", "idle"),
        ("limit", "idle"),
    ]
    assert {m.attempt for m in entry.moments} == {1}
    limit = entry.moments[-1]
    assert (limit.limit, limit.seconds is not None and limit.seconds >= 0.1) == (0.1, True)


def test_each_attempt_has_its_own_phases_and_what_ended_it() -> None:
    """A retry stands between the phases of the attempt that failed and those of the next one."""
    policy = before_first_chunk(1, wait=lambda state: 0.0)
    entry = the(stream("headers\nstall", "headers\nstall", first=0.1, retry=policy))
    assert entry.numbers["attempts"] == 2
    attempt = [("phase", "connect"), ("phase", "response"), ("phase", "first"), ("silence", "first"), ("limit", "first")]
    course = [(m.what, m.name) for m in entry.moments]
    assert course == [*attempt, ("retry", "first"), ("phase", "retry"), *attempt]
    (retry,) = [m for m in entry.moments if m.what == "retry"]
    assert (retry.error_type, retry.attempt, retry.seconds) == ("StreamInactivityTimeoutError", 1, 0)
    assert [m.attempt for m in entry.moments] == [1] * 7 + [2] * 5


def test_the_longest_time_without_a_byte_is_not_the_longest_gap() -> None:
    """Heartbeats shorten the one and not the other; it counts from the headers on, and per attempt."""
    beats = "chat a\nwait 0.15\ncomment x\nwait 0.15\ncomment x\nwait 0.15\nchat b\nstall"
    numbers = the(stream(beats, idle=0.6, name="chat")).numbers
    assert numbers["max_gap"] >= 0.4
    assert 0.1 <= numbers["max_byte_gap"] < numbers["max_gap"]
    silent = the(stream("headers\nwait 0.2\nchat a\nstall", first=5, idle=0.1)).numbers
    assert silent["max_byte_gap"] >= 0.15
    policy = before_first_chunk(1, wait=lambda state: 0.5)
    again = the(stream("headers\ncomment x\nstall", "chat a\nstall", first=0.1, idle=0.1, retry=policy)).numbers
    assert again["attempts"] == 2
    assert again["max_byte_gap"] < 0.5


def test_what_went_well_or_was_left_is_not_a_failure() -> None:
    """Neither a complete stream, nor one that the caller left early, nor a run with a fallback."""
    assert found(good_stream()) is None
    with Gateway("chat a\nstall") as gateway:
        left = guarded_stream("GET", gateway.url)
        next(left)
        left.close()
    assert left.report.outcome == "closed"
    assert found(left.report.id) is None
    chain = Chain("agent")
    chain.step(lambda ctx: {}["no"], name="optional", fallback=1, handles=KeyError)
    result = chain.run()
    assert result.status == "completed_with_fallback"
    assert found(result.id) is None


@pytest.mark.parametrize("inline", [False, True])
def test_a_run_that_was_left_is_not_a_failure(inline: bool) -> None:
    """An interrupt such as Ctrl-C is a decision to leave: the run counts as cancelled."""
    events: list[RunFinished] = []

    def leave(ctx: Any) -> Any:
        raise KeyboardInterrupt

    def note(event: object) -> None:
        if isinstance(event, RunFinished):
            events.append(event)

    chain = Chain("agent")
    chain.step(leave, name="a", inline=inline)
    set_hooks([note])
    try:
        with pytest.raises(KeyboardInterrupt):
            chain.run()
    finally:
        set_hooks(None)
    assert (events[0].status, events[0].error_type, found(events[0].id)) == ("cancelled", "KeyboardInterrupt", None)


def asks_under_a_limit_of_its_own(request: Any) -> Any:
    return bounded_call(lambda: current_token().wait(5), limit=0.05)  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("options", "around", "moments"),
    [
        ({"total": 0.2}, 30, [("total", 0.2)]),
        ({"total": 30}, 0.2, [("deadline", None)]),
        ({"total": 0}, None, [("total", 0)]),
        ({"auth": asks_under_a_limit_of_its_own}, None, []),
    ],
)
def test_a_deadline_is_remembered_as_whose_it_was(
    options: dict[str, Any], around: float | None, moments: list[tuple[str, float | None]]
) -> None:
    """The last moment is the stream's own total, with its value, or a surrounding deadline; one in auth= is neither."""
    with deadline(around):
        entry = the(failing_stream(**{"idle": None, **options}))
    assert (entry.outcome, entry.error_type) == ("timeout", "DeadlineExceededError")
    fired = [moment for moment in entry.moments if moment.what == "limit"]
    assert [(moment.name, moment.limit) for moment in fired] == moments
    assert all(moment is entry.moments[-1] and moment.at == pytest.approx(entry.seconds, abs=0.1) for moment in fired)


def test_a_run_that_waits_is_remembered_with_its_steps() -> None:
    """Each step with its status and reason; it stopped in the first one that has no value."""
    entry = the(run_that_waits())
    assert (entry.kind, entry.name, entry.outcome, entry.stopped_in) == (
        *("run", "agent", "waiting_external_service"),
        "policy",
    )
    steps = [(m.name, m.status, m.reason, m.fallback) for m in entry.moments]
    assert steps == [
        ("plain", "ok", None, None),
        ("optional", "error", "connection_refused", "neutral"),
        ("policy", "error", "connection_refused", None),
    ]
    assert {m.what for m in entry.moments} == {"step"}
    assert entry.numbers["deadline"] <= 5


def test_a_run_that_a_bug_ended_is_remembered() -> None:
    """Its outcome is `raised`, with the type of the bug and the step in which it was."""
    chain = Chain("agent")
    chain.step(lambda ctx: 1, name="fine")
    chain.step(lambda ctx: undefined, name="broken")  # type: ignore[name-defined] # noqa: F821
    with pytest.raises(NameError):
        chain.run()
    entry = recent_failures()[-1]
    assert (entry.outcome, entry.stopped_in, entry.error_type) == ("raised", "broken", "NameError")
    assert [(m.name, m.status, m.reason, m.error_type) for m in entry.moments] == [
        ("fine", "ok", None, None),
        ("broken", "error", None, "NameError"),
    ]
    assert "  broken: error, took 0." in str(entry)


def test_a_turn_that_was_stopped_is_remembered() -> None:
    """It has its member's name, its execution as parent, and the longest silence."""
    id, execution_id = turn_that_hangs()
    entry = the(id)
    assert (entry.kind, entry.name, entry.outcome, entry.stopped_in) == ("turn", "agent-1", "failed", "timeout")
    assert entry.parent == execution_id
    assert entry.numbers["silence"] >= 0.1


def test_no_hook_and_a_bad_hook_do_not_silence_it() -> None:
    """`set_hooks([])` and a hook that raises change nothing."""

    def broken(event: object) -> None:
        raise RuntimeError

    try:
        for hooks in ([], [broken]):
            set_hooks(hooks)
            assert found(failing_stream()) is not None
    finally:
        set_hooks(None)


def test_the_notes_of_a_stream_that_was_garbage_collected_are_dropped() -> None:
    """Its end takes the notes: the same end a second time has none. It was left early, so it is not a failure."""
    makes: list[Callable[[], JournalEntry]] = []
    ends: list[StreamFinished] = []
    collector = Collector(makes.append)
    set_hooks([collector, lambda event: ends.append(event) if isinstance(event, StreamFinished) else None])
    try:
        with Gateway("headers\nwait 0.1\nchat a\nstall") as gateway:
            lost = guarded_stream("GET", gateway.url, first=0.15)
            next(lost)
            id = lost.report.id
            del lost
            gc.collect()
        assert found(id) is None
    finally:
        set_hooks(None)
    (end,) = ends
    collector(end)
    notes = [[moment.what for moment in make().moments].count("silence") for make in makes]
    assert notes == [1, 0]


def test_the_newest_is_last_and_the_oldest_go() -> None:
    """A hundred are remembered, or the number in `configure(recent=...)`."""
    collector = Collector(lambda make: None)
    for number in range(150):
        collector(turn(number))
    assert [entry.id for entry in collector.failures()] == [f"t{number}" for number in range(50, 150)]
    streamguard.configure(recent=2)
    ids = [failing_stream(idle=0.05) for _ in range(3)]
    assert [entry.id for entry in recent_failures()] == ids[1:]
    streamguard.configure(recent=NOT_GIVEN)
    assert [entry.id for entry in recent_failures()] == ids[1:]
    streamguard.configure(recent=0)
    assert recent_failures() == []


def test_notes_of_what_never_ends_are_bounded() -> None:
    """Notes are kept for a thousand runs, the newest, and 200 for each."""
    makes: list[Callable[[], JournalEntry]] = []
    collector = Collector(makes.append)
    for number in range(1500):
        collector(StepStarted(id=f"r{number}", run="c", step="first"))
    for number in range(500):
        collector(StepStarted(id="r1499", run="c", step=f"s{number}"))
    for number in range(1500):
        collector(RunFinished(id=f"r{number}", run="c", status=None, seconds=1.0))
    assert [len(make().moments) for make in makes] == [0] * 500 + [1] * 999 + [200]


def test_many_threads_fail_at_once() -> None:
    """Each failure is there once; a reader meets no half-made list."""
    collector = Collector(lambda make: None)
    collector.remember(10_000)
    start = threading.Barrier(9)

    def fail(first: int) -> None:
        start.wait()
        for number in range(first, first + 500):
            collector(turn(number))

    threads = [threading.Thread(target=fail, args=(500 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    start.wait()
    while any(thread.is_alive() for thread in threads):
        collector.failures()
    for thread in threads:
        thread.join()
    assert sorted(entry.id for entry in collector.failures()) == sorted(f"t{number}" for number in range(4000))


def test_a_signal_handler_may_close_a_stream() -> None:
    """A handler that interrupts the telling of one failure may cause another; neither waits for the other."""
    collector = Collector(lambda make: signal.raise_signal(signal.SIGUSR1) if make().id == "t1" else None)
    before = signal.signal(signal.SIGUSR1, lambda *_: collector(turn(2)))
    try:
        collector(turn(1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert [entry.id for entry in collector.failures()] == ["t1", "t2"]
