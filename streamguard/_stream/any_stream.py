"""A stream of ours, made from whatever a caller has: for functions that show or send a stream."""

from typing import Any

from .guard import guard
from .stream import GuardedStream


def guarded_from(stream: object, function: str) -> GuardedStream[Any]:
    """Return *stream* itself if it is guarded, else `guard(stream)`.

    Raises TypeError, which names *function*, for what `guard()` cannot take without options.
    """
    if isinstance(stream, GuardedStream):
        return stream
    try:
        return guard(stream)
    except (TypeError, ValueError) as exc:
        kind = type(stream).__name__
        raise TypeError(
            f"{function}() takes a guarded stream, or one that guard() takes without options, not {kind}: {exc}"
        ) from exc
