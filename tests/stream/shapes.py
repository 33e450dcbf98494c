"""What the tests of a stream share: lines for scripts, and one stream run to whatever end it has."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from streamguard import GuardedStream, guarded_stream
from streamguard.testing import Gateway

Factory = Callable[..., Gateway]

PROMPT = 2.0
"""Seconds within which something immediate has happened, on a machine that does much else."""


def choice(content: str | None = None, *, index: int = 0, finish: str | None = None, **delta: Any) -> dict[str, Any]:
    """Return one choice of a chat chunk."""
    text = {} if content is None else {"content": content}
    return {"index": index, "delta": {**text, **delta}, "finish_reason": finish}


def line(*choices: dict[str, Any], **more: Any) -> str:
    """Return the script line of a chat chunk with these choices, and with what else the frame is to hold."""
    return "event " + json.dumps({"choices": list(choices), **more})


@dataclass(frozen=True, slots=True)
class Run:
    """What a stream handed over, and the error it ended with, if it did."""

    stream: GuardedStream[Any]
    chunks: list[Any]
    error: Exception | None

    @property
    def texts(self) -> list[str]:
        """The chunks' texts, empty ones left out."""
        return [chunk.text for chunk in self.chunks if chunk.text]


def consume(stream: GuardedStream[Any]) -> Run:
    """Iterate to the end; return what came, and what was raised."""
    chunks: list[Any] = []
    try:
        for chunk in stream:
            chunks.append(chunk)
    except Exception as error:
        return Run(stream, chunks, error)
    return Run(stream, chunks, None)


def ask(gateway: Gateway, **options: Any) -> Run:
    """Run a chat stream from *gateway*, by default without retries."""
    return consume(guarded_stream("POST", gateway.url, **{"retry": None, **options}))


def script(*lines: str | Iterable[str]) -> str:
    """Join lines, and lists of lines, to one script."""
    return "\n".join(item if isinstance(item, str) else "\n".join(item) for item in lines)
