"""The documents: every Python snippet runs, every link leads somewhere.

The snippets of a page run in order, in one namespace, against a gateway on loopback that answers every request with the
same short chat. Those of the manual may use ``BASE`` (the gateway's URL), ``MODEL``, ``AUTH`` (headers) and ``messages``;
those of README have no such names. Clients of openai find the gateway in the environment. A snippet whose first line is
``# not run: reason`` is only compiled.
"""

import ast
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamguard.testing import Gateway

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
RUN_PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]
LINKED_PAGES = [*RUN_PAGES, ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]

CHAT = ["chat Hello", "chat , world", "finish", "usage 5 2", "done"]
NOT_RUN = re.compile(r"# not run: \S")
FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix() if page.is_relative_to(ROOT) else page.name


def snippets(text: str) -> Iterator[tuple[int, str]]:
    """Yield each Python snippet of a page with the number of lines before it."""
    for fence in FENCE.finditer(text):
        if fence[2] == "python":
            yield text.count("\n", 0, fence.start(3)), textwrap.dedent(fence[3])


def run_page(page: Path, names: dict[str, Any]) -> None:
    """Run a page's snippets in order; a traceback shows the page and its line."""
    namespace = {"__name__": "__main__", **names}
    for lines_before, source in snippets(page.read_text(encoding="utf-8")):
        code = compile("\n" * lines_before + source, page_name(page), "exec")
        if not NOT_RUN.match(source):
            exec(code, namespace)


def anchors(page: Path) -> set[str]:
    """Name a page's headings as GitHub does in links."""
    headings = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(page: Path, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


def broken_links(page: Path) -> list[str]:
    """List a page's links to files or headings that do not exist; links to the web are not followed."""
    links = LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    inner = [link for link in links if not link.startswith(("http://", "https://", "mailto:"))]
    return [link for link in inner if not leads_somewhere(page, link)]


def definitions(module: ast.Module) -> Iterator[str]:
    """Yield the functions of a module, and its methods both alone and after their class."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef))


def masked(text: str) -> str:
    """Replace what differs between two runs: ids, ports, times."""
    return re.sub(r"\b[0-9a-f]{12}\b|\d+(\.\d+)?", "N", text)


@pytest.fixture
def names(streamguard_gateway: Callable[..., Gateway], monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What the snippets of the manual may use without having made it."""
    url = streamguard_gateway(CHAT).url
    monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "a-key")
    return {
        "BASE": url,
        "MODEL": "a-model",
        "AUTH": {"Authorization": "Bearer a-key"},
        "messages": [{"role": "user", "content": "Say hello."}],
    }


def test_there_is_a_manual() -> None:
    """The manual has at least one page."""
    assert (ROOT / "docs" / "index.md") in RUN_PAGES


@pytest.mark.parametrize("page", RUN_PAGES, ids=page_name)
def test_snippets_run(page: Path, names: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every Python snippet of the page runs, in the order of the page."""
    monkeypatch.chdir(tmp_path)
    run_page(page, {} if page == README else names)


def test_readme_shows_what_its_first_snippet_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """The output below README's first snippet is what it prints, the error included."""
    text = README.read_text(encoding="utf-8")
    _, source = next(snippets(text))
    exec(compile(source, README.name, "exec"), {"__name__": "__main__"})
    shown = next(fence[3] for fence in FENCE.finditer(text) if fence[2] == "text")
    assert masked(capsys.readouterr().out) == masked(shown)


@pytest.mark.parametrize("page", LINKED_PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link of the page leads to a file, and to a heading where it names one."""
    assert broken_links(page) == []


def test_the_walks_name_what_exists() -> None:
    """Each function and module that CONTRIBUTING names in its walks exists: those of a class in that class."""
    contributing = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    text = contributing.split("\n## Walks\n")[1].split("\n## Style\n")[0]
    sources = sorted((ROOT / "streamguard").rglob("*.py"))
    defined = {name for source in sources for name in definitions(ast.parse(source.read_text(encoding="utf-8")))}
    named = set(re.findall(r"`([\w.]+)\([^`]*\)`", text)) - {"os.killpg"}
    modules = set(re.findall(r"`([\w/.]+\.py)`", text))
    assert len(named) > 20
    assert {name for name in named if name not in defined} == set()
    assert {name for name in modules if not any(source.as_posix().endswith(f"/{name}") for source in sources)} == set()


def test_a_failing_snippet_is_shown_with_its_line(tmp_path: Path) -> None:
    """A snippet sees the names of those before it, and its error carries the page's line number."""
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n```python\nzero = 0\n```\n\n- a list:\n\n  ```python\n  print()\n  1 / zero\n  ```\n")
    with pytest.raises(ZeroDivisionError) as failed:
        run_page(page, {})
    assert (failed.traceback[-1].path, failed.traceback[-1].lineno + 1) == ("page.md", 11)


def test_what_is_not_run_is_compiled(tmp_path: Path) -> None:
    """A snippet marked as not run may use what is not there, but must be Python, and must say why."""
    page = tmp_path / "page.md"
    page.write_text("```python\n# not run: needs a key\nmissing()\n```\n")
    run_page(page, {})
    page.write_text("```python\n# not run: needs a key\nmissing(\n```\n")
    with pytest.raises(SyntaxError):
        run_page(page, {})
    page.write_text("```python\n# not run:\nmissing()\n```\n")
    with pytest.raises(NameError):
        run_page(page, {})


def test_a_broken_link_is_found(tmp_path: Path) -> None:
    """A link to a missing file or heading is found; a link inside a code block is ignored."""
    page = tmp_path / "page.md"
    page.write_text("# What it does: *x*\n[a](page.md#what-it-does-x) [b](#no) [c](no.md)\n```python\n# [d](e)\n```\n")
    assert broken_links(page) == ["#no", "no.md"]
