"""One member's turn on real threads: events, its one end, session locks, the start-up retry, abandoned members."""

import random
import threading
import time
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any

import pytest

from streamguard import CancelToken, abandoned_threads
from streamguard._core.cancel import current_token
from streamguard.dispatch import CallableMember, Dispatcher, DispatchOutcome, Event, Kind, TurnContext
from streamguard.dispatch._data.turn_events import STARTUP_TIMEOUT
from streamguard.dispatch._turn.channel import MemberEvent
from streamguard.dispatch._turn.turn import Turn

from ...helpers import wait_until
from ..scripted import Q, Scripted, Stuck, hangs, kinds, of, says, text

FIRST_FAILED = [Event.failure("no frame", STARTUP_TIMEOUT), Event.done(STARTUP_TIMEOUT)]


def session(name: str) -> Event:
    return Event(kind=Kind.SESSION, session_id=name)


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    with Dispatcher() as dispatcher:
        yield dispatcher


def run(dispatcher: Dispatcher, *members: Any, **options: Any) -> tuple[list[MemberEvent], DispatchOutcome]:
    with dispatcher.stream("c", members, "a prompt", **{"output_timeout": Q, **options}) as stream:
        return list(stream), stream.outcome


def test_the_events_of_a_turn_that_completes(dispatcher: Dispatcher) -> None:
    """T33: the member's events arrive in order, then one `done`; the text is the answer."""
    events, outcome = run(dispatcher, says("a", "one ", "two"))
    assert kinds(of(events, "a")) == ["text", "text", "done"]
    assert outcome["a"].text == "one two"
    assert outcome["a"].status == "completed"
    assert {event.turn_id for event in events} == {outcome["a"].turn_id}


def test_the_events_of_a_turn_that_times_out(dispatcher: Dispatcher) -> None:
    """R18: after the member's events come `error`, with sentence and diagnosis, and `done("timeout")`, each once."""
    events, outcome = run(dispatcher, hangs("a", "so far"))
    text, error, done = of(events, "a")
    assert (text.text, error.kind, done.kind) == ("so far", Kind.ERROR, Kind.DONE)
    assert error.text == outcome["a"].message == "Response timed out: no output for 0.3 seconds, stopped."
    assert error.data["turn_id"] == outcome["a"].turn_id
    assert (error.error_code, done.error_code) == ("timeout", "timeout")
    assert outcome["a"].text == "so far"


def test_the_last_events_come_after_the_committed_response(dispatcher: Dispatcher) -> None:
    """R18: when `error` and `done` are read, the response is recorded as failed."""
    with dispatcher.stream("c", [hangs("a")], "p", output_timeout=0.1) as stream:
        for event in stream:
            assert event.event.kind in (Kind.ERROR, Kind.DONE)
            (response,) = dispatcher.records.responses(stream.execution_id)
            assert (response.status, response.reason) == ("failed", "timeout")


def test_the_diagnosis_of_a_timeout(dispatcher: Dispatcher) -> None:
    """R7: it has silence, first and last output, last signal, phase, turn and stop; instants count from the start."""
    _, outcome = run(dispatcher, hangs("a", "one", beat=Kind.SIGNAL))
    diagnosis = outcome["a"].diagnosis
    assert diagnosis is not None
    assert Q <= diagnosis["silence"] < Q + 2
    assert diagnosis["timeout"] == Q
    assert 0 <= diagnosis["first_output_at"] == diagnosis["last_output_at"] < 2
    assert diagnosis["last_signal_at"] > diagnosis["last_output_at"]
    assert (diagnosis["last_output_kind"], diagnosis["last_signal_kind"]) == ("text", "signal")
    assert diagnosis["uncounted"]["signal"] >= 2
    assert (diagnosis["activity"], diagnosis["process_alive"]) == ("absent", True)
    assert (diagnosis["phase"], diagnosis["stop_result"]) == ("running", True)
    assert diagnosis["turn_id"] == outcome["a"].turn_id
    (response,) = dispatcher.records.responses(outcome.execution_id)
    assert response.metadata is not None
    assert response.metadata["timeout_diagnostics"] == diagnosis


def test_completion_before_a_late_stop_stays_a_success(dispatcher: Dispatcher) -> None:
    """T5: a member that lingers after its `done` is stopped or not: response, turn, queue and signal say success."""

    def lingers(prompt: str, context: TurnContext) -> Iterator[Event]:
        try:
            yield text("x")
            yield Event.done()
        finally:
            context.token.wait(0.3)

    with dispatcher.stream("c", [CallableMember("a", lingers)], "p", output_timeout=0.1) as stream:
        kinds_read = []
        for event in stream:
            kinds_read.append(event.event.kind)
            if event.event.kind is Kind.DONE:
                assert not dispatcher.stop("c", "a")
    assert kinds_read == [Kind.TEXT, Kind.DONE]
    turn = stream.outcome["a"]
    assert (turn.status, turn.turn_status, turn.queue_status, turn.signal) == (
        "completed",
        "succeeded",
        "succeeded",
        "completed",
    )


def test_a_stop_that_is_too_late_makes_its_diagnosis_void(dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """T7: if the timer's stop returns False, nothing records a timeout."""
    slots = dispatcher._services.slots
    real, refused = slots.stop, []

    def stop(conversation: str, member: str, reason: str, **meant: Any) -> bool:
        if reason == "timeout":
            refused.append(meant)
            return False
        return real(conversation, member, reason, **meant)

    monkeypatch.setattr(slots, "stop", stop)
    with dispatcher.stream("c", [hangs("a", "x")], "p", output_timeout=0.1) as stream:
        wait_until(lambda: refused)
        assert stream.stop("a")
        turn = stream.read()["a"]
    assert (turn.status, turn.diagnosis, turn.message) == ("cancelled", None, "Stopped: user_cancel.")


def test_nothing_of_a_turn_stays_in_the_table(dispatcher: Dispatcher) -> None:
    """After a turn, however it ended, its slot is free."""
    members = [says("a", "x"), hangs("b", "y"), Scripted("c", [ValueError()])]
    run(dispatcher, *members, output_timeout=0.1)
    slots = dispatcher._services.slots
    assert [slots.active("c", name) for name in "abc"] == [None, None, None]


def test_finalizers_and_signal_handlers_take_no_lock(dispatcher: Dispatcher) -> None:
    """In a thread that holds the slots' lock a stream may be dropped, and a token cancelled."""
    token = CancelToken()
    dropped = dispatcher.stream("c", [hangs("a", "x")], "p")
    cancelled = dispatcher.stream("d", [hangs("a", "x")], "p", cancel=token)
    next(dropped)
    next(cancelled)
    execution = dropped.execution_id
    with dispatcher._services.slots._lock:
        del dropped
        token.cancel()
    wait_until(lambda: dispatcher.records.turns(execution)[0].terminal_reason == "reader_left")
    assert cancelled.read()["a"].reason == "user_cancel"


def test_a_failure_before_a_stop_stays_that_failure(dispatcher: Dispatcher) -> None:
    """The first end wins: a member that sends `error` and then hangs fails with its own code, half a second later."""
    member = Scripted("a", [text("x"), Event.failure("quota", "http_429"), 1.0])
    events, outcome = run(dispatcher, member)
    assert kinds(of(events, "a")) == ["text", "error", "done"]
    assert (outcome["a"].status, outcome["a"].reason, outcome["a"].message) == ("failed", "http_429", "quota")


def test_events_after_an_error_are_dropped(dispatcher: Dispatcher) -> None:
    """T3: after the turn's end the member's events are dropped."""
    member = Scripted("a", [text("x"), Event.failure("quota", "http_429"), text("late"), Event.done()])
    events, outcome = run(dispatcher, member)
    assert kinds(of(events, "a")) == ["text", "error", "done"]
    assert (outcome["a"].text, outcome["a"].reason) == ("x", "http_429")


def test_an_exception_of_a_member_is_its_failure(dispatcher: Dispatcher) -> None:
    """T33: a member that raises gets one `error` and one `done`; the exception is in the message, not in the reason."""
    events, outcome = run(dispatcher, Scripted("a", [text("x"), ValueError("no such model")]))
    assert kinds(of(events, "a")) == ["text", "error", "done"]
    assert (outcome["a"].reason, outcome["a"].turn_reason) == ("provider_error", "provider_execution_failed")
    assert outcome["a"].message == "ValueError: no such model"


def test_a_run_without_done_is_interrupted(dispatcher: Dispatcher) -> None:
    """R17: without `done` the turn is interrupted, and the queue counts a failure."""
    events, outcome = run(dispatcher, Scripted("a", [text("x")]))
    assert kinds(of(events, "a")) == ["text", "error", "done"]
    assert (outcome["a"].turn_status, outcome["a"].turn_reason) == ("interrupted", "ended_without_done")
    assert outcome.status == "failed"


def test_done_with_an_error_code_is_a_failure(dispatcher: Dispatcher) -> None:
    """R19: the code is the reason everywhere, and `done` is passed on once, with its data."""
    events, outcome = run(dispatcher, Scripted("a", [Event.done("max_turns", text="enough", data={"turns": 9})]))
    error, done = of(events, "a")
    assert (error.text, done.error_code, done.data["turns"]) == ("enough", "max_turns", 9)
    assert outcome["a"].reason == outcome["a"].turn_reason == "max_turns"


def test_a_slow_reader_never_makes_a_member_look_silent(dispatcher: Dispatcher) -> None:
    """T1: a member that has to wait for three timeouts until its events are read completes."""
    big = "x" * 100_000
    member = says("a", *[big] * 12)
    with dispatcher.stream("c", [member], "p", output_timeout=0.2) as stream:
        assert next(stream).event.text == big
        time.sleep(0.6)
        outcome = stream.read()
    assert outcome["a"].status == "completed"
    assert len(outcome["a"].text) == 12 * 100_000


def test_without_a_reader_other_members_go_on(dispatcher: Dispatcher) -> None:
    """Each member has its own room: one whose events are unread waits, its sibling completes."""
    finished = threading.Event()

    def quiet(prompt: str, context: TurnContext) -> str:
        finished.set()
        return "done"

    members = [says("a", *["x" * 100_000] * 40), CallableMember("b", quiet)]
    with dispatcher.stream("c", members, "p", output_timeout=0.2) as stream:
        assert finished.wait(10)
        wait_until(lambda: len(dispatcher.records.responses(stream.execution_id)) == 2)
        wait_until(
            lambda: (
                dispatcher.records.responses(stream.execution_id)[0].status == "completed"
                or dispatcher.records.responses(stream.execution_id)[1].status == "completed"
            )
        )
        time.sleep(0.4)
        outcome = stream.read()
    assert [outcome[name].status for name in "ab"] == ["completed", "completed"]


def test_leaving_the_stream_stops_the_members(dispatcher: Dispatcher) -> None:
    """Leaving the `with` block stops the members, as interrupted."""
    with dispatcher.stream("c", [hangs("a", "x"), says("b", "y")], "p") as stream:
        for _ in stream:
            break
    outcome = stream.outcome
    assert (outcome["a"].status, outcome["a"].reason) == ("interrupted", "reader_left")
    assert outcome.status == "cancelled"


def test_an_error_that_waits_for_room_ends_with_its_reader(dispatcher: Dispatcher) -> None:
    """A member that failed while its events are unread ends when the reader leaves; its failure stays."""
    member = Scripted("a", [text("x" * 400_000), Event.failure("quota", "http_429"), Event.done("http_429")])
    with dispatcher.stream("c", [member], "p") as stream:
        wait_until(lambda: member.contexts)
        time.sleep(0.1)
    assert (stream.outcome["a"].reason, stream.outcome["a"].abandoned) == ("reader_left", False)
    failed = Scripted("a", [Event.failure("q" * 400_000, "http_429"), Event.done("http_429")])
    with dispatcher.stream("c", [failed], "p") as stream:
        wait_until(lambda: failed.contexts)
        time.sleep(0.1)
    assert (stream.outcome["a"].reason, stream.outcome["a"].abandoned) == ("http_429", False)


def test_dropping_the_stream_stops_the_members(dispatcher: Dispatcher) -> None:
    """Dropping the last reference to a stream stops its members."""
    stream = dispatcher.stream("c", [hangs("a", "x")], "p")
    execution = stream.execution_id
    next(stream)
    del stream
    wait_until(lambda: dispatcher.records.turns(execution)[0].terminal_reason == "reader_left")


def test_a_member_that_cannot_be_stopped_is_abandoned_and_counted(dispatcher: Dispatcher) -> None:
    """A member blocks in foreign code: the turn ends on time, the thread is counted, and its later events are dropped."""
    member = Stuck("a", text("x"))
    before = abandoned_threads()
    events, outcome = run(dispatcher, member, output_timeout=0.1)
    assert outcome["a"].abandoned
    assert abandoned_threads() == before + 1
    assert kinds(of(events, "a")) == ["text", "error", "done"]
    member.free.set()
    wait_until(lambda: abandoned_threads() == before)
    assert outcome["a"].text == "x"


def test_a_closer_that_hangs_does_not_block_the_dispatch(dispatcher: Dispatcher) -> None:
    """T2: closers of the user run in a thread of their own: one that hangs does not block the dispatch."""
    free = threading.Event()

    class Closing(CallableMember):
        stop_grace = 0.1

    def run_it(prompt: str, context: TurnContext) -> Iterator[Event]:
        context.token.on_cancel(lambda: free.wait(20))
        yield text("x")
        context.token.wait(0.5)

    _, outcome = run(dispatcher, Closing("a", run_it), hangs("b"), output_timeout=0.1)
    assert [outcome[name].reason for name in "ab"] == ["timeout", "timeout"]
    free.set()


def test_the_members_token_is_the_current_token(dispatcher: Dispatcher) -> None:
    """The member's token is the current token in its thread: streams, sessions and calls register with it."""
    tokens = []

    def look(prompt: str, context: TurnContext) -> str:
        tokens.append((current_token(), context.token))
        return ""

    run(dispatcher, CallableMember("a", look))
    assert tokens[0][0] is tokens[0][1]


def test_a_session_is_resumed_by_the_next_turn(dispatcher: Dispatcher) -> None:
    """The session of the first event goes to the member's next turn in the conversation, and to no other member."""
    member = Scripted("a", [session("s1"), Event.done()], [session("s1"), Event.done()])
    other = Scripted("b", [Event.done()], [Event.done()])
    for _ in range(2):
        _, outcome = run(dispatcher, member, other)
    assert [context.session_id for context in member.contexts] == [None, "s1"]
    assert [context.session_id for context in other.contexts] == [None, None]
    assert outcome["a"].session_id == "s1"


def test_the_single_start_up_retry(dispatcher: Dispatcher) -> None:
    """R27: a resumed session without a frame is dropped, and the member runs once more; the first run leaves no event."""
    member = Scripted("a", [session("s1"), Event.done()], FIRST_FAILED, [session("s2"), text("x"), Event.done()])
    run(dispatcher, member)
    events, outcome = run(dispatcher, member)
    assert [context.session_id for context in member.contexts] == [None, "s1", None]
    assert kinds(of(events, "a")) == ["session", "text", "done"]
    assert (outcome["a"].status, outcome["a"].attempts) == ("completed", 2)
    assert dispatcher.records.session("c", "a") == "s2"


def test_there_is_no_second_start_up_retry(dispatcher: Dispatcher) -> None:
    """R27: the second start-up timeout is the turn's failure."""
    member = Scripted("a", [session("s1"), Event.done()], FIRST_FAILED, FIRST_FAILED)
    run(dispatcher, member)
    events, outcome = run(dispatcher, member)
    assert kinds(of(events, "a")) == ["error", "done"]
    assert (outcome["a"].reason, outcome["a"].attempts) == (STARTUP_TIMEOUT, 2)


@pytest.mark.parametrize("last", [[Event.failure("no", "http_401"), Event.done("http_401")], [Event.done()]])
def test_held_events_are_delivered_if_there_is_no_retry(dispatcher: Dispatcher, last: list[Event]) -> None:
    """R27: events before the first frame of a resumed session are held back, and delivered if there is no retry."""
    complaint = Event(kind=Kind.STDERR, text="a complaint")
    member = Scripted("a", [session("s1"), Event.done()], [complaint, *last])
    run(dispatcher, member)
    events, _ = run(dispatcher, member)
    assert kinds(of(events, "a")) == ["stderr", *kinds(last)]
    assert len(member.contexts) == 2


def test_a_member_that_sent_a_frame_is_never_run_again(dispatcher: Dispatcher) -> None:
    """R27: a start-up timeout after one frame causes no second attempt."""
    member = Scripted("a", [session("s1"), Event.done()], [session("s1"), *FIRST_FAILED])
    run(dispatcher, member)
    _, outcome = run(dispatcher, member)
    assert (outcome["a"].attempts, outcome["a"].reason) == (1, STARTUP_TIMEOUT)


def test_the_timer_spans_the_attempts_of_one_turn(dispatcher: Dispatcher) -> None:
    """T28: the second attempt gets no new timeout: the silence of both counts."""
    member = Scripted("a", [session("s1"), Event.done()], [0.2, *FIRST_FAILED], [0.25, text("late"), Event.done()])
    run(dispatcher, member)
    _, outcome = run(dispatcher, member)
    assert (outcome["a"].reason, outcome["a"].text) == ("timeout", "")
    assert outcome["a"].attempts == 2


def test_a_turn_that_waits_for_its_session_can_time_out(dispatcher: Dispatcher) -> None:
    """R1, T27: waiting for the session lock counts as silence; the turn fails with `timeout`, and leaves the line."""
    member = Scripted("a", [session("s1"), Event.done()], [text("never"), Event.done()])
    run(dispatcher, member)
    holder = dispatcher.session_locks.queue_up("s1")
    events, outcome = run(dispatcher, member, output_timeout=0.1)
    assert kinds(of(events, "a")) == ["error", "done"]
    assert (outcome["a"].status, outcome["a"].reason) == ("failed", "timeout")
    assert outcome["a"].diagnosis is not None
    assert outcome["a"].diagnosis["phase"] == "custody"
    assert dispatcher.session_locks.waiting("s1") == 1
    assert len(member.contexts) == 1
    holder.release()


def test_a_turn_that_waits_for_its_session_can_be_cancelled(dispatcher: Dispatcher) -> None:
    """T27: a user's stop ends the wait for the session lock as cancelled, never as completed."""
    member = Scripted("a", [session("s1"), Event.done()], [text("never"), Event.done()])
    run(dispatcher, member)
    holder = dispatcher.session_locks.queue_up("s1")
    with dispatcher.stream("c", [member], "p") as stream:
        wait_until(lambda: dispatcher.session_locks.waiting("s1") == 2)
        assert stream.stop("a")
        assert stream.read()["a"].status == "cancelled"
    assert dispatcher.session_locks.waiting("s1") == 1
    holder.release()


def test_a_turn_starts_when_its_session_is_free(dispatcher: Dispatcher) -> None:
    """A turn that waits for its session runs when the session is released."""
    member = Scripted("a", [session("s1"), Event.done()], [text("x"), Event.done()])
    run(dispatcher, member)
    holder = dispatcher.session_locks.queue_up("s1")
    with dispatcher.stream("c", [member], "p", output_timeout=5) as stream:
        wait_until(lambda: dispatcher.session_locks.waiting("s1") == 2)
        holder.release()
        assert stream.read()["a"].text == "x"


def test_an_abandoned_session_is_not_resumed(dispatcher: Dispatcher) -> None:
    """T34: a thread that could not be stopped may still use its session: the next turn starts a new one."""
    member = Stuck("a", session("s1"))
    run(dispatcher, member, output_timeout=0.1)
    _, outcome = run(dispatcher, member, output_timeout=0.1)
    assert [context.session_id for context in member.contexts] == [None, None]
    assert outcome["a"].abandoned
    member.free.set()
    wait_until(lambda: dispatcher.session_locks.waiting("s1") == 0)


def test_a_prompt_may_be_built_for_each_member(dispatcher: Dispatcher) -> None:
    """The prompt may be a function of the member's name; its exception fails that member only."""
    prompts = {}

    def run_it(prompt: str, context: TurnContext) -> str:
        prompts[prompt] = context.turn_id
        return ""

    def prompt(name: str) -> str:
        if name == "b":
            raise LookupError("no template")
        return f"for {name}"

    outcome = dispatcher.dispatch("c", [CallableMember("a", run_it), CallableMember("b", run_it)], prompt)
    assert prompts == {"for a": outcome["a"].turn_id}
    assert outcome["b"].message == "LookupError: no template"


def test_building_the_prompt_counts_as_silence(dispatcher: Dispatcher) -> None:
    """R1: the timer starts before the prompt: a prompt function that hangs times out, in phase `starting`."""
    free = threading.Event()

    def prompt(name: str) -> str:
        free.wait(10)
        return ""

    member = says("a", "x")
    member.stop_grace = 0.05
    outcome = dispatcher.dispatch("c", [member], prompt, output_timeout=0.1)
    assert outcome["a"].reason == "timeout"
    assert outcome["a"].diagnosis is not None
    assert outcome["a"].diagnosis["phase"] == "starting"
    free.set()


def test_the_answer_is_bounded(dispatcher: Dispatcher) -> None:
    """The answer ends at 4 Mi characters: an endless member does not fill the memory."""
    _, outcome = run(dispatcher, says("a", *["x" * 1_000_000] * 6), output_timeout=0)
    assert len(outcome["a"].text) == 4 * 1024 * 1024


class _Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("events_of_a", "complaint"),
    [
        ([b"bytes"], "must yield Events, got bytes"),
        ([Event.done(b"5")], "Event(error_code=) must be text or None, got bytes"),  # type: ignore[arg-type]
        ([Event(kind="words", text="x")], "Event(kind=) must be a Kind, got str"),  # type: ignore[arg-type]
        ([Event(kind=Kind.TEXT, text=None)], "Event(text=) must be text, got NoneType"),  # type: ignore[arg-type]
        ([Event(kind=Kind.SESSION, session_id=[])], "Event(session_id=) must be text or None"),  # type: ignore[arg-type]
        ([Event.done(data=[])], "Event(data=) must be a dict"),
        ([_Wordless()], "_Wordless"),
    ],
)
def test_an_invalid_event_fails_the_turn_clearly(dispatcher: Dispatcher, events_of_a: list[Any], complaint: str) -> None:
    """An object that is not an Event, or a field of another type, fails the turn with a sentence; siblings go on."""
    events, outcome = run(dispatcher, Scripted("a", events_of_a), says("b", "well"))
    assert (outcome["a"].status, outcome["b"].status) == ("failed", "completed")
    assert complaint in outcome["a"].message
    assert kinds(of(events, "a")) == ["error", "done"]


def test_near_types_in_an_event_are_converted(dispatcher: Dispatcher) -> None:
    """A kind may be a string, a name a number, the data any mapping."""
    call = Event(kind="tool_call", tool="t", tool_id=7, data=MappingProxyType({"a": 1}))  # type: ignore[arg-type]
    events, outcome = run(dispatcher, Scripted("a", [call, Event(kind="text", text="x"), Event.done(data=None)]))  # type: ignore[arg-type]
    assert outcome["a"].status == "completed"
    call, words, _ = of(events, "a")
    assert (call.kind, call.tool_id, call.data) == (Kind.TOOL_CALL, "7", {"a": 1})
    assert words.kind is Kind.TEXT


@pytest.mark.parametrize(
    ("result", "complaint"),
    [
        (None, "must return or yield text or Events, got NoneType"),
        (b"x", "got bytes"),
        ([1], "must yield text or Events, got int"),
        ([None], "must yield text or Events, got NoneType"),
    ],
)
def test_an_invalid_result_of_a_function_fails_the_turn_clearly(
    dispatcher: Dispatcher, result: Any, complaint: str
) -> None:
    """The message says what a function may return or yield, and what came."""
    _, outcome = run(dispatcher, CallableMember("a", lambda prompt, context: result))
    assert complaint in outcome["a"].message


@pytest.mark.parametrize("grace", ["soon", float("nan"), -1])
@pytest.mark.parametrize("name", ["stop_grace", "done_grace"])
def test_an_invalid_grace_fails_the_turn_before_it_runs(dispatcher: Dispatcher, name: str, grace: Any) -> None:
    """The turn fails with a message that names the attribute; records and outcome agree."""
    broken = Scripted("a", [text("x"), Event.done()])
    setattr(broken, name, grace)
    events, outcome = run(dispatcher, broken)
    assert f"{name} of member 'a' must be seconds >= 0, got {grace!r}" in outcome["a"].message
    assert (kinds(of(events, "a")), broken.contexts) == (["error", "done"], [])
    (response,) = dispatcher.records.responses(outcome.execution_id)
    assert (response.status, response.reason) == (outcome["a"].status, outcome["a"].reason) == ("failed", "dispatch_error")


def test_a_fault_after_the_commit_changes_nothing(dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events and outcome say what is recorded; the fault is only logged."""

    def broken(*_: object) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(Turn, "_stop_thread", broken)
    events, outcome = run(dispatcher, says("a", "x"))
    assert (outcome["a"].status, outcome["a"].text, kinds(of(events, "a"))) == ("completed", "x", ["text", "done"])
    (response,) = dispatcher.records.responses(outcome.execution_id)
    assert response.status == "completed"


def test_a_fault_at_the_end_costs_neither_the_slot_nor_the_siblings(dispatcher: Dispatcher) -> None:
    """A turn whose end fails still has a `done`, an outcome, and a free slot for the next turn."""
    broken = hangs("a", "x")
    broken.stop_grace = "soon"  # type: ignore[assignment]
    events, outcome = run(dispatcher, broken, says("b", "x", "y"), mode="serial")
    assert (outcome["a"].reason, outcome["b"].status) == ("dispatch_error", "completed")
    assert kinds(of(events, "a")) == ["error", "done"]
    _, outcome = run(dispatcher, says("a", "again"))
    assert outcome["a"].status == "completed"


def test_nothing_comes_after_the_done_of_a_stopped_member(dispatcher: Dispatcher) -> None:
    """T33: however a stop meets the member's next event, its `done` is the last event, and there is one."""

    def chatter(prompt: str, context: TurnContext) -> Iterator[str]:
        while True:
            yield "x"

    for _ in range(40):
        with dispatcher.stream("c", [CallableMember("a", chatter)], "p") as stream:
            seen = [next(stream) for _ in range(random.randrange(1, 50))]
            stream.stop("a")
            seen += stream
        assert [item.event.kind for item in seen].count(Kind.DONE) == 1
        assert seen[-1].event.kind is Kind.DONE
