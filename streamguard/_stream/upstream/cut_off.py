"""An end of a body that its framing cannot vouch for: complete only if the protocol's own end came before it."""

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ..._core.pump import Feed
from ...classify import causes_of

_UNANNOUNCED: Final = "the TLS connection ended without close_notify, and only its end ends this body: it may be cut off"


@dataclass(frozen=True, slots=True)
class CutOff:
    """The body has ended, but may have more."""

    missing: str
    """What it lacks, for the error."""


class CutOffError(Exception):
    """Raised by a source whose stream ended in the middle; its text says what is missing."""


@contextlib.contextmanager
def noting_cut_off(feed: Feed) -> Iterator[None]:
    """Put `CutOff` on *feed* in place of the error by which a body reports such an end: RFC 9112, section 9.8."""
    try:
        yield
    except Exception as exc:
        if isinstance(exc, CutOffError):
            missing = str(exc)
        elif any(isinstance(cause, ssl.SSLEOFError) for cause in causes_of(exc)):
            missing = _UNANNOUNCED
        else:
            raise
        feed.put(CutOff(missing))
