"""The kernel: clock, limits, deadlines, cancel tokens, bounded calls."""

from .bounded import abandoned_threads, bounded_call
from .cancel import CancelToken, current_token
from .clock import monotonic
from .deadline import Deadline, current_deadline, deadline, shield
from .limits import NOT_GIVEN, Timeouts, configure, parse_duration
from .silence import FIRED, SilenceClock

__all__ = [
    "FIRED",
    "NOT_GIVEN",
    "CancelToken",
    "Deadline",
    "SilenceClock",
    "Timeouts",
    "abandoned_threads",
    "bounded_call",
    "configure",
    "current_deadline",
    "current_token",
    "deadline",
    "monotonic",
    "parse_duration",
    "shield",
]
