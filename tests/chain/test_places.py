"""Where chains run: worker threads, event loops, gunicorn, and an interpreter that wants to end."""

import asyncio
import contextvars
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from streamguard import CancelToken, Chain, ChainResult, StepContext
from streamguard._core.clock import monotonic
from streamguard.telemetry import StepRetry, set_hooks
from streamguard.testing import AgentAPI, no_leaks

from ..helpers import ROOT
from .steps import PROMPT, endings, obedient, value

STUCK = """
import sys, threading, time
from streamguard import Chain

chain = Chain("c", deadline=0.2)
chain.step(lambda ctx: time.sleep(60), name="stuck", fallback=1)
result = chain.run()
print(result.status, result.steps["stuck"].overran, threading.active_count())
"""

WSGI = """
import json, sys
sys.path.insert(0, {root!r})
from streamguard import Chain

agent = Chain("agent", deadline=0.5, max_parallel=2)
agent.step(lambda ctx: ctx.get_json({url!r} + "/profile/7"), name="profile", limit=0.2, fallback=None)
agent.step(lambda ctx: ctx.get_json({url!r} + "/policy"), name="policy")

def app(environ, start_response):
    body = json.dumps(agent.run().public()).encode()
    start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
    return [body]
"""


def small_chain() -> Chain:
    chain = Chain("c", deadline=5)
    chain.step(obedient, name="slow", limit=0.1, fallback=1)
    chain.step(value(2), name="fast")
    return chain


class Interrupt(BaseException):
    """What a signal handler raises, as Ctrl-C's does."""


def interrupted_late(ctx: StepContext) -> Any:
    """Hang until the step is cut, and then be interrupted, as a signal would do it."""
    ctx.token.wait(10)
    raise Interrupt


def interrupted_by_its_own_cancel(token: CancelToken) -> Callable[[StepContext], Any]:
    def step(ctx: StepContext) -> Any:
        token.cancel()
        raise Interrupt

    return step


@pytest.mark.parametrize("place", ["late", "cancelled", "verify"])
def test_an_interrupt_of_an_inline_step_comes_out(place: str) -> None:
    """Ctrl-C in the caller's thread propagates also if the step is past its limit, is cancelled, or is its `verify=`."""
    token, ran = CancelToken(), []
    chain = Chain("c", deadline=5)
    if place == "late":
        chain.step(interrupted_late, name="a", limit=0.05, inline=True, fallback=1)
    elif place == "cancelled":
        chain.step(interrupted_by_its_own_cancel(token), name="a", inline=True, fallback=1)
    else:
        chain.step(obedient, name="a", limit=0.05, inline=True, verify=interrupted_late, fallback=1)
    chain.step(ran.append, name="later")
    with pytest.raises(Interrupt):
        chain.run(cancel=token)
    assert ran == []


@pytest.mark.skipif(sys.platform == "win32", reason="needs a signal that can be sent to oneself")
def test_ctrl_c_in_an_inline_step_that_is_late() -> None:
    """A real SIGINT after the limit of an inline step is a KeyboardInterrupt of `run()`."""

    def late(ctx: StepContext) -> Any:
        ctx.token.wait(10)
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(10)

    chain = Chain("c")
    chain.step(late, name="a", limit=0.05, inline=True, fallback=1)
    with pytest.raises(KeyboardInterrupt):
        chain.run()


def test_a_hook_that_exits_does_not_hang_the_run() -> None:
    """An exception in a step's thread outside of the step propagates from `run()`, also if nothing bounds the step."""

    def leave(event: object) -> None:
        if isinstance(event, StepRetry):
            raise SystemExit(3)

    def reset(ctx: StepContext) -> Any:
        raise ConnectionResetError

    chain = Chain("c")
    chain.step(reset, name="a", retries=1, idempotent=True, fallback=1)
    set_hooks([leave])
    try:
        with pytest.raises(SystemExit):
            chain.run()
    finally:
        set_hooks(None)


def test_in_a_worker_thread() -> None:
    """A run needs neither the main thread nor signals."""
    results: list[ChainResult] = []
    chain = small_chain()
    thread = threading.Thread(target=lambda: results.append(chain.run()))
    thread.start()
    thread.join(10)
    assert endings(results[0]) == {"slow": ("timeout", "step_limit"), "fast": ("ok", None)}


def test_in_a_running_event_loop() -> None:
    """In a notebook's kernel a loop is running already, and signals are its own: a run uses neither."""
    handlers = [signal.getsignal(number) for number in sorted(signal.valid_signals())]

    async def cell() -> ChainResult:
        return small_chain().run()

    assert asyncio.run(cell()).status == "completed_with_fallback"
    assert handlers == [signal.getsignal(number) for number in sorted(signal.valid_signals())]


def test_steps_see_the_callers_context() -> None:
    """Context variables of the caller are there in every step; what a step sets stays its own."""
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")
    variable.set("the caller's")

    def look(ctx: StepContext) -> str:
        seen = variable.get()
        variable.set("a step's")
        return seen

    chain = Chain("c")
    for name, inline in (("threaded", False), ("inline", True), ("again", False)):
        chain.step(look, name=name, inline=inline)
    result = chain.run()
    assert [result[name] for name in result] == ["the caller's"] * 3
    assert variable.get() == "the caller's"


def test_a_stuck_step_does_not_delay_the_exit_of_the_interpreter() -> None:
    """A step that sleeps for a minute is abandoned; the process ends as soon as its program does."""
    begun = monotonic()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", STUCK], capture_output=True, text=True, timeout=50, check=False, env=env
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "completed_with_fallback True 2\n", "")
    assert monotonic() - begun < 30


def test_many_runs_leave_nothing() -> None:
    """Fifty runs with timeouts against a server leave no thread and no descriptor."""
    with AgentAPI(profile_ms=60_000, policy_ms=0) as api, no_leaks():
        chain = Chain("c", deadline=5, max_parallel=2)
        chain.step(lambda ctx: ctx.get_json(f"{api.url}/profile/7"), name="profile", limit=0.03, fallback=1)
        chain.step(lambda ctx: ctx.get_json(f"{api.url}/policy"), name="policy")
        assert {chain.run().status for _ in range(50)} == {"completed_with_fallback"}


def test_many_runs_at_once() -> None:
    """Runs of one chain in twenty threads, each with a timeout, do not disturb one another."""
    chain = small_chain()
    results: list[ChainResult] = []
    threads = [threading.Thread(target=lambda: results.append(chain.run())) for _ in range(20)]
    begun = monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert [result.status for result in results] == ["completed_with_fallback"] * 20
    assert monotonic() - begun < 2 + 4 * PROMPT
    assert {step.runs for step in chain.advice().steps} == {20}


@pytest.mark.skipif(sys.platform == "win32", reason="gunicorn needs a POSIX system")
def test_under_gunicorns_threads(tmp_path: Path) -> None:
    """In a gthread worker of gunicorn, eight requests at once get their answers within the chain's deadline."""
    pytest.importorskip("gunicorn", reason="gunicorn is not installed (the extra `dev` has it)")
    with AgentAPI(profile_ms=60_000, policy_ms=20) as api:
        (tmp_path / "service.py").write_text(WSGI.format(root=str(ROOT), url=api.url))
        with _gunicorn(tmp_path) as url:
            answers: list[dict[str, Any]] = []
            threads = [threading.Thread(target=lambda: answers.append(_json(url))) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(20)
    assert [answer["status"] for answer in answers] == ["completed_with_fallback"] * 8
    assert {step["reason"] for answer in answers for step in answer["steps"]} == {"step_limit", None}


def _json(url: str) -> Any:
    with requests.get(url, timeout=20) as response:
        return response.json()


@contextmanager
def _gunicorn(folder: Path) -> Iterator[str]:
    """Run gunicorn with one gthread worker, on a socket that it inherits: connections wait there until it is up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        bind = ["--bind", f"fd://{listener.fileno()}", "--worker-class", "gthread", "--threads", "8"]
        quiet = ["--log-level", "error", "--worker-tmp-dir", str(folder), "--chdir", str(folder)]
        command = [sys.executable, "-m", "gunicorn", *bind, *quiet, "service:app"]
        env = {**os.environ, "HOME": str(folder), "XDG_RUNTIME_DIR": str(folder)}  # newer ones leave a socket there
        with subprocess.Popen(command, env=env, pass_fds=[listener.fileno()]) as process:
            try:
                yield f"http://127.0.0.1:{listener.getsockname()[1]}"
            finally:
                process.terminate()
