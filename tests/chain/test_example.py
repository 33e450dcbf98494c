"""examples/agent.py: the demonstration, all of it, against real servers."""

import dataclasses
import importlib.util
import subprocess
import sys
from types import ModuleType

import pytest
import requests

from streamguard import UsageError
from streamguard.testing import AgentAPI, Gateway

from ..helpers import ROOT

PATH = ROOT / "examples" / "agent.py"


@pytest.fixture(scope="module")
def agent() -> ModuleType:
    """Load the example as a module."""
    spec = importlib.util.spec_from_file_location("example_agent", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["example_agent"] = module
    spec.loader.exec_module(module)
    return module


def test_all_runs_end_as_stated(agent: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """`make example-agent` shows eight runs, each as it must be, and exits with 0."""
    assert agent.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + len(agent.SCENARIOS) == 9
    assert "NOT AS EXPECTED" not in "".join(lines)


def test_a_run_that_ends_otherwise_is_an_exit_code(agent: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """If one run is not as stated, the example reports it, and exits with 1."""
    wrong = dataclasses.replace(agent.SCENARIOS[1], status="completed_with_fallback")
    monkeypatch.setattr(agent, "SCENARIOS", [wrong])
    assert agent.main([]) == 1


def test_it_asks_a_server_of_your_own() -> None:
    """With a URL it asks that server, and prints the result."""
    with AgentAPI(policy_ms=0, profile_ms=0) as api:
        command = [sys.executable, str(PATH), api.url]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=50, check=False, env={"PYTHONPATH": str(ROOT)}
        )
    assert (done.returncode, done.stderr) == (0, "")
    assert "completed" in done.stdout


def test_the_api_answers_as_configured() -> None:
    """Profile and policy answer as configured; other paths are a 404; impossible options are refused."""
    with AgentAPI(profile_ms=0, policy_ms=0, policy_status=503, allowed=False) as api, requests.Session() as session:
        assert session.get(f"{api.url}/profile/7", timeout=5).json()["name"] == "Ada"
        policy = session.get(f"{api.url}/policy?x=1", timeout=5)
        assert (policy.status_code, policy.json()) == (503, {"allowed": False})
        assert session.get(f"{api.url}/other", timeout=5).status_code == 404
        assert session.post(f"{api.url}/policy", timeout=5).status_code == 404
    with pytest.raises(UsageError, match="profile_ms"):
        AgentAPI(profile_ms=-1)


def test_either_service_may_break_with_and_without_an_id() -> None:
    """`/profile` and `/policy` answer with and without an ID, and each can have a status and a body of its own."""
    options = {"profile_ms": 0, "policy_ms": 0, "profile_status": 500, "profile_garbage": True}
    with AgentAPI(**options) as api, requests.Session() as session:
        for path in ("profile", "profile/7", "profile?user=7"):
            found = session.get(f"{api.url}/{path}", timeout=5)
            assert (found.status_code, found.text.startswith("<!doctype html>")) == (500, True)
        for path in ("policy", "policy/7", "policy?user=7"):
            assert session.get(f"{api.url}/{path}", timeout=5).json() == {"allowed": True}
        assert session.get(f"{api.url}/profiles", timeout=5).status_code == 404


WRONG = [
    "{}",
    "null",
    "[]",
    "7",
    '"yes"',
    "true",
    '{"allowed": "no"}',
    '{"allowed": 1}',
    '{"allowed": null}',
    '{"allowed": [true]}',
]


@pytest.mark.parametrize("policy", WRONG)
def test_c243_only_true_is_a_permission(agent: ModuleType, policy: str) -> None:
    """C243: any other JSON of the policy is an outage: no exception out of run(), and nobody may proceed."""
    with Gateway('body {"name": "Ada"}', f"body {policy}") as gateway:
        result = agent.make_agent(gateway.url).run(user=7)
    assert (result.status, result.answer) == ("waiting_external_service", None)
    assert result.steps["policy"].reason == "validation_failed"


@pytest.mark.parametrize("profile", ["{}", "null", "[]", "7", '{"name": null}', '{"name": 7}'])
def test_c243_a_profile_of_the_wrong_shape_is_replaced(agent: ModuleType, profile: str) -> None:
    """C243: any other JSON of the profile is replaced by the fallback."""
    with Gateway(f"body {profile}", 'body {"allowed": true}') as gateway:
        result = agent.make_agent(gateway.url).run(user=7)
    assert (result.status, result.answer) == ("completed_with_fallback", "user may proceed.")


def test_a_policy_that_was_never_asked_is_reported_so(agent: ModuleType) -> None:
    """The message says whether the policy was asked and did not answer, or never asked."""
    with AgentAPI(profile_ms=5000) as api:
        result = agent.make_agent(api.url, deadline=0.2).run(user=7)
    assert result.steps["policy"].status == "skipped"
    assert "was not asked" in result.message
    with AgentAPI(policy_status=500) as api:
        assert "did not answer" in agent.make_agent(api.url).run(user=7).message
