"""Results and reports: their contents for programs, users and logs."""

import dataclasses
import json
import logging
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamguard import Chain, ChainResult, StepFailedError, StepReport
from streamguard._chain.chain_report import run_status
from streamguard._chain.step_status import StepStatus

from .steps import obedient, raises, value

REFUSED = ConnectionRefusedError()


def report(status: StepStatus, reason: str | None = None, *, fallback: str | None = None) -> StepReport:
    has_value = status == "ok" or fallback is not None
    return StepReport(name="a", status=status, reason=reason, critical=False, fallback=fallback, has_value=has_value)


OK = report("ok")
FELL_BACK = report("timeout", "step_limit", fallback="neutral")
FAILED = report("error", "http_500")
CANCELLED = report("cancelled", "run_cancelled")


def run_of(*, critical_fails: bool = False, **options: Any) -> ChainResult:
    chain = Chain("agent", deadline=20, **options)
    chain.step(raises(REFUSED), name="profile", limit=5, fallback={}, fallback_name="neutral_profile")
    chain.step(raises(REFUSED) if critical_fails else value(True), name="policy")
    return chain.run(user=7)


def test_a_result_is_plain_data_for_machines() -> None:
    """to_dict() survives JSON, with all reports in declared order, and no exception or value in it."""
    result = run_of()
    data = json.loads(json.dumps(result.to_dict()))
    assert (data["name"], data["id"], data["status"]) == ("agent", result.id, "completed_with_fallback")
    assert [step["name"] for step in data["steps"]] == ["profile", "policy"] == list(result)
    profile = data["steps"][0]
    assert (profile["status"], profile["reason"], profile["limit"]) == ("error", "connection_refused", 5)
    assert (profile["attempts"], profile["overran"], profile["error_type"]) == (1, False, "ConnectionRefusedError")
    assert {"error", "has_value"} & profile.keys() == set()
    assert "values" not in data


def test_public_is_an_allow_list() -> None:
    """public() has exactly the fields that people may see; a new field of a report does not appear by itself."""
    public = run_of().public()
    assert public.keys() == {"name", "id", "status", "message", "answer", "steps"}
    assert public["steps"][0] == {
        "name": "profile",
        "status": "error",
        "reason": "connection_refused",
        "fallback": "neutral_profile",
    }


def test_reports_are_frozen() -> None:
    """A failure cannot be changed into a success afterwards."""
    result = run_of(critical_fails=True)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.status = "completed"  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.steps["policy"].status = "ok"  # type: ignore[misc]


def test_the_times_of_a_step_add_up() -> None:
    """A step's start and duration lie within the run; what never started has neither."""
    chain = Chain("agent", deadline=0.3)
    chain.step(lambda ctx: ctx.token.wait(0.1), name="first")
    chain.step(obedient, name="second", fallback=1)
    chain.step(value(1), name="third", fallback=1)
    result = chain.run()
    first, second, third = result.steps.values()
    assert first.duration is not None
    assert second.duration is not None
    assert second.started_after is not None
    assert first.duration >= 0.1
    assert second.started_after >= 0.1
    assert 0.3 <= second.started_after + second.duration <= result.elapsed
    assert (third.started_after, third.duration, third.attempts) == (None, None, 0)


def test_a_result_prints_as_a_table() -> None:
    """str() has a line for each step with its words and its fallback."""
    lines = str(run_of(critical_fails=True)).splitlines()
    assert lines[0].startswith("run agent ")
    assert "waiting_external_service" in lines[0]
    assert "profile" in lines[1]
    assert "error (connection_refused)" in lines[1]
    assert lines[1].endswith("fallback neutral_profile")
    assert len(lines) == 3


def test_messages_are_the_callers_or_ours() -> None:
    """messages= has a text, or a function of the result, for each status; the others have the default."""
    messages: dict[str, Any] = {
        "completed_with_fallback": lambda result: f"{len(result.steps)} steps",
        "waiting_external_service": "Ask again later.",
    }
    assert run_of(messages=messages).message == "2 steps"
    assert run_of(messages=messages, critical_fails=True).message == "Ask again later."
    assert run_of().message == "Completed; a fallback stands in for: profile."
    assert "No decision was taken" in run_of(critical_fails=True).message
    assert "policy (connection_refused)" in run_of(critical_fails=True).message
    chain = Chain("agent")
    chain.step(value(1), name="a")
    assert chain.run().message == "All steps succeeded."


def test_an_answer_is_made_of_completed_runs_only() -> None:
    """answer= sees the result of a completed run, with fallback or without; else it is not called, and there is none."""
    seen: list[str] = []

    def answer(result: ChainResult) -> Any:
        seen.append(result.status)
        return result["policy"]

    assert run_of(answer=answer).answer is True
    assert run_of(answer=answer).public()["answer"] is True
    assert run_of(answer=answer, critical_fails=True).answer is None
    assert seen == ["completed_with_fallback"] * 2


def test_a_bug_in_answer_or_messages_propagates() -> None:
    """They are the caller's code: what they raise, run() raises."""
    with pytest.raises(ZeroDivisionError):
        run_of(answer=lambda result: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run_of(messages={"completed_with_fallback": lambda result: str(1 / 0)})


def test_what_does_not_exist_is_a_key_error() -> None:
    """An unknown name is a KeyError, not a failure of a service."""
    with pytest.raises(KeyError):
        run_of()["unknown"]


def test_a_step_failed_error_pickles() -> None:
    """It keeps its text and its attributes between processes."""
    with pytest.raises(StepFailedError) as caught:
        run_of(critical_fails=True)["policy"]
    copy = pickle.loads(pickle.dumps(caught.value))
    assert (str(copy), copy.__dict__) == (str(caught.value), caught.value.__dict__)


def test_one_info_line_for_each_run(caplog: pytest.LogCaptureFixture) -> None:
    """A run is one INFO line with its data; its steps are DEBUG; each use of a fallback is a WARNING."""
    caplog.set_level(logging.DEBUG, logger="streamguard")
    result = run_of()
    lines = [(record.levelno, record.__dict__["streamguard"]) for record in caplog.records if record.name == "streamguard"]
    (run,) = [fields for level, fields in lines if level == logging.INFO]
    assert (run["event"], run["id"], run["status"]) == ("run_finished", result.id, "completed_with_fallback")
    assert [step["name"] for step in run["steps"]] == ["profile", "policy"]
    (fallback,) = [fields for level, fields in lines if level == logging.WARNING]
    assert (fallback["event"], fallback["id"], fallback["step"]) == ("step_fallback", result.id, "profile")
    assert (fallback["reason"], fallback["fallback"]) == ("connection_refused", "neutral_profile")
    steps = [fields for level, fields in lines if level == logging.DEBUG and fields["event"] == "step_finished"]
    assert [(step["step"], step["status"]) for step in steps] == [("profile", "error"), ("policy", "ok")]


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        ([OK, OK], "completed"),
        ([OK, FELL_BACK], "completed_with_fallback"),
        ([FELL_BACK, FAILED], "waiting_external_service"),
        ([OK, FAILED], "waiting_external_service"),
        ([report("ok", "verified")], "completed"),
        ([OK, CANCELLED], "cancelled"),
        ([FELL_BACK, FAILED, CANCELLED], "cancelled"),
    ],
)
def test_the_steps_decide_about_the_run(steps: list[StepReport], status: str) -> None:
    """A cancel comes first, then a missing value, then a fallback; else the run is completed."""
    assert run_status(steps) == status


@given(st.lists(st.sampled_from([OK, FELL_BACK, FAILED, CANCELLED]), min_size=1))
def test_a_missing_value_never_completes(steps: list[StepReport]) -> None:
    """A run is completed exactly if each step has a value, and without a fallback exactly if each has its own."""
    assert run_status(steps).startswith("completed") == all(step.has_value for step in steps)
    assert (run_status(steps) == "completed") == all(step is OK for step in steps)


def test_the_text_shows_retries_and_fallbacks() -> None:
    """print(result) says how many attempts a step took, if more than one, and which fallback was used."""
    chain = Chain("c", deadline=20)
    chain.step(raises(ConnectionResetError()), name="often", retries=1, idempotent=True, fallback=1, fallback_name="one")
    chain.step(value(1), name="once")
    often, once = str(chain.run()).splitlines()[1:]
    assert often.endswith("  2 attempts, fallback one")
    assert "attempt" not in once


def test_the_message_says_which_step_was_never_asked() -> None:
    """A step that never started was not asked: the default message and StepFailedError say so; one that failed was."""
    chain = Chain("c", deadline=0.1)
    chain.step(obedient, name="profile", fallback=1)
    chain.step(value(1), name="policy", min_budget=5)
    never = chain.run()
    assert "Not asked: policy (deadline_exhausted)." in never.message
    with pytest.raises(StepFailedError, match="it was not asked"):
        never["policy"]
    failed = run_of(critical_fails=True)
    assert "Without a value: policy (connection_refused)." in failed.message
    assert "ot asked" not in failed.message
