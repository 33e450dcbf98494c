"""Django for the tests in this directory."""

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import django
import pytest
from django.test import Client, RequestFactory
from django.test.utils import setup_test_environment, teardown_test_environment

from streamguard._core.clock import monotonic

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.django.site.settings")
django.setup()


@pytest.fixture(scope="session", autouse=True)
def _test_environment() -> Iterator[None]:
    """Let Django know that it is being tested."""
    setup_test_environment(debug=False)
    yield
    teardown_test_environment()


@pytest.fixture
def rf() -> RequestFactory:
    """Make requests without sending them."""
    return RequestFactory()


@pytest.fixture
def client() -> Callable[..., Any]:
    """Return a function that asks a view of the test site, all middleware included, and returns its response."""
    return Client(raise_request_exception=False).get


@pytest.fixture
def wait_until() -> Callable[..., None]:
    """Return a function that waits for a condition, and fails after five seconds."""

    def wait(holds: Callable[[], bool]) -> None:
        end = monotonic() + 5
        while not holds():
            assert monotonic() < end, "did not become true"
            time.sleep(0.005)

    return wait
