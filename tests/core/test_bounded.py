"""bounded_call: a function gets a bounded time; a thread that cannot be stopped is abandoned and counted."""

import contextvars
import gc
import pickle
import queue
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

from streamguard import (
    CancelToken,
    DeadlineExceededError,
    StreamCancelledError,
    StreamguardError,
    UsageError,
    abandoned_threads,
    bounded_call,
    current_token,
    deadline,
)
from streamguard._core import calls, tasks
from streamguard._core.bounded import run_until
from streamguard._core.clock import monotonic
from streamguard._core.deadline import Deadline

from ..helpers import PROMPT, run_script, wait_until

LIMIT = 0.1


class Odd(Exception):
    """An error that a function raises."""


def wait_for_token() -> bool:
    """Wait until the call is cancelled, as a function that checks its token does."""
    token = current_token()
    assert token is not None
    return token.wait(10)


def reused(fn: Callable[[], Any], until: Deadline | None = None) -> Any:
    """Call *fn* as `Session` does: in a worker that may have run other calls."""
    return run_until(fn, until, None, expired=lambda overran: Odd(overran), reuse=True)


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """Open at the end of the test, so that what waits for it can return."""
    opened = threading.Event()
    yield opened
    opened.set()


def test_the_result_is_returned() -> None:
    """A function that ends in time returns its result; it gets its arguments and runs in another thread."""
    assert bounded_call(divmod, 7, 2, limit=10) == (3, 1)
    assert bounded_call(threading.get_ident, limit=timedelta(seconds=10)) != threading.get_ident()


def test_no_limit_at_all() -> None:
    """Without a limit, a deadline and a token the function runs to its end."""
    assert bounded_call(lambda: time.sleep(0.01) or "done") == "done"


def test_its_exception_is_raised_unchanged() -> None:
    """The function's own exception object is raised, of any type."""
    for kind in (Odd, StreamguardError, TimeoutError, SystemExit, KeyboardInterrupt):
        error = kind("x")

        def fail(error: BaseException = error) -> None:
            raise error

        with pytest.raises(kind) as caught:
            bounded_call(fail, limit=10)
        assert caught.value is error


def test_an_error_leaves_no_cycle() -> None:
    """An exception and all that its frames hold are freed with the last reference, without the collector."""

    def fail() -> None:
        raise Odd

    def caught() -> "weakref.ref[Odd]":
        try:
            bounded_call(fail, limit=10)
        except Odd as error:
            return weakref.ref(error)
        raise AssertionError("nothing was raised")

    gc.disable()
    try:
        assert caught()() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("limit", [0, -1, timedelta(0)])
def test_a_spent_limit_starts_nothing(limit: Any) -> None:
    """With a limit of 0 or less the function does not run."""
    ran: list[int] = []
    with pytest.raises(DeadlineExceededError) as spent:
        bounded_call(ran.append, 1, limit=limit)
    assert (ran, spent.value.scope, spent.value.overran) == ([], "step", False)


def test_a_spent_deadline_starts_nothing() -> None:
    """Under a surrounding deadline that has passed the function does not run, with any limit of its own."""
    ran: list[int] = []
    with deadline(0), pytest.raises(DeadlineExceededError) as spent:
        bounded_call(ran.append, 1, limit=10)
    assert (ran, spent.value.scope, spent.value.limit) == ([], "ambient", None)


def test_the_message_says_that_nothing_was_run() -> None:
    """The message about a spent limit or deadline says that nothing was run."""
    for seconds, around in ((-1, None), (None, -1)):
        with deadline(around), pytest.raises(DeadlineExceededError, match="is already spent: nothing was run"):
            bounded_call(wait_for_token, limit=seconds)


def test_cancel_must_be_a_token() -> None:
    """The message names the argument."""
    with pytest.raises(TypeError, match="cancel= must be a CancelToken, got str"):
        bounded_call(wait_for_token, cancel="x")  # type: ignore[arg-type]


def test_a_limit_must_be_a_number() -> None:
    """A limit that is not a number of seconds is refused by its name, before anything runs."""
    with pytest.raises(TypeError, match="limit="):
        bounded_call(int, limit=True)
    with pytest.raises(UsageError, match="limit="):
        bounded_call(int, limit=float("nan"))


def test_expiry_cancels_the_calls_token() -> None:
    """When the limit fires, the function's token is cancelled, its closers run, and a function that checks it ends."""
    closed: list[bool] = []

    def work() -> None:
        token = current_token()
        assert token is not None
        token.on_cancel(lambda: closed.append(True))
        token.wait(10)

    begun = monotonic()
    with pytest.raises(DeadlineExceededError) as expired:
        bounded_call(work, limit=LIMIT, name="lookup")
    error = expired.value
    assert LIMIT <= monotonic() - begun < LIMIT + PROMPT
    assert closed == [True]
    assert (error.scope, error.limit, error.overran, error.name) == ("step", LIMIT, False, "lookup")
    assert error.elapsed is not None
    assert error.elapsed >= LIMIT
    assert "lookup took longer than limit=0.1" in str(error)


def test_a_function_that_ignores_its_cancel_is_abandoned(gate: threading.Event) -> None:
    """A function that ignores its token is abandoned after the grace and counted while it runs; its result is dropped."""
    before, done = abandoned_threads(), threading.Event()

    def work() -> str:
        gate.wait(10)
        done.set()
        return "late"

    begun = monotonic()
    with pytest.raises(DeadlineExceededError) as expired:
        bounded_call(work, limit=LIMIT, grace=0.05)
    assert LIMIT + 0.05 <= monotonic() - begun < LIMIT + PROMPT
    assert expired.value.overran
    assert "could not be stopped" in str(expired.value)
    assert abandoned_threads() == before + 1
    gate.set()
    assert done.wait(5)
    wait_until(lambda: abandoned_threads() == before)


def test_a_late_result_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that arrives after the deadline is an error, also if the caller itself was delayed."""
    wait = calls.Call.wait
    monkeypatch.setattr(calls.Call, "wait", lambda call, seconds: wait(call, None))
    with pytest.raises(DeadlineExceededError) as late:
        bounded_call(time.sleep, LIMIT + 0.05, limit=LIMIT)
    assert not late.value.overran


def test_the_nearer_limit_is_named() -> None:
    """The nearer of limit and surrounding deadline fires, and the error names it."""
    with deadline(10), pytest.raises(DeadlineExceededError) as own:
        bounded_call(wait_for_token, limit=LIMIT)
    with deadline(LIMIT), pytest.raises(DeadlineExceededError) as ambient:
        bounded_call(wait_for_token, limit=10)
    assert (own.value.scope, ambient.value.scope, ambient.value.limit) == ("step", "ambient", None)
    assert "the surrounding deadline()" in str(ambient.value)


@pytest.mark.parametrize("given", [True, False], ids=["cancel=", "current_token"])
def test_a_cancel_ends_the_wait(given: bool) -> None:
    """Cancelling the token, given or current, frees the caller at once with its reason, and cancels the function."""
    token, running = CancelToken(), threading.Event()

    def work() -> None:
        running.set()
        wait_for_token()

    def call() -> None:
        if given:
            bounded_call(work, limit=10, cancel=token)
        else:
            with token.active():
                bounded_call(work, limit=10)

    threading.Thread(target=lambda: running.wait(5) and token.cancel("enough"), daemon=True).start()
    begun = monotonic()
    with pytest.raises(StreamCancelledError) as cancelled:
        call()
    assert monotonic() - begun < PROMPT
    assert cancelled.value.reason == "enough"


def test_a_cancelled_token_starts_nothing_and_precedes_the_deadline() -> None:
    """Under a cancelled token nothing starts; a cancel precedes a deadline of the same instant."""
    token, ran = CancelToken(), []
    token.cancel("no")
    with pytest.raises(StreamCancelledError) as cancelled:
        bounded_call(ran.append, 1, limit=0, cancel=token)
    assert (ran, cancelled.value.reason) == ([], "no")


def test_the_callers_token_is_never_cancelled_and_keeps_nothing() -> None:
    """An expiry cancels only the child, and a long-lived token forgets each call that ended."""
    token = CancelToken()
    bounded_call(int, limit=10, cancel=token)
    with pytest.raises(DeadlineExceededError):
        bounded_call(wait_for_token, limit=LIMIT, cancel=token)
    assert not token.cancelled
    assert not token._closers


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timer signals here")
def test_a_signal_handler_that_raises_frees_the_function() -> None:
    """Ctrl-C, or any exception of a handler, is raised at once, and the function is cancelled."""
    tokens: queue.SimpleQueue[CancelToken | None] = queue.SimpleQueue()

    def work() -> None:
        tokens.put(current_token())
        wait_for_token()

    def ring(*_: object) -> None:
        raise Odd

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(Odd):
            bounded_call(work, limit=10)
    finally:
        signal.signal(signal.SIGALRM, before)
    token = tokens.get(timeout=1)
    assert token is not None
    assert token.cancelled


def test_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the system refuses a thread, both kinds of call raise a StreamguardError."""

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    for call in (lambda: bounded_call(int, limit=1), lambda: reused(int)):
        with pytest.raises(StreamguardError, match="cannot start the thread streamguard-call"):
            call()


def test_the_error_pickles() -> None:
    """The error pickles with all of its details."""
    with pytest.raises(DeadlineExceededError) as spent:
        bounded_call(int, limit=0)
    copy = pickle.loads(pickle.dumps(spent.value))
    assert (str(copy), copy.scope, copy.overran, copy.limit) == (str(spent.value), "step", False, 0.0)


def test_a_worker_runs_several_calls_and_then_ends() -> None:
    """Calls share a thread, each in its own context; soon after the last call the thread ends."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    def work() -> tuple[threading.Thread, str]:
        seen = variable.get()
        variable.set("left over")
        return threading.current_thread(), seen

    (first, _), (second, seen) = reused(work), reused(work)
    assert first is second
    assert (seen, first.daemon) == ("unset", True)
    first.join(PROMPT)
    assert not first.is_alive()


def test_a_busy_worker_is_not_reused(gate: threading.Event) -> None:
    """An abandoned call keeps its worker, and the next call gets another one; once it ends it is not counted."""
    stuck: list[threading.Thread] = []

    def work() -> None:
        stuck.append(threading.current_thread())
        gate.wait(10)

    before = abandoned_threads()
    with pytest.raises(Odd) as expired:
        reused(work, Deadline.after(0.05))
    assert expired.value.args == (True,)
    assert reused(threading.current_thread) is not stuck[0]
    assert abandoned_threads() == before + 1
    gate.set()
    wait_until(lambda: abandoned_threads() == before)


def test_a_worker_that_is_about_to_end_loses_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls that meet workers in the instant of their end are all run."""
    monkeypatch.setattr(tasks, "_IDLE_SECONDS", 0)
    results: list[int] = []

    def many() -> None:
        results.extend(reused(lambda number=number: number) for number in range(300))

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == sorted([*range(300)] * 4)


def test_a_forked_child_starts_its_own_workers() -> None:
    """A child has none of its parent's workers: it does not wait for them, and does not count them."""
    output = run_script(
        """
        import warnings
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        from streamguard._core.bounded import run_until
        def call():
            return run_until(os.getpid, None, None, expired=TimeoutError, reuse=True)
        assert call() == os.getpid()
        try:
            bounded_call(time.sleep, 60, limit=0.05)
        except DeadlineExceededError:
            assert abandoned_threads() == 1
        pid = os.fork()
        if not pid:
            os._exit(7 if (call(), abandoned_threads()) == (os.getpid(), 0) else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), call() == os.getpid(), abandoned_threads())
        """
    )
    assert output == "7 True 1\n"


@pytest.mark.parametrize("reuse", [False, True])
def test_a_stuck_call_does_not_delay_the_exit(reuse: bool) -> None:
    """The interpreter exits at once, without output, while a function still runs in one of our threads."""
    begun = monotonic()
    output = run_script(
        f"""
        from streamguard._core.bounded import run_until
        from streamguard._core.deadline import Deadline
        stuck = lambda: time.sleep(60)
        try:
            run_until(stuck, Deadline.after(0.1), None, expired=lambda overran: Exception(overran), reuse={reuse})
        except Exception as error:
            print(error)
        """
    )
    assert output == "True\n"
    assert monotonic() - begun < 20


class Lazy:
    """Determines its class only when it is evaluated, as Django's lazy objects do."""

    @property
    def __class__(self) -> Any:
        raise RuntimeError("evaluated outside of the call")


def test_a_lazy_result_is_not_evaluated() -> None:
    """Evaluating it would take its time outside of every limit."""
    assert type(bounded_call(Lazy)) is Lazy


def test_an_awaitable_handle_is_a_result() -> None:
    """Some libraries return handles that can be awaited: only a bare coroutine or generator is refused."""

    class Handle:
        def __await__(self) -> Any:
            yield

    assert isinstance(bounded_call(Handle), Handle)


def test_a_started_generator_stays_usable() -> None:
    """It is refused as a result, and stays usable."""
    numbers = (number for number in range(3))
    next(numbers)
    with pytest.raises(UsageError, match="generator"):
        bounded_call(lambda: numbers)
    assert list(numbers) == [1, 2]
