"""A small agent: a profile that is nice to have, a policy that decides, and 1.2 seconds for all of it.

`make example-agent` runs it against real servers on loopback that are slow, hang, refuse or answer nonsense, prints how
each run ended, and exits with 0 only if all of them ended as expected. To ask a server of your own:

    streamguard gateway agent --profile-ms 900 --port 8000
    python examples/agent.py http://127.0.0.1:8000
"""

import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from streamguard import Chain, ChainResult, StepContext
from streamguard.testing import AgentAPI


def make_agent(url: str, *, deadline: float = 1.2) -> Chain:
    """Return the agent that asks the API at *url*."""
    agent = Chain("agent", deadline=deadline, messages={"waiting_external_service": apologise}, answer=decide)

    @agent.step(limit=0.4, fallback={"name": "user"}, fallback_name="neutral_profile")
    def profile(ctx: StepContext) -> Any:
        return ctx.get_json(f"{url}/profile/{ctx.inputs['user']}", validate=lambda answer: isinstance(answer["name"], str))

    @agent.step(limit=0.5)  # no fallback: critical
    def policy(ctx: StepContext) -> Any:
        return ctx.get_json(f"{url}/policy", validate=lambda answer: isinstance(answer["allowed"], bool))

    return agent


def decide(result: ChainResult) -> str:
    """Return the answer of a completed run: only `true` allows it."""
    verdict = "may" if result["policy"]["allowed"] is True else "may not"
    return f"{result['profile']['name']} {verdict} proceed."


def apologise(result: ChainResult) -> str:
    """Return the message of a run without a decision."""
    problem = "did not answer" if result.steps["policy"].was_asked else "was not asked: there was no time left"
    return f"The policy service {problem}. No decision was taken; ask again later."


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run: how the services behave, and how it must end."""

    title: str
    profile: str
    policy: str
    status: str
    services: dict[str, Any] = field(default_factory=dict)
    deadline: float = 1.2
    refused: bool = False
    """The policy's server refuses connections."""
    answer: str | None = None


SCENARIOS = [
    Scenario(
        "slow profile",
        "timeout/step_limit, neutral_profile",
        "ok",
        "completed_with_fallback",
        {"profile_ms": 900},
        answer="user may proceed.",
    ),
    Scenario("both fast", "ok", "ok", "completed", answer="Ada may proceed."),
    Scenario("hung policy", "ok", "timeout/step_limit", "waiting_external_service", {"policy_ms": 60_000}),
    Scenario(
        "no time left",
        "timeout/deadline_exhausted, neutral_profile",
        "skipped/deadline_exhausted",
        "waiting_external_service",
        {"profile_ms": 900},
        deadline=0.3,
    ),
    Scenario("policy says no", "ok", "ok", "completed", {"allowed": False}, answer="Ada may not proceed."),
    Scenario("policy broken", "ok", "error/http_500", "waiting_external_service", {"policy_status": 500}),
    Scenario(
        "connection refused",
        "error/connection_refused, neutral_profile",
        "error/connection_refused",
        "waiting_external_service",
        refused=True,
    ),
    Scenario("policy is HTML", "ok", "error/invalid_json", "waiting_external_service", {"garbage": True}),
]


@contextmanager
def served(scenario: Scenario) -> Iterator[str]:
    """Serve what *scenario* asks for, on loopback; give the URL."""
    if scenario.refused:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        yield url
        return
    with AgentAPI(**scenario.services) as api:
        yield api.url


def play(scenario: Scenario) -> bool:
    """Run the agent once, print how it ended, and return whether it ended as expected."""
    with served(scenario) as url:
        result = make_agent(url, deadline=scenario.deadline).run(user=7)
    seen = (how(result, "profile"), how(result, "policy"), result.status, result.answer)
    as_expected = seen == (scenario.profile, scenario.policy, scenario.status, scenario.answer)
    undecided = result.status == "waiting_external_service"
    as_expected = as_expected and undecided == ("No decision was taken" in result.message)
    print(f"{scenario.title:<15} {seen[0]:<44} {seen[1]:<27} {seen[2]:<25} {result.elapsed * 1000:5.0f} ms", end="  ")
    print(result.answer or result.message, "" if as_expected else f"  NOT AS EXPECTED: {scenario}", sep="")
    return as_expected


def how(result: ChainResult, step: str) -> str:
    """Return how a step ended, as its report has it."""
    report = result.steps[step]
    ending = f"{report.status}/{report.reason}" if report.reason else report.status
    return f"{ending}, {report.fallback}" if report.fallback else ending


def main(arguments: list[str]) -> int:
    """Run all scenarios, or ask the server that the first argument names."""
    if arguments:
        print(make_agent(arguments[0]).run(user=7))
        return 0
    print(f"{'':<15} {'profile (optional)':<44} {'policy (critical)':<27} {'run':<25} {'took':>8}  answer or message")
    all_as_expected = [play(scenario) for scenario in SCENARIOS]  # all of them, whatever the first one says
    return 0 if all(all_as_expected) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
