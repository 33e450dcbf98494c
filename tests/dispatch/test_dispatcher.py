"""The dispatcher: arguments, parallel and serial dispatches, stops, limits from the environment, and its end."""

import contextlib
import itertools
import logging
import threading
import time
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from streamguard import CancelToken, UsageError
from streamguard._core.limits import NOT_GIVEN
from streamguard.dispatch import CallableMember, CommandMember, Dispatcher, Event, Kind, TurnContext, TurnOutcome
from streamguard.dispatch._turn.dispatch_options import limits_of
from streamguard.telemetry import DispatchFinished, TurnFinished, get_hooks, set_hooks

from ..helpers import wait_until
from .scripted import Q, Scripted, hangs, kinds, of, says


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    with Dispatcher() as dispatcher:
        yield dispatcher


def test_parallel_runs_side_by_side(dispatcher: Dispatcher) -> None:
    """All members run at the same time: each waits for the others, and all complete."""
    together = threading.Barrier(3, timeout=10)

    def meet(prompt: str, context: TurnContext) -> str:
        together.wait()
        return context.turn_id

    outcome = dispatcher.dispatch("c", [CallableMember(name, meet) for name in "abc"], "p")
    assert outcome.succeeded
    assert {turn.member: turn.text for turn in outcome.turns} == {turn.member: turn.turn_id for turn in outcome.turns}


def test_serial_runs_one_after_another_in_order(dispatcher: Dispatcher) -> None:
    """A serial dispatch runs its members in their order, each after the previous one has ended."""
    running: list[str] = []
    seen = []

    def run(prompt: str, context: TurnContext) -> str:
        running.append(context.turn_id)
        seen.append(len(running))
        time.sleep(0.02)
        running.pop()
        return ""

    members = [CallableMember(name, run) for name in "abcd"]
    outcome = dispatcher.dispatch("c", members, "p", mode="serial")
    assert [turn.member for turn in outcome.turns] == ["a", "b", "c", "d"]
    assert seen == [1, 1, 1, 1]


def test_a_failure_removes_only_its_own_member(dispatcher: Dispatcher) -> None:
    """R21: in both modes a member that fails does not affect the others."""
    for mode in ("parallel", "serial"):
        members = [Scripted("a", [OSError("no")]), says("b", "x")]
        outcome = dispatcher.dispatch("c", members, "p", mode=mode)
        assert (outcome["a"].status, outcome["b"].status, outcome.status) == ("failed", "completed", "failed")


def test_a_serial_list_may_grow(dispatcher: Dispatcher) -> None:
    """`follow` gets each outcome and adds members, the same one again too (A, B, A)."""
    a, b = says("a", "x"), says("b", "y")
    more = [[b], [a], []]
    seen = []

    def follow(outcome: TurnOutcome) -> Any:
        seen.append(outcome.member)
        return more.pop(0)

    outcome = dispatcher.dispatch("c", [a], "p", mode="serial", follow=follow)
    assert seen == [turn.member for turn in outcome.turns] == ["a", "b", "a"]
    assert outcome.status == "succeeded"


def test_a_fault_in_follow_is_raised_and_recorded(dispatcher: Dispatcher) -> None:
    """An exception of `follow` is raised by `dispatch()`, and the execution is recorded as failed."""

    def follow(outcome: TurnOutcome) -> Any:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        dispatcher.dispatch("c", [says("a")], "p", mode="serial", follow=follow)
    stream = dispatcher.stream("c", [says("a")], "p", mode="serial", follow=follow)
    with pytest.raises(ZeroDivisionError):
        stream.read()
    found = dispatcher.records.execution(stream.execution_id)
    assert found is not None
    assert (found.status, found.reason) == ("failed", "dispatch_error")


def test_stopping_one_member_leaves_its_siblings(dispatcher: Dispatcher) -> None:
    """R12: only the stopped member is cancelled; stopping it again returns False."""
    with dispatcher.stream("c", [hangs("a", "x"), says("b", "y", pause=0.2)], "p") as stream:
        next(stream)
        assert stream.stop("a")
        assert not stream.stop("a")
        outcome = stream.read()
    assert (outcome["a"].status, outcome["a"].reason) == ("cancelled", "user_cancel")
    assert (outcome["b"].status, outcome.status) == ("completed", "succeeded")


def test_cancel_all_stops_every_member_and_lets_none_begin(dispatcher: Dispatcher) -> None:
    """`cancel_all` stops the running member, starts no other, and each has one `done`."""
    never = Scripted("c", [])
    with dispatcher.stream("c", [hangs("a", "x"), hangs("b"), never], "p", mode="serial") as stream:
        next(stream)
        assert stream.cancel_all()
        assert not stream.cancel_all()
        events = list(stream)
        outcome = stream.outcome
    assert never.contexts == []
    assert {name: kinds(of(events, name)) for name in "abc"} == {name: ["done"] for name in "abc"}
    assert [turn.reason for turn in outcome.turns] == ["cancel_all"] * 3
    assert (outcome.status, outcome.reason) == ("cancelled", "cancel_all")


def test_an_execution_is_stopped_as_a_whole(dispatcher: Dispatcher) -> None:
    """`cancel_all` stops each turn of its execution that still runs, and none of another execution."""
    with dispatcher.stream("c", [hangs("d", "x")], "p") as other:
        next(other)
        with dispatcher.stream("c", [hangs("a", "x"), hangs("b", "x"), says("c", "x")], "p") as stream:
            done = {event.member for event in itertools.islice(stream, 4) if event.event.kind is Kind.DONE}
            assert done == {"c"}
            assert stream.cancel_all()
            outcome = stream.read()
        assert dispatcher.stop("c", "d")
    assert [outcome[name].reason for name in "abc"] == ["cancel_all", "cancel_all", "completed"]
    assert other.outcome["d"].reason == "user_cancel"


def test_a_member_stopped_before_its_start_never_runs(dispatcher: Dispatcher) -> None:
    """T33: a serial member that is stopped while it waits for its turn gets one `done`, and no run."""
    never = Scripted("b", [])
    with dispatcher.stream("c", [says("a", "x", pause=0.2), never], "p", mode="serial") as stream:
        assert stream.stop("b")
        assert not stream.stop("b", "another reason")
        events = list(stream)
    assert kinds(of(events, "b")) == ["done"]
    assert never.contexts == []
    assert stream.outcome["b"].reason == "user_cancel"
    assert stream.outcome["a"].status == "completed"


def test_a_callers_token_stops_all_of_it(dispatcher: Dispatcher) -> None:
    """A cancel of `cancel=` is the user's; with a cancelled token no member starts."""
    token = CancelToken()
    with dispatcher.stream("c", [hangs("a", "x")], "p", cancel=token) as stream:
        next(stream)
        token.cancel()
        assert stream.read().reason == "user_cancel"
    never = Scripted("a", [])
    outcome = dispatcher.dispatch("c", [never], "p", cancel=token)
    assert (outcome["a"].status, never.contexts) == ("cancelled", [])


def test_an_unknown_member_in_stop(dispatcher: Dispatcher) -> None:
    """Stopping an unknown member is an error that names the members; if nothing runs, it returns False."""
    with dispatcher.stream("c", [hangs("a")], "p") as stream:
        with pytest.raises(UsageError, match="unknown member 'x': this dispatch has a"):
            stream.stop("x")
        with pytest.raises(UsageError, match="unknown member 'x'"):
            dispatcher.stop("c", "x")
        assert not dispatcher.stop("another conversation", "x")
        assert dispatcher.cancel_all("another conversation") == 0
        assert dispatcher.stop("c", "a")
    assert not dispatcher.stop("c", "a")


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"members": []}, UsageError, "members= .* at least one"),
        ({"members": [says("a"), says("a")]}, UsageError, "names 'a' twice"),
        ({"members": "a"}, TypeError, "list of members"),
        ({"members": [object()]}, TypeError, "list of members"),
        ({"conversation": ""}, UsageError, "conversation="),
        ({"prompt": 3}, TypeError, "prompt="),
        ({"mode": "both"}, UsageError, "mode="),
        ({"follow": lambda outcome: []}, UsageError, "follow="),
        ({"output_timeout": -1}, UsageError, "output_timeout="),
        ({"output_timeout": float("nan")}, UsageError, "output_timeout="),
        ({"output_timeout": b"10m"}, TypeError, "output_timeout="),
        ({"output_timeout": "10 min"}, UsageError, "output_timeout="),
        ({"tool_timeout": -1}, UsageError, "tool_timeout="),
        ({"first": True}, TypeError, "first="),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(
    dispatcher: Dispatcher, arguments: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Each invalid argument is refused by name, and nothing is recorded or started."""
    given = {"conversation": "c", "members": [says("a")], "prompt": "p", **arguments}
    before = threading.active_count()
    with pytest.raises(error, match=message):
        dispatcher.dispatch(**given)
    with pytest.raises(error, match=message):
        dispatcher.stream(**given)
    assert threading.active_count() == before


def test_the_environment_gives_the_output_timeout_in_milliseconds(
    dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`CLI_TIMEOUT_MS` is used if there is no argument; an argument overrides it."""
    monkeypatch.setenv("CLI_TIMEOUT_MS", "100")
    outcome = dispatcher.dispatch("c", [hangs("a")], "p")
    assert outcome["a"].diagnosis is not None
    assert outcome["a"].diagnosis["timeout"] == 0.1
    outcome = dispatcher.dispatch("c", [says("a", "x", pause=0.3)], "p", output_timeout=5)
    assert outcome["a"].status == "completed"


@pytest.mark.parametrize("bad", ["-1", "nan", "", "ten minutes", "1e15", "inf"])
def test_an_invalid_environment_is_named_in_a_warning(bad: str) -> None:
    """T30: an invalid value is named in a warning, and the timeout is disabled."""
    with pytest.warns(UserWarning, match=r"CLI_TIMEOUT_MS=.* is ignored") as caught:
        assert limits_of(NOT_GIVEN, None, None, {"CLI_TIMEOUT_MS": bad}).output_timeout == 0
    assert repr(bad) in str(caught[0].message)


def test_the_warning_points_at_the_caller(dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning about the environment is attributed to the line that dispatches."""
    monkeypatch.setenv("CLI_TIMEOUT_MS", "-5")
    with pytest.warns(UserWarning, match="-5") as caught:
        dispatcher.dispatch("c", [says("a")], "p")
    assert caught[0].filename == __file__


def test_a_disabled_timeout_is_logged_once(dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture) -> None:
    """Without an output timeout a dispatch logs one INFO line; with one it logs none."""
    with caplog.at_level(logging.INFO, "streamguard"):
        dispatcher.dispatch("c", [says("a")], "p")
        assert sum("no output timeout" in record.getMessage() for record in caplog.records) == 1
        caplog.clear()
        dispatcher.dispatch("c", [says("a")], "p", output_timeout=60)
        assert not any("no output timeout" in record.getMessage() for record in caplog.records)


def test_zero_disables_the_timeout() -> None:
    """0 and None disable it, also in the environment, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert limits_of(0, None, None, {"CLI_TIMEOUT_MS": "5"}).output_timeout == 0
        assert limits_of(None, None, None, {}).output_timeout == 0
        assert limits_of(NOT_GIVEN, None, None, {"CLI_TIMEOUT_MS": "0"}).output_timeout == 0


def test_hooks_get_turns_and_dispatches(dispatcher: Dispatcher) -> None:
    """Hooks get one event for each turn, with its status and longest silence, and one for the dispatch."""
    events: list[Any] = []
    before = get_hooks()
    set_hooks([events.append])
    try:
        outcome = dispatcher.dispatch("c", [hangs("a", "x"), says("b", "y")], "p", output_timeout=Q)
    finally:
        set_hooks(before)
    turns = {event.member: event for event in events if isinstance(event, TurnFinished)}
    assert (turns["a"].status, turns["a"].reason) == ("failed", "timeout")
    assert turns["a"].silence >= Q > turns["b"].silence
    (finished,) = (event for event in events if isinstance(event, DispatchFinished))
    assert (finished.id, finished.status, finished.members) == (outcome.execution_id, "failed", 2)


def test_closing_the_dispatcher_stops_its_dispatches() -> None:
    """`close()` stops running dispatches and is idempotent; after it, `dispatch()` raises."""
    dispatcher = Dispatcher()
    stream = dispatcher.stream("c", [hangs("a", "x")], "p")
    next(stream)
    dispatcher.close()
    dispatcher.close()
    assert stream.read()["a"].reason == "dispatcher_closed"
    with pytest.raises(UsageError, match="closed"):
        dispatcher.dispatch("c", [says("a")], "p")


def test_the_outcome_exists_after_the_end(dispatcher: Dispatcher) -> None:
    """While a dispatch runs, its outcome raises a UsageError that says how to get it."""
    with dispatcher.stream("c", [hangs("a", "x")], "p") as stream, pytest.raises(UsageError, match="read"):
        _ = stream.outcome
    data = stream.outcome.to_dict()
    assert data["turns"][0]["member"] == "a"
    with pytest.raises(KeyError):
        stream.outcome["b"]


def test_an_exhausted_stream_stays_at_its_end(dispatcher: Dispatcher) -> None:
    """After the last event every `next()` raises StopIteration, and `close()` does nothing."""
    stream = dispatcher.stream("c", [says("a")], "p")
    assert [event.event.kind for event in stream] == [Kind.DONE]
    for _ in range(2):
        with pytest.raises(StopIteration):
            next(stream)
    stream.close()


def member_runs() -> bool:
    return any(thread.name.endswith("member-a") for thread in threading.enumerate())


@pytest.mark.parametrize("which", [1, 2], ids=["while it starts", "while it waits"])
def test_ctrl_c_stops_everything_and_is_raised(dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """Ctrl-C, also during the start, stops the members, and is raised."""
    member = hangs("a", "x")
    real = threading.Event.wait
    interrupted = []

    def wait(self: threading.Event, timeout: float | None = None) -> bool:
        if self not in interrupted and len(interrupted) < which and threading.current_thread() is threading.main_thread():
            interrupted.append(self)
            wait_until(member_runs)
            if len(interrupted) == which:
                raise KeyboardInterrupt
        return real(self, timeout)

    monkeypatch.setattr(threading.Event, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        dispatcher.dispatch("c", [member], "p")
    assert not member_runs()


def test_no_thread_can_be_started(dispatcher: Dispatcher, monkeypatch: pytest.MonkeyPatch) -> None:
    """If no thread can be started, the turn fails with `no_thread`, and nothing hangs."""
    real = threading.Thread.start

    def start(self: threading.Thread) -> None:
        if "member" in self.name or "turn" in self.name:
            raise RuntimeError("can't start new thread")
        real(self)

    monkeypatch.setattr(threading.Thread, "start", start)
    outcome = dispatcher.dispatch("c", [says("a"), says("b")], "p", output_timeout=5)
    assert [outcome[name].reason for name in "ab"] == ["no_thread", "no_thread"]


def test_dispatches_of_many_threads_at_once(dispatcher: Dispatcher) -> None:
    """Each of twenty callers gets the outcome of its own conversation."""
    outcomes: dict[int, str] = {}

    def call(number: int) -> None:
        members = [says("a", str(number)), hangs("b")] if number % 2 else [says("a", str(number))]
        outcomes[number] = dispatcher.dispatch(f"c{number}", members, "p", output_timeout=1)["a"].text

    threads = [threading.Thread(target=call, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == {number: str(number) for number in range(20)}


def test_a_dispatcher_that_is_dropped_leaves_nothing() -> None:
    """Dropping the last reference to a dispatcher closes its connections."""
    with contextlib.suppress(KeyError):
        Dispatcher().dispatch("c", [says("a")], "p")["b"]


def test_a_second_stop_before_the_start_is_too_late(dispatcher: Dispatcher) -> None:
    """Of two stops of a member that has not started, the first one takes effect, whatever their reasons."""
    with dispatcher.stream("c", [hangs("a", "x"), says("b", "x")], "p", mode="serial") as stream:
        next(stream)
        assert [stream.stop("b"), stream.stop("b"), stream.stop("b", "other")] == [True, False, False]
        stream.stop("a")
        assert stream.read()["b"].reason == "user_cancel"


def test_members_may_come_from_any_iterable(dispatcher: Dispatcher) -> None:
    """Members may come from a generator, which is read once; a single member is refused."""
    assert dispatcher.dispatch("c", (says(name, "x") for name in "ab"), "p").succeeded  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="members= must be a list of members"):
        dispatcher.dispatch("c", says("a", "x"), "p")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["parallel", "serial"])
def test_lone_surrogates_lose_no_answer(records_url: str | None, mode: Any) -> None:
    """Lone surrogates in names, prompts, sessions and error codes do not lose the turn or its siblings."""
    events = [Event(kind=Kind.SESSION, session_id="s\ud800"), Event.failure("m\ud800", "e\ud800"), Event.done("e\ud800")]
    members = [Scripted("odd\udce9", events), CommandMember("cat", ["cat"]), says("well", "said")]
    with Dispatcher(records_url) as dispatcher:
        with dispatcher.stream("c\ud800", members, "p\ud800", mode=mode) as stream:
            done = {event.member for event in stream if event.event.kind is Kind.DONE}
        outcome = stream.outcome
        responses = dispatcher.records.responses(outcome.execution_id)
    assert done == {member.name for member in members}
    assert [outcome[member.name].status for member in members] == ["failed", "completed", "completed"]
    assert (outcome["cat"].text, outcome.lost_records) == ("p\ufffd", ())
    assert {(response.member, response.reason) for response in responses} == {
        ("odd\ufffd", "e\ufffd"),
        ("cat", "completed"),
        ("well", "completed"),
    }
