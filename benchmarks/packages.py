"""Which peers are installed, and in which versions."""

import importlib
import importlib.metadata
import os
from typing import Any

from streamguard import __version__

__all__ = ["PEERS", "imported", "missing", "versions"]

PEERS = ("openai", "anthropic", "httpx-sse", "requests-sse", "litellm")
_BASE = ("requests", "urllib3", "sseclient-py", "httpx", "httpx2")


def imported(module: str) -> Any:
    """Import a peer where it is used: none of them is needed to measure the others."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # else its import asks the internet for prices
    found = importlib.import_module(module)
    if module == "litellm":
        found.__dict__["suppress_debug_info"] = True  # it prints advice for each error
    return found


def versions() -> dict[str, str]:
    """Return the versions of what takes part, by the package's name."""
    found = {name: _version(name) for name in (*_BASE, *PEERS)}
    return {"streamguard": __version__, **{name: version for name, version in found.items() if version}}


def missing() -> list[str]:
    """Return the peers that are not installed."""
    return [name for name in PEERS if not _version(name)]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
