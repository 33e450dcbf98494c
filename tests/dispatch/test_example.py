"""`make example-dispatch`."""

import importlib.util
from pathlib import Path

import pytest

from .programs import SLACK

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "dispatch.py"


def test_the_example_does_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own checks hold: stopped at T and at 2T, the third one answers, all accounts agree, nothing is left."""
    spec = importlib.util.spec_from_file_location("example_dispatch", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    example.LATEST = SLACK
    assert example.main() == 0, capsys.readouterr().out
    told = capsys.readouterr().out
    assert "Response timed out: no output for 1 second, stopped." in told
    assert "Response timed out: no output for 2 seconds, stopped." in told
    assert "WRONG" not in told
