"""What holds for every test here: no process is left behind."""

from collections.abc import Iterator

import psutil
import pytest

from ..helpers import wait_until
from .postgres import postgresql, postgresql_server  # noqa: F401 - fixtures
from .stores import open_store, records_url, shared_records  # noqa: F401 - fixtures


@pytest.fixture(autouse=True)
def _no_process(_clean_environment: None) -> Iterator[None]:
    """Fail a test that leaves a child process behind, a zombie too."""
    before = set(psutil.Process().children(recursive=True))
    yield
    wait_until(lambda: not set(psutil.Process().children(recursive=True)) - before, 5)
