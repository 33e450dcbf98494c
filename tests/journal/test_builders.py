"""Entries, as data: what comes back from JSON, and the order of what happened on the way."""

from streamguard.journal.builders import entry_of_run
from streamguard.telemetry import RunFinished, StepFinished, StepStarted


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
