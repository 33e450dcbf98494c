"""Entries as JSON, and back."""

import json

from hypothesis import given
from hypothesis import strategies as st

from streamguard.journal import Moment
from streamguard.journal.entry_json import entry_of, plain

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
