"""The event streams of Amazon's services: the lengths of their binary messages, and how they say that they are complete."""

import contextlib
import json
from typing import Any, Final

from ..._sse import ObjectWatcher

_PRELUDE_BYTES: Final = 4
_SHORTEST_MESSAGE: Final = 16
_CONVERSE: Final = frozenset({"messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop"})
_SELECT: Final = frozenset({"Records", "Stats", "Progress", "Cont"})
_METRICS: Final = "amazon-bedrock-invocationMetrics"
"""In the last message of every model that Bedrock's InvokeModelWithResponseStream serves."""


class MessageLengths:
    """Follow the messages in a binary event stream: each begins with its length."""

    def __init__(self) -> None:
        self._pending = bytearray()

    @property
    def amid(self) -> bool:
        """Whether the bytes so far end in the middle of a message."""
        return bool(self._pending)

    def take(self, data: bytes) -> None:
        """Take the next bytes."""
        pending = self._pending
        pending += data
        while len(pending) >= _PRELUDE_BYTES:
            length = int.from_bytes(pending[:_PRELUDE_BYTES], "big")
            if length < _SHORTEST_MESSAGE or len(pending) < length:  # too short: botocore raises for it
                return
            del pending[:length]


class AwsEventWatcher:
    """Notice how a stream of botocore's dicts says that it is complete: those of Bedrock, and of S3 Select."""

    def __init__(self) -> None:
        self._inner = ObjectWatcher()
        self._known = self._stopped = self._done = False

    @property
    def known(self) -> bool:
        """Whether the events are of an operation whose streams say when they are complete."""
        return self._known or self._inner.known

    @property
    def done(self) -> bool:
        """Whether the last event came."""
        return self._done or self._inner.done

    @property
    def finished(self) -> bool:
        """Whether only the end is missing."""
        return self._stopped or self._inner.finished

    @property
    def settled(self) -> bool:
        """Whether only usage and the end can follow."""
        return self._stopped or self._inner.settled

    def see(self, item: object) -> None:
        """Look at the next event. Raises InStreamError for one in which a model reports an error."""
        if not isinstance(item, dict) or len(item) != 1:
            return
        name, value = next(iter(item.items()))
        if name in _CONVERSE or name in _SELECT:
            self._known, self._stopped = True, False
        elif name == "messageStop":
            self._known = self._stopped = True
        elif name == "End" or (name == "metadata" and self._stopped):
            self._known = self._done = True
        elif name == "chunk" and isinstance(value, dict):
            self._see_chunk(value.get("bytes"))

    def _see_chunk(self, data: Any) -> None:
        frame: Any = None
        with contextlib.suppress(ValueError, TypeError, RecursionError):
            frame = json.loads(data)
        if not isinstance(frame, dict):
            return
        self._inner.see(frame)
        if _METRICS in frame:
            self._known = self._done = True
