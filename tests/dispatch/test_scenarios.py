"""The scenarios of the dispatch rules (docs/dispatch_rules.md) with real processes.

Scenarios without a process are tested in the modules' own tests.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import psutil
import pytest

from streamguard._core import monotonic
from streamguard.dispatch import CommandMember, Dispatcher, DispatchOutcome, TurnOutcome
from streamguard.dispatch._turn.channel import MemberEvent

from ..helpers import wait_until
from .programs import SLACK, alive, json_lines, python, shell
from .scripted import hangs, kinds, of, says

T = 0.5
"""The output timeout of these tests, in seconds."""

INIT = json.dumps({"type": "system", "subtype": "init", "session_id": "s1"})
WORDS = json.dumps({"type": "assistant", "message": {"id": "m1", "content": [{"type": "text", "text": "Hello"}]}})
RESULT = json.dumps({"type": "result", "subtype": "success", "is_error": False, "num_turns": 1})
BEAT = json.dumps({"type": "system", "subtype": "heartbeat"})
BEATS = f"while :; do echo '{BEAT}'; sleep 0.1; done"

BURN = "say('started')\nwhile True: pass"
TREE = "(sleep 300 & exec sleep 301) & echo started; sleep 302"


@pytest.fixture
def dispatcher() -> Iterator[Dispatcher]:
    with Dispatcher() as dispatcher:
        yield dispatcher


def claude(name: str, *lines: str, then: str = "") -> CommandMember:
    return CommandMember(name, json_lines(*lines, then=then), format="claude")


def run(dispatcher: Dispatcher, *members: Any, **options: Any) -> tuple[list[MemberEvent], DispatchOutcome]:
    with dispatcher.stream("c", members, "a prompt", **{"output_timeout": T, **options}) as stream:
        return list(stream), stream.outcome


def four(turn: TurnOutcome) -> tuple[str, str, str, str]:
    """Return the four statuses of one turn: response, turn, queue, signal."""
    return (f"{turn.status}/{turn.reason}", f"{turn.turn_status}/{turn.turn_reason}", turn.queue_status, turn.signal)


TIMED_OUT = ("failed/timeout", "failed/timeout", "failed", "provider_timeout")
SUCCEEDED = ("completed/completed", "succeeded/succeeded", "succeeded", "completed")
CANCELLED = ("cancelled/user_cancel", "cancelled/user_cancel", "cancelled", "user_cancel")


def test_a_member_with_heartbeats_only_is_stopped(dispatcher: Dispatcher) -> None:
    """R3, R4: heartbeats are not output: it fires at the timeout since the last output, and the diagnosis counts them."""
    events, outcome = run(dispatcher, claude("a", INIT, WORDS, then=BEATS))
    diagnosis = outcome["a"].diagnosis
    assert four(outcome["a"]) == TIMED_OUT
    assert diagnosis is not None
    assert T <= diagnosis["silence"] < T + SLACK
    assert diagnosis["last_output_kind"] == "text"
    assert diagnosis["uncounted"]["status"] >= 2
    assert outcome["a"].text == "Hello"
    assert kinds(of(events, "a"))[-2:] == ["error", "done"]


def test_noise_that_does_not_parse_does_not_re_arm(dispatcher: Dispatcher) -> None:
    """R3: lines that are not JSON, stderr, and unknown events are counted by kind, and do not re-arm the timeout."""
    noise = "while :; do echo 'not json'; echo '{\"type\":\"new_thing\"}'; echo busy >&2; sleep 0.1; done"
    _, outcome = run(dispatcher, claude("a", INIT, then=noise))
    diagnosis = outcome["a"].diagnosis
    assert four(outcome["a"]) == TIMED_OUT
    assert diagnosis is not None
    assert {"unknown", "stderr"} <= diagnosis["uncounted"].keys()
    assert diagnosis["first_output_at"] is None


def test_cpu_use_defers_to_twice_the_timeout(dispatcher: Dispatcher) -> None:
    """R5, R6: a busy member still runs at 1.4 times the timeout, and is stopped at twice the timeout."""
    with dispatcher.stream("c", [CommandMember("a", python(BURN))], "p", output_timeout=T) as stream:
        next(stream)
        began = time.monotonic()
        time.sleep(T * 1.4)
        assert dispatcher.records.turns(stream.execution_id)[0].status == "running"
        outcome = stream.read()
        assert time.monotonic() - began >= 2 * T - 0.1
    diagnosis = outcome["a"].diagnosis
    assert four(outcome["a"]) == TIMED_OUT
    assert diagnosis is not None
    assert 2 * T <= diagnosis["silence"] < 2 * T + SLACK
    assert (diagnosis["activity"], diagnosis["deferrals"]) == ("busy", 1)
    assert diagnosis["cpu_rate"] > 0.1


def test_an_idle_member_is_stopped_at_the_timeout(dispatcher: Dispatcher) -> None:
    """R6, T15: a member that waits uses no CPU: it is stopped at the timeout, never earlier."""
    _, outcome = run(dispatcher, CommandMember("a", shell("echo started; exec sleep 300")))
    diagnosis = outcome["a"].diagnosis
    assert diagnosis is not None
    assert (diagnosis["activity"], diagnosis["deferrals"], diagnosis["process_alive"]) == ("idle", 0, True)
    assert T <= diagnosis["silence"] < T + SLACK


def test_the_whole_tree_is_killed_after_a_snapshot(dispatcher: Dispatcher) -> None:
    """R13, T18, T19: the process group is killed; the evidence has the tree from before the kill."""
    _, outcome = run(dispatcher, CommandMember("a", shell(TREE)))
    evidence = outcome["a"].evidence
    assert evidence is not None
    assert sorted(process["name"] for process in evidence["processes"]) == ["sh", "sleep", "sleep", "sleep"]
    assert evidence["stdout"] == "started\n"
    assert not [process["pid"] for process in evidence["processes"] if alive(process["pid"])]
    (response,) = dispatcher.records.responses(outcome.execution_id)
    assert response.metadata is not None
    assert response.metadata["evidence"] == evidence


def test_a_disabled_timeout_does_not_fire(dispatcher: Dispatcher) -> None:
    """R2: with 0 a silent member is not stopped, and completes."""
    _, outcome = run(dispatcher, CommandMember("a", shell("sleep 0.8; echo late")), output_timeout=0)
    assert four(outcome["a"]) == SUCCEEDED


def test_in_parallel_the_silent_one_is_stopped_and_a_talker_finishes(dispatcher: Dispatcher) -> None:
    """R12, R21: a sibling that prints for longer than the timeout completes."""
    talker = CommandMember("b", shell("for n in 1 2 3 4 5 6; do echo $n; sleep 0.2; done"))
    events, outcome = run(dispatcher, CommandMember("a", shell("exec sleep 300")), talker)
    assert four(outcome["a"]) == TIMED_OUT
    assert four(outcome["b"]) == SUCCEEDED
    assert outcome["b"].duration > 2 * T
    assert [event.member for event in events][-1] == "b"
    assert (outcome.status, outcome.reason) == ("failed", "timeout")


def test_in_serial_the_silent_one_is_stopped_and_the_next_one_runs(dispatcher: Dispatcher) -> None:
    """R21: the list goes on after a timeout."""
    members = [CommandMember("a", shell("exec sleep 300")), CommandMember("b", shell("echo x"))]
    _, outcome = run(dispatcher, *members, mode="serial")
    assert [turn.member for turn in outcome.turns] == ["a", "b"]
    assert four(outcome["a"]) == TIMED_OUT
    assert four(outcome["b"]) == SUCCEEDED


def test_a_user_stops_one_member_and_another_times_out(dispatcher: Dispatcher) -> None:
    """R14, R20: if the user cancelled A and B timed out, the dispatch has failed; each has its own four statuses."""
    with dispatcher.stream("c", [hangs("a", "x"), CommandMember("b", shell("exec sleep 300"))], "p", output_timeout=T) as s:
        next(s)
        assert s.stop("a")
        outcome = s.read()
    assert four(outcome["a"]) == CANCELLED
    assert four(outcome["b"]) == TIMED_OUT
    assert (outcome.status, outcome.reason) == ("failed", "timeout")


def test_a_slot_can_be_dispatched_again_at_once(dispatcher: Dispatcher) -> None:
    """R22, R10: right after a timeout the slot is free, and nothing left of the first one stops the second."""
    for _ in range(3):
        _, outcome = run(dispatcher, CommandMember("a", shell("exec sleep 300")), output_timeout=0.1)
        assert four(outcome["a"]) == TIMED_OUT
        _, outcome = run(dispatcher, CommandMember("a", shell("sleep 0.3; echo x")), output_timeout=5)
        assert four(outcome["a"]) == SUCCEEDED


def test_a_new_dispatch_preempts_the_old_one_on_its_slot_only(dispatcher: Dispatcher) -> None:
    """A preempted turn is interrupted, and its process ends; its sibling and its execution go on."""
    members = [CommandMember("a", shell("echo $$; exec sleep 300")), says("b", "x", pause=0.5)]
    with dispatcher.stream("c", members, "p") as old:
        pid = int(next(old).event.text)
        outcome = dispatcher.dispatch("c", [CommandMember("a", shell("echo new"))], "p")
        assert outcome["a"].text == "new\n"
        before = old.read()
    assert four(before["a"]) == ("interrupted/preempted", "cancelled/preempted", "cancelled", "preempted")
    assert four(before["b"]) == SUCCEEDED
    wait_until(lambda: not alive(pid))


def test_a_leftover_timer_of_an_earlier_turn_changes_nothing(dispatcher: Dispatcher) -> None:
    """R10: a late timer of a preempted turn stops neither the new turn nor changes its outcome."""
    with dispatcher.stream("c", [hangs("a", "x")], "p", output_timeout=T) as old:
        next(old)
        outcome = dispatcher.dispatch("c", [says("a", *"words", pause=T / 2)], "p", output_timeout=2 * T)
    assert four(outcome["a"]) == SUCCEEDED
    assert old.outcome["a"].diagnosis is None


def test_a_result_ends_the_turn_even_if_the_program_lingers(dispatcher: Dispatcher) -> None:
    """T5: the result line completes the turn; a program that does not exit is ended, and is not a timeout."""
    before = set(psutil.Process().children())
    with dispatcher.stream("c", [claude("a", INIT, WORDS, RESULT, then="exec sleep 300")], "p", output_timeout=T) as stream:
        next(stream)
        pid = (set(psutil.Process().children()) - before).pop().pid
        outcome = stream.read()
    assert four(outcome["a"]) == SUCCEEDED
    assert outcome["a"].text == "Hello"
    wait_until(lambda: not alive(pid))


@pytest.mark.parametrize("argv", [["/no/such/program"], ["/etc/passwd"]], ids=["missing", "not executable"])
def test_a_program_that_cannot_be_started(dispatcher: Dispatcher, argv: list[str]) -> None:
    """A program that is missing or not executable fails the turn at once, with a clear sentence."""
    events, outcome = run(dispatcher, CommandMember("a", argv), output_timeout=60)
    assert (outcome["a"].status, outcome["a"].reason) == ("failed", "not_started")
    assert argv[0] in outcome["a"].message
    assert kinds(of(events, "a")) == ["error", "done"]


def test_leaving_the_stream_ends_the_processes(dispatcher: Dispatcher) -> None:
    """Leaving the `with` block ends all processes of the programs."""
    before = set(psutil.Process().children(recursive=True))
    with dispatcher.stream("c", [CommandMember("a", shell(TREE)), CommandMember("b", shell(TREE))], "p") as stream:
        next(stream)
        tree = set(psutil.Process().children(recursive=True)) - before
        assert len(tree) >= 2
    wait_until(lambda: not [process.pid for process in tree if alive(process.pid)])


def test_a_session_is_resumed_from_the_formats_first_event(dispatcher: Dispatcher) -> None:
    """The session id of a program's first event goes to its next turn in this conversation only."""
    member = CommandMember(
        "a",
        json_lines(INIT, RESULT),
        format="claude",
        resume=[*shell(f"echo '{INIT}'; echo \"asked for $0\" >&2; sleep 0.2; echo '{RESULT}'"), "{session}"],
    )
    run(dispatcher, member)
    events, outcome = run(dispatcher, member)
    assert "asked for s1" in "".join(event.text for event in of(events, "a"))
    assert outcome["a"].session_id == "s1"
    with dispatcher.stream("another", [member], "p") as stream:
        assert not [event for event in stream if event.event.kind == "stderr"]


def test_a_resumed_session_without_a_frame_is_dropped_once(dispatcher: Dispatcher) -> None:
    """R27: the program hangs on `--resume`: the start-up limit ends it, and a new session answers; nothing else is sent."""
    member = CommandMember(
        "a",
        json_lines(INIT, WORDS, RESULT),
        format="claude",
        resume=[*shell("echo complaint >&2; exec sleep 300"), "{session}"],
        grace=0.2,
    )
    run(dispatcher, member)
    events, outcome = run(dispatcher, member, output_timeout=20, first=0.4)
    assert four(outcome["a"]) == SUCCEEDED
    assert outcome["a"].attempts == 2
    assert kinds(of(events, "a")) == ["session", "text", "done"]


def test_a_start_up_limit_is_not_the_member_timeout(dispatcher: Dispatcher) -> None:
    """R26: without a session it is a failure with its own code, long before the output timeout."""
    _, outcome = run(dispatcher, CommandMember("a", shell("exec sleep 300"), grace=0.2), output_timeout=60, first=0.3)
    assert (outcome["a"].status, outcome["a"].reason) == ("failed", "startup_timeout")
    assert outcome["a"].diagnosis is None


def test_firing_is_within_a_tenth_of_a_second_of_the_limit(dispatcher: Dispatcher) -> None:
    """Of nine members that hang none fires early, and at least one fires within 100 ms of the limit."""
    over = []
    for _ in range(3):
        members = [CommandMember(f"m{number}", shell("exec sleep 300")) for number in range(3)]
        with dispatcher.stream("c", members, "p", output_timeout=T) as stream:
            began = monotonic()
            late = {event.member: monotonic() - began - T for event in stream if event.event.kind == "error"}
        over += [turn.diagnosis["silence"] - T for turn in stream.outcome.turns if turn.diagnosis]
        assert late.keys() == {"m0", "m1", "m2"}
        assert min(late.values()) > -0.1  # they began a little before we looked at the clock
    assert len(over) == 9
    assert min(over) >= 0
    assert min(over) < 0.1
