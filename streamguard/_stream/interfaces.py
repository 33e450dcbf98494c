"""What a stream is made of: where its chunks come from, and what the caller asked for."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from .._core.limits import Timeouts
from .._core.pump import Feed
from .._sse import Assembler
from .upstream.decode import Decoder
from .upstream.retry import Attempts

__all__ = ["CLOSED", "Over", "Settings", "Source"]

CLOSED = object()
"""The reason of a token that was cancelled by `close()` or by the collector, not by the caller's `cancel()`."""


class Over(Exception):
    """The stream has ended, and there is nothing to tell the consumer but that."""


class Source(Protocol):
    """Where a stream's chunks come from, attempt by attempt."""

    @property
    def host(self) -> str:
        """What messages may say about the upstream."""

    @property
    def reports_phases(self) -> bool:
        """Whether attempts put connect and response phases on the feed."""

    @property
    def keeps_connection(self) -> bool:
        """Whether a connection whose body was read to its end serves others after us."""

    def read(self, feed: Feed) -> None:
        """Make one attempt, in the reader thread."""

    def why_not_replayable(self) -> str | None:
        """Say what prevents another attempt, or return None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the caller asked for, checked."""

    limits: Timeouts
    attempts: Attempts
    make_decoder: Callable[[], Decoder]
    convert: Callable[[Any], Any] | None
    counts: Callable[[Any], object] | None
    assembler: Assembler | None
    strict: bool
    end_grace: float | None
    heartbeat: float | None
