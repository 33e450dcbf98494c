"""The real programs: installed once, each played in a network of its own."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, NoReturn

import pytest

from ...helpers import ROOT
from .scripts import SCRIPTS
from .stage import Scene

PACKAGES = (
    *("@anthropic-ai/claude-code@2.1.197", "@openai/codex@0.171.0", "@google/gemini-cli@0.61.0"),
    *("opencode-ai@1.18.33", "@qwen-code/qwen-code@0.15.10", "cline@3.0.65"),
)
CACHE = ROOT / ".realcli"
INSTALL_SECONDS = 900
SCENE_SECONDS = 100

Play = Callable[..., dict[str, Any]]


def cannot(reason: str) -> NoReturn:
    """Skip, with the reason; in CI that is a failure."""
    if os.environ.get("CI"):
        pytest.fail(f"the real agent programs must run in CI: {reason}")
    pytest.skip(reason)


@pytest.fixture(scope="session")
def network() -> list[str]:
    """Return the command that runs another one in a network of its own."""
    for command in (["unshare", "-n"], ["unshare", "-rn"]):
        if shutil.which("unshare") and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0:
            return command
    return cannot("a network namespace needs root, or user namespaces (unshare)")


@pytest.fixture(scope="session")
def programs() -> Path:
    """Install the programs, once for each set of versions, and return the folder they are in."""
    folder = CACHE / "-".join(package.rpartition("@")[2] for package in PACKAGES)
    done = folder / "installed"
    if not done.exists():
        if not (shutil.which("npm") and shutil.which("node")):
            cannot("node and npm are needed to install the real agent programs")
        command = ["npm", "install", "--no-fund", "--no-audit", "--loglevel=error", "--prefix", str(folder), *PACKAGES]
        folder.mkdir(parents=True, exist_ok=True)
        npm = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        if npm.returncode:
            cannot(f"npm could not install the programs: {npm.stderr.strip()[-500:]}")
        done.touch()
    return folder / "node_modules" / ".bin"


@pytest.fixture
def home() -> Iterator[str]:
    """Return an empty folder outside of the temporary one, which codex does not like as a home."""
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="home-", ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.fixture
def play(programs: Path, network: list[str], home: str) -> Play:
    """Return a function that plays the scene called *name* for a program, and tells what happened."""

    def played(program: str, name: str, **options: Any) -> dict[str, Any]:
        scene = Scene(program=program, folder=home, scripts=SCRIPTS[program][name], **options)
        done = subprocess.run(
            [*network, sys.executable, "-m", "tests.dispatch.realcli.stage"],
            input=json.dumps(asdict(scene)),
            cwd=ROOT,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=SCENE_SECONDS,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        assert told["left"] == []
        return told

    return played
