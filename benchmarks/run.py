"""Run all measurements, one after another."""

import platform
import sys

import requests
import urllib3

from . import cost, expiry, latency, session


def main() -> None:
    """Say on what, then measure."""
    versions = f"requests {requests.__version__}, urllib3 {urllib3.__version__}"
    print(f"Python {platform.python_version()}, {versions}, {platform.system()} {platform.machine()}\n")
    for part in (cost, latency, expiry, session):
        sys.argv = sys.argv[:1]
        part.main()
        print()


if __name__ == "__main__":
    main()
