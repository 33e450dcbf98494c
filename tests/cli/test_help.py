"""The help texts, the manual's page of the command, and what happens without the extra."""

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from streamguard import __version__
from streamguard.cli import main

from .runs import ROOT, invoke

COMMANDS = sorted(main.commands)
PAGE = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")

WITHOUT_EXTRA = """
import sys
sys.modules[sys.argv[1]] = None
import streamguard
import streamguard.cli
"""


def spellings(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield from (*parameter.opts, *parameter.secondary_opts)


def section(command: str) -> str:
    """Return the page's section on *command*: up to the next heading of the same level."""
    _, _, text = PAGE.partition(f"\n## `streamguard {command}")
    return text.partition("\n## ")[0]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_option(command: str) -> None:
    """The help of each command names every option, and each has a sentence of its own."""
    result = invoke(command, "--help")
    assert result.exit_code == 0
    assert [option for option in spellings(main.commands[command]) if option not in result.stdout] == []
    options = [option for option in main.commands[command].params if isinstance(option, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_the_root_lists_every_command() -> None:
    """`streamguard --help` lists the commands; `--version` says which one this is."""
    result = invoke("--help")
    assert [command for command in COMMANDS if f"\n  {command} " not in result.stdout] == []
    assert "...\n" not in result.stdout.partition("Commands:")[2], "a line of help is cut"
    assert __version__ in invoke("--version").stdout


@pytest.mark.parametrize("command", [*COMMANDS, ""])
def test_h_is_help(command: str) -> None:
    """`-h` prints the same as `--help`."""
    words = [command] if command else []
    assert invoke(*words, "-h").stdout == invoke(*words, "--help").stdout


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {"demo"}))
def test_help_has_an_example(command: str) -> None:
    """The help of each command that takes arguments has an example."""
    assert "Example: " in invoke(command, "--help").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_the_manual_mentions_every_command_and_option(command: str) -> None:
    """docs/cli.md has a section for each command, with every option in it."""
    text = section(command)
    assert text
    assert [option for option in spellings(main.commands[command]) if f"`{option}" not in text] == []


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_the_extra_it_says_what_to_install(missing: str) -> None:
    """Without click or rich, `import streamguard` works, and the command says one sentence with the pip command."""
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRA, missing], capture_output=True, text=True, timeout=50, check=False, cwd=ROOT
    )
    assert done.returncode == 2
    assert done.stderr == f"The streamguard command needs {missing}: pip install 'streamguard[cli]'\n"


@pytest.mark.parametrize("module", ["streamguard", "streamguard.cli"])
def test_the_command_is_a_module_too(module: str) -> None:
    """`python -m streamguard` and `python -m streamguard.cli` are the command."""
    command = [sys.executable, "-m", module, "--version"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, f"streamguard, version {__version__}\n")
