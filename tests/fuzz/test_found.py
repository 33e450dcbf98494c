"""What fuzzing once found, the inputs it begins with, and random changes to them."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from .targets import FOUND, TARGETS, TOKENS, found, seeds

KEPT = [(name, file) for name in TARGETS for file in found(name)]
TRIES = {"response": 60}


@pytest.mark.parametrize(("name", "file"), KEPT)
def test_a_kept_input(name: str, file: str) -> None:
    """What was a finding is none any more."""
    TARGETS[name](found(name)[file])


def test_kept_inputs_belong_to_a_target() -> None:
    """No directory of inputs is forgotten when a target is renamed, and some were found."""
    assert {path.name for path in FOUND.iterdir()} <= TARGETS.keys()
    assert KEPT


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str) -> None:
    """The inputs that fuzzing begins with are fine."""
    for seed in seeds(name):
        TARGETS[name](seed)


@st.composite
def changed(draw: Any, name: str) -> bytes:
    """Draw a seed with a few of its parts cut out, overwritten, or torn apart by a token."""
    data = draw(st.sampled_from(seeds(name)) | st.binary(max_size=64))
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(data)))
        end = start + draw(st.sampled_from((0, 0, 1, 3, 20)))
        data = data[:start] + draw(st.sampled_from(TOKENS) | st.binary(max_size=3)) + data[end:]
    return bytes(data)


@pytest.mark.parametrize("name", TARGETS)
def test_changed_seeds(name: str) -> None:
    """A few hundred of them, the same ones each time, keep the promises."""

    @settings(max_examples=TRIES.get(name, 300), suppress_health_check=list(HealthCheck), database=None)
    @given(changed(name))
    def run(data: bytes) -> None:
        TARGETS[name](data)

    run()
