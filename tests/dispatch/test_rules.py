"""The numbered rules of dispatch: each number in the code and its tests leads to the page that lists them."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "dispatch_rules.md"
RULE = re.compile(r"\b[RT]\d{1,2}\b")
RANGE = re.compile(r"\b([RT])(\d{1,2}) to \1?(\d{1,2})\b")


def listed() -> list[str]:
    return re.findall(r"^\| ([RT]\d+) \|", PAGE.read_text("utf-8"), re.MULTILINE)


def mentioned(path: Path) -> set[str]:
    text = path.read_text("utf-8")
    ranges = {f"{kind}{n}" for kind, first, last in RANGE.findall(text) for n in range(int(first), int(last) + 1)}
    return {*RULE.findall(text), *ranges}


@pytest.mark.parametrize("folder", ["streamguard", "tests"])
def test_every_rule_that_is_mentioned_is_on_the_page(folder: str) -> None:
    """A number in a comment, a docstring or a test exists in docs/dispatch_rules.md."""
    found = {path: mentioned(path) - {*listed()} for path in (ROOT / folder).rglob("*.py")}
    assert {str(path): numbers for path, numbers in found.items() if numbers} == {}


def test_each_rule_is_listed_once() -> None:
    """No number stands for two rules, and R1 to R28 are all there."""
    rules = listed()
    assert len(rules) == len({*rules})
    assert [rule for rule in rules if rule[0] == "R"] == [f"R{number}" for number in range(1, 29)]


def test_each_rule_has_a_test() -> None:
    """Every rule of behaviour is named by a test, or by the code that keeps it."""
    named = {
        rule for folder in ("streamguard", "tests") for path in (ROOT / folder).rglob("*.py") for rule in mentioned(path)
    }
    assert {*listed()} - named == set()
