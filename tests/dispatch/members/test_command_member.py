"""A member that is a program."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from streamguard import CancelToken, UsageError, deadline
from streamguard._core import monotonic
from streamguard.dispatch import Dispatcher
from streamguard.dispatch._data.turn_events import STARTUP_TIMEOUT, Event, Kind
from streamguard.dispatch._members.command_member import PRESETS, CommandMember
from streamguard.dispatch._members.member import Member, TurnContext
from streamguard.dispatch._process.cpu_activity import ActivityProbe
from streamguard.dispatch._process.snapshot import SnapshotProbe
from streamguard.dispatch._process.spawn import CommandStartError

from ..programs import SLACK, group_is_gone, json_lines, python, shell

SESSION = '{"type":"system","subtype":"init","session_id":"s1"}'
TEXT = '{"type":"assistant","message":{"id":"m1","content":[{"type":"text","text":"Hello"}]}}'
RESULT = '{"type":"result","subtype":"success","is_error":false,"result":"Hello"}'


def context(**fields: object) -> TurnContext:
    return TurnContext(**{"token": CancelToken(), "turn_id": "t1", **fields})  # type: ignore[arg-type]


def words(events: list[Event]) -> str:
    return "".join(event.text for event in events if event.kind is Kind.TEXT)


def test_it_is_a_member() -> None:
    """A CommandMember is a `Member`."""
    assert isinstance(CommandMember("a", ["true"]), Member)


def test_the_events_of_a_turn() -> None:
    """The program's output becomes session, text and `done`."""
    events = [*CommandMember("a", json_lines(SESSION, TEXT, RESULT), format="claude").run("hi", context())]
    assert [event.kind for event in events] == [Kind.SESSION, Kind.TEXT, Kind.DONE]
    assert (events[0].session_id, words(events), events[-1].error_code) == ("s1", "Hello", None)


def test_the_prompt_is_standard_input() -> None:
    """Without `{prompt}` the program reads the prompt from standard input, whatever it contains."""
    prompt = "{session} $HOME 'quoted'\nüber"
    assert words([*CommandMember("a", ["cat"]).run(prompt, context())]) == prompt


def test_the_prompt_replaces_its_placeholder() -> None:
    """`{prompt}` in an argument is replaced by the prompt; then standard input is empty."""
    member = CommandMember("a", ["sh", "-c", 'printf "%s|" "$@"; cat', "-", "--say={prompt}", "{prompt}"])
    assert words([*member.run("{session}", context(session_id="s9"))]) == "--say={session}|{session}|"


def test_a_session_is_resumed() -> None:
    """A turn with a session uses `resume`; a member without one ignores the session."""
    member = CommandMember("a", ["echo", "new"], resume=["echo", "resume", "{session}"])
    assert words([*member.run("x", context(session_id="s9"))]) == "resume s9\n"
    assert words([*member.run("x", context())]) == "new\n"
    assert words([*CommandMember("a", ["echo", "new"]).run("x", context(session_id="s9"))]) == "new\n"


def test_it_has_no_timeout_of_its_own() -> None:
    """Only the start-up limit of the turn can end it, and only before the first frame (R25, R26)."""
    member = CommandMember("a", json_lines(SESSION, then=f"sleep 0.6; echo '{TEXT}'; echo '{RESULT}'"), format="claude")
    assert [*member.run("x", context(first=0.4))][-1] == Event.done(
        data={"num_turns": None, "usage": None, "total_cost_usd": None}
    )


@pytest.mark.parametrize("noise", ["", "echo not JSON", "echo chatter >&2"])
def test_a_start_up_limit(noise: str) -> None:
    """Without a frame in time the turn ends with a start-up timeout; noise is not a frame (R27)."""
    member = CommandMember("a", shell(f"{noise}\nsleep 60"), format="claude")
    started = monotonic()
    events = [*member.run("x", context(first=0.3))]
    assert 0.3 <= monotonic() - started < 0.3 + SLACK
    assert [(event.kind, event.error_code) for event in events[-2:]] == [
        (Kind.ERROR, STARTUP_TIMEOUT),
        (Kind.DONE, STARTUP_TIMEOUT),
    ]


def test_stderr_never_counts() -> None:
    """B154: standard error becomes `stderr` events, which are not output, also with plain lines."""
    events = [*CommandMember("a", shell("echo out; echo err >&2")).run("x", context())]
    assert sorted((event.text, event.is_output) for event in events if event.text) == [("err\n", False), ("out\n", True)]


def test_a_stopped_turn_ends_without_a_done_of_its_own() -> None:
    """After a cancel of the token the iterator ends without `done`, and no process of the group is left (R13)."""
    token, pids = CancelToken(), []
    probe: Callable[[ActivityProbe | None], None] = lambda probe: pids.append(probe and probe.pid)  # noqa: E731
    events = []
    for event in CommandMember("a", shell("echo hi; sleep 60 & sleep 60")).run("x", context(token=token, probe=probe)):
        events.append(event)
        threading.Timer(0.1, token.cancel, ["timeout"]).start()
    assert [event.kind for event in events] == [Kind.TEXT]
    assert pids[1] is None
    assert pids[0] is not None
    assert group_is_gone(pids[0])


def test_closing_the_iterator_ends_the_program() -> None:
    """Closing the iterator ends the program."""
    pids = []
    turn = CommandMember("a", shell("echo hi; sleep 60")).run(
        "x", context(probe=lambda probe: pids.append(probe and probe.pid))
    )
    next(turn)
    turn.close()  # type: ignore[attr-defined]
    assert pids[1] is None
    assert group_is_gone(pids[0] or 0)


def test_the_probe_shows_evidence() -> None:
    """The probe of a turn measures the process, and has the snapshot from before the kill."""
    probes: list[ActivityProbe | None] = []
    turn = CommandMember("a", python("say('hi')\ntime.sleep(60)")).run("x", context(probe=probes.append))
    next(turn)
    (probe,) = probes
    assert isinstance(probe, SnapshotProbe)
    assert probe.snapshot() is None
    turn.close()  # type: ignore[attr-defined]
    evidence = probe.snapshot()
    assert evidence is not None
    assert (evidence["stdout"], [info["pid"] for info in evidence["processes"]]) == ("hi\n", [probe.pid])


def test_a_failing_program() -> None:
    """The exit code is the reason of the turn's failure."""
    assert [*CommandMember("a", shell("exit 3")).run("x", context())][-1].error_code == "exit_3"


def test_a_missing_program_is_a_clear_error() -> None:
    """A missing program raises an error with its name."""
    with pytest.raises(CommandStartError, match="no-such-program"):
        next(CommandMember("a", ["no-such-program"]).run("x", context()))


@pytest.mark.parametrize(
    ("argv", "options"),
    [([], {}), (["x"], {"format": "cobol"}), (["x"], {"ignore": "("}), (["x"], {"grace": -1}), ("x y", {})],
)
def test_invalid_arguments_are_refused_in_the_constructor(argv: list[str], options: dict[str, object]) -> None:
    """An invalid argv, format or pattern is a UsageError in the constructor, not in the first turn."""
    with pytest.raises(UsageError):
        CommandMember("a", argv, **options)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="name"):
        CommandMember("", ["x"])


def test_presets(tmp_path: Path) -> None:
    """Each known agent program has its argv; further arguments go before its first word that is not an option."""
    for program in PRESETS:
        assert CommandMember.preset(program).name == program
    codex = tmp_path / "codex"
    codex.write_text('#!/bin/sh\necho "$@" >&2\n')
    codex.chmod(0o755)
    member = CommandMember.preset(
        "codex", name="coder", arguments=["--model", "x"], env={"PATH": f"{tmp_path}:/bin:/usr/bin"}
    )
    assert member.name == "coder"
    for session, expected in ((None, "exec --json --model x -\n"), ("s9", "exec --json --model x resume s9 -\n")):
        events = [*member.run("hi", context(session_id=session))]
        assert [event.text for event in events if event.kind is Kind.STDERR] == [expected]
    with pytest.raises(UsageError, match="unknown preset"):
        CommandMember.preset("cobol")


def test_a_member_is_waited_for_as_long_as_its_program_may_take() -> None:
    """A turn waits for the program's grace, and after `done` for its linger too, before it abandons it."""
    member = CommandMember("a", ["x"], grace=60, linger=100)
    assert member.stop_grace > 60
    assert member.done_grace > 160


def test_a_surrounding_deadline_is_not_the_output_timeout() -> None:
    """A surrounding `deadline()` ends the turn as `deadline_exceeded`, not as `timeout`."""
    with deadline(0.2), Dispatcher() as dispatcher:
        turn = dispatcher.dispatch("c", [CommandMember("a", shell("echo hi; sleep 60"))], "p")["a"]
    assert (turn.reason, turn.text, turn.timed_out) == ("deadline_exceeded", "hi\n", False)
