"""What kind of stream an object of another library is, by its class's name and its attributes: nothing is imported."""

import io
from typing import Any

_OPEN_NOTHING = ("_thread", "multiprocessing", "socket", "subprocess", "threading")
"""Packages whose context managers are entered for something other than what they return."""


def is_iterable(source: Any) -> bool:
    """Return whether there is something to iterate over."""
    return hasattr(source, "__iter__") or hasattr(source, "__next__")


def is_manager(source: Any) -> bool:
    """Return whether *source* is only a context manager, and may give a stream when it is entered, unlike a lock."""
    opens = hasattr(source, "__enter__") and not is_iterable(source) and not isinstance(source, type)
    return opens and not is_of(source, _OPEN_NOTHING)


def is_cuttable_httpx(source: Any) -> bool:
    """Return whether *source* is an httpx or httpx2 response on a connection of its own."""
    return is_httpx(source) and not is_http2(source) and not is_async_response(source)


def is_httpx(source: Any) -> bool:
    """Return whether *source* is a response of httpx or httpx2."""
    return is_of(source, ("httpx", "httpx2"), "Response")


def is_http2(response: Any) -> bool:
    """Return whether an httpx response shares its connection with other calls."""
    return bool(response.extensions.get("http_version") == b"HTTP/2")


def is_async_response(source: Any) -> bool:
    """Return whether *source* is, or reads from, an httpx response that only an event loop can read."""
    response = httpx_response(source)
    body = getattr(response, "stream", None)
    return hasattr(body, "__aiter__") and not hasattr(body, "__iter__")


def httpx_response(source: Any) -> Any:
    """Return the httpx response that *source* is, or reads from, or None."""
    inner = (source, *(below(source, *path) for path in (("response",), ("_response",), ("_raw_stream", "response"))))
    return next((candidate for candidate in inner if is_httpx(candidate)), None)


def is_sdk_stream(source: Any) -> bool:
    """Return whether *source* is an SDK's stream over a response that can be cut."""
    return hasattr(source, "__iter__") and not is_httpx(source) and is_cuttable_httpx(httpx_response(source))


def is_descriptor(source: Any) -> bool:
    """Return whether *source* is a descriptor, or a binary file directly on one."""
    if isinstance(source, io.BufferedReader):
        return isinstance(source.raw, io.FileIO)
    return isinstance(source, io.FileIO) or (isinstance(source, int) and not isinstance(source, bool))


def is_of(source: Any, packages: tuple[str, ...], name: str | None = None) -> bool:
    """Return whether a class of *source* comes from one of the packages, and has that name, if one is given."""
    return any(
        base.__module__.partition(".")[0] in packages and name in (None, base.__name__) for base in type(source).__mro__
    )


def below(thing: Any, *path: str) -> Any:
    """Return the value at *path*, through attributes and dict keys, or None, also for a property that raises."""
    for name in path:
        try:
            thing = thing.get(name) if isinstance(thing, dict) else getattr(thing, name, None)
        except Exception:
            return None
    return thing


def url_of(source: Any) -> str:
    """Return the URL that *source* came from, or `""`."""
    return str(below(httpx_response(source) or source, "url") or "")
