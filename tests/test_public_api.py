"""The public names: which they are, their order, and their docstrings."""

import inspect
import types
from pathlib import Path

import pytest

import streamguard
from streamguard import errors

ROOT = Path(__file__).parent.parent
NAMES = streamguard.__all__
CLASSES = [name for name in NAMES if isinstance(getattr(streamguard, name), type)]
FUNCTIONS = [name for name in NAMES if inspect.isfunction(getattr(streamguard, name))]


def isort_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions, each by name: the order of the imports."""
    kind = 0 if name.isupper() else 1 if name[0].isupper() else 2
    return kind, name


def test_all_is_sorted_and_has_no_name_twice() -> None:
    """`__all__` is in the linter's order."""
    assert sorted(NAMES, key=isort_order) == NAMES
    assert len(set(NAMES)) == len(NAMES)


def test_star_import_gives_exactly_these_names() -> None:
    """Each name of `__all__` exists."""
    namespace: dict[str, object] = {}
    exec("from streamguard import *", namespace)
    assert set(namespace) - {"__builtins__"} == set(NAMES)


def test_nothing_else_looks_public() -> None:
    """All other names of the package are private, or modules."""
    others = {name for name, value in vars(streamguard).items() if not isinstance(value, types.ModuleType)}
    assert {name for name in others if not name.startswith("_")} == set(NAMES)


def test_every_error_is_public() -> None:
    """Every exception can be caught by a name of the package."""
    assert set(errors.__all__) <= set(NAMES)


@pytest.mark.parametrize("name", CLASSES + FUNCTIONS)
def test_every_public_name_has_a_docstring(name: str) -> None:
    """Classes and functions have a docstring of their own that begins with a sentence."""
    value = getattr(streamguard, name)
    assert value.__doc__
    assert value.__doc__.split("\n\n")[0].rstrip().endswith((".", ":"))


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_method_has_a_docstring(name: str) -> None:
    """Public methods and properties that a class of ours defines have docstrings."""
    cls = getattr(streamguard, name)
    defined = {k: v for base in cls.__mro__ if base.__module__.startswith("streamguard") for k, v in vars(base).items()}
    methods = {k for k, v in defined.items() if inspect.isfunction(v) or isinstance(v, property | classmethod)}
    assert [k for k in sorted(methods) if not k.startswith("_") and not inspect.getdoc(getattr(cls, k))] == []


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in ("guarded_stream",)])
def test_options_are_keywords(name: str) -> None:
    """A function takes at most two arguments by position: its subjects; its options are keywords."""
    parameters = inspect.signature(getattr(streamguard, name)).parameters.values()
    assert sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters) <= 2


def test_the_version_is_the_packages_own() -> None:
    """`__version__` is the version of setup.cfg."""
    setup = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    assert f"\nversion = {streamguard.__version__}\n" in setup
