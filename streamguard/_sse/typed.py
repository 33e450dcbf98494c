"""What the decoders of the Responses and the Messages API share: frames that say their `type`."""

from typing import Any, ClassVar

from .chunk import joined
from .error_frames import foreign_frame, frame_error, in_stream_error
from .event_stream.heartbeats import is_heartbeat_name
from .frame_decoder import FrameDecoder
from .message import Draft, Message


class TypedDecoder(FrameDecoder):
    """Turn the events of one stream into chunks by the `type` of each; `event:` names stand in for a missing type."""

    __slots__ = ()

    own: ClassVar[str]
    """The `decode=` that this decoder stands for."""
    pings: ClassVar[frozenset[str]]
    """Types that are not chunks."""

    def take(self, frame: dict[str, Any], body: str, name: str = "message") -> Any:
        """Return the chunk of a decoded *frame*, or None for a ping. Raises as `decode()` does."""
        kind = type_of(frame) or name
        if kind in self.pings or is_heartbeat_name(kind):
            return None
        if not self.knows(kind):
            self._refuse(kind, frame, body)
        return self.chunk(kind, frame)

    def knows(self, kind: str) -> bool:
        """Return whether *kind* is a type of this API that reports no error."""
        raise NotImplementedError

    def chunk(self, kind: str, frame: dict[str, Any]) -> Any:
        """Return the chunk of a good frame, and note what it says about the end."""
        raise NotImplementedError

    def _refuse(self, kind: str, frame: dict[str, Any], body: str) -> None:
        error = frame_error(frame, body)
        if error is None and kind == "error":
            error = in_stream_error(frame, frame, body)
        if error is not None:
            raise error
        foreign = foreign_frame(frame, body, own=self.own, expected=self.expected)
        if foreign is not None:
            raise foreign


class TypedAssembler:
    """Collect the chunks of one stream. A misshapen chunk adds what can be read of it and never raises."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything: a new message begins."""
        self._draft = Draft()
        self._usage: dict[str, Any] | None = None

    def add(self, chunk: dict[str, Any]) -> None:
        """Add a chunk."""
        raise NotImplementedError

    @property
    def text(self) -> str:
        """The text so far. May be read from any thread."""
        return joined(self._draft.text)

    @property
    def finish_reason(self) -> str | None:
        """Why the message ended, if it has."""
        return self._draft.finish_reason

    @property
    def usage(self) -> dict[str, Any] | None:
        """The token counts as the server gave them last; None means unknown."""
        return self._usage

    def message(self, complete: bool) -> Message:
        """Return the message so far; *complete* says whether the stream ended as it should."""
        return self._draft.message(complete, usage=self._usage)


def type_of(frame: dict[str, Any]) -> str:
    """Return the frame's type, or `""`."""
    return text_of(frame.get("type"))


def index_in(frame: dict[str, Any], key: str) -> int | None:
    """Return the number under *key*, or None."""
    index = frame.get(key)
    return index if isinstance(index, int) else None


def text_of(value: object) -> str:
    """Return *value* if it is a str, else `""`."""
    return value if isinstance(value, str) else ""


def dict_of(value: object) -> dict[str, Any]:
    """Return *value* if it is a dict, else an empty one."""
    return value if isinstance(value, dict) else {}
