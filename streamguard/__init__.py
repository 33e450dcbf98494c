"""The stop that `requests` does not have: silence, deadlines and cancellation that really cut a blocked stream."""

from .classify import Classification, classify
from .core import (
    NOT_GIVEN,
    CancelToken,
    Deadline,
    Timeouts,
    abandoned_threads,
    bounded_call,
    configure,
    current_deadline,
    current_token,
    deadline,
    shield,
)
from .errors import (
    DeadlineExceededError,
    EmptyStreamError,
    HTTPStatusError,
    IncompleteStreamError,
    InStreamError,
    InvalidJSONError,
    MalformedChunkError,
    NotEventStreamError,
    StreamCancelledError,
    StreamguardError,
    StreamInactivityTimeoutError,
    TotalTimeoutError,
    TransportError,
    TransportTimeoutError,
    UsageError,
)
from .http import Adapter
from .session import Session
from .sse import Chunk, Message, ToolCall, has_content
from .stream import HEARTBEAT, GuardedStream, StreamReport, before_first_chunk, guarded_stream

__version__ = "0.1.0"

__all__ = [
    "HEARTBEAT",
    "NOT_GIVEN",
    "Adapter",
    "CancelToken",
    "Chunk",
    "Classification",
    "Deadline",
    "DeadlineExceededError",
    "EmptyStreamError",
    "GuardedStream",
    "HTTPStatusError",
    "InStreamError",
    "IncompleteStreamError",
    "InvalidJSONError",
    "MalformedChunkError",
    "Message",
    "NotEventStreamError",
    "Session",
    "StreamCancelledError",
    "StreamInactivityTimeoutError",
    "StreamReport",
    "StreamguardError",
    "Timeouts",
    "ToolCall",
    "TotalTimeoutError",
    "TransportError",
    "TransportTimeoutError",
    "UsageError",
    "abandoned_threads",
    "before_first_chunk",
    "bounded_call",
    "classify",
    "configure",
    "current_deadline",
    "current_token",
    "deadline",
    "guarded_stream",
    "has_content",
    "shield",
]
