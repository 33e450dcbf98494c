"""B127 of the collected field reports, in the place where it was met."""

from pathlib import Path

from .kernels import Kernel

COMMAND = "run_command(['/bin/sh', '-c', 'sleep 300 & echo $$ $! > {pids}; wait'])"


def test_B127_an_interrupt_leaves_no_subprocess(kernel: Kernel, tmp_path: Path) -> None:
    """The kernel's interrupt ends a supervised command: neither it nor its child is left when the cell has ended."""
    pids = tmp_path / "pids"
    kernel.run("from streamguard.dispatch._command.command import run_command")
    cell = kernel.begin(COMMAND.format(pids=pids))
    kernel.wait(cell, lambda: pids.exists() and pids.read_text().endswith("\n"))
    kernel.interrupt()
    assert kernel.finish(cell).error == "KeyboardInterrupt"
    assert [pid for pid in map(int, pids.read_text().split()) if runs(pid)] == []


def runs(pid: int) -> bool:
    """Whether a process runs, and is no zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"
