"""A dispatch described in a TOML file. What cannot be right is refused with the name of its key."""

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..._core import parse_duration
from ...dispatch import CommandMember, Member, StreamMember
from ...errors import UsageError

_TOP = {"conversation", "prompt", "prompt_file", "mode", "output_timeout", "tool_timeout", "first", "records", "members"}
_LIMITS = ("output_timeout", "tool_timeout", "first")
_COMMAND = {"format", "resume", "env", "cwd", "pty", "ignore", "final", "grace", "linger"}
_PROGRAM = {"arguments", "env", "cwd"}
_STREAM = {"model", "auth_env", "headers", "heartbeat", "strict"}
_KINDS = {"command": _COMMAND, "program": _PROGRAM, "url": _STREAM}
_DURATIONS = ("grace", "linger", "heartbeat")


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(element, str) for element in value)


def _is_patterns(value: Any) -> bool:
    return _is_text(value) or _is_list(value)


def _is_table(value: Any) -> bool:
    return isinstance(value, dict) and _is_list([*value.values()])


_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("program", "url", "auth_env", "format"), (_is_text, "text that is not empty")),
    **dict.fromkeys(("model", "cwd"), (lambda value: isinstance(value, str), "text")),
    **dict.fromkeys(("command", "resume", "arguments"), (_is_list, "a list of texts")),
    **dict.fromkeys(("env", "headers"), (_is_table, "a table of texts")),
    **dict.fromkeys(("ignore", "final"), (_is_patterns, "text that is not empty, or a list of texts")),
    **dict.fromkeys(("pty", "strict"), (lambda value: isinstance(value, bool), "true or false")),
}
"""What a member's keys take; those of durations and the name are read elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DispatchFile:
    """What a file asks for."""

    conversation: str
    prompt: str
    members: list[Member]
    mode: Any
    records: str | None
    limits: dict[str, float]
    """Those that are given, in seconds."""


def read_dispatch_file(path: Path, environ: Mapping[str, str] = os.environ) -> DispatchFile:
    """Read *path*; the folders in it are relative to its own. Raises UsageError, naming what is wrong."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as exc:
        raise UsageError(f"cannot read it: {exc.strerror}") from exc
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as exc:
        raise UsageError(f"invalid TOML: {exc}") from exc
    _refuse_unknown(found, _TOP, "the file")
    members = found.get("members")
    if not isinstance(members, list) or not all(isinstance(member, dict) for member in members):
        raise UsageError("it needs at least one [[members]] table")
    return DispatchFile(
        conversation=_text(found, "conversation", path.stem),
        prompt=_prompt(found, path.parent),
        members=[_member(dict(member), path.parent, environ) for member in members],
        mode=_text(found, "mode", "parallel"),
        records=_text(found, "records") if "records" in found else None,
        limits={name: _seconds(name, found[name]) for name in _LIMITS if name in found},
    )


def _prompt(found: dict[str, Any], folder: Path) -> str:
    if ("prompt" in found) == ("prompt_file" in found):
        raise UsageError("it needs either prompt or prompt_file")
    if "prompt" in found:
        return _text(found, "prompt")
    try:
        return (folder / _text(found, "prompt_file")).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"prompt_file cannot be read: {exc}") from exc


def _member(table: dict[str, Any], folder: Path, environ: Mapping[str, str]) -> Member:
    kinds = [kind for kind in _KINDS if kind in table]
    if len(kinds) != 1:
        raise UsageError("each of [[members]] needs exactly one of command, program and url")
    (kind,) = kinds
    name = _text(table, "name", str(table[kind]) if kind == "program" else "")
    _refuse_unknown(table, {"name", kind, *_KINDS[kind]}, f"member {name!r}")
    for key, (fits, what) in _TYPES.items():
        if key in table and not fits(table[key]):
            raise UsageError(f"member {name!r}: {key} takes {what}")
    options = {key: value for key, value in table.items() if key not in ("name", kind)}
    options |= {key: _seconds(key, options[key]) for key in _DURATIONS if key in options}
    if "env" in options:
        options["env"] = {**environ, **options["env"]}
    if kind != "url":
        options["cwd"] = folder / options.get("cwd", ".")
    try:
        return _made(kind, name, table[kind], options, environ)
    except (TypeError, ValueError) as exc:
        raise UsageError(f"member {name!r}: {exc}") from exc


def _made(kind: str, name: str, value: Any, options: dict[str, Any], environ: Mapping[str, str]) -> Member:
    if kind == "command":
        return CommandMember(name, value, **options)
    if kind == "program":
        return CommandMember.preset(value, name=name, **options)
    if "auth_env" in options:
        variable = options.pop("auth_env")
        if not environ.get(variable):
            raise UsageError(f"the environment variable {variable} of auth_env is not set")
        options["headers"] = {**options.get("headers", {}), "Authorization": f"Bearer {environ[variable]}"}
    return StreamMember(name, value, **options)


def _text(table: Mapping[str, Any], key: str, default: str | None = None) -> str:
    value = table.get(key, default)
    if not isinstance(value, str) or not value:
        raise UsageError(f"{key} takes text that is not empty")
    return value


def _seconds(key: str, value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return parse_duration(value) if isinstance(value, str) else parse_duration("?")
    except ValueError:
        raise UsageError(f"{key} takes seconds, or a duration such as '90s' or '10m', not {value!r}") from None


def _refuse_unknown(table: Mapping[str, Any], known: set[str], whose: str) -> None:
    unknown = sorted(table.keys() - known)
    if unknown:
        raise UsageError(f"{whose} has no key {unknown[0]!r}; known are {', '.join(sorted(known))}")
