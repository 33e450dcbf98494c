"""A gateway for stress: what is asked for in the path is how it answers, with numbered chunks."""

import functools
from dataclasses import dataclass

from streamguard import (
    EmptyStreamError,
    HTTPStatusError,
    IncompleteStreamError,
    InStreamError,
    MalformedChunkError,
    NotEventStreamError,
    StreamInactivityTimeoutError,
    TransportError,
    TransportTimeoutError,
)
from streamguard.testing import Gateway, Request, parse_script
from streamguard.testing.response_plan import ResponsePlan, make_plan

__all__ = ["FAULTS", "Fault", "FaultyGateway", "numbers_of"]


@dataclass(frozen=True, slots=True)
class Fault:
    """How an answer goes on after its numbered chunks, and what a reader gets from it."""

    behind: str
    """The script after the chunks."""
    errors: tuple[type[Exception], ...] = ()
    """The classes of error that it may end with; none: it is complete."""
    whole: bool = True
    """Whether every chunk is handed over first."""
    before: str | None = None
    """The whole script, where no chunk is sent."""


FAULTS = {
    "done": Fault("finish\ndone"),
    "finish": Fault("finish\nend"),
    "linger": Fault("finish\ndone\nlinger"),
    "usage": Fault("finish\nusage 3 4\ndone"),
    "stall": Fault("stall", (StreamInactivityTimeoutError,), whole=False),
    "comments": Fault("loop forever\ncomment ping\nwait 0.02\nendloop", (StreamInactivityTimeoutError,), whole=False),
    "reset": Fault("wait 0.01\nreset", (TransportError,), whole=False),
    "cut": Fault("raw data: {\\x22choi\nclose", (TransportError, IncompleteStreamError, EmptyStreamError)),
    "clean": Fault("end", (IncompleteStreamError, EmptyStreamError)),
    "malformed": Fault("event {broken\nchat late\nfinish\ndone", (MalformedChunkError,)),
    "error": Fault("error busy\nchat late", (InStreamError,)),
    "mute": Fault("", (TransportTimeoutError,), before="stall"),
    "busy": Fault("", (HTTPStatusError,), before="headers 429 retry-after: 1\nbody busy"),
    "broken": Fault("", (HTTPStatusError,), before="headers 500\nraw half\nclose"),
    "html": Fault("", (NotEventStreamError,), before="headers content-type: text/html\nraw <html>\nstall"),
    "gone": Fault("", (TransportError,), before="close"),
}


class FaultyGateway(Gateway):
    """Answers `/FAULT/COUNT/FRAMING/ENCODING` with COUNT numbered chunks ("1 ", "2 ", …) and what FAULT then does.

    ENCODING is "identity" for none.
    """

    def _plan_for(self, request: Request, number: int) -> ResponsePlan:
        return _plan(*request.target.strip("/").split("/"))

    def forget(self) -> None:
        """Drop the log of the requests so far: it is not a leak of the client."""
        self._log.requests.clear()


@functools.cache
def _plan(fault: str, count: str, framing: str, encoding: str) -> ResponsePlan:
    kind = FAULTS[fault]
    ticks = f"loop {count}\ntick\nendloop\n" if int(count) else "headers\n"
    script = kind.before if kind.before is not None else ticks + kind.behind
    encoding_used = None if encoding == "identity" else encoding
    return make_plan(parse_script(script), framing=framing, encoding=encoding_used, length=None)


def numbers_of(texts: list[str]) -> list[int]:
    """Return the numbers that arrived: there are no others than those sent, and each text is one of them."""
    return [int(text) for text in texts if text]
