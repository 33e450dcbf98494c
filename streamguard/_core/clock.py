"""Clocks that test tools do not freeze: `monotonic` for every limit, `wall` for dates.

freezegun replaces `time.monotonic` wherever a module holds it, and hands the fake one to modules imported while time is
frozen. It leaves `clock_gettime` alone, so streamguard measures every limit with that, if the system has it.

Limits
    Windows has no `clock_gettime`: there `time.monotonic` is used, and a module imported under a frozen clock keeps it.
    On Linux the monotonic clock stands still while the machine is suspended: sleeping laptops do not use up limits.
"""

import functools
import threading
import time

monotonic: "functools.partial[float]"
wall: "functools.partial[float]"
if hasattr(time, "clock_gettime"):
    monotonic = functools.partial(time.clock_gettime, time.CLOCK_MONOTONIC)
    wall = functools.partial(time.clock_gettime, time.CLOCK_REALTIME)
else:  # pragma: no cover - Windows
    monotonic = functools.partial(time.monotonic)
    wall = functools.partial(time.time)


def longest_wait(seconds: float | None) -> float | None:
    """Return *seconds* as a timeout that `queue` and `threading` accept: never negative, never above their maximum."""
    return None if seconds is None else min(max(seconds, 0.0), threading.TIMEOUT_MAX)
