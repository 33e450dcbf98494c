"""Hanging process trees, many of them: nothing of them is left."""

import os
import threading

import psutil
import pytest

from streamguard.dispatch import CommandMember, Dispatcher
from streamguard.testing.leaks import no_leaks

from ..helpers import wait_until

pytestmark = [pytest.mark.stress, pytest.mark.timeout(600)]

# A shell with a child and a grandchild that hold its pipes; one of them does not care for SIGTERM.
SLEEP = f"sleep 300.{os.getpid()}"
TREE = f"trap '' TERM; ({SLEEP} & exec {SLEEP}) & echo begun; {SLEEP}"


def test_two_hundred_dispatches_of_hanging_trees_leave_nothing() -> None:
    """200 dispatches, ten at a time, of trees that hang and ignore SIGTERM: no process, thread or descriptor is left."""
    own = psutil.Process()
    before = set(own.children(recursive=True))
    outcomes: list[str] = []

    def call(dispatcher: Dispatcher, number: int) -> None:
        member = CommandMember("a", ["/bin/sh", "-c", TREE], grace=0.2)
        for _ in range(20):
            outcome = dispatcher.dispatch(f"c{number}", [member], "p", output_timeout=0.2)
            outcomes.append(f"{outcome['a'].status}/{outcome['a'].reason}/{outcome['a'].abandoned}")

    with no_leaks(5), Dispatcher() as dispatcher:
        threads = [threading.Thread(target=call, args=(dispatcher, number)) for number in range(10)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert outcomes == ["failed/timeout/False"] * 200
    wait_until(lambda: set(own.children(recursive=True)) == before)
    assert sleepers() == 0


def sleepers() -> int:
    """Count what is left of the trees, wherever it hangs now."""
    return sum(process.info["cmdline"] == SLEEP.split() for process in psutil.process_iter(["cmdline"]))
