"""What setup.cfg promises."""

import configparser
import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONFIG = configparser.ConfigParser(interpolation=None)
CONFIG.read(ROOT / "setup.cfg")


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
