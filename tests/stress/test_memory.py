"""An hour's worth of cycles, compressed: what long-lived objects hold does not grow with what passes through them."""

import json
import subprocess
import sys
from typing import Any

import pytest

from ..helpers import ROOT, finish
from .faults import FaultyGateway

pytestmark = [
    pytest.mark.stress,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

FLAT = 2 << 20
"""The memory of a process comes in pieces: so many bytes more are none of the objects'."""


def grown(deed: str) -> dict[str, Any]:
    """Return what grew in a process of its own while *deed* was done over and over."""
    with FaultyGateway() as gateway:
        command = [sys.executable, "-m", "tests.stress.household", gateway.url, deed]
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            return dict(json.loads(finish(child, 280)))
        finally:
            child.kill()
            child.wait()


@pytest.mark.parametrize("deed", ["cycle", "dispatch"])
def test_a_household_does_not_grow(deed: str) -> None:
    """No object is left over after hundreds of faults, nor of dispatches, of which only the last thousand are kept."""
    growth = grown(deed)
    assert (growth["objects"], growth["closers"]) == ({}, 0)
    assert growth["bytes"] < FLAT
