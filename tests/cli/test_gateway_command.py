"""`streamguard gateway`."""

import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import requests

from streamguard import Session, guarded_stream
from streamguard.testing import Gateway

from .runs import invoke, process

CHAT = "chat Hello\ndone\n"


def get(url: str, **options: str) -> str:
    text: str = guarded_stream("GET", url, first=5, idle=5, **options).read()  # type: ignore[misc]
    return text


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_it_serves_until_ctrl_c(tmp_path: Path) -> None:
    """The URL is the first line; each request and each departure is one more, without the query; Ctrl-C is its end."""
    script = tmp_path / "script"
    script.write_text("chat Hello\nstall\n")
    with process("gateway", str(script)) as gateway:
        assert gateway.stdout is not None
        url = gateway.stdout.readline().decode().strip()
        with guarded_stream("POST", f"{url}/v1?key=sk-1", data=b"12345") as stream:
            next(stream)
        lines = [gateway.stdout.readline().decode() for _ in range(2)]
        gateway.send_signal(signal.SIGINT)
        _, err = gateway.communicate(timeout=30)
    assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+", url)
    assert lines[0] == "#1 POST /v1, 5 bytes of body\n"
    assert re.fullmatch(r"#1 left after [0-9.]+ s and [0-9]+ bytes, by (fin|reset), during stall\n", lines[1])
    assert (gateway.returncode, err) == (0, b"")


def test_scripts_answer_in_turn(tmp_path: Path) -> None:
    """The nth request gets the nth script, one of them from standard input; the last one answers the rest."""
    script = tmp_path / "script"
    script.write_text("headers 503\nbody busy\n")
    given = tmp_path / "stdin"
    given.write_text(CHAT)
    with given.open("rb") as stdin, process("gateway", str(script), "-", stdin=stdin) as gateway:
        assert gateway.stdout is not None
        url = gateway.stdout.readline().decode().strip()
        with requests.get(url, timeout=30) as response:
            assert response.status_code == 503
        assert [get(url), get(url)] == ["Hello", "Hello"]


def test_tls_framing_and_encoding(tmp_path: Path) -> None:
    """--tls shows the authority's file on the second line; --framing and --encoding are on the wire."""
    script = tmp_path / "script"
    script.write_text(CHAT)
    flags = ["--tls", "--framing", "close", "--encoding", "gzip", "--host", "127.0.0.1", "--port", "0"]
    with process("gateway", str(script), *flags) as gateway:
        assert gateway.stdout is not None
        url, authority = (gateway.stdout.readline().decode().strip() for _ in range(2))
        stream = guarded_stream("GET", url, verify=authority.removeprefix("certificate authority: "))
        with stream:
            assert stream.read() == "Hello"
            headers = stream.response.headers
    assert url.startswith("https://")
    assert headers["content-encoding"] == "gzip"
    assert headers["connection"] == "close"
    Path(authority.removeprefix("certificate authority: ")).unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("chat a\nshout b\n", "script line 2: unknown step 'shout b'"),
        ("# a remark\n\n  wait soon\n", "script line 3: invalid 'wait soon'"),
        ("chat a\nstall\nchat a\n", "script line 3: 'chat a' is never reached after 'stall'"),
        ("loop 2\nchat a\n", "script line 1: 'loop 2' has no endloop"),
        ("chat \udcff", "UTF-8"),
    ],
)
def test_a_wrong_script_is_refused_by_line(script: str, complaint: str, tmp_path: Path) -> None:
    """A script that cannot be played is exit code 2; the complaint has the file, the line's number and its text."""
    file = tmp_path / "script"
    file.write_bytes(script.encode(errors="surrogateescape"))
    result = invoke("gateway", str(file))
    assert result.exit_code == 2
    assert str(file) in result.stderr.replace("\n", "")
    assert complaint in result.stderr


def test_no_script_and_no_file_are_refused(tmp_path: Path) -> None:
    """A missing argument or file is exit code 2."""
    assert invoke("gateway").exit_code == 2
    assert invoke("gateway", str(tmp_path / "none")).exit_code == 2


def test_an_address_in_use_is_said(tmp_path: Path, streamguard_gateway: Callable[..., Gateway]) -> None:
    """A port that is taken is exit code 1, in one sentence."""
    script = tmp_path / "script"
    script.write_text(CHAT)
    port = streamguard_gateway().url.rpartition(":")[2]
    result = invoke("gateway", str(script), "--port", port)
    assert result.exit_code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in result.stderr


def test_the_agents_api_is_served() -> None:
    """`gateway agent` serves profile and policy as its options say, and tells when a client left."""
    with process("gateway", "agent", "--policy-status", "503", "--deny", "--profile-ms", "60000") as gateway:
        assert gateway.stdout is not None
        url = gateway.stdout.readline().decode().strip()
        with Session() as session:
            policy = session.get(f"{url}/policy")
            assert (policy.status_code, policy.json()) == (503, {"allowed": False})
            with pytest.raises(requests.Timeout):
                session.get(f"{url}/profile/7", timeout=0.2)
        lines = [gateway.stdout.readline().decode() for _ in range(4)]
    assert "#2 GET /profile/7, 0 bytes of body\n" in lines
    assert re.fullmatch(r"#2 left after [0-9.]+ s and 0 bytes, by fin, during wait\n", lines[-1])


def test_a_script_called_agent_is_still_a_file(tmp_path: Path) -> None:
    """The second word makes another command; a path does not."""
    result = invoke("gateway", str(tmp_path / "agent"))
    assert result.exit_code == 2
    assert "No such file" in result.stderr
