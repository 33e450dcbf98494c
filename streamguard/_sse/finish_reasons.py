"""What a finish reason says about the answer: the words of the APIs, in one table. Pure."""

from typing import Final

from .._text import one_line

ENDED_WELL: Final = frozenset(
    {
        *("stop", "tool_calls", "tool_call", "function_call", "eos", "eos_token", "end", "complete", "done"),  # chat
        "completed",  # Responses
        *("tool_use", "end_turn", "stop_sequence"),  # Anthropic
    }
)
"""The answer is whole, and its tool calls may be run. Compared without case."""

CUT_SHORT: Final = frozenset(
    {
        *("length", "content_filter", "max_tokens", "max_output_tokens", "model_length", "safety", "error"),
        *("incomplete", "max_tool_calls", "model_context_window_exceeded", "refusal", "pause_turn", "cancelled"),
    }
)
"""Known words that do not say that the answer is whole. Any other word is treated the same, with a warning."""


def ended_well(reason: str | None) -> bool:
    """Return whether *reason* says that the answer is whole."""
    return reason is not None and reason.strip().lower() in ENDED_WELL


def is_known(reason: str) -> bool:
    """Return whether *reason* is a word of one of the APIs."""
    return reason.strip().lower() in ENDED_WELL | CUT_SHORT


def why_not_whole(reason: str | None, *, complete: bool) -> str:
    """Return why an answer with this finish reason offers no tool call; `""` if it does.

    *complete* says whether the stream ended as its protocol demands.
    """
    if not complete:
        return "incomplete_answer"
    if reason is None:
        return "no_finish_reason"
    return "" if ended_well(reason) else f"finish_reason: {one_line(reason, 64)}"
