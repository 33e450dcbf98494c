"""The declaration of steps and chains, and which options are refused."""

import functools
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any
from unittest.mock import MagicMock

import pytest
import requests

from streamguard import CancelToken, Chain, StepContext, UsageError, bounded_call

from .steps import endings, raises, value


def step_one(ctx: StepContext) -> int:
    return 1


def test_all_forms_declare_the_same() -> None:
    """As a decorator with and without parentheses, and as plain calls: the step is under its function's name."""
    chain = Chain("c")

    @chain.step
    def bare(ctx: StepContext) -> int:
        return 1

    @chain.step(limit=1)
    def with_options(ctx: StepContext) -> int:
        return 2

    called = chain.step(step_one, name="called")
    added = chain.add(value(4), name="added", needs=[bare, "called"])
    result = chain.run()
    assert [result[step] for step in (bare, with_options, called, added)] == [1, 2, 1, 4]
    assert [result[name] for name in chain.steps] == [1, 2, 1, 4]
    assert added.needs == ("bare", "called")


def test_a_step_is_still_its_function() -> None:
    """A declared step can be called with a context: tests need no chain."""
    chain = Chain("c")
    step = chain.step(value(7), name="s")
    context: Any = None
    assert step(context) == 7


def test_one_chain_serves_many_threads_at_once() -> None:
    """Runs of one chain in different threads share nothing: each has its own inputs and values."""
    chain = Chain("c")
    together = threading.Barrier(8)

    @chain.step
    def own(ctx: StepContext) -> Any:
        together.wait(10)
        return ctx.inputs["number"]

    seen: dict[int, int] = {}
    threads = [threading.Thread(target=lambda n=n: seen.update({n: chain.run(number=n)[own]})) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert seen == {n: n for n in range(8)}


def test_retries_of_what_may_do_harm_are_refused() -> None:
    """Retries need a declaration that repeating is safe; the declaration of the step fails without it."""
    chain = Chain("c")
    with pytest.raises(UsageError, match="idempotent=True"):
        chain.step(step_one, retries=1)
    assert chain.steps == {}
    chain.step(step_one, retries=1, idempotent=True, name="one")
    chain.step(step_one, retries=1, idempotency_key=True, name="other")


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"limit": "1 second"}, "limit= must be a duration"),
        ({"limit": True}, "limit= must be seconds"),
        ({"limit": float("nan")}, "limit= must be a number of seconds, got nan"),
        ({"fallback_name": "neutral"}, "needs fallback="),
        ({"fallback": 1, "fallback_name": 1}, "fallback_name= must be a str, got"),
        ({"fallback": {"lock": threading.Lock()}}, "can be copied"),
        ({"needs": [1]}, "needs= must be steps"),
        ({"handles": [int]}, "handles= must be exception classes"),
        ({"handles": [KeyboardInterrupt]}, "handles= must be exception classes"),
        ({"retries": True}, "retries= must be a whole number"),
        ({"retries": -1}, "retries= must be 0 or more, got -1"),
        ({"reserve": -1}, "reserve="),
        ({"limit": 0.1, "min_budget": 0.2}, "could never start"),
        ({"verify": 1}, "verify= must be a function"),
        ({"timeout": 1}, "unknown option timeout="),
        ({"name": ""}, "name= must be a non-empty str"),
        ({"limit": b"5"}, "step 'step_one': limit="),
        ({"needs": None}, "step 'step_one': needs= must be steps"),
        ({"handles": None}, "step 'step_one': handles= must be exception classes"),
        ({"handles": BaseException}, "step 'step_one': handles= must be exception classes"),
    ],
)
def test_a_wrong_step_is_refused_when_it_is_declared(options: dict[str, Any], complaint: str) -> None:
    """Each wrong option is refused by name, and declares no step."""
    chain = Chain("c")
    with pytest.raises((UsageError, TypeError), match=complaint):
        chain.step(step_one, **options)
    assert chain.steps == {}


async def asynchronous(ctx: StepContext) -> int:
    return 1


async def async_generator(ctx: StepContext) -> AsyncIterator[int]:
    yield 1


def generator(ctx: StepContext) -> Iterator[int]:
    yield 1


class Callee:
    """An object whose call is a coroutine."""

    async def __call__(self, ctx: StepContext) -> int:
        return 1


DEFERRING: list[Any] = [
    asynchronous,
    async_generator,
    generator,
    Callee(),
    functools.partial(asynchronous),
    functools.partial(Callee()),
]


@pytest.mark.parametrize("fn", DEFERRING)
def test_what_would_not_run_is_refused(fn: Any) -> None:
    """A call of an async or a generator function runs nothing: steps, their options and bounded calls refuse it."""
    chain = Chain("c")
    with pytest.raises(UsageError, match=r"step 's' is an? (async|generator)"):
        chain.step(fn, name="s")
    with pytest.raises(UsageError, match="fallback= of step 's'"):
        chain.step(step_one, name="s", fallback=fn)
    with pytest.raises(UsageError, match="verify= of step 's'"):
        chain.step(step_one, name="s", verify=fn)
    with pytest.raises(UsageError, match="calling it runs nothing"):
        bounded_call(fn, None)
    assert chain.steps == {}


@pytest.mark.parametrize("fn", DEFERRING)
def test_what_has_still_to_run_is_no_value(fn: Any) -> None:
    """A plain function that returns a coroutine or a generator has not done its work; nothing warns, for it is closed."""
    chain = Chain("c")
    chain.step(lambda ctx: fn(ctx), name="s", fallback=1)
    with pytest.raises(UsageError, match="step 's' returned a"):
        chain.run()
    with pytest.raises(UsageError, match="look-up returned a"):
        bounded_call(lambda: fn(None), name="look-up")
    chain = Chain("c")
    chain.step(raises(ConnectionRefusedError()), name="s", fallback=lambda failure: fn(failure))
    assert endings(chain.run()) == {"s": ("error", "fallback_failed")}


def test_other_iterators_are_values() -> None:
    """Mocks and SDKs' objects that can be awaited for nothing, or read either way, are values as any other."""
    mock = MagicMock()
    chain = Chain("c")
    chain.step(value(mock), name="mock")
    chain.step(value(iter([1])), name="iterator")
    result = chain.run()
    assert (result["mock"], list(result["iterator"])) == (mock, [1])


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"deadline": b"1"}, "deadline= must be seconds"),
        ({"max_parallel": 0}, "max_parallel= must be 1 or more, got 0"),
        ({"max_parallel": 1.5}, "max_parallel= must be a whole number, got float"),
        ({"samples": -1}, "samples= must be 0 or more, got -1"),
        ({"reserve": -0.1}, "reserve="),
        ({"messages": {"done": "x"}}, "got 'done'"),
        ({"session": requests.Session()}, r"streamguard\.Session"),
    ],
)
def test_a_wrong_chain_is_refused(options: dict[str, Any], complaint: str) -> None:
    """Each argument of a chain that cannot be right is refused by name."""
    with pytest.raises((UsageError, TypeError), match=complaint):
        Chain("c", **options)


def test_names_are_unique_and_real() -> None:
    """A name that is taken, and a lambda without a name, are refused."""
    chain = Chain("c")
    chain.step(step_one)
    with pytest.raises(UsageError, match="already has a step 'step_one'"):
        chain.step(step_one)
    with pytest.raises(UsageError, match="name= must be"):
        chain.step(lambda ctx: 1)
    with pytest.raises(UsageError, match="name= must not be empty"):
        Chain("")
    with pytest.raises(TypeError, match="name= must be a str, got int"):
        Chain(7)  # type: ignore[arg-type]


def test_circles_and_strangers_are_refused_at_the_first_run() -> None:
    """Steps that need each other, or one that does not exist, are a UsageError before any step runs."""
    ran = []
    chain = Chain("c")
    chain.step(ran.append, name="a", needs="b")
    with pytest.raises(UsageError, match="needs= must name steps of chain 'c', got 'b'"):
        chain.run()
    chain.step(ran.append, name="b", needs="a")
    with pytest.raises(UsageError, match="circle: "):
        chain.run()
    with pytest.raises(UsageError, match="no steps"):
        Chain("empty").run()
    assert ran == []


def test_an_instance_in_needs_may_come_later_by_name() -> None:
    """needs= may name a step that is declared afterwards."""
    chain = Chain("c")
    chain.step(lambda ctx: ctx.results["base"] + 1, name="sum", needs=("base",))
    chain.step(value(1), name="base")
    assert chain.run()["sum"] == 2


def test_a_cancelled_token_starts_nothing() -> None:
    """A run under a token that is cancelled already starts no step."""
    token = CancelToken()
    token.cancel()
    ran: list[object] = []
    chain = Chain("c")
    chain.step(ran.append, name="a", fallback=1)
    result = chain.run(cancel=token)
    assert (ran, result.status) == ([], "cancelled")
    assert endings(result) == {"a": ("cancelled", "run_cancelled")}
