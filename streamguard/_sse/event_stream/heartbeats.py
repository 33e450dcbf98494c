"""Heartbeats that look like events: never content, never an error, never a chunk of a model's answer. Pure."""

from typing import Final

HEARTBEAT_NAMES: Final = frozenset(
    {"ping", "pong", "keepalive", "keep-alive", "keep_alive", "heartbeat", "heart-beat", "heart_beat", "alive", "noop"}
)
"""Names of events, and types of frames, that only keep a connection open. Compared without case."""

_WORDS: Final = HEARTBEAT_NAMES | {"ok", ""}


def is_heartbeat_name(name: str) -> bool:
    """Return whether events of this name are heartbeats, whatever their data is."""
    return name.strip().lower() in HEARTBEAT_NAMES


def is_heartbeat_text(text: str) -> bool:
    """Return whether the data of an unnamed event, which is not JSON, is a heartbeat: `data: ping`, say."""
    return len(text) <= 16 and text.strip().strip("\"'").lower() in _WORDS
