"""Run the command: in this process where no signals are involved, else in its own."""

import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from streamguard.cli import main

ROOT = Path(__file__).parent.parent.parent

# A shell that starts a job in the background lets it ignore SIGINT, and that is inherited: undo it.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from streamguard.cli import main
main(prog_name="streamguard")
"""


def invoke(*args: str, **options: Any) -> Result:
    """Run `streamguard ARGS` in this process, with stderr apart from stdout."""
    # Before click 8.2 the two are mixed unless told otherwise; since then one cannot tell.
    apart = {"mix_stderr": False} if "mix_stderr" in inspect.signature(CliRunner).parameters else {}
    return CliRunner(**apart).invoke(main, [*args], **options)


def last_line(result: Result) -> str:
    return result.stderr.splitlines()[-1]


@contextmanager
def process(*args: str, env: dict[str, str] | None = None, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start `streamguard ARGS` as a process of its own, with pipes unless told otherwise; end it behind the block."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "", **(env or {})}
    with subprocess.Popen([sys.executable, "-c", PROGRAM, *args], env=environment, **streams) as running:
        try:
            yield running
        finally:
            running.kill()
            for pipe in (running.stdout, running.stderr):
                if pipe:
                    pipe.close()
