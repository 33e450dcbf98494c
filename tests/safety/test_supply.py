"""The sources of the tests' packages: each is pinned, each has its hashes, and nothing else is required."""

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent.parent
PIN = re.compile(r"^([\w.-]+)==(\S+?)(?: ; .*?)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)
FILES = {"dev": "test.txt", "fuzz": "fuzz.txt"}


def lock() -> Any:
    """Return the script that writes the files, as a module."""
    spec = importlib.util.spec_from_file_location("lock", ROOT / "requirements" / "lock.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def wanted(extra: str) -> list[Requirement]:
    return [*map(Requirement, lock().wanted(extra))]


def text_of(extra: str) -> str:
    return (ROOT / "requirements" / FILES[extra]).read_text("utf-8")


def pins(*extras: str) -> dict[str, Version]:
    found = [match for extra in extras for match in PIN.finditer(text_of(extra))]
    return {canonicalize_name(match[1]): Version(match[2]) for match in found}


@pytest.mark.parametrize("extra", FILES)
def test_everything_is_pinned_with_hashes(extra: str) -> None:
    """Only pins with hashes: no index, no path, no URL, nothing that pip installs unchecked."""
    rest = PIN.sub("", text_of(extra))
    assert [line for line in rest.splitlines() if line and not line.startswith("#")] == []
    assert pins(extra)


@pytest.mark.parametrize("extra", FILES)
def test_the_pins_match_setup_cfg(extra: str) -> None:
    """Each requirement of setup.cfg is pinned to a version that it allows: else run requirements/lock.py."""
    pinned = pins(*FILES)
    required = wanted(extra)
    assert len(required) > 4
    missing = [str(one) for one in required if canonicalize_name(one.name) not in pinned]
    assert missing == []
    wrong = [str(one) for one in required if not one.specifier.contains(pinned[canonicalize_name(one.name)])]
    assert wrong == []


def closure() -> Iterator[tuple[str, Requirement]]:
    """Yield the requirements of ours and of our requirements, as far as they are installed here."""
    waiting = [("streamguard", one) for one in map(Requirement, lock().wanted("dev"))]
    seen = set()
    while waiting:
        asker, required = waiting.pop()
        key = (canonicalize_name(required.name), frozenset(required.extras))
        if key in seen or not applies(required):
            continue
        yield asker, required
        seen.add(key)
        waiting += [(required.name, one) for one in asked_by(required)]


def applies(required: Requirement, extras: frozenset[str] = frozenset()) -> bool:
    return required.marker is None or any(required.marker.evaluate({"extra": extra}) for extra in extras or {""})


def asked_by(required: Requirement) -> list[Requirement]:
    try:
        asked = importlib.metadata.requires(required.name) or []
    except importlib.metadata.PackageNotFoundError:
        return []
    extras = frozenset(required.extras) | {""}
    found = [one for one in map(Requirement, asked) if applies(one, extras)]
    for one in found:
        one.marker = None
    return found


def test_the_pins_are_closed() -> None:
    """The requirements of pinned packages that are installed here are pinned as well, in a version that fits."""
    pinned = pins("dev")
    if Version(importlib.metadata.version("rich")).major != pinned["rich"].major:
        pytest.skip("the oldest allowed packages are installed here, which ask for others")
    asked = [*closure()]
    assert len(asked) > 40
    missing = {required.name for _, required in asked if canonicalize_name(required.name) not in pinned}
    assert missing == set()


def test_installed_packages_fit_together() -> None:
    """No installed package is older or newer than another one allows."""
    installed = {canonicalize_name(dist.name): dist.version for dist in importlib.metadata.distributions()}
    known = [(asker, one) for asker, one in closure() if canonicalize_name(one.name) in installed]
    wrong = [
        f"{asker} wants {one}, here is {installed[canonicalize_name(one.name)]}"
        for asker, one in known
        if not one.specifier.contains(installed[canonicalize_name(one.name)], prereleases=True)
    ]
    assert wrong == []


def test_the_package_needs_four_packages() -> None:
    """The package itself depends on these four only: each further one adds another supplier to trust."""
    config = lock().wanted("testing")
    names = {canonicalize_name(Requirement(line).name) for line in config} - {"pytest", "trustme"}
    assert names == {"requests", "urllib3", "sseclient-py", "tenacity"}
