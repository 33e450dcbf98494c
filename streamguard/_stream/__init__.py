"""Streams that cannot hang: `guarded_stream()`, `guard()`, retry."""

from .._reports import StreamReport
from .guard import guard
from .guarded import guarded_stream
from .heartbeat import HEARTBEAT, Heartbeat
from .stream import GuardedStream
from .upstream.retry import before_first_chunk

__all__ = ["HEARTBEAT", "GuardedStream", "Heartbeat", "StreamReport", "before_first_chunk", "guard", "guarded_stream"]
