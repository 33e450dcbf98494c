"""Counts and histograms, as words and as a page."""

from streamguard.journal import Moment
from streamguard.journal.summary import summed_up

from .causes import ENTRIES, stream_entry


def test_counts_by_outcome_and_place() -> None:
    """Each kind has its groups, the largest first, and lost entries are not a group."""
    summary = summed_up(ENTRIES)
    assert summary.kind("stream") == [("completed", "done", 4), ("timeout", "first", 1)]
    assert summary.kind("run") == [("waiting_external_service", "policy", 1)]
    assert summary.kind("turn") == [("failed", "timeout", 1), ("succeeded", "-", 1)]
    assert summary.lost == 4


def test_histograms_have_a_bucket_above_the_last_bound() -> None:
    """A value equal to a bound is below it; gaps are added up, bucket by bucket."""
    summary = summed_up([*ENTRIES, stream_entry(time_to_first_chunk=0.01)])
    assert {number: count for number, count in enumerate(summary.first_chunks) if count} == {0: 1, 7: 3, 14: 1}
    assert {number: count for number, count in enumerate(summary.gaps) if count} == {0: 9, 2: 3, 14: 1}


def test_steps_and_members_have_samples_too() -> None:
    """A step that was ok gives its duration, a turn that succeeded its longest silence; what fired is counted."""
    summary = summed_up(ENTRIES)
    assert summary.samples["step agent/profile"] == [0.25]
    assert summary.samples["member claude"] == [20.0]
    assert (summary.fired["step agent/policy"], summary.fired_at["step agent/policy"]) == (1, 0.5)
    assert (summary.fired["member claude"], summary.samples["step agent/policy"]) == (1, [])


def test_a_phase_that_broke_off_is_not_a_sample() -> None:
    """A phase is a sample only if the next phase followed in the same attempt."""
    phases = [("connect", 0.0, 1), ("retry", 5.0, 1), ("connect", 6.0, 2), ("response", 6.5, 2), ("first", 7.5, 2)]
    moments = tuple(Moment(what="phase", name=name, at=at, attempt=attempt) for name, at, attempt in phases)
    summary = summed_up([stream_entry(moments=moments)])
    assert (summary.samples["connect"], summary.samples["response"]) == ([0.5], [1.0])
