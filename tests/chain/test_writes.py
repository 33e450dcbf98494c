"""Retries, and writes: keys, and the outcome after a timeout."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import requests

from streamguard import Chain, HTTPStatusError, Settled, StepContext, UsageError
from streamguard._core.clock import monotonic
from streamguard.testing import Gateway

from .steps import PROMPT, endings, obedient, stuck_step, timed, value

Gateways = Callable[..., Gateway]

UNAVAILABLE = "headers 503\nbody busy"


def fails(times: int, error: Exception, seen: list[StepContext]) -> Callable[[StepContext], str]:
    """Return a step that raises *error* so often, and then returns."""

    def step(ctx: StepContext) -> str:
        seen.append(ctx)
        if len(seen) <= times:
            raise error
        return "done"

    return step


def test_a_safe_step_is_tried_again(streamguard_gateway: Gateways) -> None:
    """An idempotent step is repeated after what may pass; the report counts the attempts."""
    gateway = streamguard_gateway(UNAVAILABLE, UNAVAILABLE, "body {}")
    chain = Chain("c", deadline=20)
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="a", retries=2, idempotent=True)
    result = chain.run()
    assert (result.status, result.steps["a"].attempts, len(gateway.requests)) == ("completed", 3, 3)


def test_retries_have_a_count(streamguard_gateway: Gateways) -> None:
    """After the last attempt the step fails with what that one met."""
    gateway = streamguard_gateway(UNAVAILABLE)
    chain = Chain("c", deadline=20)
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="a", retries=1, idempotent=True)
    result = chain.run()
    assert (endings(result), len(gateway.requests)) == ({"a": ("error", "http_503")}, 2)


@pytest.mark.parametrize("script", ["headers 404\nbody no", "body <html>"])
def test_what_will_not_pass_is_not_tried_again(script: str, streamguard_gateway: Gateways) -> None:
    """A 404 or an answer that is not JSON is the same the next time."""
    gateway = streamguard_gateway(script)
    chain = Chain("c", deadline=20)
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="a", retries=5, idempotent=True)
    chain.run()
    assert len(gateway.requests) == 1


def test_without_retries_there_is_one_attempt(streamguard_gateway: Gateways) -> None:
    """A step that is not declared repeatable is not repeated."""
    gateway = streamguard_gateway(UNAVAILABLE)
    chain = Chain("c")
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="a", fallback=1)
    chain.run()
    assert len(gateway.requests) == 1


def test_retries_stay_inside_of_the_budget() -> None:
    """However many retries are allowed, the step's limit holds over all of them together."""
    seen: list[StepContext] = []
    chain = Chain("c", deadline=20)
    step = fails(10**6, ConnectionResetError(), seen)
    chain.step(step, name="a", limit=0.4, retries=10**6, idempotent=True, fallback=1)
    result, seconds = timed(chain)
    assert seconds < 0.4 + PROMPT
    assert result.steps["a"].attempts == len(seen) >= 2
    assert result.steps["a"].reason in ("connection_reset", "step_limit")


def test_attempts_back_off() -> None:
    """The pause before the second attempt is at least 0.1 s, and it doubles."""
    seen: list[float] = []

    def reset(ctx: StepContext) -> Any:
        seen.append(monotonic())
        raise ConnectionResetError

    chain = Chain("c", deadline=20)
    chain.step(reset, name="a", retries=3, idempotent=True, fallback=1)
    chain.run()
    pauses = [after - before for before, after in itertools.pairwise(seen)]
    assert [pause >= least for pause, least in zip(pauses, (0.1, 0.2, 0.4), strict=True)] == [True] * 3
    assert sum(pauses) < 1.0 + PROMPT


def test_a_retry_after_beyond_the_budget_fails_at_once(streamguard_gateway: Gateways) -> None:
    """A service that requests an hour gets no second request, and the run does not wait."""
    gateway = streamguard_gateway("headers 503 retry-after: 3600\nbody busy")
    chain = Chain("c", deadline=10)
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="a", retries=3, idempotent=True, fallback=1)
    result, seconds = timed(chain)
    assert (endings(result), len(gateway.requests)) == ({"a": ("error", "http_503")}, 1)
    assert seconds < 5


def test_requests_own_error_has_its_retry_after_obeyed(streamguard_gateway: Gateways) -> None:
    """`raise_for_status()` hands the response on, and with it the pause that the service asks for."""
    gateway = streamguard_gateway("headers 503 retry-after: 3600\nbody busy")
    chain = Chain("c", deadline=10)
    chain.step(
        lambda ctx: ctx.session.get(gateway.url).raise_for_status(), name="a", retries=3, idempotent=True, fallback=1
    )
    assert (endings(chain.run()), len(gateway.requests)) == ({"a": ("error", "http_503")}, 1)


class Sdk(Exception):
    """An exception whose properties raise."""

    @property
    def retry_after(self) -> float:
        raise RuntimeError("no header")


def test_an_exception_that_cannot_be_asked_is_retried_all_the_same() -> None:
    """A property that raises requests no pause."""
    chain = Chain("c", deadline=20)
    chain.step(fails(1, Sdk(), []), name="a", retries=1, idempotent=True, handles=Sdk)
    assert chain.run()["a"] == "done"


def test_each_attempt_may_have_a_limit_of_its_own(streamguard_gateway: Gateways) -> None:
    """A call's own total is one attempt's: the next one may follow, inside of the step's limit."""
    gateway = streamguard_gateway("stall", "body {}")
    chain = Chain("c", deadline=20)
    chain.step(lambda ctx: ctx.get_json(gateway.url, timeout=0.2), name="a", retries=1, idempotent=True)
    assert (chain.run().status, len(gateway.requests)) == ("completed", 2)


def test_a_cancel_wakes_the_pause_between_attempts() -> None:
    """A step that waits for its next attempt ends when a critical one fails."""
    seen: list[StepContext] = []
    chain = Chain("c", max_parallel=2, deadline=20)
    chain.step(fails(10**6, ConnectionResetError(), seen), name="a", retries=10**6, idempotent=True)
    chain.step(obedient, name="critical", limit=0.3)
    result = chain.run()
    assert endings(result) == {"a": ("cancelled", "critical_failed"), "critical": ("timeout", "step_limit")}


def test_one_key_for_all_attempts_of_a_step() -> None:
    """All attempts of one run see one idempotency key; another run, and another step, has another."""
    seen: list[StepContext] = []
    chain = Chain("c", deadline=20)
    step = fails(2, ConnectionResetError(), seen)
    chain.step(step, name="a", retries=2, idempotency_key=True)
    chain.step(lambda ctx: ctx.idempotency_key, name="b", idempotency_key=True)
    chain.step(lambda ctx: ctx.idempotency_key, name="c")
    first, second = chain.run(), chain.run()
    keys = [ctx.idempotency_key for ctx in seen]
    assert keys[0] is not None
    assert keys == [keys[0]] * 3 + [second.steps["a"].idempotency_key]
    assert len({keys[0], keys[3], first["b"], second["b"]}) == 4
    assert (first.steps["a"].idempotency_key, first["c"]) == (keys[0], None)


@pytest.mark.parametrize("inline", [False, True])
def test_a_write_that_times_out_is_unknown(inline: bool, streamguard_gateway: Gateways) -> None:
    """A POST that was cut may have been done: the reason is unknown_outcome, and no fallback hides it."""
    gateway = streamguard_gateway("stall")
    chain = Chain("c")
    chain.step(lambda ctx: ctx.session.post(gateway.url, json={}), name="a", limit=0.2, fallback=1, inline=inline)
    result = chain.run()
    assert endings(result) == {"a": ("timeout", "unknown_outcome")}
    assert (result.status, gateway.requests[0].method) == ("completed_with_fallback", "POST")


def test_a_declared_write_is_unknown_also_without_our_session() -> None:
    """A step with idempotency_key or verify is a write, also if it does not use our session."""
    chain = Chain("c")
    chain.step(obedient, name="keyed", limit=0.1, idempotency_key=True, fallback=1)
    chain.step(obedient, name="verified", limit=0.1, verify=value(None), fallback=1)
    chain.step(obedient, name="read", limit=0.1, fallback=1)
    assert [reason for _, reason in endings(chain.run()).values()] == [
        "unknown_outcome",
        "unknown_outcome",
        "step_limit",
    ]


def send(method: str, url: str) -> Callable[[StepContext], Any]:
    """Return a step that sends a prepared request."""
    return lambda ctx: ctx.session.send(ctx.session.prepare_request(requests.Request(method, url)))


def test_a_prepared_write_is_one(streamguard_gateway: Gateways) -> None:
    """What goes through `session.send()` is a write or a read as it would be through `request()`."""
    gateway = streamguard_gateway("stall")
    chain = Chain("c")
    for method in ("DELETE", "GET"):
        chain.step(send(method, gateway.url), name=method, limit=0.1, fallback=1)
    assert endings(chain.run()) == {"DELETE": ("timeout", "unknown_outcome"), "GET": ("timeout", "step_limit")}


@pytest.mark.parametrize(
    ("found", "ending"),
    [
        (Settled(True, "order"), ("ok", "verified")),
        (Settled(False), ("error", "http_422")),
        (None, ("timeout", "unknown_outcome")),
    ],
)
def test_an_attempt_that_timed_out_stays_open(
    found: Settled[Any] | None, ending: tuple[str, str], streamguard_gateway: Gateways
) -> None:
    """Whatever a later attempt meets, the service may have done what the first one asked for: it is asked."""
    gateway = streamguard_gateway("stall", "headers 422\nbody no")

    def place(ctx: StepContext) -> Any:
        return ctx.get_json(gateway.url, method="POST", timeout=0.1)

    chain = Chain("c", deadline=20)
    chain.step(place, name="a", retries=1, idempotency_key=True, verify=value(found), fallback=1)
    result = chain.run()
    assert (endings(result), result.steps["a"].attempts, len(gateway.requests)) == ({"a": ending}, 2, 2)


def test_repeatable_posts_and_reads_are_not_unknown(streamguard_gateway: Gateways) -> None:
    """A POST that is declared idempotent, a GET, and a chat's POST leave nothing open."""
    gateway = streamguard_gateway("stall")
    chain = Chain("c")
    chain.step(lambda ctx: ctx.session.post(gateway.url), name="a", limit=0.1, idempotent=True, fallback=1)
    chain.step(lambda ctx: ctx.session.get(gateway.url), name="b", limit=0.1, fallback=1)
    chain.step(lambda ctx: ctx.stream("POST", gateway.url).read(), name="c", limit=0.1, fallback=1)
    chain.step(lambda ctx: ctx.session.stream("POST", gateway.url).read(), name="d", limit=0.1, fallback=1)
    assert set(endings(chain.run()).values()) == {("timeout", "step_limit")}


def test_a_write_that_never_started_is_skipped() -> None:
    """Nothing is unknown about a write that was not begun."""
    chain = Chain("c", deadline=0)
    chain.step(obedient, name="a", idempotency_key=True)
    assert endings(chain.run()) == {"a": ("skipped", "deadline_exhausted")}


def test_a_transport_timeout_of_a_write_is_unknown_too(streamguard_gateway: Gateways) -> None:
    """Also a limit of the call itself leaves open what the service did."""
    gateway = streamguard_gateway("stall")
    chain = Chain("c")
    chain.step(lambda ctx: ctx.session.post(gateway.url, timeout=0.1), name="a", limit=5, fallback=1)
    assert endings(chain.run()) == {"a": ("timeout", "unknown_outcome")}


def test_verify_may_settle_that_it_was_done(streamguard_gateway: Gateways) -> None:
    """verify= asks the service, with the same key; what it found done is the step's value, and the run goes on."""
    gateway = streamguard_gateway("stall", 'body {"receipt": 42}')

    def charge(ctx: StepContext) -> Any:
        return ctx.session.post(gateway.url, headers={"Idempotency-Key": ctx.idempotency_key}).json()

    def ask(ctx: StepContext) -> Settled[Any]:
        return Settled(True, ctx.get_json(f"{gateway.url}/{ctx.idempotency_key}")["receipt"])

    chain = Chain("c", deadline=20)
    chain.step(charge, name="charge", limit=0.3, idempotency_key=True, verify=ask)
    chain.step(lambda ctx: ctx.results["charge"], name="later", needs="charge")
    result = chain.run()
    report = result.steps["charge"]
    assert (result.status, result["later"]) == ("completed", 42)
    assert (report.status, report.reason, report.has_value) == ("ok", "verified", True)
    posted, asked = gateway.requests
    assert asked.target == f"/{posted.headers['idempotency-key']}"
    assert report.idempotency_key == posted.headers["idempotency-key"]


@pytest.mark.parametrize(
    ("found", "reason"),
    [(Settled(False), "step_limit"), (None, "unknown_outcome")],
)
def test_verify_may_settle_that_it_was_not(found: Settled[Any] | None, reason: str) -> None:
    """Not done is a plain timeout; None is still unknown. Neither is a success."""
    chain = Chain("c")
    chain.step(obedient, name="a", limit=0.1, verify=value(found))
    result = chain.run()
    assert endings(result) == {"a": ("timeout", reason)}
    assert result.status == "waiting_external_service"


def test_a_verify_that_fails_or_hangs_leaves_it_unknown(streamguard_gateway: Gateways) -> None:
    """If `verify=` fails or hangs, the outcome is unknown, and the limit holds for `verify=` too."""
    gateway = streamguard_gateway("headers 500\nbody broken")
    chain = Chain("c")
    chain.step(obedient, name="a", limit=0.1, verify=lambda ctx: ctx.get_json(gateway.url), fallback=1)
    chain.step(obedient, name="b", limit=0.1, verify=obedient, fallback=1)  # type: ignore[arg-type]
    with stuck_step() as stuck:
        chain.step(obedient, name="c", limit=0.1, verify=stuck, fallback=1)
        result = chain.run()
    assert set(endings(result).values()) == {("timeout", "unknown_outcome")}
    assert [report.overran for report in result.steps.values()] == [False, False, True]


def test_verify_needs_time_that_is_left() -> None:
    """After the deadline `verify=` does not run; a reserve keeps time for it."""
    asked: list[str] = []

    def ask(ctx: StepContext) -> Settled[int]:
        asked.append("asked")
        return Settled(True, 1)

    for reserve, ending in ((0.0, ("timeout", "unknown_outcome")), (0.5, ("ok", "verified"))):
        chain = Chain("c", deadline=0.7)
        chain.step(obedient, name="a", verify=ask, reserve=reserve)
        assert endings(chain.run()) == {"a": ending}
    assert asked == ["asked"]


def test_a_bug_in_verify_propagates() -> None:
    """verify= is code like a step's: a wrong return value, or a NameError in it, is raised by run()."""
    chain = Chain("c")
    chain.step(obedient, name="a", limit=0.1, verify=value(True), fallback=1)
    with pytest.raises(UsageError, match="a Settled or None, got bool"):
        chain.run()
    chain = Chain("c")
    chain.step(obedient, name="a", limit=0.1, verify=lambda ctx: missing, fallback=1)  # type: ignore[name-defined] # noqa: F821
    with pytest.raises(NameError):
        chain.run()


def test_verify_is_not_asked_about_a_failure_that_is_known() -> None:
    """Only a timeout is open: a refusal of the service is an answer."""
    asked: list[object] = []
    chain = Chain("c")

    def refused(ctx: StepContext) -> None:
        raise HTTPStatusError("no", status_code=422)

    chain.step(refused, name="a", verify=asked.append, fallback=1)
    assert (endings(chain.run()), asked) == ({"a": ("error", "http_422")}, [])
