"""The one `STREAMGUARD` dict in a project's settings, read and checked."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from .._core import Timeouts, configure
from .._core.limits import LIMITS, seconds_of

_HEADER = re.compile(r"[A-Za-z0-9-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What `STREAMGUARD` says; each field is a key of it, in capitals. Times are seconds."""

    heartbeat: float = 15.0
    """Silence after which `sse_response` writes `: ping`, and how long it waits for the first content."""
    deadline: float | None = None
    """`DeadlineMiddleware`'s budget for each request; None: none."""
    deadline_header: str | None = None
    """The request header in which a client may ask for a budget of its own; None: no client may."""
    deadline_max: float | None = None
    """The most that a client may ask for. Default: `deadline`."""
    limits: Mapping[str, float | None] = field(default_factory=dict)
    """Default limits of all streams in this process, as for `streamguard.configure()`. Needs the app to be installed."""


def load_settings() -> Settings:
    """Return the project's settings. Raises ImproperlyConfigured, which names the key, for an invalid value."""
    given = getattr(settings, "STREAMGUARD", {})
    if not isinstance(given, Mapping):
        raise ImproperlyConfigured(f"STREAMGUARD must be a dict, not {type(given).__name__}")
    unknown = sorted(str(key) for key in given if key not in _READERS)
    if unknown:
        raise ImproperlyConfigured(f"STREAMGUARD[{unknown[0]!r}] is unknown: known are {', '.join(sorted(_READERS))}")
    loaded = Settings(**{key.lower(): _READERS[key](key, value) for key, value in given.items()})
    if loaded.deadline_header and loaded.deadline is None and loaded.deadline_max is None:
        raise ImproperlyConfigured("STREAMGUARD['DEADLINE_HEADER'] needs a 'DEADLINE_MAX' (or 'DEADLINE') that caps it")
    return loaded


def apply_limits(loaded: Settings) -> None:
    """Make the project's limits this process's defaults."""
    if loaded.limits:
        configure(**loaded.limits)


def _wrong(key: str, wanted: str, value: object) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"STREAMGUARD[{key!r}] must be {wanted}, not {value!r}")


def _seconds(key: str, value: Any) -> float:
    try:
        seconds = seconds_of(key, value)
    except (TypeError, ValueError):
        seconds = None
    if seconds is None or not 0 < seconds < math.inf:
        raise _wrong(key, "a number of seconds above 0", value)
    return seconds


def _optional_seconds(key: str, value: Any) -> float | None:
    return None if value is None else _seconds(key, value)


def _header_name(key: str, value: Any) -> str | None:
    if value is None or (isinstance(value, str) and _HEADER.fullmatch(value)):
        return value
    raise _wrong(key, "the name of a header, such as 'X-Request-Timeout', or None", value)


def _limits(key: str, value: Any) -> Mapping[str, float | None]:
    if not isinstance(value, Mapping):
        raise _wrong(key, "a dict of limits", value)
    unknown = [name for name in value if name not in LIMITS]
    if unknown:
        raise ImproperlyConfigured(f"STREAMGUARD[{key!r}][{unknown[0]!r}] is unknown: known are {', '.join(LIMITS)}")
    try:
        Timeouts(**value)
    except (TypeError, ValueError) as exc:
        raise ImproperlyConfigured(f"STREAMGUARD[{key!r}]: {exc}") from exc
    if not apps.is_installed("streamguard.django"):
        raise ImproperlyConfigured(f"STREAMGUARD[{key!r}] is applied by 'streamguard.django' in INSTALLED_APPS: add it")
    return dict(value)


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "HEARTBEAT": _seconds,
    "DEADLINE": _optional_seconds,
    "DEADLINE_HEADER": _header_name,
    "DEADLINE_MAX": _optional_seconds,
    "LIMITS": _limits,
}
