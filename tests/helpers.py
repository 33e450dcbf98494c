"""What the tests share: waiting for a condition, threads, and scripts in an interpreter of their own."""

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from streamguard import GuardedStream
from streamguard._core.clock import monotonic
from streamguard.testing import Gateway

ROOT = Path(__file__).parent.parent

Serve = Callable[..., Gateway]
"""The fixture `streamguard_gateway`, or its TLS twin."""

PROMPT = 2.0
"""Seconds for what takes milliseconds: generous, for a busy machine."""

_PRELUDE = """
import os, sys, threading, time
from streamguard import *

def wait_for(holds, seconds=10):
    end = time.clock_gettime(time.CLOCK_MONOTONIC) + seconds
    while not holds():
        if time.clock_gettime(time.CLOCK_MONOTONIC) > end:
            os.write(2, b"what the script waits for did not happen")
            os._exit(70)
        time.sleep(0.005)

def wait_blocked(function):
    "Wait until some other thread is inside of *function*, at the same instruction, for a while."
    seen = []
    def names(frame):
        while frame is not None:
            yield frame.f_code.co_name
            frame = frame.f_back
    def blocked():
        frames = [f for ident, f in sys._current_frames().items() if ident != threading.get_ident()]
        seen.append({(id(f), f.f_lasti) for f in frames if function in names(f)})
        return len(seen) > 4 and seen[-1] and seen[-1] == seen[-4]
    wait_for(blocked)
"""

FORKING = """
import gc, signal, warnings
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

def in_child(work):
    "Fork; run *work* in the child, which then ends as a program does; return whether that went well."
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    signal.alarm(10)  # a child that hangs ends as well
    work()
    sys.exit(0)

def refused(action):
    try:
        action()
    except UsageError as error:
        assert "parent" in str(error), error
    else:
        raise AssertionError("not refused")
"""
"""For a script that forks: what its children do, and what they must not."""


def wait_until(holds: Callable[[], object], seconds: float = 10.0) -> None:
    """Wait until *holds* is true; raise AssertionError if it is not within *seconds*."""
    end = monotonic() + seconds
    while not holds():
        assert monotonic() < end, "what the test waits for did not happen"
        time.sleep(0.002)


@contextlib.contextmanager
def started(code: str, *arguments: str, prelude: str = _PRELUDE) -> Iterator["subprocess.Popen[str]"]:
    """Run *code* in a fresh interpreter, where every warning is an error; `sys.argv[1:]` is *arguments*."""
    script = subprocess.Popen(
        [sys.executable, "-W", "error", "-c", prelude + textwrap.dedent(code), *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with script:
        try:
            yield script
        finally:
            if script.poll() is None:
                script.kill()


def finish(script: "subprocess.Popen[str]", seconds: float = 20.0) -> str:
    """Wait for the script, which has to end with code 0 and nothing on stderr; return the rest of its output."""
    output, errors = script.communicate(timeout=seconds)
    assert (script.returncode, errors) == (0, ""), f"ended with {script.returncode}: {errors}"
    return output


def run_script(code: str, *arguments: str, prelude: str = _PRELUDE) -> str:
    """Run *code* to its end and return what it printed."""
    with started(code, *arguments, prelude=prelude) as script:
        return finish(script)


@contextlib.contextmanager
def switching_often() -> Iterator[None]:
    """Let threads take turns as often as the interpreter can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)


def in_threads(count: int, work: Callable[[int], object]) -> list[threading.Thread]:
    """Start *count* threads that do *work*, each with its number."""
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def in_thread(work: Callable[[], object]) -> threading.Thread:
    """Run *work* in a daemon thread."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def join(threads: list[threading.Thread]) -> None:
    """Wait for all of them, and for none of them too long."""
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive(), "a thread hangs"


class Consumer:
    """Loop over a stream, and keep what came and what was raised."""

    def __init__(self, stream: "GuardedStream[Any]") -> None:
        self.stream = stream
        self.texts: list[str] = []
        self.errors: list[BaseException] = []

    def __call__(self, _: int = 0) -> None:
        try:
            for chunk in self.stream:
                self.texts.append(chunk.text)
        except BaseException as error:
            self.errors.append(error)
