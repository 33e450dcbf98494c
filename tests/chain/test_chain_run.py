"""Runs: fallbacks, critical steps, dependencies, parallel steps, cancels and bugs, with a server as witness."""

import contextlib
import gc
import os
import signal
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from streamguard import (
    Adapter,
    CancelToken,
    Chain,
    ChainResult,
    Classification,
    DeadlineExceededError,
    Session,
    StepContext,
    StepFailedError,
    StepReport,
    UsageError,
    abandoned_threads,
    bounded_call,
    classify,
    current_deadline,
    current_token,
    deadline,
    recent_failures,
)
from streamguard._core.bounded import GRACE_SECONDS
from streamguard.telemetry import RunFinished, StepFinished, set_hooks
from streamguard.testing import AgentAPI, Gateway

from .steps import PROMPT, endings, obedient, raises, stuck_step, timed, value

Gateways = Callable[..., Gateway]

REFUSED = ConnectionRefusedError()


@pytest.fixture
def events() -> Iterator[list[Any]]:
    """The events that the hooks get."""
    seen: list[Any] = []
    set_hooks([seen.append])
    yield seen
    set_hooks(None)


def test_a_fallback_stands_in_and_is_no_success() -> None:
    """An optional step that fails leaves its status, its reason and its fallback's name on the report."""
    chain = Chain("c")
    chain.step(raises(REFUSED), name="profile", fallback={"name": "user"}, fallback_name="neutral_profile")
    result = chain.run()
    report = result.steps["profile"]
    assert (result.status, result["profile"]) == ("completed_with_fallback", {"name": "user"})
    assert (report.status, report.reason, report.fallback) == ("error", "connection_refused", "neutral_profile")
    assert (report.critical, report.error, report.error_type) == (False, REFUSED, "ConnectionRefusedError")


def test_each_use_of_a_fallback_is_a_copy() -> None:
    """What one run does to a fallback's value, the next one does not see, nor does the declaration."""
    original: dict[str, list[int]] = {"seen": []}
    chain = Chain("c")
    chain.step(raises(REFUSED), name="a", fallback=original)
    first = chain.run()["a"]
    first["seen"].append(1)
    assert chain.run()["a"] == {"seen": []}
    assert original == {"seen": []}


def test_none_is_a_fallback() -> None:
    """`fallback=None` makes a step optional: its value is then None."""
    chain = Chain("c")
    chain.step(raises(REFUSED), name="a", fallback=None)
    result = chain.run()
    assert (result.status, result["a"], result.steps["a"].fallback) == ("completed_with_fallback", None, "fallback")


def test_a_fallback_may_be_a_function_of_the_failure() -> None:
    """A callable fallback gets the report of the failure, with the exception, and its return value is the value."""
    seen: list[StepReport] = []

    def cached(failure: StepReport) -> str:
        seen.append(failure)
        return f"cached, for {failure.reason}"

    chain = Chain("c")
    chain.step(raises(REFUSED), name="a", fallback=cached)
    result = chain.run()
    assert (result["a"], result.steps["a"].fallback) == ("cached, for connection_refused", "cached")
    assert seen[0].error is REFUSED


def test_a_fallback_that_raises_fails_the_run() -> None:
    """A fallback that raises is error/fallback_failed; what needs the step is skipped, the rest runs, and the run waits."""

    def broken(failure: StepReport) -> Any:
        raise NameError("a bug in the fallback")

    chain = Chain("c")
    chain.step(raises(REFUSED), name="a", fallback=broken)
    chain.step(value(1), name="needs_a", needs="a", fallback=1)
    chain.step(value(1), name="needs_that", needs="needs_a", fallback=1)
    chain.step(value(1), name="other")
    result = chain.run()
    assert result.status == "waiting_external_service"
    assert endings(result) == {
        "a": ("error", "fallback_failed"),
        "needs_a": ("skipped", "dependency_failed"),
        "needs_that": ("skipped", "dependency_failed"),
        "other": ("ok", None),
    }
    assert isinstance(result.steps["a"].error, NameError)
    with pytest.raises(StepFailedError):
        result["a"]


def test_a_critical_step_fails_closed() -> None:
    """Without a fallback there is no value: reading it raises, and the later steps do not start."""
    ran: list[object] = []
    chain = Chain("c")
    policy = chain.step(raises(REFUSED), name="policy")
    chain.step(ran.append, name="act", fallback=1)
    result = chain.run()
    assert (result.status, ran) == ("waiting_external_service", [])
    assert endings(result)["act"] == ("skipped", "critical_failed")
    with pytest.raises(StepFailedError, match=r"'policy' of 'c' has no value: error \(connection_refused\)") as caught:
        result[policy]
    error = caught.value
    assert (error.step, error.status, error.reason) == ("policy", "error", "connection_refused")
    assert (error.name, error.id) == ("c", result.id)
    assert "No decision was taken" in result.message


def test_a_no_from_a_healthy_service_is_a_completed_run(streamguard_gateway: Gateways) -> None:
    """A refusal is a decision, so the run is completed; a 500 with a yes in its body is not a decision."""
    for options, status in (({"allowed": False}, "completed"), ({"policy_status": 500}, "waiting_external_service")):
        with AgentAPI(policy_ms=0, **options) as api:
            chain = Chain("c")
            chain.step(lambda ctx, url=api.url: ctx.get_json(f"{url}/policy"), name="policy")
            result = chain.run()
            assert result.status == status
            assert status != "completed" or result["policy"] == {"allowed": False}


def test_dependencies_are_ordered_and_seen() -> None:
    """A step starts after the steps that it needs, and sees only their values."""
    chain = Chain("c", max_parallel=4)
    total = chain.step(lambda ctx: sum(ctx.results.values()), name="total", needs=("one", "two"))
    one = chain.step(value(1), name="one")
    chain.step(raises(REFUSED), name="two", fallback=2)
    chain.step(lambda ctx: ctx.results[one] + len(ctx.results), name="typed", needs=one)
    chain.step(lambda ctx: ("one" in ctx.results, one in ctx.results), name="asks", needs=one)
    result = chain.run()
    assert (result[total], result["typed"], result["asks"]) == (3, 2, (True, True))
    chain.step(lambda ctx: ctx.results["one"], name="blind")
    with pytest.raises(UsageError, match=r"needs=\('one',\)"):
        chain.run()


def test_steps_run_in_the_order_of_their_declaration() -> None:
    """With max_parallel=1, ready steps run in the declared order, also those that become ready later."""
    order: list[str] = []

    def note(ctx: StepContext) -> None:
        order.append(threading.current_thread().name.removeprefix("streamguard-step-"))

    chain = Chain("c")
    chain.step(note, name="late", needs="early")
    chain.step(note, name="early")
    chain.step(note, name="last")
    chain.run()
    assert order == ["early", "late", "last"]


def test_independent_steps_run_side_by_side() -> None:
    """With max_parallel=3 three steps run at once, and never more."""
    together, lock = threading.Barrier(3), threading.Lock()
    at_work: list[int] = [0, 0]

    def meet(ctx: StepContext) -> None:
        with lock:
            at_work[0] += 1
            at_work[1] = max(at_work)
        together.wait(10)
        with lock:
            at_work[0] -= 1

    chain = Chain("c", max_parallel=3)
    for number in range(6):
        chain.step(meet, name=f"step{number}")
    assert chain.run().status == "completed"
    assert at_work == [0, 3]


def test_a_failing_critical_step_stops_the_others(streamguard_gateway: Gateways) -> None:
    """The other active steps are cut, and their servers see the close; steps that did not start are skipped."""
    gateway = streamguard_gateway("stall")
    chain = Chain("c", max_parallel=3)

    def fails(ctx: StepContext) -> Any:
        gateway.wait_request(2)
        raise REFUSED

    chain.step(value(1), name="done")
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="other", fallback=1)
    chain.step(lambda ctx: ctx.stream("POST", gateway.url).read(), name="stream", fallback=1)
    chain.step(fails, name="critical")
    chain.step(value(1), name="later", needs="other")
    result = chain.run()
    assert {gateway.wait_left(n).during for n in (1, 2)} == {"stall"}
    assert result.status == "waiting_external_service"
    assert endings(result) == {
        "done": ("ok", None),
        "other": ("cancelled", "critical_failed"),
        "stream": ("cancelled", "critical_failed"),
        "critical": ("error", "connection_refused"),
        "later": ("skipped", "critical_failed"),
    }
    assert result.steps["other"].fallback is None


def test_a_limit_cuts_the_call(streamguard_gateway: Gateways) -> None:
    """When a step's limit fires, the server sees the close, at once."""
    gateway = streamguard_gateway("stall")
    chain = Chain("c", deadline=10)
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="a", limit=0.2, fallback=1)
    result, seconds = timed(chain)
    assert endings(result) == {"a": ("timeout", "step_limit")}
    assert 0.2 <= seconds < 0.2 + PROMPT
    request = gateway.wait_request()
    assert gateway.wait_left().at - request.at < 0.2 + PROMPT
    assert not result.steps["a"].overran


def test_a_plain_session_with_our_adapter_is_cut_too(streamguard_gateway: Gateways) -> None:
    """A requests.Session with `streamguard.Adapter` registers its sockets with the step's token."""
    gateway = streamguard_gateway("stall")
    session = requests.Session()
    session.mount("http://", Adapter())
    chain = Chain("c")
    chain.step(lambda ctx: session.get(gateway.url, timeout=30), name="a", limit=0.2, fallback=1)
    result = chain.run()
    assert gateway.wait_left().during == "stall"
    assert endings(result) == {"a": ("timeout", "step_limit")}
    session.close()


def test_a_step_that_ignores_its_cancel_does_not_delay_the_run() -> None:
    """The run ends within the grace; `overran` is set, its late result is dropped, its thread is counted."""
    with stuck_step() as stuck:
        chain = Chain("c", deadline=0.2)
        chain.step(stuck, name="a", fallback="in time")
        result, seconds = timed(chain)
        assert 0.2 + GRACE_SECONDS <= seconds < 0.2 + GRACE_SECONDS + PROMPT
        assert result["a"] == "in time"
        assert (result.steps["a"].overran, result.steps["a"].attempts) == (True, 1)
        assert abandoned_threads() == 1
    assert abandoned_threads() == 0
    assert result["a"] == "in time"


@pytest.mark.parametrize("inline", [False, True])
@pytest.mark.parametrize(("limit", "scope"), [(0.1, "step"), (None, "ambient")])
def test_c244_a_step_that_timed_out_has_a_timeout(
    inline: bool, limit: float | None, scope: str, streamguard_gateway: Gateways, events: list[Any]
) -> None:
    """C244: whatever a step raises when it is cut, its error is a timeout, also for classify() and for hooks."""
    gateway = streamguard_gateway("stall")

    def breaks(ctx: StepContext) -> Any:
        ctx.token.wait(10)
        raise AttributeError("'NoneType' object has no attribute 'recv'")

    steps = {"asks": lambda ctx: ctx.get_json(gateway.url), "obeys": obedient, "breaks": breaks}
    for name, fn in steps.items():
        chain = Chain("c", deadline=0.2 if limit is None else 10)
        chain.step(fn, name=name, limit=limit, fallback=1, inline=inline)
        result = chain.run()
        report, error = result.steps[name], result.steps[name].error
        assert isinstance(error, DeadlineExceededError)
        assert classify(error) == Classification("deadline", "fail-fast")
        assert (report.status, report.error_type, error.scope) == ("timeout", "DeadlineExceededError", scope)
        assert name in str(error)
    finished = [event.error_type for event in events if isinstance(event, StepFinished)]
    assert finished == ["DeadlineExceededError"] * len(steps)


def test_c244_a_step_that_ignores_its_limit_has_a_timeout() -> None:
    """C244: also a step that is abandoned, and returns nothing and raises nothing, has a timeout as its error."""
    with stuck_step() as stuck:
        chain = Chain("c")
        chain.step(stuck, name="a", limit=0.1, fallback=1)
        error = chain.run().steps["a"].error
    assert isinstance(error, DeadlineExceededError)
    assert (error.scope, error.limit, error.name, error.overran) == ("step", 0.1, "a", True)
    assert "limit=0.1" in str(error)


def test_an_obedient_step_does_not_use_the_grace() -> None:
    """A step that listens to its token is gone at once, and has not overrun."""
    chain = Chain("c")
    chain.step(obedient, name="a", limit=0.1, fallback=1)
    result = chain.run()
    assert endings(result) == {"a": ("timeout", "step_limit")}
    assert not result.steps["a"].overran


def test_an_abandoned_thread_keeps_its_slot_but_never_the_last() -> None:
    """Of two slots one is kept by it: the others run one by one. With one slot, the run still goes on."""
    at_work: list[int] = [0, 0]
    lock = threading.Lock()

    def count(ctx: StepContext) -> None:
        with lock:
            at_work[0] += 1
            at_work[1] = max(at_work)
        ctx.token.wait(0.02)
        with lock:
            at_work[0] -= 1

    with stuck_step() as stuck:
        for slots in (2, 1):
            chain = Chain("c", max_parallel=slots)
            chain.step(stuck, name="stuck", limit=0.1, fallback=1)
            for number in range(4):
                chain.step(count, name=f"step{number}", needs="stuck")
            assert chain.run().status == "completed_with_fallback"
    assert at_work == [0, 1]


def test_a_bug_propagates_as_itself(streamguard_gateway: Gateways) -> None:
    """A NameError in a step, optional or not, is raised by run() as the same object, and the others are cut first."""
    gateway = streamguard_gateway("stall")
    bug = NameError("a bug")

    def fails(ctx: StepContext) -> Any:
        gateway.wait_request()
        raise bug

    chain = Chain("c", max_parallel=2)
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="other")
    chain.step(fails, name="a", fallback=1)
    chain.step(value(1), name="later", needs="a")
    with pytest.raises(NameError) as caught:
        chain.run()
    assert caught.value is bug
    assert bug.__cause__ is None
    assert bug.__context__ is None
    assert gateway.wait_left().during == "stall"


def test_a_usage_error_is_a_bug() -> None:
    """A wrong call is not an outage, and no fallback hides it."""
    chain = Chain("c")
    chain.step(lambda ctx: ctx.stream("GET", "http://127.0.0.1:9/", timeout=1), name="a", fallback=1)
    with pytest.raises((UsageError, TypeError), match="timeout="):
        chain.run()


def test_what_the_cut_makes_of_a_step_is_no_bug() -> None:
    """What a step raises after its limit is noise of the cut, whatever it is."""

    def trips(ctx: StepContext) -> Any:
        ctx.token.wait(30)
        raise AttributeError("'NoneType' object has no attribute 'recv'")

    chain = Chain("c")
    chain.step(trips, name="a", limit=0.1, fallback=1)
    assert endings(chain.run()) == {"a": ("timeout", "step_limit")}


def test_handles_makes_failures_of_foreign_errors() -> None:
    """The exception of an SDK is a failure if `handles=` lists it; else it is a bug."""

    class SdkError(Exception):
        pass

    chain = Chain("c")
    chain.step(raises(SdkError()), name="a", handles=SdkError, fallback=1)
    assert endings(chain.run()) == {"a": ("error", "handled_error")}
    other = Chain("c")
    other.step(raises(SdkError()), name="a", fallback=1)
    with pytest.raises(SdkError):
        other.run()


def test_the_caller_can_cancel(streamguard_gateway: Gateways) -> None:
    """A cancel of the caller's token ends the run: its steps are cut, no fallback is used, no decision is taken."""
    gateway = streamguard_gateway("stall")
    token = CancelToken()
    chain = Chain("c", deadline=30)
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="a", fallback=1)
    chain.step(value(1), name="b", fallback=1)
    canceller = threading.Thread(target=lambda: gateway.wait_request() and token.cancel("enough"))
    canceller.start()
    result, seconds = timed(chain, cancel=token)
    canceller.join()
    assert gateway.wait_left().during == "stall"
    assert seconds < 10
    assert result.status == "cancelled"
    assert endings(result) == {"a": ("cancelled", "run_cancelled"), "b": ("cancelled", "run_cancelled")}
    assert "No decision was taken" in result.message
    assert token.reason == "enough"


def test_the_current_token_ends_a_run(streamguard_gateway: Gateways) -> None:
    """A run inside of a bounded_call is cut with it, without being handed its token."""
    gateway = streamguard_gateway("stall")
    chain = Chain("c")
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="a")
    with pytest.raises(DeadlineExceededError):
        bounded_call(chain.run, limit=0.2)
    assert gateway.wait_left().during == "stall"


def test_the_ambient_deadline_tightens_a_run(streamguard_gateway: Gateways) -> None:
    """A surrounding deadline() that is nearer than the chain's own is the run's."""
    gateway = streamguard_gateway("stall")
    chain = Chain("c", deadline=30)
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="a")
    with deadline(0.2):
        result, seconds = timed(chain)
    assert 0.2 <= seconds < 0.2 + PROMPT
    assert endings(result) == {"a": ("timeout", "deadline_exhausted")}
    assert result.deadline is not None
    assert result.deadline <= 0.2


def test_a_runs_own_stops_never_cancel_the_callers_token() -> None:
    """Timeouts and failures inside of a run cancel only tokens of its own."""
    token = CancelToken()
    chain = Chain("c")
    chain.step(obedient, name="a", limit=0.05, fallback=1)
    chain.step(raises(REFUSED), name="b")
    chain.run(cancel=token)
    assert not token.cancelled


def test_a_step_that_cancels_its_own_token_fails() -> None:
    """`ctx.token` is the step's: its cancel is the step's failure, and the run goes on."""

    def cancels(ctx: StepContext) -> None:
        ctx.token.cancel()

    chain = Chain("c")
    chain.step(cancels, name="a", fallback=1)
    chain.step(value(1), name="b")
    result = chain.run()
    assert endings(result) == {"a": ("error", "stream_cancelled"), "b": ("ok", None)}


def test_a_step_lives_in_its_budget() -> None:
    """Inside of a step the ambient deadline and the current token are the step's, and ctx.remaining() counts down."""
    chain = Chain("c", deadline=20)

    def look(ctx: StepContext) -> tuple[float, float, bool]:
        ambient, remaining = current_deadline(), ctx.remaining()
        assert ambient is not None
        assert remaining is not None
        return ambient.remaining(), remaining, current_token() is ctx.token

    chain.step(look, name="threaded", limit=5)
    chain.step(look, name="inline", limit=5, inline=True)
    chain.step(lambda ctx: ctx.remaining(), name="free")
    result = chain.run()
    for name in ("threaded", "inline"):
        ambient, remaining, is_mine = result[name]
        assert 0 < ambient <= remaining <= 5
        assert is_mine
    assert 5 < result["free"] <= 20
    assert current_deadline() is None
    assert current_token() is None
    unbounded = Chain("c")
    unbounded.step(lambda ctx: ctx.remaining(), name="a")
    assert unbounded.run()["a"] is None


def test_inline_steps_run_in_the_callers_thread(streamguard_gateway: Gateways) -> None:
    """An inline step runs alone in the caller's thread, and its sockets are cut at its limit."""
    gateway = streamguard_gateway("stall")
    others: list[str] = []
    chain = Chain("c", max_parallel=4)
    chain.step(lambda ctx: ctx.token.wait(0.05), name="before")

    def alone(ctx: StepContext) -> threading.Thread:
        others.extend(t.name for t in threading.enumerate() if t.name.startswith("streamguard-step-"))
        return threading.current_thread()

    here = chain.step(alone, name="alone", inline=True)
    chain.step(value(1), name="after")
    session = requests.Session()
    session.mount("http://", Adapter())
    chain.step(lambda ctx: session.get(gateway.url), name="cut", inline=True, limit=0.2, fallback=1)
    result, seconds = timed(chain)
    session.close()
    assert result[here] is threading.current_thread()
    assert others == []
    assert endings(result)["cut"] == ("timeout", "step_limit")
    assert gateway.wait_left().during == "stall"
    assert seconds < 10


@pytest.mark.skipif(sys.platform == "win32", reason="needs a signal that can be sent to oneself")
def test_a_run_can_be_interrupted(streamguard_gateway: Gateways) -> None:
    """Ctrl-C in the caller's wait propagates at once, and the steps are cut."""
    gateway = streamguard_gateway("stall")
    chain = Chain("c")
    chain.step(lambda ctx: ctx.get_json(gateway.url), name="a", fallback=1)

    def interrupt() -> None:
        gateway.wait_request()
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        chain.run()
    thread.join()
    assert gateway.wait_left().during == "stall"


def test_the_runs_session_is_shared_and_closed(streamguard_gateway: Gateways) -> None:
    """All steps of a run share one session, cookies included; the next run has its own, and no connection stays."""
    gateway = streamguard_gateway("headers 200 set-cookie: user=7; content-type: application/json\nbody {}")
    chain = Chain("c")
    for name in ("first", "second"):
        chain.step(lambda ctx: ctx.get_json(gateway.url), name=name)
    assert chain.run().status == "completed"
    assert chain.run().status == "completed"
    assert [request.headers.get("cookie") for request in gateway.requests] == [None, "user=7", None, "user=7"]
    gateway.wait_connections(2, still_open=0)


def test_a_given_session_is_used_and_left_open(streamguard_gateway: Gateways) -> None:
    """`session=` is the caller's: its headers are sent, its connection is kept over runs."""
    gateway = streamguard_gateway("body {}")
    with Session() as session:
        session.headers["X-Mine"] = "yes"
        chain = Chain("c", session=session)
        chain.step(lambda ctx: ctx.session.get(gateway.url).status_code, name="a")
        assert [chain.run()["a"] for _ in range(3)] == [200, 200, 200]
        assert [request.headers.get("x-mine") for request in gateway.requests] == ["yes"] * 3
        assert gateway.connections == 1


class Api(Session):
    """A session as programs derive one: with a method of its own, and one that is overridden."""

    def profile(self, url: str) -> Any:
        return self.get_json(url)

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        request.headers["X-Signed"] = "yes"
        return super().send(request, **options)


def test_a_given_session_keeps_its_class(streamguard_gateway: Gateways) -> None:
    """In a step, too, a subclass of Session has its methods and its overrides, and one state."""
    gateway = streamguard_gateway("body {}")

    def ask(ctx: StepContext) -> Any:
        assert isinstance(ctx.session, Api)
        ctx.session.headers["X-Seen"] = "later, too"
        return ctx.session.profile(gateway.url)

    with Api() as session:
        chain = Chain("c", session=session)
        chain.step(ask, name="a")
        assert chain.run()["a"] == {}
        assert session.headers["X-Seen"] == "later, too"
    assert gateway.requests[0].headers["x-signed"] == "yes"


def test_a_stream_may_be_returned_and_read_later(streamguard_gateway: Gateways) -> None:
    """A step's stream outlives the run, within the step's budget."""
    gateway = streamguard_gateway("chat Hello\ndone")
    chain = Chain("c", deadline=20)
    chain.step(lambda ctx: ctx.stream("POST", gateway.url, json={"stream": True}).open(), name="a")
    with chain.run()["a"] as stream:
        assert stream.read() == "Hello"


def test_a_chain_may_be_a_step_of_another(streamguard_gateway: Gateways) -> None:
    """A chain inside of a step is bounded by the step, and its failed step is the outer step's failure."""
    gateway = streamguard_gateway("stall")
    inner = Chain("inner", deadline=30)
    inner.step(lambda ctx: ctx.get_json(gateway.url), name="policy")
    outer = Chain("outer")
    outer.step(lambda ctx: inner.run()["policy"], name="cut", limit=0.2, fallback=1)
    result = outer.run()
    assert endings(result) == {"cut": ("timeout", "step_limit")}
    assert gateway.wait_left().during == "stall"
    refused = Chain("inner")
    refused.step(raises(REFUSED), name="policy")
    outer = Chain("outer")
    outer.step(lambda ctx: refused.run()["policy"], name="asks", fallback=1)
    assert endings(outer.run()) == {"asks": ("error", "step_failed")}


@pytest.mark.parametrize("inline", [False, True])
def test_an_interpreter_without_threads_is_a_failure_of_the_step(inline: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that cannot be started is not a bug of the step: its fallback is used."""

    def refuse(self: object) -> None:
        raise RuntimeError("can't start new thread")

    chain = Chain("c")
    chain.step(value(1), name="a", limit=5, fallback=2, inline=inline)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    result = chain.run()
    assert (endings(result), result["a"]) == ({"a": ("error", "streamguard_error")}, 2)


def test_a_cancel_that_is_no_token_is_refused() -> None:
    """`cancel=` is the run's token, and never an input."""
    chain = Chain("c")
    chain.step(value(1), name="a")
    with pytest.raises(TypeError, match=r"cancel= must be a CancelToken, got .*'cancel', which is reserved"):
        chain.run(cancel=True)  # type: ignore[arg-type]


def test_a_bug_leaves_no_cycle() -> None:
    """What a failed run held is freed with its exception, without waiting for the collector."""

    class Held:
        pass

    held = Held()
    chain = Chain("c")
    chain.step(lambda ctx: undefined, name="a")  # type: ignore[name-defined] # noqa: F821
    gone = weakref.ref(held)
    gc.disable()
    try:
        with contextlib.suppress(NameError):
            chain.run(held=held)
        del held
        assert gone() is None
    finally:
        gc.enable()


def test_a_stream_in_a_step_is_not_retried_by_itself(streamguard_gateway: Gateways) -> None:
    """Only the step's own `retries=` repeat what it sends; a stream's default policy does not."""
    gateway = streamguard_gateway("stall")
    chain = Chain("c")
    chain.step(lambda ctx: ctx.stream("POST", gateway.url, json={}, response=0.1).read(), name="a", fallback=1)
    assert endings(chain.run()) == {"a": ("timeout", "transport_timeout")}
    assert len(gateway.requests) == 1


@pytest.mark.parametrize("option", ["answer", "messages"])
def test_c242_a_run_whose_answer_raises_is_raised(option: str, events: list[Any]) -> None:
    """C242: if `answer=` or `messages=` raises, the run is `raised` for hooks and in the journal, and run() raises it."""

    def broken(result: ChainResult) -> str:
        raise KeyError("a bug")

    chain = Chain("c", **{option: broken if option == "answer" else {"completed": broken}})  # type: ignore[arg-type]
    chain.step(value(1), name="a")
    with pytest.raises(KeyError):
        chain.run()
    (finished,) = [event for event in events if isinstance(event, RunFinished)]
    assert (finished.status, finished.error_type) == (None, "KeyError")
    entry = recent_failures()[-1]
    assert (entry.id, entry.outcome, entry.error_type) == (finished.id, "raised", "KeyError")
    assert [(moment.name, moment.status) for moment in entry.moments] == [("a", "ok")]
