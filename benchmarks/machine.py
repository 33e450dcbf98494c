"""What it was measured on."""

import os
import platform
from pathlib import Path

from .packages import missing, versions

__all__ = ["describe", "load"]


def describe() -> dict[str, object]:
    """Return the machine, the interpreter, and the versions of what takes part."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "versions": versions(),
        "missing": missing(),
    }


def load() -> float:
    """Return how many processes wanted to run, on average over the last minute."""
    return os.getloadavg()[0]


def _processor() -> str:
    """Return the processor's name, or its architecture where the system does not tell."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
