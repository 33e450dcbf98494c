"""A short run of atheris on each target, guided by coverage."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .targets import TARGETS

_missing = importlib.util.find_spec("atheris") is None and not os.environ.get("CI")

pytestmark = [
    pytest.mark.stress,
    pytest.mark.timeout(180),
    pytest.mark.skipif(_missing, reason="needs atheris: pip install 'streamguard[fuzz]', on Linux"),
]

SECONDS = 10
ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("name", TARGETS)
def test_fuzz(name: str, tmp_path: Path) -> None:
    """It finds nothing in ten seconds. Put an input that it finds into `found/TARGET/` once it is fixed."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.fuzz.drive", name, str(SECONDS), str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=150,
        check=False,
    )
    findings = [path.read_bytes() for path in tmp_path.glob("found-*")]
    output = run.stdout[-2000:] + run.stderr[-2000:]
    assert (run.returncode, findings) == (0, []), output.decode("utf-8", "replace")
