"""The example notebook: it runs, and is kept as it ran."""

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from .kernels import ROOT

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"


def read() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def pictures(cell: Any) -> list[str]:
    """Return the HTML that a cell shows."""
    return [output.data["text/html"] for output in cell.outputs if "text/html" in output.get("data", {})]


@pytest.mark.timeout(120)
def test_it_runs(jupyter_folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every cell runs in a fresh kernel, and shows as much as the copy that is kept."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    ran = read()
    NotebookClient(ran, timeout=60, kernel_name="python3").execute()
    for fresh, kept in zip(code_cells(ran), code_cells(read()), strict=True):
        assert len(pictures(fresh)) == len(pictures(kept)), kept.source
        assert [output.output_type for output in fresh.outputs] == [output.output_type for output in kept.outputs]


def test_it_was_run() -> None:
    """It is kept with what it showed: two streams, one of them cut, and a run; and nothing of whose machine that was."""
    shown = [picture for cell in code_cells(read()) for picture in pictures(cell)]
    assert sum("<svg" in picture for picture in shown) == 3
    assert any("timeout (StreamInactivityTimeoutError)" in picture for picture in shown)
    assert any("completed_with_fallback" in picture for picture in shown)
    assert all(cell.execution_count for cell in code_cells(read()))
    assert re.findall(r"/(?:home|root|tmp|Users|work)/", NOTEBOOK.read_text(encoding="utf-8")) == []
