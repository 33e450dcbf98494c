"""What holds for every test: no leak, no proxy, no setting of the developer's own environment."""

import os
import signal

import hypothesis
import pytest

import streamguard.testing.plugin

HIDDEN_VARIABLES = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}

DEFAULTS = {signal.SIGINT: signal.default_int_handler, signal.SIGQUIT: signal.SIG_DFL, signal.SIGHUP: signal.SIG_DFL}

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None)
hypothesis.settings.load_profile("ci")


def pytest_configure(config: pytest.Config) -> None:
    """Register our fixtures where streamguard is imported but not installed (there the entry point does it)."""
    # A shell that runs the tests in the background, or nohup, makes them and their child processes ignore these signals.
    for number, default in DEFAULTS.items():
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)
    if not config.pluginmanager.is_registered(streamguard.testing.plugin):
        config.pluginmanager.register(streamguard.testing.plugin, "streamguard")


@pytest.fixture(autouse=True)
def _no_leak(streamguard_leak_check: object) -> None:
    """Fail a test that leaves a thread or a descriptor behind."""


@pytest.fixture(autouse=True)
def _clean_environment(_no_leak: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide proxies, certificates and STREAMGUARD_* settings, so that a test sees only what it sets itself."""
    for name in os.environ:
        if name.upper() in HIDDEN_VARIABLES or name.upper().startswith("STREAMGUARD_"):
            monkeypatch.delenv(name)
