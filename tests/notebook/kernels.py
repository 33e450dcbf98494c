"""A real kernel, as a notebook's front end talks to it."""

import queue
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager

from streamguard._core.clock import monotonic

ROOT = Path(__file__).parent.parent.parent


@dataclass(slots=True)
class Cell:
    """What a cell did: what was displayed, in the order of its updates, and how it ended."""

    request: str
    """The id of the request to run it."""
    idle: bool = False
    """Whether it has said all that it will."""
    status: str = ""
    error: str = ""
    message: str = ""
    pages: list[str] = field(default_factory=list)
    """The HTML of each display and update."""
    printed: str = ""
    result: dict[str, str] = field(default_factory=dict)
    """What the last expression is shown as, by MIME type."""


class Kernel:
    """A kernel process and its channels."""

    def __init__(self) -> None:
        self.manager: Any = KernelManager(kernel_name="python3")
        self.manager.start_kernel(cwd=str(ROOT))
        self.client: BlockingKernelClient = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=40)

    def stop(self) -> None:
        """End it."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()

    def begin(self, code: str) -> Cell:
        """Send *code* to be run, and return at once."""
        return Cell(str(self.client.execute(code)))

    def wait(self, cell: Cell, holds: Callable[[], bool]) -> None:
        """Wait until *holds* is true of what *cell* has done so far; fail after 30 seconds."""
        end = monotonic() + 30
        while not holds():
            assert monotonic() < end, f"what the test waits for did not happen: {cell}"
            self._take(cell)

    def finish(self, cell: Cell) -> Cell:
        """Wait for the end of what was begun, and return it."""
        self.wait(cell, lambda: cell.idle)
        reply: Any = None
        while reply is None or reply["parent_header"]["msg_id"] != cell.request:
            reply = self.client.get_shell_msg(timeout=10)
        content = reply["content"]
        cell.status, cell.error, cell.message = content["status"], content.get("ename", ""), content.get("evalue", "")
        return cell

    def run(self, code: str) -> Cell:
        """Run *code* to its end."""
        return self.finish(self.begin(code))

    def interrupt(self) -> float:
        """Do what the stop button of a front end does; return when that was."""
        at = monotonic()
        self.manager.interrupt_kernel()
        return at

    def _take(self, cell: Cell) -> None:
        """Take one message, if there is one soon."""
        try:
            message: Any = self.client.get_iopub_msg(timeout=0.05)
        except queue.Empty:
            return
        if message["parent_header"].get("msg_id") == cell.request:
            _note(cell, message["msg_type"], message["content"])


def _note(cell: Cell, kind: str, content: dict[str, Any]) -> None:
    if kind in ("display_data", "update_display_data") and "text/html" in content["data"]:
        cell.pages.append(content["data"]["text/html"])
    elif kind == "stream":
        cell.printed += content["text"]
    elif kind == "execute_result":
        cell.result = content["data"]
    elif kind == "status":
        cell.idle = content["execution_state"] == "idle"
