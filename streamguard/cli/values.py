"""Values of options, read and checked. An error never quotes what may be a secret."""

import math
import os
import re
import sys
from collections.abc import Iterable

import click

from .._core import parse_duration

_HEADER = re.compile(r"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n\0]*)")


def read_duration(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Return seconds; infinity for 0 and "off", as no limit can be reached later; None if the option is not given."""
    if value is None:
        return None
    if value.strip().lower() == "off":
        return math.inf
    try:
        return parse_duration(value) or math.inf
    except ValueError as exc:
        raise click.BadParameter(f"{exc}, or off.") from None


def read_pause(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
    """Return seconds, where 0 means 0; None if the option is not given."""
    try:
        return None if value is None else parse_duration(value)
    except ValueError as exc:
        raise click.BadParameter(f"{exc}.") from None


def read_headers(_ctx: click.Context, _param: click.Parameter, values: Iterable[str]) -> dict[str, str | None]:
    """Return headers by name. A name without a value is None: that header is not sent. Repeated ones are joined."""
    headers: dict[str, str | None] = {}
    for text in values:
        match = _HEADER.fullmatch(text)
        if match is None:
            raise click.BadParameter("expected 'Name: value' on one line; quote it for the shell.")
        name, value = match[1].title(), match[2].strip()
        before = headers.get(name)
        headers[name] = ", ".join(filter(None, (before, value))) or None
    return headers


def read_body(_ctx: click.Context, _param: click.Parameter, value: str | None) -> bytes | None:
    """Return the bytes of a body: the text itself, those of `@FILE`, or of stdin for `-`."""
    if value is None:
        return None
    if value in ("-", "@-"):
        return sys.stdin.buffer.read()
    if not value.startswith("@"):
        return os.fsencode(value)
    try:
        with open(value[1:], "rb") as file:
            return file.read()
    except OSError as exc:
        raise click.BadParameter(f"cannot read the file: {exc.strerror}.") from None


def read_token(_ctx: click.Context, _param: click.Parameter, variable: str | None) -> str | None:
    """Return the value of an environment variable. Errors do not name the variable: it may be the key, given by mistake."""
    if variable is None:
        return None
    token = os.environ.get(variable, "").strip()
    if not token:
        raise click.BadParameter("the environment variable of this name is not set, or is empty.")
    if not token.isprintable():
        raise click.BadParameter("the environment variable of this name contains a line break, so it is not a key.")
    return token
