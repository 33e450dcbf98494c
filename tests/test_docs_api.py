"""The manual names every public name, option and verb of a script, and quotes only messages that exist."""

import ast
import enum
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import streamguard
import streamguard.dispatch
import streamguard.journal
import streamguard.testing
from streamguard import errors
from streamguard._chain.step_status import RUN_STATUSES, STEP_STATUSES
from streamguard._core import limits
from streamguard._stream.guarded import GuardedKeywords
from streamguard._stream.timing.clocks import Phase
from streamguard.dispatch import CommandStartError, RecordStore
from streamguard.dispatch._command.command_options import CommandOptions
from streamguard.testing.gateway import Gateway
from streamguard.testing.wire import ENCODINGS, FRAMINGS

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "streamguard").rglob("*.py"))
PLAIN_NAMES = sorted(set(streamguard.__all__) - set(errors.__all__))
TESTING_NAMES = sorted(streamguard.testing.__all__)
DISPATCH_NAMES = sorted(streamguard.dispatch.__all__)
JOURNAL_NAMES = sorted(streamguard.journal.__all__)
ERRORS = {**{name: getattr(errors, name) for name in errors.__all__}, "CommandStartError": CommandStartError}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def sections(name: str, chapter: str | None = None) -> dict[str, str]:
    """Split a page at its third-level headings: first word of the heading to the text below it, heading included.

    With *chapter*, only what is below that second-level heading.
    """
    text = page(name) if chapter is None else page(name).split(f"\n## {chapter}\n")[1].split("\n## ")[0]
    parts = re.split(r"^### ", text, flags=re.MULTILINE)[1:]
    return {re.findall(r"\w+", part)[0]: part for part in parts}


def words(text: str) -> set[str]:
    """Return the names inside backquotes."""
    return {word for quoted in re.findall(r"`([^`\n]+)`", text) for word in re.findall(r"\w+", quoted)}


def members(thing: Any) -> Iterator[str]:
    """Yield the public methods, properties and fields that a class defines itself, and a callable's named arguments."""
    kinds = (classmethod, staticmethod, property)
    if inspect.isclass(thing):
        yield from (name for name, value in vars(thing).items() if inspect.isfunction(value) or isinstance(value, kinds))
        yield from inspect.get_annotations(thing)
    elif callable(thing):
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        yield from (name for name, value in inspect.signature(thing).parameters.items() if value.kind in named)


def missing(thing: Any, text: str) -> set[str]:
    return {name for name in members(thing) if not name.startswith("_")} - words(text)


def source_texts() -> Iterator[str]:
    """Yield every string of the package except docstrings; of f-strings the fixed parts."""
    for path in SOURCES:
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
                yield node.value


def first_column(text: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)`", text, flags=re.MULTILINE)


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_every_public_name_has_a_section(name: str) -> None:
    """Each public name has a section in api.md that mentions all of its members or arguments."""
    found = sections("api.md")
    assert name in found
    thing = getattr(streamguard, name)
    inner = {"init_poolmanager", "proxy_manager_for", "close"}  # of HTTPAdapter, overridden
    assert missing(thing, found[name]) - inner == set()


@pytest.mark.parametrize("name", TESTING_NAMES)
def test_every_testing_name_has_a_section(name: str) -> None:
    """Each public name of streamguard.testing has a section in api.md that mentions its members or arguments."""
    found = sections("api.md")
    assert name in found
    assert missing(getattr(streamguard.testing, name), found[name]) == set()


INNER = {
    "CommandStream": {"plan"},
    "Dispatcher": {"run_recorded", "runs"},
    "DispatchStream": {"execution", "channel"},
    "RecordStore": {
        *("ours", "opened", "writing", "reading", "begin_execution", "begin_turn", "commit_response", "commit_turn"),
        *("transition", "renew", "give_up_lease", "reconcile"),
    },
    "StreamMember": {"remote", "keywords"},
}
"""Public by name, but only for the package itself."""


@pytest.mark.parametrize("name", DISPATCH_NAMES)
def test_every_name_of_the_dispatcher_has_a_section(name: str) -> None:
    """Each public name of streamguard.dispatch has a section that mentions its members, arguments, and words."""
    section = sections("api.md", "streamguard.dispatch")[name]
    thing = getattr(streamguard.dispatch, name)
    named, known = words(section), set(members(thing))
    if isinstance(thing, type) and issubclass(thing, enum.Enum):
        known = {each.value for each in thing}
    elif isinstance(thing, type) and not issubclass(thing, Exception):
        known |= {*inspect.signature(thing).parameters} - {"args", "kwargs"}
    assert {each for each in known if not each.startswith("_")} - INNER.get(name, set()) - named == set()


def test_the_options_of_a_command_are_listed() -> None:
    """Each keyword of run_command is in its section."""
    assert CommandOptions.__annotations__.keys() - words(sections("api.md")["run_command"]) == set()


def test_the_words_of_a_run_and_of_a_step_are_listed() -> None:
    """api.md lists the words of RunStatus and StepStatus."""
    assert {"RunStatus", "StepStatus", *RUN_STATUSES, *STEP_STATUSES} - words(sections("api.md")["RunStatus"]) == set()


def test_a_store_is_loaded_on_its_first_use() -> None:
    """The package exports `RecordStore` like its other names, and raises for a name that it does not have."""
    assert streamguard.dispatch.RecordStore is RecordStore
    with pytest.raises(AttributeError, match="no attribute 'Records'"):
        streamguard.dispatch.Records  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.parametrize("name", JOURNAL_NAMES)
def test_every_name_of_the_journal_is_explained(name: str) -> None:
    """Each public name of streamguard.journal is in its part of api.md, or has a section as one of streamguard's."""
    found = sections("api.md", "streamguard.journal")
    if name in found:
        assert missing(getattr(streamguard.journal, name), found[name]) == set()
    else:
        assert name in streamguard.__all__ or name in words("".join(found.values()))


def test_the_keywords_of_a_stream_are_listed() -> None:
    """Each keyword, those of requests that pass through included, is in guarded_stream's section."""
    assert GuardedKeywords.__annotations__.keys() - words(sections("api.md")["guarded_stream"]) == set()


@pytest.mark.parametrize("name", ERRORS)
def test_every_error_and_attribute_is_explained(name: str) -> None:
    """errors.md, and api.md, name each error class; errors.md names each of its attributes."""
    assert name in page("errors.md")
    assert name in page("api.md")
    assert missing(ERRORS[name], page("errors.md")) == set()


def test_the_error_tree_is_the_tree() -> None:
    """The tree in errors.md has each class one step to the right of its base."""
    tree = page("errors.md").split("```")[1]
    indent = {match[2]: len(match[1]) for match in re.finditer(r"^([│ ├└─]*)(\w+)", tree, flags=re.MULTILINE)}
    assert indent.keys() == ERRORS.keys()
    for name in indent.keys() - {"StreamguardError"}:
        bases = [kind.__name__ for kind in ERRORS[name].__mro__[1:]]
        assert indent[name] == indent[next(base for base in bases if base in indent)] + 4


@pytest.mark.parametrize("limit", limits.LIMITS)
def test_limits_and_their_defaults_are_true(limit: str) -> None:
    """The table in limits.md has each limit with the default that the code has, and its environment variable."""
    row = next(line for line in page("limits.md").splitlines() if line.startswith(f"| `{limit}` |"))
    default = getattr(streamguard.Timeouts(), limit)
    shown = row.split("|")[3].strip()
    assert shown == ("the same as `idle`" if limit == "first" else "off" if default is None else f"{default:g}")
    assert f"STREAMGUARD_{limit.upper()}" in page("limits.md")


def test_every_phase_is_named() -> None:
    """Each phase that a report can have is in its section of api.md."""
    assert {phase.value for phase in Phase} - words(sections("api.md")["StreamReport"]) == set()


def test_the_3_am_table_quotes_real_messages() -> None:
    """Each message in the table of limits.md is in the code, word for word."""
    quoted = first_column(page("limits.md").split("## At 3 a.m.")[1])
    texts = list(source_texts())
    assert len(quoted) > 15
    assert [words for words in quoted if not any(words in text for text in texts)] == []


def test_every_verb_is_explained() -> None:
    """The table of testing.md has each verb that a script may use, and no other."""
    documented = {line.split()[0] for line in first_column(page("testing.md")) if "=" not in line} - {"host"}
    with pytest.raises(streamguard.UsageError) as refused:
        streamguard.testing.parse_script("nonsense")
    known = set(str(refused.value).partition("expected one of ")[2].split(", "))
    assert documented == known


def test_every_gateway_option_is_explained() -> None:
    """testing.md names each option of Gateway, each framing and each encoding."""
    named = words(page("testing.md"))
    assert {name for name in inspect.signature(Gateway).parameters if name != "scripts"} - named == set()
    assert {word for name in (*FRAMINGS, *ENCODINGS) if name for word in re.findall(r"\w+", name)} - named == set()
