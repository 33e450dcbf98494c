"""A real gunicorn, and clients that can leave it in the middle of an answer."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.parse
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from streamguard._core.clock import monotonic

ROOT = Path(__file__).parent.parent.parent
WORKERS = {
    "gthread": ["--worker-class", "gthread", "--threads", "40"],
    "gevent": ["--worker-class", "gevent"],
    "sync": ["--worker-class", "sync"],
}


class Server:
    """A gunicorn with one worker, and where it listens."""

    def __init__(self, process: "subprocess.Popen[bytes]", address: Any, family: int) -> None:
        self.process = process
        self.address = address
        self.family = family

    def stop(self) -> None:
        """End it: gracefully, or else by force."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def connect(self) -> socket.socket:
        """Return a connection to it."""
        sock = socket.socket(self.family)
        sock.settimeout(10)
        sock.connect(self.address)
        return sock


@dataclass(frozen=True, slots=True)
class Project:
    """A Django project to serve."""

    folder: Path
    name: str
    environ: Mapping[str, str] = field(default_factory=dict)


TEST_SITE = Project(ROOT, "tests.django.site")


@contextmanager
def gunicorn(worker: str, *options: str, path: str | None = None, project: Project = TEST_SITE) -> Iterator[Server]:
    """Serve *project* by gunicorn's *worker*, on loopback or on the Unix socket *path*."""
    if path is None:
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    else:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(128)
    listener.set_inheritable(True)
    bind = ["--bind", f"fd://{listener.fileno()}", "--workers", "1", "--graceful-timeout", "5"]
    with listener, tempfile.TemporaryDirectory() as runtime:
        process = subprocess.Popen(
            [sys.executable, "-m", "gunicorn", *WORKERS[worker], *bind, *options, f"{project.name}.wsgi:application"],
            cwd=project.folder,
            env={
                **os.environ,
                **project.environ,
                "XDG_RUNTIME_DIR": runtime,  # where newer versions of gunicorn listen for commands
                "PYTHONPATH": str(ROOT),
                "DJANGO_SETTINGS_MODULE": f"{project.name}.settings",
            },
            pass_fds=[listener.fileno()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        server = Server(process, listener.getsockname(), listener.family)
        listener.close()
        try:
            yield server
        finally:
            server.stop()


class Visitor:
    """A client with a socket of its own, which reads as much as it likes and leaves when it likes."""

    def __init__(self, server: Server, path: str, headers: dict[str, str] | None = None, **query: Any) -> None:
        self._sock = server.connect()
        self.received = b""
        lines = "".join(f"{name}: {value}\r\n" for name, value in {"Host": "localhost", **(headers or {})}.items())
        self._sock.sendall(f"GET {path}?{urllib.parse.urlencode(query)} HTTP/1.1\r\n{lines}\r\n".encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._sock.close()

    def until(self, wanted: bytes) -> bytes:
        """Read until *wanted* has come; return all that came. Fails if the server closes before, or is silent for 10 s."""
        while wanted not in self.received:
            piece = self._sock.recv(65536)
            assert piece, f"{wanted!r} did not come: {self.received!r}"
            self.received += piece
        return self.received

    def leave(self, *, reset: bool = False) -> float:
        """Close the connection, and return when that was."""
        if reset:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        at = monotonic()
        self._sock.close()
        return at
