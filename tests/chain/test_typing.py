"""Chains as a type checker sees them."""

import sys

import pytest

from ..helpers import ROOT


@pytest.mark.timeout(180)
def test_chains_are_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps and results have the types that `tests/typing/chain_api.py` states, and its ignores are all needed."""
    api = pytest.importorskip("mypy.api")
    monkeypatch.chdir(ROOT)
    options = ["--config-file", "setup.cfg", "--python-executable", sys.executable]
    output, errors, code = api.run([*options, "tests/typing/chain_api.py"])
    assert (code, errors) == (0, ""), output
