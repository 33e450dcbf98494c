"""The interpreter's exit, with a stream in any phase: prompt, with its own exit code, and silent."""

import contextlib
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest

from streamguard._core.clock import monotonic
from streamguard.testing import Gateway

from ..helpers import Serve, finish, run_script, started

EXIT_SECONDS = 2.0

_MAKE = """
import tenacity
forever = tenacity.Retrying(wait=tenacity.wait_fixed(60), retry=tenacity.retry_if_exception_type(Exception))
limits = dict(connect=60, response=60, first=60, idle=60)
def make():
    return guarded_stream("GET", sys.argv[1], verify=sys.argv[2] or None, decode="bytes", retry=forever, **limits)
"""


@dataclass(frozen=True, slots=True)
class Phase:
    """A stream that is stuck: the server's script, and the function that it is then blocked in."""

    blocked_in: str
    script: str = "stall"
    options: dict[str, Any] = field(default_factory=dict)


PHASES = {
    "connect": Phase("_dial_one", options={"accept": False, "backlog": 0}),
    "tls": Phase("do_handshake", options={"tls": True, "tls_stall": True}),
    "headers": Phase("readinto"),
    "first": Phase("readinto", "headers\nstall"),
    "first, tls": Phase("read", "headers\nstall", {"tls": True}),
    "idle": Phase("readinto", "chat hello\nstall"),
    "retry": Phase("wait", "reset"),
    "back-pressure": Phase("_wait_for_room", f"loop forever\nraw {'x' * 10_000}\nendloop"),
}


@contextlib.contextmanager
def stuck_in(phase: Phase, serve: Serve) -> Iterator[Any]:
    """Serve *phase*."""
    gateway = serve(phase.script, **phase.options)
    with contextlib.ExitStack() as stack:
        if "accept" in phase.options:
            address = urlsplit(gateway.url)
            stack.enter_context(socket.create_connection((address.hostname, address.port)))  # now the queue is full
        yield gateway


def leave(code: str, gateway: Any, *arguments: str) -> str:
    """Run a script that prints "leaving" as its last line; return what it printed, once it has ended in time."""
    ca = gateway.ca if gateway.url.startswith("https") else ""
    output = ""
    with started(_MAKE + textwrap.dedent(code), gateway.url, ca, *arguments) as script:
        assert script.stdout is not None
        for line in script.stdout:
            output += line
            if line == "leaving\n":
                break
        begun = monotonic()
        output += finish(script)
    assert monotonic() - begun < EXIT_SECONDS, "the exit was held up"
    assert output.endswith("leaving\n")
    return output


@pytest.mark.parametrize("way", ["pass", "sys.exit(0)"], ids=["end of the script", "sys.exit"])
@pytest.mark.parametrize("phase", PHASES)
def test_exit_while_a_thread_is_in_next(streamguard_gateway: Serve, phase: str, way: str) -> None:
    """A daemon thread that is blocked in next() neither delays the exit nor prints anything."""
    with stuck_in(PHASES[phase], streamguard_gateway) as gateway:
        leave(
            f"""
            stream = make()
            def consume():
                for chunk in stream:
                    if sys.argv[3] == "back-pressure":
                        time.sleep(60)
            threading.Thread(target=consume, daemon=True).start()
            wait_blocked(sys.argv[4])
            print("leaving", flush=True)
            {way}
            """,
            gateway,
            phase,
            PHASES[phase].blocked_in,
        )


@pytest.mark.parametrize("phase", ["headers", "first, tls", "idle", "retry", "connect", "tls"])
def test_exit_by_a_signal_handler_in_next(streamguard_gateway: Serve, phase: str) -> None:
    """SystemExit raised by a handler, in the main thread that is blocked in next(), ends the program with its code."""
    with stuck_in(PHASES[phase], streamguard_gateway) as gateway:
        leave(
            """
            import signal
            def stop(*_):
                print("leaving", flush=True)
                sys.exit(0)
            signal.signal(signal.SIGTERM, stop)
            main = threading.get_ident()
            def send():
                time.sleep(0.2)
                signal.pthread_kill(main, signal.SIGTERM)
            threading.Thread(target=send, daemon=True).start()
            for chunk in make():
                pass
            """,
            gateway,
        )


HOLDERS = {
    "a global": "stream = make().open()",
    "half-consumed": "stream = make(); next(stream)",
    "a cycle": "stream = make(); next(stream); cycle = [stream]; cycle.append(cycle); del stream, cycle",
    "another module": "import json; json.held = make(); next(json.held)",
    "a thread's local": "held = threading.local(); held.stream = make(); next(held.stream)",
    "a with block": "stream = make().__enter__(); next(stream)",
    "an enclosing generator": "held = (chunk for chunk in make()); next(held)",
    "an atexit hook": "import atexit; stream = make(); next(stream); atexit.register(lambda: stream.close())",
    "a hook that reads": "import atexit; stream = make(); next(stream); atexit.register(lambda: next(stream))",
    "a __del__": "class Late:\n    def __del__(self): self.stream.close()\n"
    "late = Late(); late.stream = make(); next(late.stream)",
    "many": "streams = [make() for _ in range(20)]; [next(stream) for stream in streams]",
}


@pytest.mark.parametrize("holder", HOLDERS)
def test_exit_with_a_live_stream(streamguard_gateway: Serve, holder: str) -> None:
    """A stream that is open at the exit, wherever it is referenced, is left or closed, in time and silently."""
    gateway = streamguard_gateway("chat hello\nchat world\nwait 0.2\nchat again\nstall")
    leave(HOLDERS[holder] + '\nprint("leaving", flush=True)', gateway)


def test_exit_with_a_stream_that_was_never_started(streamguard_gateway: Serve) -> None:
    """A stream that was never used prints nothing when the program ends."""
    gateway = streamguard_gateway("")
    leave('import warnings\nwarnings.simplefilter("ignore")\nstream = make()\nprint("leaving", flush=True)', gateway)
    assert gateway.connections == 0


def test_exit_code_of_an_uncaught_error(streamguard_gateway: Serve) -> None:
    """An uncaught timeout ends the program as any exception does: code 1, one traceback, nothing after it."""
    gateway = streamguard_gateway("chat hello\nstall")
    with started('guarded_stream("GET", sys.argv[1], idle=0.1).read()', gateway.url) as script:
        output, errors = script.communicate(timeout=20)
    assert (script.returncode, output) == (1, "")
    assert errors.count("Traceback (most recent call last)") == 1
    assert errors.splitlines()[-1].startswith("streamguard.errors.StreamInactivityTimeoutError: no further chunk")
    gateway.wait_left()


def test_a_stream_that_starts_in_an_atexit_hook(streamguard_gateway: Serve) -> None:
    """If no thread can be started any more (Python 3.12 and later), that is a StreamguardError; otherwise it works."""
    gateway = streamguard_gateway("chat hello\nfinish\ndone")
    output = run_script(
        """
        import atexit
        def hook():
            try:
                print(guarded_stream("GET", sys.argv[1], idle=5, total=10).read())
            except StreamguardError as error:
                print(error)
        atexit.register(hook)
        """,
        gateway.url,
    )
    if sys.version_info < (3, 12):
        assert output == "hello\n"
    else:
        assert output == "hello\n" or output.startswith("cannot start the thread streamguard-")


def test_a_killed_program_frees_its_connection(streamguard_gateway: Serve) -> None:
    """SIGTERM without a handler kills at once; the server sees the close."""
    gateway = streamguard_gateway("chat hello\nstall")
    with started('guarded_stream("GET", sys.argv[1], idle=60).read()', gateway.url) as script:
        gateway.wait_step("stall", timeout=20)
        script.send_signal(signal.SIGTERM)
        _, errors = script.communicate(timeout=20)
    assert (script.returncode, errors) == (-signal.SIGTERM, "")
    gateway.wait_left()


def test_no_thread_of_ours_is_waited_for() -> None:
    """`threading` waits for no thread of ours at the exit: all are daemons."""
    assert [t for t in threading.enumerate() if t.name.startswith("streamguard") and not t.daemon] == []


def test_a_stream_at_interpreter_exit() -> None:
    """From an atexit hook a stream works or fails with a clear error; it neither hangs nor leaves a traceback (B115)."""
    program = (
        "import atexit, sys, streamguard\n"
        "def late():\n"
        "    try:\n"
        "        print(streamguard.guarded_stream('GET', sys.argv[1], total=5).read())\n"
        "    except streamguard.StreamguardError as error:\n"
        "        print(type(error).__name__)\n"
        "held = streamguard.guarded_stream('GET', sys.argv[1])\n"
        "next(held)\n"
        "atexit.register(late)\n"
    )
    with Gateway("chat a\nstall", "chat a\ndone") as gateway:
        done = subprocess.run([sys.executable, "-c", program, gateway.url], capture_output=True, text=True, timeout=20)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout in ("a\n", "StreamguardError\n")
