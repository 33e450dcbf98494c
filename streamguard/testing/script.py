r"""What a scripted server does, one line per step. Pure: text in, steps out.

Blank lines, and lines that begin with `#`, are skipped. A line is indented as you like; everything
after the one blank after its verb is its argument, with trailing blanks. TEXT has the escapes `\n \r \t \0 \\ \xHH \uHHHH`;
DATA has none, so that JSON can be pasted. Durations: `0.3`, `0.3s`, `300ms`.

    line                                   what the server does
    -------------------------------------  ---------------------------------------------------------------------------
    headers [STATUS [REASON]] [N: V; N: V] sends the header block, by default 200 and text/event-stream. A
                                           body step that comes first sends the default one. An empty value drops a
                                           default header (`headers content-type:`). A 1xx is interim: another
                                           block follows
    drip-headers SECONDS [as headers]      the same block, byte by byte, with SECONDS between
    event DATA                             `data: DATA` and a blank line
    event NAME | DATA                      the same with an `event: NAME` line
    comment TEXT                           `: TEXT` and a blank line
    raw TEXT                               these bytes of body; here `\xHH` is one byte
    chat TEXT                              an OpenAI-compatible chunk whose delta holds TEXT as content
    reasoning TEXT                         ... as reasoning_content
    finish [REASON]                        the chunk with the finish reason (default stop)
    usage PROMPT COMPLETION                the chunk without choices that holds the usage
    tick                                   a chat chunk "1 ", the next time "2 ", and so on
    error MESSAGE                          `data: {"error": {...}}`
    done                                   `data: [DONE]`
    drip BYTES SECONDS | TEXT              body bytes, BYTES at a time, with SECONDS between
    body TEXT                              a whole body, its length announced: for errors. JSON by its looks, else text
    wait SECONDS                           is silent for that long
    stall                                  is silent until the client leaves; the connection stays open
    linger                                 the same: its name after an end marker
    loop N ... endloop                     plays the lines between N times; `loop forever` until the client leaves
    end                                    the proper end of the body by its framing; the end of the script is one too
    close                                  FIN, now, whatever the framing announced (TLS: without close_notify)
    reset                                  RST, now
    wire TEXT                              these bytes on the connection, without framing. Before any header, the whole
                                           response is unframed, and ends with a FIN

Each body step is one piece: one HTTP chunk, one flush of the encoder, one write.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count

from .._core.limits import parse_duration
from ..errors import UsageError
from . import payloads

_NAMED_EVENT = re.compile(r"([\w.:-]+) \| (.*)", re.DOTALL)
_HEADER_NAME = r"[A-Za-z0-9!#$%&'*+.^_`|~-]+:"
_FIRST_HEADER = re.compile(rf"(?:^|\s)(?={_HEADER_NAME}(?:\s|$))")
_NEXT_HEADER = re.compile(rf";\s*(?={_HEADER_NAME}(?:\s|;|$))")
_FINAL = frozenset({"stall", "linger", "close", "reset"})
_AFTER_END = _FINAL | {"wait", "wire"}


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a script: its verb, and the line itself."""

    verb: str
    line: str = field(compare=False)


@dataclass(frozen=True, slots=True)
class Piece(Step):
    """Bytes of body, sent as one piece."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Tick(Step):
    """A chat chunk with the next number."""


@dataclass(frozen=True, slots=True)
class Drip(Step):
    """Bytes of body, sent *size* at a time with *seconds* between."""

    data: bytes
    size: int
    seconds: float


@dataclass(frozen=True, slots=True)
class WholeBody(Step):
    """A whole body, whose length the header block announces."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Headers(Step):
    """A header block; with *seconds*, sent byte by byte. An empty value drops the header."""

    status: int = 200
    reason: str = "OK"
    headers: tuple[tuple[str, str], ...] = ()
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Pause(Step):
    """Silence for *seconds*; None lasts until the client leaves."""

    seconds: float | None


@dataclass(frozen=True, slots=True)
class Wire(Step):
    """Bytes for the connection itself."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Loop(Step):
    """Steps that are played *times* times; None: for ever."""

    times: int | None
    steps: tuple[Step, ...]


Script = tuple[Step, ...]


def parse_script(text: str | Iterable[str]) -> Script:
    """Return the steps that *text* describes: one string of many lines, or the lines.

    Raises UsageError, quoting the line, for an unknown step, and for a step that is never reached.
    """
    lines = (text if isinstance(text, str) else "\n".join(text)).split("\n")
    numbered = ((number, line.removesuffix("\r").lstrip()) for number, line in enumerate(lines, 1))
    remaining = ((number, line) for number, line in numbered if line and not line.startswith("#"))
    steps = _block(remaining, loop=None)
    _refuse_impossible(steps)
    return steps


def unroll(steps: Iterable[Step]) -> Iterator[Step]:
    """Yield *steps* in the order in which they are played, loops unrolled, possibly without end."""
    for step in steps:
        if isinstance(step, Loop):
            for _ in count() if step.times is None else range(step.times):
                yield from unroll(step.steps)
        else:
            yield step


def _block(lines: Iterator[tuple[int, str]], loop: str | None) -> Script:
    steps: list[Step] = []
    for number, line in lines:
        verb, _, argument = line.partition(" ")
        if verb == "endloop" and loop:
            return tuple(steps)
        step = _step(number, line, verb, argument)
        steps.append(_loop(step, _block(lines, loop=line)) if isinstance(step, Loop) else step)
    if loop:
        raise UsageError(f"script: {loop!r} has no endloop")
    return tuple(steps)


def _loop(step: Loop, steps: Script) -> Loop:
    if not steps:
        raise UsageError(f"script: {step.line!r} has nothing to play")
    return Loop(step.verb, step.line, step.times, steps)


def _step(number: int, line: str, verb: str, argument: str) -> Step:
    build = _VERBS.get(verb)
    if build is None:
        raise UsageError(f"script line {number}: unknown step {line!r}: expected one of {', '.join(sorted(_VERBS))}")
    try:
        return build(verb, line, argument)
    except (ValueError, OverflowError) as error:  # a character number far too large
        raise UsageError(f"script line {number}: invalid {line!r}: {error}") from None


def _refuse_impossible(steps: Script, phase: str = "head") -> str:
    """Follow *steps* through the phases of a response (head, body, ended); return the phase after them.

    Raises UsageError for a step that its phase does not allow, and for one after a step that never ends.
    """
    last: Step | None = None
    for step in steps:
        if last and (last.verb in _FINAL or (isinstance(last, Loop) and last.times is None)):
            raise UsageError(f"script: {step.line!r} is never reached after {last.line!r}")
        phase = _next_phase(step, phase)
        last = step
    return phase


def _next_phase(step: Step, phase: str) -> str:
    if isinstance(step, Loop):
        # Twice, since every pass but the first begins in the phase in which another one ended.
        return _refuse_impossible(step.steps, _refuse_impossible(step.steps, phase))
    if phase == "ended" and step.verb not in _AFTER_END:
        raise UsageError(f"script: {step.line!r} comes after the end of the body")
    if isinstance(step, Headers):
        if phase != "head":
            raise UsageError(f"script: {step.line!r} comes after the header block")
        return "head" if step.status < 200 else "body"
    if step.verb in ("end", "body"):
        return "ended"
    return phase if isinstance(step, Pause) or phase == "ended" else "body"


def _event(verb: str, line: str, argument: str) -> Step:
    named = _NAMED_EVENT.fullmatch(argument)
    return Piece(verb, line, payloads.event(named[2], named[1]) if named else payloads.event(argument))


def _text(render: Callable[[str], bytes]) -> Callable[[str, str, str], Step]:
    return lambda verb, line, argument: Piece(verb, line, render(payloads.unescape(argument)))


def _raw(verb: str, line: str, argument: str) -> Step:
    return Piece(verb, line, payloads.unescape_bytes(argument))


def _finish(verb: str, line: str, argument: str) -> Step:
    return Piece(verb, line, payloads.chat_chunk({}, argument.strip() or "stop"))


def _usage(verb: str, line: str, argument: str) -> Step:
    prompt, completion = (int(number) for number in argument.split())
    return Piece(verb, line, payloads.usage_chunk(prompt, completion))


def _bare(render: Callable[[str, str], Step]) -> Callable[[str, str, str], Step]:
    def build(verb: str, line: str, argument: str) -> Step:
        if argument.strip():
            raise ValueError(f"{verb} takes no argument")
        return render(verb, line)

    return build


def _drip(verb: str, line: str, argument: str) -> Step:
    numbers, bar, text = argument.partition("|")
    if not bar:
        raise ValueError("expected BYTES SECONDS | TEXT")
    size, seconds = numbers.split()
    if int(size) < 1:
        raise ValueError("BYTES must be at least 1")
    return Drip(verb, line, payloads.unescape_bytes(text.removeprefix(" ")), int(size), parse_duration(seconds))


def _body(verb: str, line: str, argument: str) -> Step:
    return WholeBody(verb, line, payloads.unescape_bytes(argument))


def _wait(verb: str, line: str, argument: str) -> Step:
    return Pause(verb, line, parse_duration(argument))


def _wire(verb: str, line: str, argument: str) -> Step:
    return Wire(verb, line, payloads.unescape_bytes(argument))


def _begin_loop(verb: str, line: str, argument: str) -> Step:
    times = None if argument.strip() == "forever" else int(argument)
    if times is not None and times < 1:
        raise ValueError("expected a number >= 1, or forever")
    return Loop(verb, line, times, ())


def _drip_headers(verb: str, line: str, argument: str) -> Step:
    seconds, _, rest = argument.strip().partition(" ")
    return _headers(verb, line, rest, parse_duration(seconds))


def _headers(verb: str, line: str, argument: str, seconds: float | None = None) -> Step:
    found = _FIRST_HEADER.search(argument)
    start, fields = (argument[: found.start()], argument[found.end() :]) if found else (argument, "")
    status, _, reason = start.strip().partition(" ")
    code = int(status or 200)
    if not 100 <= code <= 999:
        raise ValueError("a status has three digits")
    return Headers(verb, line, code, reason.strip() or _phrase(code), tuple(_fields(fields)), seconds)


def _fields(text: str) -> Iterator[tuple[str, str]]:
    for item in _NEXT_HEADER.split(text) if text else ():
        name, _, value = item.partition(":")
        yield name.strip(), value.strip()


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown"


_VERBS: dict[str, Callable[[str, str, str], Step]] = {
    "body": _body,
    "chat": _text(lambda text: payloads.chat_chunk({"content": text})),
    "close": _bare(Step),
    "comment": _text(payloads.comment),
    "done": _bare(lambda verb, line: Piece(verb, line, payloads.done())),
    "drip": _drip,
    "drip-headers": _drip_headers,
    "end": _bare(Step),
    "error": _text(payloads.error_frame),
    "event": _event,
    "finish": _finish,
    "headers": _headers,
    "linger": _bare(lambda verb, line: Pause(verb, line, None)),
    "loop": _begin_loop,
    "raw": _raw,
    "reasoning": _text(lambda text: payloads.chat_chunk({"reasoning_content": text})),
    "reset": _bare(Step),
    "stall": _bare(lambda verb, line: Pause(verb, line, None)),
    "tick": _bare(Tick),
    "usage": _usage,
    "wait": _wait,
    "wire": _wire,
}
