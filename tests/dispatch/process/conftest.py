"""Programs in sessions of their own, for the tests that look at them."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import psutil
import pytest

from streamguard.dispatch._process.cpu_activity import process_tree

from ..programs import Start


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts a program in a session of its own, and waits for its first line."""
    with ExitStack() as stack:

        def started(argv: list[str]) -> "subprocess.Popen[bytes]":
            program = subprocess.Popen(argv, stdout=subprocess.PIPE, start_new_session=True)
            stack.callback(_end, program)
            assert program.stdout is not None
            program.stdout.readline()
            return program

        yield started


def _end(program: "subprocess.Popen[bytes]") -> None:
    for process in [*process_tree(program.pid)]:
        with suppress(psutil.NoSuchProcess):  # a child of its that has just ended by itself
            process.kill()
    program.communicate()
