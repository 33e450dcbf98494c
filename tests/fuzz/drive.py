"""Fuzz one target with atheris: python -m tests.fuzz.drive TARGET SECONDS DIRECTORY.

The directory gets the corpus and the findings. atheris ends the process, with 0 if it found nothing.
"""

import sys
from pathlib import Path

import atheris  # type: ignore[import-untyped]

with atheris.instrument_imports(include=["streamguard"]):
    from .targets import TARGETS, TOKENS, seeds

__all__ = ["main"]

LONGEST_INPUT = 4096


def main(name: str, seconds: str, directory: str) -> None:
    """Write seeds and dictionary to the directory, and let libFuzzer run for that long."""
    place = Path(directory)
    (place / "corpus").mkdir()
    for number, seed in enumerate(seeds(name)):
        (place / "corpus" / f"seed-{number}").write_bytes(seed[:LONGEST_INPUT])
    (place / "tokens").write_text("".join(f'"{_quoted(token)}"\n' for token in TOKENS))
    flags = [
        f"-max_total_time={seconds}",
        f"-max_len={LONGEST_INPUT}",
        f"-dict={place / 'tokens'}",
        f"-artifact_prefix={place}/found-",
        "-timeout=30",
        "-rss_limit_mb=2048",
        "-verbosity=0",
    ]
    atheris.Setup([sys.argv[0], *flags, str(place / "corpus")], TARGETS[name])
    atheris.Fuzz()


def _quoted(token: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in token)


if __name__ == "__main__":
    main(*sys.argv[1:])
