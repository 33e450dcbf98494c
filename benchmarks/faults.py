"""The faults that a gateway can have, as scripts, in two dialects: OpenAI-compatible chat and the Messages API."""

import json
from dataclasses import dataclass

__all__ = ["FAULTS", "HEALTHY", "SLOW_HOST", "Fault", "script_of"]

SLOW_HOST = "slow-name.test"
"""A name that takes for ever to resolve, in the processes of the peers."""


def _event(kind: str, **fields: object) -> str:
    return f"event {kind} | {json.dumps({'type': kind, **fields})}"


_USAGE = {"input_tokens": 1, "output_tokens": 1}
_MESSAGE = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "usage": _USAGE}
_BLOCK = {"type": "text", "text": ""}
_DELTA = {"type": "text_delta", "text": "hello"}

_WORDS = {
    "chat": {
        "CHUNK": "chat hello",
        "END": "finish\ndone",
        "ERROR": "error the model is overloaded",
    },
    "anthropic": {
        "CHUNK": "\n".join(
            (
                _event("message_start", message=_MESSAGE),
                _event("content_block_start", index=0, content_block=_BLOCK),
                _event("content_block_delta", index=0, delta=_DELTA),
            )
        ),
        "END": "\n".join(
            (
                _event("content_block_stop", index=0),
                _event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 1}),
                _event("message_stop"),
            )
        ),
        "ERROR": _event("error", error={"type": "overloaded_error", "message": "the model is overloaded"}),
    },
}

HEALTHY = "CHUNK\nEND\nend"


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to go wrong, and what would be right."""

    name: str
    script: str
    framing: str = "chunked"
    slow_name: bool = False
    ends_well: bool = False
    """Whether the answer is whole, so that it should be taken, at once. Otherwise there should be an error."""


FAULTS = (
    Fault("silence after headers", "headers\nstall"),
    Fault("silence after chunks", "CHUNK\nstall"),
    Fault("comments only", "headers\nloop forever\ncomment ping\nwait 0.1\nendloop"),
    Fault("byte drip", f"CHUNK\ndrip 1 0.1 | data: {'x' * 1000}"),
    Fault("header drip", f"drip-headers 0.1 200 X-Pad: {'x' * 1000}\nstall"),
    Fault("no answer", "stall"),
    Fault("slow name resolution", HEALTHY, slow_name=True),
    Fault("cut without end", "CHUNK\nclose", framing="close"),
    Fault("lingers after its end", "CHUNK\nEND\nlinger", ends_well=True),
    Fault("error in a 200", "CHUNK\nERROR\nend"),
)


def script_of(script: str, dialect: str) -> str:
    """Return a script with its words in that dialect."""
    for word, lines in _WORDS[dialect].items():
        script = script.replace(word, lines)
    return script
