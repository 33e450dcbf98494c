"""Imports only go down: the layers of the package, held against every import, lazy and typing ones included."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent

LAYERS = (
    ("__main__", "cli", "django", "notebook"),
    ("__init__",),
    ("journal",),
    ("dispatch",),
    ("dispatch._turn",),
    ("dispatch._members",),
    ("dispatch._records",),
    ("dispatch._command",),
    ("dispatch._formats",),
    ("dispatch._process",),
    ("dispatch._data",),
    ("_chain",),
    ("session",),
    ("_stream",),
    ("_stream.sources",),
    ("_stream.upstream",),
    ("_stream.timing",),
    ("_http",),
    ("_sse", "_store"),
    ("_sse.event_stream",),
    ("testing", "telemetry.otel", "telemetry.prometheus"),
    ("_core",),
    ("telemetry",),
    ("_reports", "classify"),
    ("_svg", "_text", "_transient", "errors"),
)
"""From the top down. A module belongs to the longest name that it is part of."""

LEVEL = {name: level for level, names in enumerate(reversed(LAYERS)) for name in names}


def name_of(path: Path) -> str:
    """Return the dotted name of a module within the package; `__init__` for the package itself."""
    parts = path.relative_to(ROOT / "streamguard").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {name_of(path): path for path in sorted((ROOT / "streamguard").rglob("*.py"))}


def layer_of(module: str) -> str:
    """Return the name in LAYERS that *module* is part of."""
    return max((name for name in LEVEL if module == name or module.startswith(f"{name}.")), key=len)


def imports_of(module: str) -> Iterator[str]:
    """Yield the modules of the package that *module* imports, wherever the statement stands."""
    path = MODULES[module]
    package = list(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (_module(alias.name.split(".")[1:]) for alias in node.names if _is_ours(alias.name))
        elif isinstance(node, ast.ImportFrom) and (node.level or _is_ours(node.module or "")):
            base = package[: len(package) - node.level + 1] if node.level else []
            names = [*base, *(node.module or "").split(".")] if node.module else base
            yield from (_module([*names[1:], alias.name]) for alias in node.names)


def _is_ours(name: str) -> bool:
    return name.split(".")[0] == "streamguard"


def _module(parts: list[str]) -> str:
    """Return the longest beginning of *parts* that is a module."""
    names = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((name for name in names if name in MODULES), "__init__")


IMPORTS = {module: {*imports_of(module)} - {module} for module in MODULES}


def test_imports_only_go_down() -> None:
    """No module imports from a layer above its own."""
    upward = [
        f"{module} -> {target}"
        for module, targets in IMPORTS.items()
        for target in targets
        if LEVEL[layer_of(target)] > LEVEL[layer_of(module)]
    ]
    assert upward == []


def test_no_circles() -> None:
    """No module imports itself by way of others; `graphlib` raises CycleError and names the circle."""
    TopologicalSorter(IMPORTS).prepare()


def test_every_import_is_read() -> None:
    """Lazy imports and typing imports count: two that are known to be there are found."""
    assert "_chain.chain" in IMPORTS["_chain"]
    assert "cli.entry" in IMPORTS["cli"]
    assert sum(map(len, IMPORTS.values())) > 500


def test_contributing_draws_the_same_layers() -> None:
    """The table in CONTRIBUTING lists the same layers in the same order."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    table = text.partition("| layer |")[2].partition("\n\n")[0]
    rows = [re.findall(r"`([\w.]+?)/?`", line.split("|")[1]) for line in table.split("\n")[2:]]
    assert rows == [[name if name != "__init__" else "streamguard" for name in names] for names in LAYERS]


def test_folders_and_modules_are_small() -> None:
    """No folder holds more than 16 modules, no module more than 400 lines."""
    folders = [path.parent for path in MODULES.values()]
    assert [str(folder) for folder in set(folders) if folders.count(folder) > 16] == []
    assert [name for name, path in MODULES.items() if len(path.read_text("utf-8").splitlines()) > 400] == []
