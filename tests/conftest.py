"""What holds for every test: no leak, no proxy, no setting of the developer's own environment."""

import os

import hypothesis
import pytest

import streamguard.testing.plugin

PROXY_VARIABLES = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"}

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    """Register our fixtures where streamguard is imported but not installed (there the entry point does it)."""
    if not config.pluginmanager.is_registered(streamguard.testing.plugin):
        config.pluginmanager.register(streamguard.testing.plugin, "streamguard")


@pytest.fixture(autouse=True)
def _no_leak(streamguard_leak_check: object) -> None:
    """Fail a test that leaves a thread or a descriptor behind."""


@pytest.fixture(autouse=True)
def _clean_environment(_no_leak: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide proxies and STREAMGUARD_* settings, so that a test sees only what it sets itself."""
    for name in os.environ:
        if name.upper() in PROXY_VARIABLES or name.upper().startswith("STREAMGUARD_"):
            monkeypatch.delenv(name)
