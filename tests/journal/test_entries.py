"""Entries: frozen, failures or not, and their text."""

import dataclasses

from streamguard import recent_failures
from streamguard.journal import JournalEntry

from .causes import failing_stream, stream_entry


def test_entries_are_frozen() -> None:
    """No field can be set, neither of an entry nor of a moment."""
    for thing in (stream_entry(), stream_entry().moments[0]):
        assert dataclasses.is_dataclass(thing)
        assert thing.__dataclass_params__.frozen  # type: ignore[attr-defined]
        assert not hasattr(thing, "__dict__")


def failed_in(outcome: str, kind: str) -> bool:
    entry = JournalEntry(
        **{
            **{f.name: getattr(stream_entry(), f.name) for f in dataclasses.fields(JournalEntry)},
            "outcome": outcome,
            "kind": kind,
        }
    )
    return entry.failed


def test_what_counts_as_a_failure() -> None:
    """Of each kind, the words that are failures; a cancel, a close, an accepted end and a fallback are not failures."""
    words = {
        "stream": ("completed", "incomplete", "timeout", "cancelled", "closed", "error"),
        "run": ("completed", "completed_with_fallback", "waiting_external_service", "cancelled", "raised"),
        "turn": ("succeeded", "failed", "cancelled", "interrupted"),
    }
    failures = {kind: [word for word in of if failed_in(word, kind)] for kind, of in words.items()}
    assert failures == {
        "stream": ["timeout", "error"],
        "run": ["waiting_external_service", "raised"],
        "turn": ["failed", "interrupted"],
    }


def test_the_text_of_an_entry() -> None:
    """`print(recent_failures()[-1])` shows the call, each attempt and phase, and where it stopped."""
    id = failing_stream()
    (entry,) = [entry for entry in recent_failures() if entry.id == id]
    lines = [" ".join(line.split()) for line in str(entry).splitlines()]
    assert lines[0].startswith(f"stream chat, id {id}, a call of a model, started 20")
    assert lines[1].startswith("timeout in phase idle after 0.")
    assert lines[1].endswith("s: StreamInactivityTimeoutError")
    assert lines[2] == "attempt 1"
    assert [line.split()[-1] for line in lines[3:7]] == ["connect", "response", "first", "idle"]
    assert lines[7] == "silent in phase idle for half of the limit, 0.100 s"
    assert lines[8].startswith("limit idle=0.1 fired: silent for 0.1")
    assert lines[9].startswith("chunks 1, bytes ")
