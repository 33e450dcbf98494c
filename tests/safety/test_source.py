"""The package's source contains no dangerous call, read from its syntax."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
MODULES = sorted((ROOT / "streamguard").rglob("*.py"))

BUILT_IN = {"eval", "exec", "compile", "__import__", "breakpoint"}
CALLS = {
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads", "shelve.open", "dill.loads"),
    *("yaml.load", "yaml.unsafe_load", "yaml.full_load", "tempfile.mktemp", "ssl._create_unverified_context"),
}
MODULES_REFUSED = {"pickle", "marshal", "shelve", "dill", "yaml", "telnetlib", "ftplib", "xmlrpc", "imp"}


def name_of(node: ast.expr) -> str:
    """Return the dotted name of an expression, or ""."""
    if isinstance(node, ast.Attribute):
        return f"{name_of(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def refused(tree: ast.AST) -> Iterator[str]:
    """Yield each finding, with its line."""
    for node in ast.walk(tree):
        for what in [*_call(node), *_import(node)]:
            yield f"{what} (line {getattr(node, 'lineno', 0)})"


def _call(node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.Call):
        return
    name = name_of(node.func)
    if name in BUILT_IN or name in CALLS:
        yield name
    for keyword in node.keywords:
        off = isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        if keyword.arg == "shell" and not off:
            yield "shell="
        if keyword.arg in ("verify", "check_hostname") and off:
            yield f"{keyword.arg}=False"


def _import(node: ast.AST) -> Iterator[str]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
        names = [node.module or ""]
    yield from (f"import {name}" for name in names if name.partition(".")[0] in MODULES_REFUSED)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_nothing_dangerous(module: Path) -> None:
    """No shell, no evaluated text, no unpickled bytes, no certificate left unchecked."""
    assert [*refused(ast.parse(module.read_text("utf-8")))] == []


@pytest.mark.parametrize(
    "code",
    [
        *(
            "eval('1')",
            "exec(code)",
            "compile(text, '', 'exec')",
            "__import__(name)",
            "os.system('ls')",
            "pickle.loads(b'')",
        ),
        *(
            "subprocess.run('ls', shell=True)",
            "Popen(argv, shell=flag)",
            "requests.get(url, verify=False)",
            "yaml.load(text)",
        ),
        *("import pickle", "from marshal import loads", "import xmlrpc.client", "ssl._create_unverified_context()"),
    ],
)
def test_each_dangerous_call_is_found(code: str) -> None:
    """The check finds each dangerous call."""
    assert len([*refused(ast.parse(code))]) == 1


def test_what_is_allowed() -> None:
    """It does not report similar calls that are safe."""
    code = "Popen(argv, shell=False); re.compile(x); model.eval(); get(url, verify=path); self.exec(1)"
    assert [*refused(ast.parse(code))] == []


def test_the_whole_package_is_read() -> None:
    """Each module is checked."""
    assert len(MODULES) > 100
