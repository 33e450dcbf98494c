"""What a snapshot shows of a hanging program."""

from streamguard.dispatch._process.snapshot import take_snapshot

from ..programs import SLEEP, Start, python, shell


def test_evidence_shows_the_tree(start: Start) -> None:
    """Each process of the tree is there with its state and CPU; one that has left the group is marked."""
    program = start(shell("setsid sleep 60 & sleep 60 & sleep 0.1; echo ready; wait"))
    evidence = take_snapshot(program.pid, stdout="the end", tools=("Bash",))
    names = sorted((info.name, info.escaped) for info in evidence.processes)
    assert names == [("sh", False), ("sleep", False), ("sleep", True)]
    assert {info.state for info in evidence.processes} <= {"sleeping", "running"}  # on a busy machine one may be late
    assert evidence.to_dict()["processes"][0]["pid"] == program.pid
    assert (evidence.stdout, evidence.tools) == ("the end", ("Bash",))


def test_evidence_shows_sockets(start: Start) -> None:
    """Open sockets are there, with both addresses and their state: what it is waiting for."""
    code = "import socket\ns = socket.create_server(('127.0.0.1', 0))\nc = socket.create_connection(s.getsockname())\n"
    program = start(python(code + SLEEP))
    sockets = take_snapshot(program.pid).sockets
    assert {"LISTEN", "ESTABLISHED"} <= {socket.state for socket in sockets}
    assert all(socket.local.startswith("127.0.0.1:") for socket in sockets)


def test_evidence_of_what_is_gone_is_empty(start: Start) -> None:
    """Nothing raises if the process has ended and was reaped."""
    program = start(shell("echo ready"))
    program.wait()
    assert take_snapshot(program.pid).processes == ()
