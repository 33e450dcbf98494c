"""Bulkheads: how many steps call one service at once, over runs, chains and threads."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from streamguard import Bulkhead, CancelToken, Chain, ChainResult, Settled, StepContext, UsageError
from streamguard.telemetry import ConcurrencyChanged, set_hooks

from ..helpers import wait_until
from .steps import PROMPT, endings, obedient, stuck_step, timed, value


class Service:
    """A step that takes a while, and counts how many of it run at once."""

    def __init__(self, seconds: float = 0.1) -> None:
        self.seconds = seconds
        self.now = self.most = self.calls = 0
        self._lock = threading.Lock()

    def __call__(self, ctx: StepContext) -> str:
        with self._lock:
            self.calls += 1
            self.now += 1
            self.most = max(self.most, self.now)
        ctx.token.wait(self.seconds)
        with self._lock:
            self.now -= 1
        return "answer"


@contextmanager
def held(bulkhead: Bulkhead) -> Iterator[None]:
    """Hold a place by a step of another run, in another thread, for the length of the block."""
    entered, release = threading.Event(), threading.Event()

    def hold(ctx: StepContext) -> None:
        entered.set()
        release.wait(30)

    chain = Chain("holder")
    chain.step(hold, name="hold", bulkhead=bulkhead)
    thread = threading.Thread(target=chain.run)
    thread.start()
    assert entered.wait(10)
    try:
        yield
    finally:
        release.set()
        thread.join(10)


def runs_at_once(make: Callable[[], Chain], count: int = 8) -> list[ChainResult]:
    results: list[ChainResult] = []
    start = threading.Barrier(count)

    def run() -> None:
        chain = make()
        start.wait(10)
        results.append(chain.run())

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


@pytest.mark.parametrize(("wait", "reasons"), [(0, {None, "bulkhead_full"}), (20, {None})])
def test_c246_a_service_is_bounded_across_runs(wait: float, reasons: set[str | None]) -> None:
    """C246: of eight runs with two parallel steps each, never more than three steps call the service; the others wait, or
    are skipped with a reason of their own."""
    bulkhead, service = Bulkhead(3, wait=wait), Service()

    def make() -> Chain:
        chain = Chain("c", deadline=25, max_parallel=2)
        for name in ("a", "b"):
            chain.step(service, name=name, bulkhead=bulkhead, fallback="neutral")
        return chain

    results = runs_at_once(make)
    reports = [report for result in results for report in result.steps.values()]
    assert len(reports) == 16
    assert service.most == 3
    assert {report.reason for report in reports} == reasons
    assert {report.status for report in reports} == {"ok"} | ({"skipped"} if wait == 0 else set())
    assert service.calls == sum(report.status == "ok" for report in reports)
    assert bulkhead.in_use == 0


def test_c246_a_step_without_a_place_was_not_asked() -> None:
    """C246: it is skipped at once; its fallback is used, and without one the run fails closed."""
    bulkhead, service = Bulkhead(1), Service()
    chain = Chain("c", deadline=20)
    chain.step(service, name="profile", bulkhead=bulkhead, fallback="neutral")
    chain.step(service, name="policy", bulkhead=bulkhead)
    with held(bulkhead):
        result, seconds = timed(chain)
    assert endings(result) == {"profile": ("skipped", "bulkhead_full"), "policy": ("skipped", "bulkhead_full")}
    assert (result["profile"], result.status, service.calls) == ("neutral", "waiting_external_service", 0)
    assert "Not asked: policy (bulkhead_full)." in result.message
    assert seconds < PROMPT
    assert chain.run().status == "completed"


def test_a_wait_for_a_place_is_bounded() -> None:
    """A step waits as long as `wait=` allows, and never beyond the deadline of the run."""
    bulkhead = Bulkhead(1, wait=0.3)
    with held(bulkhead):
        for deadline, reason, least in ((20, "bulkhead_full", 0.3), (0.1, "deadline_exhausted", 0.05)):
            chain = Chain("c", deadline=deadline)
            chain.step(value(1), name="a", bulkhead=bulkhead, fallback=1)
            chain.step(value(1), name="b", fallback=1, min_budget=0, reserve=0)
            result, seconds = timed(chain)
            assert endings(result)["a"] == ("skipped", reason)
            assert least <= seconds < least + PROMPT


def test_a_step_that_waits_takes_no_slot() -> None:
    """Other steps run while a step waits for its place; it starts when the place is free."""
    bulkhead, order = Bulkhead(1, wait=20), list[str]()
    released = threading.Event()
    chain = Chain("c", deadline=20)
    chain.step(lambda ctx: order.append("waits"), name="waits", bulkhead=bulkhead)
    chain.step(lambda ctx: (order.append("other"), released.set()), name="other")
    thread = threading.Thread(target=chain.run)
    with held(bulkhead):
        thread.start()
        assert released.wait(10)
    thread.join(10)
    assert order == ["other", "waits"]


def test_a_cancel_ends_the_wait() -> None:
    """A run that is cancelled while a step waits ends at once, and takes no place later."""
    bulkhead, token = Bulkhead(1, wait=20), CancelToken()
    chain = Chain("c")
    chain.step(value(1), name="a", bulkhead=bulkhead, fallback=1)
    with held(bulkhead):
        canceller = threading.Timer(0.1, token.cancel)
        canceller.start()
        result, seconds = timed(chain, cancel=token)
        canceller.join()
    assert endings(result) == {"a": ("cancelled", "run_cancelled")}
    assert (seconds < 0.1 + PROMPT, bulkhead.in_use) == (True, 0)


def test_an_abandoned_thread_keeps_its_place() -> None:
    """The service may still be busy with it: the place is free when the thread ends."""
    bulkhead = Bulkhead(1)
    chain, other = Chain("c"), Chain("other")
    other.step(value(1), name="a", bulkhead=bulkhead, fallback=2)
    with stuck_step() as stuck:
        chain.step(stuck, name="a", limit=0.1, bulkhead=bulkhead, fallback=1)
        assert chain.run().steps["a"].overran
        assert (bulkhead.in_use, other.run()["a"]) == (1, 2)
    wait_until(lambda: bulkhead.in_use == 0)
    assert other.run()["a"] == 1


def test_verify_keeps_the_place() -> None:
    """Between a write that timed out and its `verify=` no other step gets the place."""
    bulkhead, seen = Bulkhead(1), list[int]()

    def ask(ctx: StepContext) -> Settled[int]:
        seen.append(bulkhead.in_use)
        return Settled(True, 7)

    chain = Chain("c")
    write = chain.step(obedient, name="write", limit=0.1, verify=ask, bulkhead=bulkhead)
    assert (chain.run()[write], seen, bulkhead.in_use) == (7, [1], 0)


@pytest.mark.parametrize("inline", [False, True])
def test_a_place_is_given_back_whatever_ends_the_step(inline: bool) -> None:
    """A failure, a cut, a bug and an interrupt give the place back."""

    def bug(ctx: StepContext) -> Any:
        raise NameError("a bug")

    def interrupt(ctx: StepContext) -> Any:
        raise KeyboardInterrupt

    bulkhead = Bulkhead(1)
    for fn, error in ((obedient, None), (bug, NameError), (interrupt, KeyboardInterrupt)):
        chain = Chain("c")
        chain.step(fn, name="a", limit=0.1, bulkhead=bulkhead, fallback=1, inline=inline)
        if error is None:
            chain.run()
        else:
            with pytest.raises(error):
                chain.run()
        assert bulkhead.in_use == 0


def test_a_gauge_counts_the_places_by_name() -> None:
    """Hooks get the number of places in use, for a bulkhead with a name."""
    seen: list[tuple[str, int]] = []

    def note(event: object) -> None:
        if isinstance(event, ConcurrencyChanged) and event.pool != "c":
            seen.append((event.pool, event.in_use))

    chain = Chain("c")
    chain.step(value(1), name="a", bulkhead=Bulkhead(2, name="policies"))
    chain.step(value(1), name="b", bulkhead=Bulkhead(2))
    set_hooks([note])
    try:
        chain.run()
    finally:
        set_hooks(None)
    assert seen == [("policies", 1), ("policies", 0)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"limit": 0}, "limit= must be 1 or more, got 0"),
        ({"limit": 1.5}, "limit= must be a whole number, got float"),
        ({"limit": True}, "limit= must be a whole number, got bool"),
        ({"limit": 1, "name": 7}, "name= must be a str, got int"),
        ({"limit": 1, "wait": b"1"}, "wait="),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    """Each argument is refused by name; so is a step's `bulkhead=` that is not one."""
    with pytest.raises((TypeError, UsageError), match=message):
        Bulkhead(**arguments)
    with pytest.raises(TypeError, match="bulkhead= must be a Bulkhead, got int"):
        Chain("c").step(value(1), name="a", bulkhead=3)  # type: ignore[call-overload]
