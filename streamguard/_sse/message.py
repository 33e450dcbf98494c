"""Put the chunks of a chat stream together into the message that the model wrote."""

import logging
from dataclasses import dataclass
from typing import Any

from .._text import one_line
from ..telemetry.logs import log_line
from .chunk import (
    choice_text,
    finish_reason_of,
    index_of,
    joined,
    legacy_call,
    reasoning_text,
    refusal_text,
    usage_in,
)
from .finish_reasons import is_known, why_not_whole
from .tool_calls import ToolCall, ToolCallCollector


@dataclass(frozen=True, slots=True)
class Message:
    """What a chat stream said, put together. The fields are those of the choice with index 0.

    *Limits*: of an incomplete message the text is what had arrived; its tool calls are never offered as calls to make.
    """

    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    """The calls that are safe to run: the answer ended well, the call has a name, its arguments are complete."""
    finish_reason: str | None = None
    usage: dict[str, Any] | None = None
    """The token counts as the server gave them last; None means unknown, never zero."""
    refusal: str = ""
    invalid_tool_calls: tuple[ToolCall, ...] = ()
    """Every other call that the client was asked to run, with its `invalid_reason`; not those that the server runs."""
    choices: tuple["Message", ...] = ()
    """One message per choice, by index, if more came than the one with index 0; their `usage` is None. Else empty."""


class MessageAssembler:
    """Collect the chunks of one stream, at a constant cost each.

    A misshapen chunk adds what can be read of it and never raises.
    """

    __slots__ = ("_drafts", "_usage")

    def __init__(self) -> None:
        self._drafts: dict[int, Draft] = {}
        self._usage: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The text of choice 0 so far. May be read from any thread."""
        draft = self._drafts.get(0)
        return joined(draft.text) if draft else ""

    @property
    def finish_reason(self) -> str | None:
        """Why choice 0 ended, if it has."""
        draft = self._drafts.get(0)
        return draft.finish_reason if draft else None

    @property
    def usage(self) -> dict[str, Any] | None:
        """The token counts as the server gave them last; None means unknown."""
        return self._usage

    def clear(self) -> None:
        """Forget everything: a new message begins."""
        self._drafts, self._usage = {}, None

    def add(self, chunk: dict[str, Any]) -> None:
        """Add a chunk."""
        choices = chunk.get("choices")
        if type(choices) is list:
            for choice in choices:
                if type(choice) is dict:
                    self._add_choice(choice)
                    if "usage" in choice:
                        self._usage = usage_in(chunk) or self._usage
        usage = chunk.get("usage")
        if usage and type(usage) is dict:
            self._usage = usage
        elif "x_groq" in chunk:
            self._usage = usage_in(chunk) or self._usage

    def message(self, complete: bool) -> Message:
        """Return the message so far; *complete* says whether the stream ended as it should."""
        drafts = {**self._drafts}
        choices: tuple[Message, ...] = ()
        if drafts.keys() - {0}:
            choices = tuple(drafts[index].message(complete) for index in sorted(drafts))
        return drafts.get(0, Draft()).message(complete, usage=self._usage, choices=choices)

    def _add_choice(self, choice: dict[str, Any]) -> None:
        index = index_of(choice)
        draft = self._drafts.get(index)
        if draft is None:
            draft = self._drafts[index] = Draft()
        delta = choice.get("delta")
        draft.add(choice, delta if type(delta) is dict else _whole_message(choice, draft))


def _whole_message(choice: dict[str, Any], draft: "Draft") -> dict[str, Any]:
    """Return the message that some servers send instead of deltas; after deltas it is a repetition."""
    message = choice.get("message")
    return message if isinstance(message, dict) and draft.is_empty else {}


class Draft:
    """The pieces of one message, while they come."""

    __slots__ = ("_warned", "calls", "finish_reason", "reasoning", "refusal", "text")

    def __init__(self) -> None:
        # Lists of pieces: adding to a string would copy all of it for every chunk.
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.refusal: list[str] = []
        self.calls = ToolCallCollector()
        self.finish_reason: str | None = None
        """The last one: a server may stamp one on each chunk, or go on after its own tool round."""
        self._warned = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing of the message has come."""
        return not (self.text or self.reasoning or self.refusal or self.calls)

    def add(self, choice: dict[str, Any], delta: dict[str, Any]) -> None:
        """Add what a chat choice and its delta hold."""
        content = delta.get("content")
        if type(content) is str and content:
            self.write(content)
            if len(delta) == 1 and choice.get("finish_reason") is None:
                return
        elif text := choice_text(choice, delta):
            self.write(text)
        self._add_rest(choice, delta)

    def write(self, text: str) -> None:
        """Add text. After a finish reason it means that the server has answered the calls before it."""
        self.text.append(text)
        if self.finish_reason is not None:
            self.calls.answered()

    def _add_rest(self, choice: dict[str, Any], delta: dict[str, Any]) -> None:
        if reasoning := reasoning_text(delta):
            self.reasoning.append(reasoning)
        if refusal := refusal_text(delta):
            self.refusal.append(refusal)
        calls = delta.get("tool_calls")
        for piece in calls if isinstance(calls, list) else ():
            self.calls.add(piece)
        if call := legacy_call(delta):
            self.calls.add({"index": -1, "function": call})
        self.finish_reason = finish_reason_of(choice) or self.finish_reason

    def message(self, complete: bool, *, usage: dict[str, Any] | None = None, choices: tuple[Message, ...] = ()) -> Message:
        """Return the message so far."""
        valid, invalid = self.calls.sorted_out(why_not_whole(self.finish_reason, complete=complete))
        if complete:
            self._warn_of_unknown_reason()
        return Message(
            text=joined(self.text),
            reasoning=joined(self.reasoning),
            refusal=joined(self.refusal),
            tool_calls=valid,
            invalid_tool_calls=invalid,
            finish_reason=self.finish_reason,
            usage=usage,
            choices=choices,
        )

    def _warn_of_unknown_reason(self) -> None:
        if self.finish_reason is None or self._warned or not self.calls or is_known(self.finish_reason):
            return
        self._warned = True
        log_line(
            logging.WARNING,
            "unknown_finish_reason",
            "unknown finish reason %r: the answer's tool calls are not offered",
            one_line(self.finish_reason, 64),
        )
