"""What a process holds."""

import resource
from pathlib import Path

__all__ = ["resident_kib"]


def resident_kib() -> float:
    """Return the resident memory of this process in KiB. Linux only."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1024
