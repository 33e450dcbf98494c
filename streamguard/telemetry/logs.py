"""The default hook: the log. A line starts with the event; its fields are in `extra={"streamguard": {...}}`."""

import contextlib
import functools
import logging
import re
from typing import Any

from .events import (
    CloserFailed,
    DispatchFinished,
    Event,
    RunFinished,
    StepFallback,
    StepFinished,
    StreamFinished,
    StreamRetry,
    StreamStalled,
    ThreadAbandoned,
    TurnFinished,
)

_UNLOGGED = frozenset({"report", "upstream", "gaps", "deadline", "total"})
"""Fields that hold a host, a model (an argument of the caller), what the report's fields hold too, or too much."""

_log = logging.getLogger("streamguard")
_log.addHandler(logging.NullHandler())


def log_event(event: Event) -> None:
    """Write *event* to the logger `streamguard`.

    INFO: one line for each finished stream, run and dispatch. WARNING: silences, fallbacks, abandoned threads. DEBUG: all
    other events. The record's attribute `streamguard` is a dict of the event's fields, with `event`, its kind
    (`stream_finished`).
    """
    level = _level(event)
    if _log.isEnabledFor(level) and _has_listener():
        _log.log(level, "%s", _message(event), extra={"streamguard": _fields(event)})


def log_line(level: int, event: str, message: str, *arguments: object, **fields: object) -> None:
    """Write a line that is not an event for hooks; *event* is its kind. Exceptions of handlers are swallowed."""
    with contextlib.suppress(Exception):
        _log.log(level, message, *arguments, extra={"streamguard": {"event": event, **fields}})


def _has_listener() -> bool:
    """Return whether a record reaches more than a NullHandler: an outage may cause hundreds at once."""
    logger: logging.Logger | None = _log
    while logger is not None:
        if any(type(handler) is not logging.NullHandler for handler in logger.handlers):
            return True
        logger = logger.parent if logger.propagate else None
    return False


def _level(event: Event) -> int:
    match event:
        case StreamFinished() | RunFinished() | DispatchFinished():
            return logging.INFO
        case StreamStalled() | StepFallback() | ThreadAbandoned() | CloserFailed() | TurnFinished(reason="timeout"):
            return logging.WARNING
    return logging.DEBUG


def _message(event: Event) -> str:
    match event:
        case StreamFinished():
            return f"stream {event.report.outcome}"
        case StreamStalled(fired=True):
            return f"stream silent for its whole limit in phase {event.phase}"
        case StreamStalled():
            return f"stream silent for half of its limit in phase {event.phase}"
        case StreamRetry():
            return f"stream retry after {event.error_type} in phase {event.phase}"
        case RunFinished():
            return f"run {event.run} {event.status or event.error_type}"
        case StepFallback():
            return f"step {event.step} fallback after {event.reason}"
        case StepFinished():
            return f"step {event.step} {event.status}"
        case TurnFinished():
            return f"turn {event.member} {event.status}"
        case DispatchFinished():
            return f"dispatch {event.status}"
        case ThreadAbandoned():
            return f"thread abandoned: {event.kind}"
        case CloserFailed():
            return "a closer failed"
    return _words(type(event).__name__)


@functools.cache
def _words(kind: str) -> str:
    """Return the kind of an event, its class's name, in words: "step budget reduced"."""
    return re.sub("(?!^)([A-Z])", r" \1", kind).lower()


def _fields(event: Event) -> dict[str, Any]:
    fields = {name: getattr(event, name) for name in event.__slots__ if name not in _UNLOGGED}
    details = event.report.to_log() if isinstance(event, StreamFinished) else fields.pop("details", {})
    return {"event": _words(type(event).__name__).replace(" ", "_"), **details, **fields}
