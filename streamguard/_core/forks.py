"""Notice a fork without a system call: `os.getpid()` for each chunk costs as much as the chunk's own bookkeeping."""

import os


class _Forks:
    """Count the forks between this process and the one that first called `watch()`."""

    __slots__ = ("_watching", "count")

    def __init__(self) -> None:
        self.count = 0
        self._watching = False

    def watch(self) -> None:
        """Start to count, once for each process. Not done at import, because it cannot be undone."""
        if not self._watching and hasattr(os, "register_at_fork"):
            self._watching = True
            os.register_at_fork(after_in_child=self._forked)

    def _forked(self) -> None:
        self.count += 1


forks = _Forks()
