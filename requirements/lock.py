"""Write test.txt and fuzz.txt: what the tests need, each version pinned with the hashes of all its files.

    python -m pip install pip-tools
    python requirements/lock.py

pip resolves what setup.cfg asks for in its extras `dev` and `fuzz`, with the Python that runs this: let it be the oldest
one that is supported, for what needs a newer one is then left out. Run it again when setup.cfg changes.
"""

import configparser
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = "streamguard"
OPTIONS = ("--generate-hashes", "--strip-extras", "--allow-unsafe", "--no-header", "--upgrade", "--quiet")
SILENT = ("--no-emit-index-url", "--no-emit-trusted-host", "--no-emit-find-links", "--no-emit-options")
HEADER = (
    "# Made by requirements/lock.py from setup.cfg. Install with: pip install --require-hashes -r requirements/{name}\n"
)


def wanted(extra: str) -> list[str]:
    """Return the requirements of the package and of one of its extras, those of extras that it names included."""
    config = configparser.ConfigParser(interpolation=None)
    config.read(HERE.parent / "setup.cfg")
    extras = config["options.extras_require"]

    def lines_of(text: str) -> list[str]:
        found: list[str] = []
        for line in filter(None, map(str.strip, text.splitlines())):
            own = re.fullmatch(rf"{PACKAGE}\[(.*)\]", line)
            found += [item for name in own[1].split(",") for item in lines_of(extras[name])] if own else [line]
        return found

    return lines_of(config["options"]["install_requires"]) + lines_of(extras[extra])


def lock(name: str, requirements: list[str]) -> None:
    """Resolve *requirements* and write the file."""
    with tempfile.TemporaryDirectory() as directory:
        asked, locked = Path(directory, "asked.in"), Path(directory, "locked.txt")
        asked.write_text("\n".join(requirements))
        command = [
            sys.executable,
            "-m",
            "piptools",
            "compile",
            *OPTIONS,
            *SILENT,
            "--no-annotate",
            f"-o{locked}",
            str(asked),
        ]
        # Wheels built on this machine have hashes that no index knows.
        environment = {key: value for key, value in os.environ.items() if key != "PIP_FIND_LINKS"}
        subprocess.run(command, check=True, env=environment)
        pins = "".join(line for line in locked.read_text().splitlines(keepends=True) if not line.startswith("#"))
    (HERE / name).write_text(HEADER.format(name=name) + pins)


def main() -> None:
    """Write both files."""
    lock("test.txt", wanted("dev"))
    lock("fuzz.txt", wanted("fuzz"))


if __name__ == "__main__":
    main()
