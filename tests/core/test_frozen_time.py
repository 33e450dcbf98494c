"""Neither a test tool nor a jump of a clock stops a limit or fires one."""

import datetime
import time
from collections.abc import Callable
from typing import Any

import freezegun
import pytest

from streamguard import CancelToken, Deadline, DeadlineExceededError, StreamInactivityTimeoutError, guarded_stream
from streamguard._core.clock import monotonic

from ..helpers import run_script

pytestmark = pytest.mark.skipif(not hasattr(time, "clock_gettime"), reason="without clock_gettime a clock can be frozen")

THEN = "2020-02-02 12:00:00"
REAL_MONOTONIC = time.monotonic
Serve = Callable[..., Any]


@freezegun.freeze_time(THEN)
def test_the_clock_runs_while_time_is_frozen() -> None:
    """Frozen time stands still, our clock does not: a wait of 0.1 s takes that, and a deadline expires."""
    begun, frozen = monotonic(), time.monotonic()
    end = Deadline.after(0.1)
    assert not CancelToken().wait(0.1)
    assert monotonic() - begun >= 0.1
    assert time.monotonic() == frozen
    assert end.expired


@pytest.mark.parametrize(
    ("limits", "expected"), [({"idle": 0.2}, StreamInactivityTimeoutError), ({"total": 0.2}, DeadlineExceededError)]
)
def test_a_limit_fires_while_time_is_frozen(streamguard_gateway: Serve, limits: Any, expected: type[Exception]) -> None:
    """A silent stream ends after its limit by the real clock; only the report's label is frozen."""
    gateway = streamguard_gateway("chat hello\nstall")
    begun = monotonic()
    with freezegun.freeze_time(THEN):
        stream = guarded_stream("GET", gateway.url, **limits)
        assert next(stream).text == "hello"
        with pytest.raises(expected) as caught:
            next(stream)
    assert monotonic() - begun >= 0.2
    assert caught.value.elapsed >= 0.2  # type: ignore[attr-defined]
    assert stream.report.started_at == datetime.datetime(2020, 2, 2, 12, tzinfo=datetime.UTC)
    assert stream.report.lifetime >= 0.2
    gateway.wait_left()


def test_a_jump_of_frozen_time_fires_nothing(streamguard_gateway: Serve) -> None:
    """A jump of a day between two chunks, forwards or backwards, is not silence and spends no total."""
    gateway = streamguard_gateway("loop 4\ntick\nwait 0.02\nendloop\nfinish\ndone")
    with freezegun.freeze_time(THEN) as frozen:
        for number, chunk in enumerate(guarded_stream("GET", gateway.url, idle=20, total=40)):
            frozen.tick(86400 if number % 2 else -86400)
            assert chunk.text or chunk.finish_reason
    assert number == 4


def test_a_retry_pauses_by_the_real_clock_while_time_is_frozen(streamguard_gateway: Serve) -> None:
    """Frozen time neither stops the pause before a retry nor skips it."""
    gateway = streamguard_gateway("headers\nstall", "chat hello\nfinish\ndone")
    begun = monotonic()
    with freezegun.freeze_time(THEN):
        assert guarded_stream("GET", gateway.url, first=0.1).read() == "hello"
    assert monotonic() - begun >= 0.1 + 0.2
    assert len(gateway.requests) == 2


@pytest.mark.parametrize("jump", [1e6, -1e6])
def test_jumping_clocks_of_the_time_module(
    streamguard_gateway: Serve, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    """`time.time` and `time.monotonic` may jump in the middle of a stream: its limits do not change."""
    gateway = streamguard_gateway("chat a\nwait 0.1\nchat b\nstall")
    stream = guarded_stream("GET", gateway.url, idle=0.4, total=30)
    assert next(stream).text == "a"
    wall = time.time()
    monkeypatch.setattr(time, "time", lambda: wall + jump)
    monkeypatch.setattr(time, "monotonic", lambda: REAL_MONOTONIC() + jump)
    assert next(stream).text == "b"
    begun = monotonic()
    with pytest.raises(StreamInactivityTimeoutError):
        next(stream)
    assert monotonic() - begun >= 0.39
    monkeypatch.undo()
    gateway.wait_left()


def test_imported_under_freezegun(streamguard_gateway: Serve) -> None:
    """A streamguard that is imported while time is frozen measures real time, during the freeze and after it."""
    gateway = streamguard_gateway("chat hello\nstall")
    output = run_script(
        """
        import importlib, sys, time
        import freezegun
        real = lambda: time.clock_gettime(time.CLOCK_MONOTONIC)
        for name in [name for name in sys.modules if name.partition(".")[0] in ("streamguard", "tenacity")]:
            del sys.modules[name]
        def fire(streamguard):
            begun = real()
            try:
                streamguard.guarded_stream("GET", sys.argv[1], idle=0.2, retry=None).read()
            except streamguard.StreamInactivityTimeoutError as error:
                print(error.phase, error.partial_text, real() - begun >= 0.2)
        with freezegun.freeze_time("2020-02-02"):
            streamguard = importlib.import_module("streamguard")
            assert time.monotonic() == time.monotonic()
            fire(streamguard)
        fire(streamguard)
        """,
        gateway.url,
    )
    assert output == "idle hello True\n" * 2
