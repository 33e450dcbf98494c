"""The public API as a type checker sees it."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

Check = Callable[[Path], tuple[str, str, int]]

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


@pytest.fixture
def check(monkeypatch: pytest.MonkeyPatch) -> Check:
    """Return mypy's own function to run it, with the project's settings and cache."""
    api = pytest.importorskip("mypy.api")
    monkeypatch.chdir(ROOT)
    return lambda path: api.run(["--config-file", "setup.cfg", "--python-executable", sys.executable, str(path)])


@pytest.mark.timeout(180)
def test_the_public_api_is_typed(check: Check, tmp_path: Path) -> None:
    """The types are those of `public_api.py`, its ignores are all needed, and a wrong statement is found."""
    output, errors, code = check(HERE / "public_api.py")
    assert (code, errors) == (0, ""), output
    wrong = tmp_path / "wrong.py"
    wrong.write_text('from streamguard import guarded_stream\nx: int = guarded_stream("GET", "http://x/").text\n')
    output, _, code = check(wrong)
    assert code == 1
    assert 'expression has type "str"' in output
