"""Small programs to supervise, and checks of the processes that they leave."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable

import psutil

Start = Callable[..., "subprocess.Popen[bytes]"]
"""Starts a program, and waits for its first line: the fixture `start`."""

SLEEP = "say('ready')\ntime.sleep(60)"
"""Code that prints a line and sleeps."""

SLACK = 3.0
"""Seconds that a busy machine may add."""


def python(code: str, *arguments: str) -> list[str]:
    """Return the argv of a bare interpreter that runs *code*; `say` writes a line at once."""
    say = "import os, signal, sys, time\ndef say(text, to=1): os.write(to, text.encode() + b'\\n')\n"
    return [sys.executable, "-I", "-S", "-c", say + textwrap.dedent(code), *arguments]


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def json_lines(*lines: str, then: str = "") -> list[str]:
    """Return the argv of a program that prints *lines*, and then runs the shell script *then*."""
    printed = "\n".join(lines)
    return shell(f"cat <<'END'\n{printed}\nEND\n{then}")


def alive(pid: int) -> bool:
    """Whether a process runs, and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def group_is_gone(group: int) -> bool:
    """Return whether no process of a group runs; zombies do not count."""
    return not any(_group(pid) == group and alive(pid) for pid in psutil.pids())


def _group(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
