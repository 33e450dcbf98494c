"""What a stream needs from the source of its chunks, and how it says that it is over."""

from typing import Protocol

from .._core.pump import Feed
from ..telemetry.events import Upstream

CLOSED = object()
"""The reason of a token that was cancelled by `close()` or by the collector, not by the caller's `cancel()`."""


class Over(Exception):
    """The stream has ended quietly: the consumer gets StopIteration."""


class Source(Protocol):
    """Where a stream's chunks come from, attempt by attempt."""

    @property
    def host(self) -> str:
        """Host and port of the upstream, for messages."""

    @property
    def upstream(self) -> Upstream:
        """What hooks may know of the upstream."""

    @property
    def reports_phases(self) -> bool:
        """Whether attempts put connect and response phases on the feed."""

    @property
    def keeps_connection(self) -> bool:
        """Whether a connection whose body was read to its end serves other calls after this one."""

    def read(self, feed: Feed) -> None:
        """Make one attempt, in the reader thread."""

    def why_not_replayable(self) -> str | None:
        """Return what prevents another attempt, or None."""
