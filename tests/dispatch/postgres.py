"""A PostgreSQL server of the tests' own, on loopback, in a folder that goes with it."""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

ROOT = Path(__file__).parent.parent.parent
USER = "streamguard"


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[str]:
    """Start a server, and return its address; without PostgreSQL skip, or fail where CI=true."""
    run = started(find_programs())
    try:
        yield f"{USER}@127.0.0.1:{run.port}"
    finally:
        run.stop()


def started(programs: Path, attempts: int = 5) -> "Server":
    """Start a server; on another port if somebody took the one that was just free."""
    for left in reversed(range(attempts)):
        run = Server(programs, Path(tempfile.mkdtemp(prefix="streamguard-postgresql-")), free_port())
        try:
            run.start()
            return run
        except subprocess.SubprocessError:
            run.stop()
            if not left:
                raise
    raise AssertionError("unreachable")


@pytest.fixture
def postgresql(postgresql_server: str) -> str:
    """Return the URL of a new database."""
    name = f"records_{uuid.uuid4().hex}"
    with psycopg.connect(f"postgresql://{postgresql_server}/postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
    return f"postgresql://{postgresql_server}/{name}"


def find_programs() -> Path:
    """Return the folder of initdb and pg_ctl; where they are missing, have them installed."""
    done = subprocess.run([ROOT / ".ci" / "postgresql"], capture_output=True, text=True, timeout=170, check=False)
    if done.returncode == 0:
        return Path(done.stdout.strip())
    reason = done.stderr.strip().splitlines()[-1]
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"CI needs PostgreSQL: {reason}")
    pytest.skip(reason)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


class Server:
    """One server. PostgreSQL refuses to run as root: root starts it as another user."""

    def __init__(self, programs: Path, folder: Path, port: int) -> None:
        self.port = port
        self._programs = programs
        self._folder = folder
        self._data = folder / "data"
        self._as: dict[str, Any] = {"user": unprivileged()} if os.getuid() == 0 else {}

    def start(self) -> None:
        if self._as:
            account = pwd.getpwnam(self._as["user"])
            os.chown(self._folder, account.pw_uid, account.pw_gid)
            self._as |= {"group": account.pw_gid, "extra_groups": []}
        self._run("initdb", "--auth=trust", f"--username={USER}", "--encoding=UTF8", "--locale=C", "--no-sync")
        options = f"-p {self.port} -h 127.0.0.1 -k {self._folder} -c fsync=off -c max_connections=60"
        self._run("pg_ctl", "start", "--wait", f"--log={self._folder}/log", f"--options={options}")

    def stop(self) -> None:
        self._run("pg_ctl", "stop", "--wait", "--mode=immediate", check=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _run(self, program: str, *arguments: str, check: bool = True) -> None:
        command = [self._programs / program, f"--pgdata={self._data}", *arguments]
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}
        # Nothing of ours may stay open in the server: it would keep pipes from ending.
        streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run(command, **streams, cwd=self._folder, env=environment, timeout=50, check=check, **self._as)


def unprivileged() -> str:
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"
