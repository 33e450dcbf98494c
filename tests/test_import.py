"""The effects of `import streamguard`."""

import json
import subprocess
import sys
from typing import Any

import pytest

DEPENDENCIES = {"requests", "urllib3", "sseclient", "tenacity"}
NEEDED_BY_REQUESTS = {"certifi", "idna", "charset_normalizer", "chardet"}
TRIED_WHERE_INSTALLED = {"socks", "tornado"}  # by requests (PySocks), by tenacity
ALLOWED = DEPENDENCIES | NEEDED_BY_REQUESTS | TRIED_WHERE_INSTALLED | {"streamguard"}

PROBE = """
import atexit, json, signal, sys, threading
handlers = [signal.getsignal(number) for number in sorted(signal.valid_signals())]
before = set(sys.modules)
import requests, urllib3, sseclient, tenacity, logging
at_exit = atexit._ncallbacks()
import streamguard
print(json.dumps({
    "modules": sorted(set(sys.modules) - before),
    "at_exit": atexit._ncallbacks() - at_exit,
    "threads": [thread.name for thread in threading.enumerate()],
    "signals_untouched": handlers == [signal.getsignal(number) for number in sorted(signal.valid_signals())],
}))
"""


@pytest.fixture(scope="module")
def imported() -> dict[str, Any]:
    """Import streamguard in a fresh interpreter where every warning is an error; return the changes."""
    command = [sys.executable, "-W", "error", "-c", PROBE]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def is_allowed(module: str) -> bool:
    top = module.partition(".")[0]
    # charset_normalizer's compiled wheels carry top-level modules of the compiler: mypyc's, or Cython's.
    compiled = top.endswith("__mypyc") or top.startswith(("_cython_", "cython_runtime"))
    return top in ALLOWED or top in sys.stdlib_module_names or compiled


def test_import_loads_only_the_standard_library_and_the_four_dependencies(imported: dict[str, Any]) -> None:
    """The import loads nothing beyond the standard library, the four dependencies and what requests itself needs."""
    assert [module for module in imported["modules"] if not is_allowed(module)] == []


def test_import_starts_nothing(imported: dict[str, Any]) -> None:
    """The import starts no thread, installs no signal handler and registers nothing for the exit."""
    assert imported["threads"] == ["MainThread"]
    assert imported["at_exit"] == 0
    assert imported["signals_untouched"]


def test_an_extra_would_be_noticed() -> None:
    """The allow-list lets through neither an extra nor a test tool."""
    strangers = ["click", "rich.console", "pytest", "trustme", "yaml", "cryptography.x509"]
    assert [name for name in strangers if is_allowed(name)] == []
