"""The `streamguard` command. Needs click and rich: `pip install 'streamguard[cli]'`."""

from .entry import main

__all__ = ["main"]
