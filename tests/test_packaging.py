"""What setup.cfg promises."""

import configparser
import pkgutil
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONFIG = configparser.ConfigParser(interpolation=None)
CONFIG.read(ROOT / "setup.cfg")


KNOWN = {
    *("benchmarks", "docs", "examples", "requirements", "streamguard", "tests", ".ci"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md"),
    *("MANIFEST.in", "Makefile", "pyproject.toml", "setup.cfg", "setup.py", ".gitignore"),
}
"""What may stand in the root of the project."""


def names_in_root() -> set[str]:
    """Return the names in the root: those that git tracks, or those in the folder if it is not a checkout."""
    if not (ROOT / ".git").exists():
        generated = re.compile(r"\.|__pycache__|build$|dist$|.*\.egg-info$")
        return {path.name for path in ROOT.iterdir() if path.name in KNOWN or not generated.match(path.name)}
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files"]
    tracked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=True).stdout
    return {name.partition("/")[0] for name in tracked.splitlines()}


def entry_points() -> list[str]:
    return [target for group in CONFIG["options.entry_points"].values() for target in re.findall(r"= *(\S+)", group)]


def test_the_floor_pins_every_lower_bound_of_what_runs() -> None:
    """`make floor` installs exactly the lower bounds of the dependencies and of the `cli` extra."""
    requirements = CONFIG["options"]["install_requires"] + CONFIG["options.extras_require"]["cli"]
    floors = re.findall(r"^([\w-]+)>=([\w.]+)", requirements, re.MULTILINE)
    pins = re.findall(r"^([\w-]+)==([\w.]+)$", (ROOT / "requirements/floor.txt").read_text(), re.MULTILINE)
    assert len(floors) == len(requirements.split())
    assert sorted(pins) == sorted(floors)


@pytest.mark.parametrize("target", entry_points())
def test_entry_points_exist(target: str) -> None:
    """Each entry point names something that can be imported."""
    pkgutil.resolve_name(target)


def test_the_package_is_typed() -> None:
    """The marker that tells type checkers to read our annotations is there, and is shipped."""
    assert (ROOT / "streamguard/py.typed").exists()
    assert "py.typed" in CONFIG["options.package_data"]["streamguard"].split()


def test_the_root_holds_nothing_but_the_known_files() -> None:
    """A file that a test or a tool leaves in the root is not committed."""
    assert names_in_root() - KNOWN == set()
