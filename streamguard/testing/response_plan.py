"""The response that a script describes: its header block, and its body in pieces. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import UsageError
from . import payloads
from .script import Drip, Headers, Loop, Piece, Script, Step, Tick, WholeBody, unroll
from .wire import FRAMINGS, Encoder, Framing, head_block, merge_headers


class BodyPieces:
    """The body of one response: each step's pieces, numbered and encoded in the order in which they are asked for."""

    def __init__(self, encoding: str | None) -> None:
        self._encoder = Encoder(encoding)
        self._ticks = 0

    def of(self, step: Step) -> Iterator[bytes]:
        """Yield the encoded pieces of *step*: none unless it is a body step."""
        match step:
            case Piece() | WholeBody():
                yield self._encoder.piece(step.data)
            case Tick():
                self._ticks += 1
                yield self._encoder.piece(payloads.chat_chunk({"content": f"{self._ticks} "}))
            case Drip():
                for start in range(0, len(step.data), step.size):
                    yield self._encoder.piece(step.data[start : start + step.size])

    def end(self) -> bytes:
        """Return what the encoding adds at the end."""
        return self._encoder.end()


@dataclass(frozen=True, slots=True)
class ResponsePlan:
    """A script, and what must be known before its first byte is sent."""

    script: Script
    framing: Framing
    encoding: str | None
    content_type: str

    def framing_of(self, method: str, status: int) -> Framing:
        """Return the framing: "none" for a response without a body (RFC 9110, section 6.4.1)."""
        return Framing("none") if method == "HEAD" or status in (204, 304) else self.framing

    def head(self, step: Headers, framing: Framing, *, closing: bool) -> bytes:
        """Return the header block for *step*: an interim one with its own headers only, else with the announcements."""
        if step.status < 200:
            return head_block(framing.version, step.status, step.reason, step.headers)
        defaults = {"Content-Type": self.content_type, **Encoder(self.encoding).headers, **framing.headers()}
        if closing and framing.name != "http10":
            defaults["Connection"] = "close"
        return head_block(framing.version, step.status, step.reason, merge_headers(defaults, step.headers))


def make_plan(script: Script, *, framing: str, encoding: str | None, length: int | None) -> ResponsePlan:
    """Return the plan for *script*. *length* replaces the true Content-Length.

    Raises UsageError for an unknown framing or encoding, and for the Content-Length of an endless loop.
    """
    if framing not in FRAMINGS:
        raise UsageError(f"framing= must be one of {', '.join(FRAMINGS)}, got {framing!r}")
    if length is not None and framing != "length":
        raise UsageError(f'length={length} needs framing="length", got {framing!r}')
    whole = next((step for step in script if isinstance(step, WholeBody)), None)
    name = "length" if whole and framing == "chunked" else framing
    announced = _length(script, encoding) if name == "length" and length is None else length
    Encoder(encoding)
    return ResponsePlan(script, Framing(name, announced), encoding, _content_type(whole))


def _length(script: Script, encoding: str | None) -> int:
    if _endless(script):
        raise UsageError('`loop forever` has no Content-Length: pass length=, or framing="chunked"')
    body = BodyPieces(encoding)
    return sum(len(piece) for step in unroll(script) for piece in body.of(step)) + len(body.end())


def _endless(steps: Script) -> bool:
    return any(isinstance(step, Loop) and (step.times is None or _endless(step.steps)) for step in steps)


def _content_type(whole: WholeBody | None) -> str:
    if whole is None:
        return "text/event-stream"
    return "application/json" if whole.data.lstrip()[:1] in (b"{", b"[") else "text/plain; charset=utf-8"
