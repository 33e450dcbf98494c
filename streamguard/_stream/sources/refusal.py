"""Why `guard()` refuses a source, and what to pass instead."""

import io
import types
from collections.abc import Collection
from typing import Any

from .detect import httpx_response, is_async_response, is_iterable, is_of


def refusal_of(source: Any) -> str:
    """Return the message for a source whose blocked read cannot be interrupted."""
    name = f"{type(source).__module__}.{type(source).__qualname__}"
    if hasattr(source, "__aiter__") or hasattr(source, "__await__") or is_async_response(source):
        return f"{name} is asynchronous, and guard() takes synchronous streams: use asyncio.timeout()"
    if isinstance(source, io.TextIOBase):
        return f"{name} is a text file: pass its binary file, `.buffer`"
    if is_of(source, ("subprocess",), "Popen"):
        return f"{name} is a process: pass its pipe, `.stdout`, or use run_command()"
    if httpx_response(source) is not None:
        return f"{name} uses HTTP/2, where a cut would end all calls on the connection: pass http2=False to the client"
    if isinstance(source, Collection):
        what = f"{name} holds its items already, so there is no read to interrupt: iterate over it"
        return f"{what}, or pass interrupt= or abandon=True"
    if isinstance(source, types.GeneratorType):
        what = f"cannot interrupt a blocked read on the generator {source.__qualname__}(): pass what it reads from"
        return f"{what} (guard(response), not guard(response.iter_lines())), or pass interrupt= or abandon=True"
    if not is_iterable(source):
        what = "guard() takes an open stream, a function that opens one, or an iterator with interrupt= or abandon=True"
        return f"{what}, not {name}"
    return (
        f"cannot interrupt a blocked read on {name}: pass interrupt= (a function that makes the read return), "
        "or abandon=True (its thread is abandoned when a limit fires)"
    )
