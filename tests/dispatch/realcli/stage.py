"""Play one scene: a scripted gateway and a real agent program, side by side in a network of their own.

Runs as a program inside a fresh network namespace. Reads a scene as JSON from standard input, and writes what happened,
as JSON, to standard output.
"""

import contextlib
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil

from streamguard import CancelToken
from streamguard.dispatch._command.command import iter_command
from streamguard.dispatch._data.turn_events import Event, Kind
from streamguard.dispatch._members.command_member import CommandMember
from streamguard.dispatch._members.member import TurnContext
from streamguard.testing import Gateway

from ...helpers import wait_until

_SET_FLAGS, _UP_AND_RUNNING = 0x8914, 0x41


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What to play: *limits* are for `run_command`; with *turns* the program is a member, and runs that many turns."""

    program: str
    folder: str
    scripts: list[list[str]]
    limits: dict[str, float] = field(default_factory=dict)
    turns: int = 0
    kill_gateway: bool = False


def bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP_AND_RUNNING))


def environment(scene: Scene, url: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "HOME": scene.folder,
        "TERM": "xterm-256color",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "IS_SANDBOX": "1",
        "OPENAI_API_KEY": "dummy",
        "GEMINI_API_KEY": "dummy",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_CLI_TRUST_WORKSPACE": "true",
        "CLINE_SESSION_BACKEND_MODE": "local",
        "OPENCODE_CONFIG_CONTENT": opencode_settings(url),
    }


def arguments(program: str, url: str) -> list[str]:
    """Return what the program needs beside its preset, to ask *url* and to run any tool."""
    if program == "claude":
        return ["--dangerously-skip-permissions"]
    if program == "gemini":
        return ["--yolo", "-m", "gemini-2.5-flash"]
    if program == "opencode":
        return ["--title", "scene"]  # else it asks the model for one
    if program == "qwen":
        return ["--yolo", "--auth-type", "openai", "--openai-base-url", f"{url}/v1", "-m", "scripted"]
    if program == "cline":
        return ["-P", "openai", "-k", "dummy", "-m", "scripted"]
    provider = {"name": "x", "base_url": f"{url}/v1", "wire_api": "responses", "env_key": "OPENAI_API_KEY"}
    settings = {"model_provider": "x", "model": "scripted"}
    settings |= {f"model_providers.x.{key}": value for key, value in provider.items()}
    options = [word for key, value in settings.items() for word in ("-c", f'{key}="{value}"')]
    return ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", *options]


def settle_gemini(folder: str) -> None:
    """Choose the kind of key, without which gemini does not start."""
    os.makedirs(f"{folder}/.gemini", exist_ok=True)
    with open(f"{folder}/.gemini/settings.json", "w", encoding="utf-8") as file:
        json.dump({"security": {"auth": {"selectedType": "gemini-api-key"}}}, file)


def settle_cline(folder: str, url: str, env: dict[str, str]) -> None:
    """Name the provider and its address, which cline keeps in its folder and takes from nowhere else."""
    command = ["cline", "auth", "-p", "openai", "-k", "dummy", "-m", "scripted", "-b", f"{url}/v1"]
    subprocess.run(command, env=env, cwd=folder, capture_output=True, timeout=60, check=True)


def opencode_settings(url: str) -> str:
    options = {"baseURL": f"{url}/v1", "apiKey": "dummy"}
    models = {"scripted": {"name": "scripted"}}
    provider = {"npm": "@ai-sdk/openai-compatible", "name": "x", "options": options, "models": models}
    chosen = dict.fromkeys(("model", "small_model"), "x/scripted")
    return json.dumps({"provider": {"x": provider}, **chosen, "autoupdate": False, "permission": "allow"})


def play(scene: Scene) -> dict[str, Any]:
    settle_gemini(scene.folder)
    with Gateway(*scene.scripts) as gateway:
        env = environment(scene, gateway.url)
        if scene.program == "cline":
            settle_cline(scene.folder, gateway.url, env)
        member = CommandMember.preset(
            scene.program, arguments=arguments(scene.program, gateway.url), env=env, cwd=scene.folder
        )
        killer = threading.Thread(target=_kill_when_stalled, args=(gateway,))
        if scene.kill_gateway:
            killer.start()
        played = _turns(member, scene.turns) if scene.turns else _command(member, scene, env)
        if scene.kill_gateway:
            killer.join()
        asked = [request.body.decode("utf-8", "replace") for request in gateway.requests if request.body]
        with contextlib.suppress(AssertionError):
            gateway.wait_connections(gateway.connections, 0)
        return {**played, "asked": asked, "open": gateway.open_connections, "left": _left_in_this_network()}


def _command(member: CommandMember, scene: Scene, env: dict[str, str]) -> dict[str, Any]:
    limits: dict[str, Any] = {**scene.limits}
    command = iter_command(member._plan.argv, format=scene.program, input="hi", env=env, cwd=scene.folder, **limits)
    with command as stream:
        events = [_plain(event) for event in stream]
    return {"events": events, "result": stream.result.to_dict()}


def _turns(member: CommandMember, turns: int) -> dict[str, Any]:
    session = None
    events: list[Event] = []
    for turn in range(turns):
        for event in member.run(f"prompt {turn}", TurnContext(token=CancelToken(), session_id=session, first=30)):
            session = event.session_id or session
            events.append(event)
    return {"events": [_plain(event) for event in events]}


def _kill_when_stalled(gateway: Gateway) -> None:
    wait_until(lambda: any(request.reached["stall"] for request in gateway.requests), 40)
    gateway.stop()


def _plain(event: Event) -> dict[str, Any]:
    return {**asdict(event), "is_output": event.is_output, "kind": str(Kind(event.kind))}


def _left_in_this_network() -> list[str]:
    """Name the processes beside this one that are still in the namespace, after a while to let them go."""
    ours = os.readlink("/proc/self/ns/net")
    for _ in range(100):
        left = [name for pid in psutil.pids() if pid != os.getpid() for name in _name_if_in(ours, pid)]
        if not left:
            break
        time.sleep(0.05)
    return left


def _name_if_in(network: str, pid: int) -> list[str]:
    with contextlib.suppress(OSError, psutil.Error):
        if os.readlink(f"/proc/{pid}/ns/net") == network and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            return [" ".join(psutil.Process(pid).cmdline())[:200]]
    return []


if __name__ == "__main__":
    bring_loopback_up()
    json.dump(play(Scene(**json.load(sys.stdin))), sys.stdout)
