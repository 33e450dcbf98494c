"""requests and urllib3: connections that can be cut in every phase, and bodies that are read promptly."""

from .adapter import Adapter, RefusedHeaderError
from .body import drain, read_at_most, read_blocks
from .gunzip import unpack_gzip
from .response_info import (
    QUOTED_BYTES,
    asked_pause,
    not_event_stream,
    request_id,
    require_decoder,
    retry_after,
    status_error,
)
from .sockets import (
    CutError,
    SocketGuard,
    attach_response,
    current_guard,
    find_socket,
    guard_in_force,
    require_close_notify,
)

__all__ = [
    "QUOTED_BYTES",
    "Adapter",
    "CutError",
    "RefusedHeaderError",
    "SocketGuard",
    "asked_pause",
    "attach_response",
    "current_guard",
    "drain",
    "find_socket",
    "guard_in_force",
    "not_event_stream",
    "read_at_most",
    "read_blocks",
    "request_id",
    "require_close_notify",
    "require_decoder",
    "retry_after",
    "status_error",
    "unpack_gzip",
]
