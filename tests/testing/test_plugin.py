"""The pytest plugin: its fixtures work in a project of their own, and loading it costs nothing."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

LOADED = """
import sys
import streamguard.testing.plugin
print(sorted({"trustme", "cryptography", "hypothesis", "gevent", "rich", "click"} & set(sys.modules)))
"""

CONFTEST = """
import streamguard.testing.plugin

def pytest_configure(config):
    if not config.pluginmanager.is_registered(streamguard.testing.plugin):
        config.pluginmanager.register(streamguard.testing.plugin)
"""

TESTS = """
import os
import requests

def test_gateway(streamguard_leak_check, streamguard_gateway):
    gateway = streamguard_gateway("event a", "headers 503", framing="close")
    assert [requests.get(gateway.url).status_code for _ in range(2)] == [200, 503]

def test_tls_gateway(streamguard_leak_check, streamguard_tls_gateway):
    gateway = streamguard_tls_gateway("event a")
    assert requests.get(gateway.url, verify=gateway.ca).text == "data: a\\n\\n"

def test_leak(streamguard_leak_check):
    os.pipe()
"""


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=60)


def test_loading_the_plugin_loads_no_extra(pytestconfig: pytest.Config) -> None:
    """The plugin is loaded in every run of pytest, so it loads no optional package before a fixture needs it."""
    done = run("-c", LOADED, cwd=pytestconfig.rootpath)
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


def test_fixtures_in_a_project_of_their_own(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both factories serve, what they started is gone when the leak check looks, and a real leak is an error."""
    monkeypatch.setenv("PYTHONPATH", str(pytestconfig.rootpath))
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(textwrap.dedent(TESTS))
    done = run("-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", "-q", str(tmp_path), cwd=tmp_path)
    assert "3 passed" in done.stdout, done.stdout + done.stderr
    assert "1 error" in done.stdout
    assert "left behind: 2" in done.stdout
    assert "pipe:[" in done.stdout
