"""One kernel for the tests in this directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from .kernels import Kernel


@pytest.fixture(scope="session")
def jupyter_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep Jupyter out of the developer's own folders."""
    folder = tmp_path_factory.mktemp("jupyter")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
            patch.setenv(name, str(folder / name.lower()))
        patch.setenv("JUPYTER_PLATFORM_DIRS", "1")
        yield folder


@pytest.fixture(scope="module")
def kernel(jupyter_folders: Path) -> Iterator[Kernel]:
    """Start a kernel."""
    started = Kernel()
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def _settled(kernel: Kernel) -> None:
    """See that what the client opens on its first interrupt and reply is open before leaks are looked for."""
    kernel.run("from streamguard import guarded_stream\nfrom streamguard.notebook import show")
