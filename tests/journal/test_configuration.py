"""The settings of the process: the values that `configure()` refuses."""

from typing import Any

import pytest

import streamguard
from streamguard import (
    UsageError,
)


@pytest.mark.parametrize(("size", "error"), [(-1, UsageError), (1.5, TypeError), (True, TypeError), ("9", TypeError)])
def test_a_wrong_size_is_refused(size: Any, error: type[Exception]) -> None:
    """The message names the setting, and nothing has changed: not even a limit in the same call."""
    before = streamguard.Timeouts()
    with pytest.raises(error, match="recent="):
        streamguard.configure(recent=size, idle=5)
    assert streamguard.Timeouts() == before


def test_an_unknown_setting_is_refused_by_name() -> None:
    """The message lists the settings, the journal included."""
    with pytest.raises(TypeError, match=r"unknown setting jurnal= .*journal, recent"):
        streamguard.configure(jurnal="x")  # type: ignore[call-arg]
