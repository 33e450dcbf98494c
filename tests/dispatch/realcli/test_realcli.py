"""The real `claude`, `codex`, `gemini`, `opencode`, `qwen`, `cline`, against a gateway that answers, hangs, dies and fails.

Each scene also checks that no process is left in its network.
"""

import os
from typing import Any

import pytest

from .conftest import Play
from .scripts import SHELL_COMMAND

pytestmark = [pytest.mark.realcli, pytest.mark.timeout(1200)]

PROGRAMS = ("claude", "codex", "gemini", "opencode", "qwen", "cline")
WITHOUT_DELTAS = ("codex", "opencode")
"""They print a text once it is complete."""
TOOLS_IN_SIGHT = tuple(program for program in PROGRAMS if program != "opencode")
"""opencode prints a tool's call together with its result."""
FIRST = 40.0
"""Seconds for a program to start, on a busy machine."""


def said(told: dict[str, Any]) -> str:
    return "".join(event["text"] for event in told["events"] if event["kind"] == "text")


def uncounted(told: dict[str, Any]) -> set[str]:
    return set(told["result"]["diagnosis"]["uncounted"])


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_normal_answer(program: str, play: Play) -> None:
    """It completes, with the right text counted once, and a session."""
    told = play(program, "answer", limits={"first": FIRST, "idle": 20, "linger": 5})
    result = told["result"]
    assert (result["outcome"], result["text"], said(told)) == ("completed", "Hello world", "Hello world")
    assert result["session_id"] or program == "cline"  # no frame of cline's names one
    assert [event["kind"] for event in told["events"]].count("done") == 1


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_gateway_that_only_pings(program: str, play: Play) -> None:
    """The incident, live: heartbeats for ever after a few deltas. It ends at the limit, and the gateway sees it leave."""
    silent = "first" if program in WITHOUT_DELTAS else "idle"
    told = play(program, "pings", limits={"first": 8 if program in WITHOUT_DELTAS else FIRST, "idle": 3})
    result = told["result"]
    assert (result["outcome"], result["limit"], result["error_code"]) == ("timeout", silent, "timeout")
    assert result["diagnosis"]["silence"] >= result["limit_seconds"]
    assert result["deferred_by_cpu"] == 0
    assert result["evidence"]["processes"]
    assert any(socket["state"] == "ESTABLISHED" for socket in result["evidence"]["sockets"])
    assert told["open"] == 0


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_gateway_that_is_killed(program: str, play: Play) -> None:
    """Whether the program gives up or tries for ever, the run ends: as its failure, or at the limit; never as completed."""
    told = play(program, "stall", limits={"first": 20, "idle": 10, "total": 60}, kill_gateway=True)
    assert told["result"]["outcome"] in ("failed", "timeout")
    assert told["events"][-1]["error_code"] in ("provider_error", "timeout", "exit_1")


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_error_frame(program: str, play: Play) -> None:
    """An error of the API is a failure of the run, with the program's own words."""
    told = play(program, "error", limits={"first": FIRST, "idle": 30, "total": 80})
    result = told["result"]
    assert (result["outcome"], told["events"][-1]["kind"]) == ("failed", "done")
    error = [event for event in told["events"] if event["kind"] != "stderr"][-2]  # standard error has a pipe of its own
    assert error["kind"] == "error"
    assert len(error["text"]) > 5


@pytest.mark.parametrize("program", TOOLS_IN_SIGHT)
def test_a_silent_tool(program: str, play: Play) -> None:
    """A tool call that sleeps is stopped at the limit, and named; its process, in a session of its own, is gone too."""
    told = play(program, "tool", limits={"first": FIRST, "idle": 3})
    result = told["result"]
    assert (result["outcome"], result["limit"]) == ("timeout", "idle")
    assert len(result["diagnosis"]["tools"]) == 1
    assert SHELL_COMMAND.split()[0] in [info["name"] for info in result["evidence"]["processes"]]


@pytest.mark.parametrize("program", TOOLS_IN_SIGHT)
def test_a_silent_tool_with_an_allowance(program: str, play: Play) -> None:
    """With `tool_timeout` the same tool call may take its time, and the run completes."""
    told = play(program, "tool", limits={"first": FIRST, "idle": 3, "tool_timeout": 30, "linger": 5})
    assert (told["result"]["outcome"], told["result"]["text"]) == ("completed", "done")
    kinds = [event["kind"] for event in told["events"] if event["is_output"] and not event["delta"]]
    assert kinds.index("tool_call") < kinds.index("tool_result")


def test_a_tool_of_opencode_is_seen_with_its_result(play: Play) -> None:
    """While the tool runs nothing is printed: the limit must be longer than the tool."""
    told = play("opencode", "tool", limits={"first": FIRST, "idle": 20, "linger": 5})
    assert (told["result"]["outcome"], told["result"]["text"]) == ("completed", "done")
    assert [event["kind"] for event in told["events"] if event["is_output"]] == ["tool_result", "text"]


@pytest.mark.parametrize("program", ["claude", "codex", "opencode", "qwen"])
def test_a_member_resumes_its_session(program: str, play: Play) -> None:
    """Two turns of a member: the second one resumes the session, so that the gateway sees the first prompt again."""
    told = play(program, "two turns", turns=2)
    assert said(told) == "onetwo"
    assert [event["error_code"] for event in told["events"] if event["kind"] == "done"] == [None, None]
    assert "prompt 0" in told["asked"][-1]
    assert "prompt 1" in told["asked"][-1]


def test_in_ci_nothing_is_skipped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is a skip on a developer's machine, and a failure in CI."""
    from .conftest import cannot

    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="must run in CI: no node"):
        cannot("no node")
    monkeypatch.delitem(os.environ, "CI")
    with pytest.raises(pytest.skip.Exception, match="no node"):
        cannot("no node")
