"""The item that `heartbeat=` makes `next()` return during silence."""

import threading
from typing import Any


# With a base Any, or type checkers would refuse `chunk is HEARTBEAT`: a stream's type is that of its chunks only.
class Heartbeat(threading.local, Any):  # type: ignore[misc]
    """Nothing has arrived for a while, and the stream is still open. Falsy; compare with `is HEARTBEAT`.

    There is one such object, so that it can be compared by identity. Its values are those of the last heartbeat in this
    thread.
    """

    text = ""
    """Always empty, so that it can be printed."""
    silence = 0.0
    """Seconds waited since the current phase's clock last started."""
    phase = ""
    """Where the stream is: connect, response, first, idle, retry."""
    left: float | None = None
    """Seconds until a limit fires if nothing arrives; None: there is no limit."""

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "HEARTBEAT"  # copied or unpickled, it is the one

    def __repr__(self) -> str:
        return f"<HEARTBEAT phase={self.phase!r} silence={self.silence:.1f}>"


HEARTBEAT = Heartbeat()
