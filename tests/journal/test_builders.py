"""Entries, as data: what comes back from JSON, and the order of what happened on the way."""

import dataclasses
import json

from hypothesis import given
from hypothesis import strategies as st

from streamguard.journal import JournalEntry, Moment
from streamguard.journal.builders import entry_of_run
from streamguard.journal.entry_json import entry_of, plain
from streamguard.telemetry import RunFinished, StepFinished, StepStarted

from .causes import stream_entry

TEXT = st.text(max_size=8)
TIMES = st.none() | st.floats(0, 1e6)
MOMENTS = st.builds(
    Moment,
    what=st.sampled_from(["phase", "silence", "limit", "retry", "step"]),
    name=TEXT,
    at=TIMES,
    attempt=st.none() | st.integers(0, 99),
    seconds=TIMES,
    limit=TIMES,
    status=st.none() | TEXT,
    error_type=st.none() | TEXT,
)


@given(st.lists(MOMENTS, max_size=5), st.none() | TEXT)
def test_an_entry_survives_json(moments: list[Moment], name: str | None) -> None:
    """What `plain()` makes of an entry is JSON, and `entry_of()` makes the same entry of it."""
    entry = stream_entry(moments=tuple(moments), name=name)
    assert entry_of(json.loads(json.dumps(plain(entry)))) == entry


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
    """Of each kind, the words that are failures; a cancel, a close, an accepted end and a fallback are none."""
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


def test_a_run_without_a_result_tells_how_far_each_step_came() -> None:
    """A step that began and never ended is `started`, and is where the run stopped."""
    notes = [
        StepStarted(id="r", run="agent", step="a"),
        StepFinished(id="r", run="agent", step="a", status="ok", reason=None, seconds=0.1),
        StepStarted(id="r", run="agent", step="b"),
    ]
    entry = entry_of_run(RunFinished(id="r", run="agent", status=None, seconds=1, error_type="KeyError"), notes, 100.0)
    assert [(m.name, m.status) for m in entry.moments] == [("a", "ok"), ("b", "started")]
    assert (entry.outcome, entry.stopped_in, entry.started_at.timestamp()) == ("raised", "b", 99.0)


def test_a_skipped_step_is_not_the_culprit() -> None:
    """A run stopped in the step that failed, not in one before it that never started, or was cut, because of another."""
    steps = [
        {"name": "first", "status": "skipped", "reason": "dependency_failed"},
        {"name": "second", "status": "cancelled", "reason": "critical_failed"},
        {"name": "third", "status": "timeout", "reason": "step_limit"},
    ]
    for known, culprit in ((steps, "third"), (steps[:2], "second"), (steps[:1], "first")):
        event = RunFinished(id="r", run="a", status="waiting_external_service", seconds=1, details={"steps": known})
        assert entry_of_run(event, [], 100.0).stopped_in == culprit
